"""Normalising constants by bridge sampling: known ones of Gaussians and of mixtures, with their errors."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from scorefold.errors import ScorefoldError
from scorefold.sample.bridge import fit_gaussians, log_constant


def peaks(u):
    """Two modes apart, and a narrow peak on a wide hill, in three dimensions; log Z = 5."""
    parts = [(0.5, [4, 0, 0], 0.5), (0.3, [-4, 0, 0], 1.0), (0.2, [-4, 0, 0], 0.1)]
    each = [np.log(w) + stats.norm(m, s).logpdf(u).sum(axis=1) for w, m, s in parts]
    return 5 + logsumexp(each, axis=0)


def draws_of_peaks(count, rng):
    which = rng.choice(3, count, p=[0.5, 0.3, 0.2])
    centre = np.array([[4, 0, 0], [-4, 0, 0], [-4, 0, 0]])[which]
    return centre + np.array([0.5, 1.0, 0.1])[which, None] * rng.standard_normal((count, 3))


# Over 40 seeds errors were 1.0 times the stated ones, rms; 8 of them are allowed.
@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("dim", [1, 10])
def test_a_gaussian(dim):
    rng = np.random.default_rng(0)
    u = 2 + 0.1 * rng.standard_normal((2_000, dim))
    found = log_constant(lambda u: -np.square((u - 2) / 0.1).sum(axis=1) / 2, u, (0,))
    exact = dim * np.log(0.1 * np.sqrt(2 * np.pi))
    assert found.error < 0.03
    assert abs(found.log - exact) < 8 * found.error


@pytest.mark.false_failure(1e-6)
def test_several_modes_and_a_peak_on_a_hill():
    u = draws_of_peaks(2_000, np.random.default_rng(1))
    found = log_constant(peaks, u, (0,))
    assert found.error < 0.1
    assert abs(found.log - 5) < 8 * found.error
    assert len(fit_gaussians(u, np.random.default_rng(0)).means) >= 3


def test_a_density_that_ends():
    rng = np.random.default_rng(0)
    u = np.abs(rng.standard_normal((2_000, 1)))
    found = log_constant(lambda u: np.where(u[:, 0] > 0, -(u[:, 0] ** 2) / 2, -np.inf), u, (0,))
    assert abs(found.log - np.log(np.sqrt(np.pi / 2))) < 0.15


def test_too_few_draws():
    with pytest.raises(ScorefoldError, match="at least 60 draws"):
        log_constant(peaks, np.zeros((50, 3)), (0,))
