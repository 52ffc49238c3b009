"""SBC: how often it is wrong about a right posterior, and what it sees of wrong ones.

Draws are exact and independent, from NumPy; what is counted are whole tests of two parameters and one data-dependent quantity.
"""

import numpy as np
import pytest
from chance import one_of
from conjugate import world
from full import shortly
from scipy import stats

from scorefold.diagnostics.dataset_summaries import predict, summaries
from scorefold.diagnostics.sbc import sbc
from scorefold.errors import ScorefoldError


def fitted(w):
    prediction = predict(w.truth, summaries(w.x))
    return {"fit": (prediction.log_density(w.truth[:, None])[:, 0], prediction.log_density(w.draws))}


QUANTITIES = {"log-likelihood": lambda w: w.log_likelihood, "fitted": fitted}


def alarms(count, quantity, seed, **of):
    """In how many of `count` worlds the test says that something is wrong."""
    found = 0
    for k in range(count):
        w = world([seed, k], **of)
        found += sbc(w.truth, w.draws, w.names, QUANTITIES[quantity](w), seed=k, replicates=199).p_value < 0.05
    return found


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("quantity", shortly(QUANTITIES, "fitted"))
def test_false_alarms_are_as_rare_as_promised(quantity):
    # Binomial(150, 0.05) is above 24 once in 8 million.
    assert alarms(150, quantity, 1, datasets=60, draws=40) <= 24


@pytest.mark.false_failure(2e-6)
@pytest.mark.full
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_false_alarms_over_two_thousand_replicates(quantity, figure):
    # Of a rate of 5 %, outside of 2.5 … 7.7 %, which is 5 sd, once in a million.
    rate = alarms(2_000, quantity, 2, datasets=100, draws=60) / 2_000
    figure(f"false alarms in {rate:.1%} of 2,000 replicates")
    assert 0.025 <= rate <= 0.077


@pytest.mark.false_failure(2e-6)
@pytest.mark.full
def test_false_alarms_of_parameters_that_depend_on_each_other():
    # Eight copies of a parameter, slightly noisy: counted one by one they would be adjusted to under 1 %.
    found = 0
    for k in range(1_000):
        rng, w = np.random.default_rng([3, k]), world([4, k], datasets=60, draws=40, dim=1)
        truth, draws = (
            np.concatenate([v + 0.1 * rng.standard_normal(v.shape) for _ in range(8)], axis=-1) for v in (w.truth, w.draws)
        )
        found += sbc(truth, draws, tuple("abcdefgh"), seed=k, replicates=199).p_value < 0.05
    # Of a rate of 5 %, outside of 1.6 … 8.8 %, which is 5 sd, once in a million.
    assert 0.016 <= found / 1_000 <= 0.088


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("count", shortly([12, 200], 12))
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_thirty_percent_too_narrow_is_caught(count, quantity, figure):
    caught = alarms(count, quantity, 5, datasets=1_000, fault="narrow")
    figure(f"{caught} of {count} caught")
    assert caught >= 0.99 * count


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("count", shortly([12, 200], 12))
def test_thirty_percent_too_narrow_is_caught_without_a_data_dependent_quantity(count):
    found = 0
    for k in range(count):
        w = world([6, k], datasets=1_000, dim=1, fault="narrow")
        found += sbc(w.truth, w.draws, w.names, seed=k, replicates=199).p_value < 0.05
    assert found >= 0.99 * count


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("count", shortly([20, 200], 20))
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_the_prior_is_always_flagged(count, quantity, figure):
    flagged = alarms(count, quantity, 7, datasets=100, fault="prior")
    figure(f"{flagged} of {count} flagged")
    assert flagged == count


@pytest.mark.false_failure(1e-7)
def test_the_prior_would_pass_without_it():
    w = one_of(lambda k: world([8, k], fault="prior"), lambda w: sbc(w.truth, w.draws, w.names).p_value > 0.05)
    found = sbc(w.truth, w.draws, w.names, w.log_likelihood)
    assert (found.p_values[:2] > 0.05).all()
    assert found.p_values[2] < 0.01


@pytest.mark.false_failure(3e-6)
@pytest.mark.parametrize(("fault", "low_by", "ratio"), [("", 0, 1), ("narrow", 0, 0.7), ("wide", 0, 1.4), ("shifted", -0.5, 1)])
def test_how_far_off(fault, low_by, ratio):
    # Standard errors of 0.05 at most for either; five of them over eight numbers.
    w = world(9, datasets=1_000, draws=300, fault=fault)
    found = sbc(w.truth, w.draws, w.names)
    assert found.low_by == pytest.approx(np.full(2, low_by), abs=0.16)
    assert np.log(found.sd_ratio / ratio) == pytest.approx(np.zeros(2), abs=0.12)


def test_agrees_with_an_implementation_from_the_definition():
    w = world(10, datasets=50, draws=30, fault="wide")
    found = sbc(w.truth, w.draws, w.names, w.log_likelihood)
    for s in range(50):
        for k in range(2):
            assert found.ranks[s, k] == sum(draw < w.truth[s, k] for draw in w.draws[s, :, k])
        own, others = (
            stats.norm.logpdf(w.x[s][None], theta[:, None]).sum(axis=(1, 2)) for theta in (w.truth[s][None], w.draws[s])
        )
        assert found.ranks[s, 2] == sum(others < own)


def test_names_are_counted(unchecked):
    w = world(11, datasets=20, draws=20)
    with pytest.raises(ScorefoldError, match="1 names"):
        sbc(w.truth, w.draws, ("a",))
