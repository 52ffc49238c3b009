"""Draws for many data sets, by default one after the other."""

import numpy as np
import pytest
from exact_posteriors import Looped

from scorefold.errors import ScorefoldError, UntrustworthyDraws


def test_by_default_one_after_the_other():
    x = np.random.default_rng(0).standard_normal((4, 3, 2))
    many = Looped().sample_many(x, draws=7, seed=5)
    assert many.theta.shape == (4, 7, 2)
    assert many.converged.all()
    for one, drawn in zip(many.theta, Looped().sample(list(x), draws=7, seed=5), strict=True):
        assert (one == drawn.theta).all()


def test_those_that_fail_are_named_and_the_others_are_there():
    x = np.random.default_rng(1).standard_normal((4, 3, 2))
    x[1, 0, 0], x[3, 0, 0] = 1e3, -1e3
    with pytest.warns(UntrustworthyDraws, match="not settled for 2 of 4 data sets, and diverged for 2 of these"):
        many = Looped().sample_many(x, draws=7)
    assert many.diverged.tolist() == [False, True, False, True]
    assert np.isnan(many.theta[1]).all()
    assert np.isfinite(many.theta[[0, 2, 3]]).all()


def test_a_seed_for_each_data_set():
    x = np.random.default_rng(1).standard_normal((2, 3, 2))
    many = Looped().sample_many(x, draws=7, seed=[5, 2**40])
    assert (many.theta[1] == Looped().sample(x[1], draws=7, seed=2**40).theta).all()
    assert (many.theta[1] != Looped().sample(x[1], draws=7, seed=5).theta).any()
    with pytest.raises(ScorefoldError, match="one for each of the 2 data sets; got 3"):
        Looped().sample_many(x, seed=[1, 2, 3])
    with pytest.raises(ScorefoldError, match="seed"):
        Looped().sample_many(x, seed=[1, -2])
