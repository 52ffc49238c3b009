"""Failing that depends on θ: scores give p(θ) ∏ p(x_j, ok | θ), corrected or not."""

import warnings
from dataclasses import replace

import failing
import numpy as np
import pytest

import scorefold as sf
from scorefold.errors import ScorefoldWarning

pytestmark = pytest.mark.full


def fitted(sims, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScorefoldWarning)
        return sf.fit(sims, method)


@pytest.mark.false_failure(1e-6)
def test_corrected_or_not_it_is_the_posterior_of_observations_that_did_not_fail():
    """Without the factors 1 - f(θ) the mean of θ₁ would lie 3 posterior sd lower."""
    sims, x = failing.simulations(12_000), failing.observed(30)
    corrected = failing.shifts(fitted(sims, failing.METHOD), x)
    plain = failing.shifts(fitted(sims, replace(failing.METHOD, correction=False)), x)
    # 6,700 cases know a score's mean to about 0.02, and 30 of these are 0.1 posterior sd.
    assert np.abs(corrected).max() < 0.6
    assert np.abs(plain).max() < 0.8
    assert np.abs(corrected - plain).max() < 0.6


@pytest.mark.false_failure(1e-6)
def test_sets_with_failed_calls():
    """Without the factors the mean of θ₁ would lie 1.4 posterior sd lower."""
    posterior = fitted(failing.simulations(20_000, set_size=4), failing.METHOD)
    assert np.abs(failing.shifts(posterior, failing.observed(8))).max() < 0.6
