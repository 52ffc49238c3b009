"""Two modes are found where there are two, and not where there is one, whatever its shape. Seeds are fixed."""

import numpy as np
import pytest

from scorefold.methods.refine.modes import deepest_valley


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
