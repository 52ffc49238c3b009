"""Two modes are found where there are two, and not where there is one, whatever its shape. Seeds are fixed."""

import numpy as np
import pytest

from scorefold.posterior.modes import count_of, deepest_valley, divided, shares_of, vanished, which_of


def shapes(dim, rng):
    normal = rng.standard_normal((1_000, dim))
    skewed = rng.gamma(1.0, size=(1_000, dim))
    stretched = normal * np.logspace(0, -4, dim)
    bent = normal.copy()
    bent[:, -1] += bent[:, 0] ** 2
    return {"normal": normal, "skewed": skewed, "stretched": stretched, "uniform": rng.uniform(size=(1_000, dim)), "bent": bent}


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("dim", [1, 2, 10])
@pytest.mark.parametrize("name", ["normal", "skewed", "stretched", "uniform", "bent"])
def test_one_mode(dim, name):
    assert not any(deepest_valley(shapes(dim, np.random.default_rng(seed))[name]).separate for seed in range(3))


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("dim", [1, 2, 10])
@pytest.mark.parametrize("share", [0.5, 0.1])
@pytest.mark.parametrize("apart", [6.0, 50.0])
def test_two_modes(dim, share, apart):
    rng = np.random.default_rng(1)
    direction = rng.standard_normal(dim)
    other = rng.uniform(size=1_000) < share
    u = rng.standard_normal((1_000, dim)) + apart * other[:, None] * direction / np.linalg.norm(direction)
    split = deepest_valley(u)
    assert split.separate
    assert min(abs(split.below - other.mean()), abs(1 - split.below - other.mean())) < 0.02
    assert split.keeps(u)
    assert not split.keeps(u[other])
    assert not split.keeps(u[~other])


def four_modes(shares, seed=0):
    """Draws of modes at the corners of a square, of these shares, and which each is from."""
    rng = np.random.default_rng(seed)
    corner = rng.choice(4, 1_000, p=shares)
    at = 3.0 * np.stack([corner % 2, corner // 2, np.zeros(1_000)], axis=1)
    return at + 0.3 * rng.standard_normal((1_000, 3)), corner


@pytest.mark.false_failure(1e-6)
def test_modes_are_divided_again():
    u, corner = four_modes([0.25] * 4)
    modes = divided(u)
    assert count_of(modes) == 4
    labels = which_of(modes, u)
    assert all(len(set(labels[corner == i])) == 1 for i in range(4))
    assert sorted(shares_of(modes, u)) == sorted(np.bincount(corner) / 1_000)
    assert count_of(divided(np.random.default_rng(0).standard_normal((1_000, 3)))) == 1


@pytest.mark.false_failure(1e-6)
def test_a_mode_that_vanished_is_counted():
    before = four_modes([0.25] * 4)[0]
    assert vanished(before, four_modes([0.4, 0.3, 0.2, 0.1], seed=1)[0]) == 0
    assert vanished(before, four_modes([0.5, 0.49, 0.01, 0.0], seed=1)[0]) == 2
    assert vanished(before[:, 2:], before[:, 2:] + 50) == 0  # there was one
