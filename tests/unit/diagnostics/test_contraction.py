"""Contraction and z-scores, against their formulas."""

import numpy as np
import pytest
from conjugate import world

from scorefold.diagnostics.contraction import contraction
from scorefold.errors import ScorefoldError


@pytest.mark.false_failure(2e-6)
@pytest.mark.parametrize("n", [1, 8, 30])
def test_of_a_conjugate_posterior(n):
    # Contraction n / (n + 1) and z ~ N(0, 1): the median over 300 is known to better than 0.02, the sd of z to 0.04.
    w = world(1, n=n)
    found = contraction(w.truth, w.draws, np.ones(2))
    assert found.typical == pytest.approx(np.full(2, n / (n + 1)), abs=0.05)
    assert found.z.std(axis=0) == pytest.approx(np.ones(2), abs=0.2)


@pytest.mark.false_failure(1e-9)
def test_the_prior_learns_nothing():
    w = world(2, fault="prior")
    assert np.abs(contraction(w.truth, w.draws, np.ones(2)).typical).max() < 0.1


def test_formulas():
    w = world(3, datasets=20, draws=25)
    found = contraction(w.truth, w.draws, np.array([1.0, 4.0]))
    one = w.draws[3, :, 1]
    assert found.contraction[3, 1] == pytest.approx(1 - one.var(ddof=1) / 4)
    assert found.z[3, 1] == pytest.approx((one.mean() - w.truth[3, 1]) / one.std(ddof=1))


def test_prior_variance_is_checked():
    w = world(4, datasets=20, draws=20)
    with pytest.raises(ScorefoldError, match="prior variance > 0"):
        contraction(w.truth, w.draws, np.array([1.0, 0.0]))
