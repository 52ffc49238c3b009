"""Expected coverage: right for a right posterior of any shape, below what is claimed for an over-confident one."""

import numpy as np
import pytest
from chance import one_of
from conjugate import world

from scorefold.diagnostics.coverage import ALL_PARAMETERS, REGION_KINDS, coverage
from scorefold.errors import ScorefoldError


@pytest.mark.false_failure(1e-7)
@pytest.mark.parametrize("kind", REGION_KINDS)
@pytest.mark.parametrize("fault", ["", "folded"])
def test_a_right_posterior_is_covered(kind, fault):
    # A p-value below 0.05 comes up once in 20; the rates are tested in test_sbc.py, on the same ranks.
    worlds = (world([1, k], fault=fault) for k in range(6))
    found = one_of(lambda k: coverage(*next(worlds)[::2], ("a", "b"), kind), lambda found: found.uniformity.p_value > 0.05)
    assert found.names == ("a", "b", ALL_PARAMETERS)
    assert found.at(0.5) == pytest.approx(np.full(3, 0.5), abs=0.17)  # six standard errors


@pytest.mark.false_failure(2e-6)
@pytest.mark.parametrize("kind", REGION_KINDS)
@pytest.mark.parametrize(("fault", "sign"), [("narrow", -1), ("wide", 1)])
def test_a_wrong_width_shows(kind, fault, sign):
    # At 50 % a normal posterior 0.7 times as wide covers 36 %, one 1.4 times as wide 65 %: five standard errors away.
    found = coverage(*world(2, fault=fault)[::2], ("a", "b"), kind)
    assert found.uniformity.p_value < 0.01
    assert (sign * (found.at(0.5) - 0.5) > 0).all()


@pytest.mark.false_failure(1e-6)
def test_a_lost_mode_shows_in_the_highest_density_regions():
    w = world(3, fault="lost mode")
    found = coverage(w.truth, w.draws, w.names, "highest density")
    assert (found.uniformity.p_values < 0.01).all()
    assert (found.at(0.9) < 0.7).all()


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("kind", REGION_KINDS)
def test_agrees_with_intervals_counted_one_by_one(kind):
    w = world(4, datasets=100, draws=200, dim=1)
    found = coverage(w.truth, w.draws, w.names, kind)
    for level in (0.3, 0.8):
        held = []
        for truth, draws in zip(w.truth[:, 0], w.draws[:, :, 0], strict=True):
            ordered = np.sort(draws)
            inside = round(level * 200)
            first = (200 - inside) // 2 if kind == "central" else np.argmin(ordered[inside:] - ordered[:-inside])
            held.append(ordered[first] <= truth <= ordered[first + inside - 1])
        # Ends of intervals are between draws; highest densities are estimated in different ways.
        assert found.at(level)[0] == pytest.approx(np.mean(held), abs=0.03 if kind == "central" else 0.1)


def test_order_of_draws_and_units_do_not_matter():
    w = world(5, datasets=30, draws=40)
    one = coverage(w.truth, w.draws, w.names, "highest density")
    other = coverage(1e3 * w.truth + 5, 1e3 * w.draws[:, ::-1] + 5, w.names, "highest density")
    assert (one.uniformity.seen == other.uniformity.seen).all()


def test_unknown_kind():
    w = world(6, datasets=20, draws=20)
    with pytest.raises(ScorefoldError, match="central, highest density"):
        coverage(w.truth, w.draws, w.names, "median")
