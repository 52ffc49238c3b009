"""Sliced Wasserstein distance against closed forms.

Where draws are compared by chance the limits lie at least 5 standard deviations out, from 40 repetitions with other seeds.
"""

import doctest

import numpy as np
import pytest
from scipy import stats

from scorefold.diagnostics import sliced_wasserstein as module
from scorefold.diagnostics.sliced_wasserstein import sliced_wasserstein
from scorefold.errors import ScorefoldError


def normal(rows, dim, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, dim))


def test_the_docstrings_example_runs():
    found = doctest.testmod(module)
    assert found.attempted >= 4
    assert found.failed == 0


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("dim", [2, 5, 10])
def test_a_shift_is_its_length_in_sd_whatever_the_directions(dim):
    reference = normal(500, dim) * np.arange(1, dim + 1)
    delta = np.linspace(-3, 4, dim)
    moved = reference + delta * reference.std(0, ddof=1)
    for seed in (0, 1):
        assert sliced_wasserstein(moved, reference, dim, seed) == pytest.approx(np.linalg.norm(delta) / np.sqrt(dim), rel=1e-9)


@pytest.mark.parametrize("factor", [0.3, 1.7])
def test_a_scaled_gaussian(factor):
    """|s - 1| for N(0, s² I) against N(0, I); the limit is 5 times the scatter, 0.006 at most."""
    draws, reference = factor * normal(20_000, 4, seed=1), normal(20_000, 4, seed=2)
    assert sliced_wasserstein(draws, reference) == pytest.approx(abs(factor - 1), abs=0.03)


@pytest.mark.false_failure(1e-6)
def test_gaussians_that_differ_in_one_parameter():
    """E(√(1 + (s²-1) ω_1²) - 1)² by integration over the angle of ω, in two dimensions; the limit is 5 times the scatter."""
    s, angle = 3.0, np.linspace(0, 2 * np.pi, 10_001)[:-1]
    expected = np.sqrt(np.mean((np.sqrt(1 + (s**2 - 1) * np.cos(angle) ** 2) - 1) ** 2))
    draws, reference = normal(10_000, 2, seed=1) * [s, 1], normal(10_000, 2, seed=2)
    assert sliced_wasserstein(draws, reference, directions=400) == pytest.approx(expected, abs=0.13)


@pytest.mark.parametrize(("a", "b"), [(7, 7), (7, 5), (12, 30), (1000, 7)])
def test_one_dimension_is_the_distance_of_the_quantile_functions(a, b):
    """By repetition: both clouds blown up to a·b draws, sorted, and subtracted."""
    x, y = normal(a, 1, seed=1) + 0.4, normal(b, 1, seed=2)
    sd = y.std(ddof=1)
    difference = np.sort(np.repeat(x, b)) - np.sort(np.repeat(y, a))
    assert sliced_wasserstein(x, y) == pytest.approx(np.sqrt(np.mean(difference**2)) / sd, rel=1e-12)


def test_one_dimension_against_scipy():
    """W₁ ≤ W₂, with equality for a shift."""
    x, y = normal(300, 1, seed=1) * 1.5, normal(200, 1, seed=2)
    assert stats.wasserstein_distance(x[:, 0], y[:, 0]) / y.std(ddof=1) <= sliced_wasserstein(x, y)
    assert stats.wasserstein_distance(y[:, 0] + 2, y[:, 0]) == pytest.approx(sliced_wasserstein(y + 2, y) * y.std(ddof=1))


def test_two_sets_of_the_same_distribution_are_close():
    """0.08 on average as the docstring says; between 0.065 and 0.125 over 40 seeds."""
    assert 0.04 < sliced_wasserstein(normal(1000, 3, seed=1), normal(1000, 3, seed=2)) < 0.2


def test_units_and_order_do_not_matter_and_the_seed_decides():
    draws, reference = normal(200, 3, seed=1) + 0.3, normal(300, 3, seed=2)
    value = sliced_wasserstein(draws, reference)
    assert value == sliced_wasserstein(draws, reference)
    assert value != sliced_wasserstein(draws, reference, seed=1)
    scale, shift = np.array([1e-6, 1, 1e6]), np.array([0, 5, 1e6])
    assert sliced_wasserstein(draws[::-1] * scale + shift, reference * scale + shift) == pytest.approx(value, rel=1e-6)


def test_what_cannot_be_compared_is_refused():
    cloud = normal(10, 2)
    with pytest.raises(ScorefoldError, match="at least 1 direction"):
        sliced_wasserstein(cloud, cloud, directions=0)
    with pytest.raises(ScorefoldError, match="same number of parameters"):
        sliced_wasserstein(cloud, cloud[:, :1])
    with pytest.raises(ScorefoldError, match="varies in every parameter"):
        sliced_wasserstein(cloud, cloud * [1, 0])
