"""The lowest noise follows from the simulations, whatever the prior's form."""

import numpy as np
import pytest
from scipy.stats import norm

from scorefold.noise import LEAST_NOISE, RESOLVED
from scorefold.score.fixed import NOISE_SHARE, least_noise
from scorefold.score.gaussian_base import fit_gaussian_base


def found(u, x):
    x = ((x - x.mean(axis=0)) / x.std(axis=0))[:, None]
    sizes = np.ones(len(u), int)
    return least_noise(fit_gaussian_base(x, sizes, u), x, sizes, u)


@pytest.mark.parametrize("sd", [0.05, 0.02, 0.01, 0.005, 0.002])
@pytest.mark.parametrize("dim", [1, 4])
def test_a_straight_line_with_noise(sd, dim):
    rng = np.random.default_rng(0)
    u = rng.normal(size=(4_000, dim))
    assert found(u, u + sd * rng.normal(size=u.shape)) == pytest.approx(NOISE_SHARE * sd, rel=0.25)


@pytest.mark.parametrize("sd", [0.01, 0.003])
def test_a_uniform_prior_whose_line_is_bent(sd):
    rng = np.random.default_rng(1)
    u = rng.normal(size=(4_000, 3))
    theta = norm.cdf(u)
    narrow = sd / norm.pdf(0)  # at the middle of the prior, in u
    assert NOISE_SHARE * narrow / 2 < found(u, theta + sd * rng.normal(size=u.shape)) < 3 * NOISE_SHARE * narrow


def test_wide_posteriors_keep_the_usual_level_and_exact_ones_the_last_that_can_be_resolved():
    rng = np.random.default_rng(2)
    u = rng.normal(size=(1_000, 2))
    assert found(u, u + rng.normal(size=u.shape)) == LEAST_NOISE
    assert found(u, u.copy()) == RESOLVED


def test_the_narrow_part_of_a_mixture_counts():
    rng = np.random.default_rng(3)
    u = rng.normal(size=(4_000, 2))
    wide = np.where(rng.random((len(u), 1)) < 0.5, 0.2, 0.01)
    assert found(u, u + wide * rng.normal(size=u.shape)) < NOISE_SHARE * 0.05


def test_the_largest_sets_are_the_narrowest():
    rng = np.random.default_rng(4)
    u = rng.normal(size=(4_000, 1))
    x = u[:, None] + 0.1 * rng.normal(size=(4_000, 16, 1))
    sizes = rng.integers(1, 17, 4_000)
    assert least_noise(fit_gaussian_base(x, sizes, u), x, sizes, u) == pytest.approx(NOISE_SHARE * 0.1 / 4, rel=0.5)
