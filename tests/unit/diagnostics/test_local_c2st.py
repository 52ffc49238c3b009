"""Local C2ST: silent where the posterior is right, and only where it is right."""

import numpy as np
import pytest
from conjugate import posterior, world

from scorefold.diagnostics.local_c2st import local_c2st
from scorefold.errors import ScorefoldError


def observed(mean, fault="", seed=0):
    """A data set around a parameter, and draws for it."""
    rng = np.random.default_rng(seed)
    x = mean + rng.standard_normal((8, 2))
    return x, posterior(x, 200, rng, fault)


@pytest.mark.false_failure(1e-6)
def test_false_alarms():
    # Of 60 tests with 39 exchanges each, the rate is at most 5 %: above 14 once in 5 million.
    alarms = 0
    for k in range(60):
        w = world([1, k], datasets=60, draws=40)
        alarms += local_c2st(w.truth, w.draws, w.x, *observed(0.3, seed=k), seed=k, replicates=39).p_value < 0.05
    assert alarms <= 14


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("fault", ["narrow", "wide", "shifted"])
def test_faults_are_noticed(fault):
    w = world(2, datasets=500, fault=fault)
    assert local_c2st(w.truth, w.draws, w.x, *observed(0.3, fault)).p_value < 0.05


@pytest.mark.false_failure(1e-6)
def test_only_where_the_posterior_is_wrong():
    # Too low where the first parameter is positive, right elsewhere.
    w = world(3, datasets=1_000)
    wrong = (w.x[..., 0].mean(axis=1) > 0)[:, None, None] * np.array([0.4, 0.0])
    draws = w.draws - wrong
    x_there, draws_there = observed(np.array([1.5, 0.0]))
    there = local_c2st(w.truth, draws, w.x, x_there, draws_there - [0.4, 0.0])
    here = local_c2st(w.truth, draws, w.x, *observed(np.array([-1.5, 0.0])))
    assert there.p_value < 0.05
    assert there.statistic > 3 * here.statistic
    # Above one half where the truth has more mass than the draws: to their right.
    assert np.corrcoef(there.probability, draws_there[:, 0])[0, 1] > 0.5


def wider(draws, factor):
    """Around their own means."""
    middle = draws.mean(axis=-2, keepdims=True)
    return middle + factor * (draws - middle)


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize(("factor", "half"), [(1.3, False), (1 / 1.3, False), (1.7, True)])
def test_power(factor, half):
    """With 300 data sets: a width that is 1.3 times off everywhere, or 1.7 times too large in half of the space."""
    noticed = 0
    for k in range(10):
        w = world([5, k], datasets=300)
        x_obs, draws_obs = observed(np.array([1.5, 0.0]), seed=k)
        wrong = (w.x[..., 0].mean(axis=1) > 0) | (not half)
        draws = np.where(wrong[:, None, None], wider(w.draws, factor), w.draws)
        noticed += local_c2st(w.truth, draws, w.x, x_obs, wider(draws_obs, factor), seed=k).p_value < 0.05
    assert noticed >= 5, "in 40 repetitions it was noticed 40 times"


def test_few_numbers_at_a_time(monkeypatch):
    w = world(6, datasets=100)
    wide = (w.truth, wider(w.draws, 2.0), w.x, *observed(0.3))
    whole = local_c2st(*wide)
    monkeypatch.setattr("scorefold.diagnostics.local_c2st.MOST_NUMBERS", 20 * 100 * 17)
    some = local_c2st(*wide)
    assert whole.statistic != some.statistic
    assert max(whole.p_value, some.p_value) < 0.05


def test_shapes_are_checked(unchecked):
    w = world(4, datasets=20, draws=20)
    with pytest.raises(ScorefoldError, match="data sets of one shape"):
        local_c2st(w.truth, w.draws, w.x, np.zeros((7, 2)), np.zeros((50, 2)))
