"""Predictive checks: a test with the right rate for the prior, and one that notices what the model cannot produce."""

import numpy as np
import pytest

from scorefold.diagnostics.predictive import STATISTICS, predictive
from scorefold.errors import ScorefoldError


@pytest.mark.false_failure(0)
def test_p_values_are_as_defined():
    rng = np.random.default_rng(0)
    x, replicated = rng.standard_normal((5, 2)), rng.standard_normal((30, 5, 2))
    found = predictive(x, replicated)
    assert found.names == tuple(STATISTICS)
    assert found.observed[0] == pytest.approx(x.mean(axis=0))
    above = 1 + sum(one[:, 1].std() >= x[:, 1].std() for one in replicated)
    below = 1 + sum(one[:, 1].std() <= x[:, 1].std() for one in replicated)
    assert found.p_values[1, 1] == pytest.approx(min(1, 2 * min(above, below) / 31))


@pytest.mark.full
@pytest.mark.false_failure(1e-6)
def test_false_alarms():
    # Each of 200 means has p < 5 % with probability 4/100 (99 replicates): above 26 once in 20 million.
    # For all statistics and numbers together it is at most 5 %: above 32 once in 10⁸.
    alarms = joint_alarms = 0
    for k in range(200):
        x = np.random.default_rng([1, k]).standard_normal((100, 4, 3))
        found = predictive(x[0], x[1:])
        alarms += found.p_values[0, 0] < 0.05
        joint_alarms += found.p_value < 0.05
    assert alarms <= 26
    assert joint_alarms <= 32


@pytest.mark.false_failure(1e-6)
def test_a_wrong_spread_is_noticed():
    rng = np.random.default_rng(2)
    # One of ten numbers: the smallest of fifty p-values says little, the largest deviation does.
    x = rng.standard_normal((20, 10)) * np.where(np.arange(10) == 4, 3, 1)
    found = predictive(x, rng.standard_normal((200, 20, 10)))
    assert found.p_values[found.names.index("sd"), 4] < 0.02
    assert found.p_value < 0.01


def test_one_observation_has_only_its_value():
    assert predictive(np.zeros((1, 3)), np.random.default_rng(3).standard_normal((50, 1, 3))).names == ("value",)


def test_statistics_of_ones_own():
    rng = np.random.default_rng(4)
    found = predictive(rng.random((6, 2)), rng.random((25, 6, 2)), {"range": lambda x: np.ptp(x, axis=1)})
    assert found.names == ("range",)
    assert found.replicated.shape == (25, 1, 2)


def test_shapes_are_checked(unchecked):
    with pytest.raises(ScorefoldError, match="at least 20 replicates of shape \\(5, 2\\)"):
        predictive(np.zeros((5, 2)), np.zeros((30, 4, 2)))


@pytest.mark.false_failure(0)  # only which numbers are missing is asked
def test_missing_numbers_are_missing_in_the_replicates_too():
    rng = np.random.default_rng(0)
    x_obs, replicated = rng.normal(size=(30, 3)), rng.normal(size=(100, 30, 3))
    x_obs[:, 2] = np.nan
    x_obs[::2, 0] = np.nan
    found = predictive(x_obs, replicated)
    np.testing.assert_allclose(found.replicated[:, 0, 0], replicated[:, 1::2, 0].mean(axis=1))
    np.testing.assert_allclose(found.observed[0, 0], x_obs[1::2, 0].mean())
    assert (found.p_values[:, 2] == 1).all(), "nothing is known of a number that is always missing"
    assert np.isfinite(found.p_value)
    assert found.kinds[:2] == ("continuous", "continuous")
