"""Ranks, the band around them and the p-values, against their definitions."""

import numpy as np
import pytest
from conjugate import world
from scipy import stats

from scorefold.diagnostics import ranks as module
from scorefold.diagnostics.ranks import pooled_ranks, uniformity
from scorefold.errors import ScorefoldError


def test_ranks_count_what_is_below():
    w = world(0, datasets=25, draws=30)
    ranks = pooled_ranks(w.truth, w.draws)
    assert ranks.shape == (25, 31, 2)
    assert (ranks[:, 0] == (w.draws < w.truth[:, None]).sum(axis=1)).all()
    assert (np.sort(ranks, axis=1) == np.arange(31)[:, None]).all()


@pytest.mark.false_failure(1e-8)
def test_equal_values_are_ranked_at_random():
    # 600 ranks of a truth equal to all draws: uniform on 0 … 20. The mean, 10, has a standard error of 0.25: six of them. Some
    # rank is missing once in 10¹¹ runs.
    ranks = pooled_ranks(np.zeros((600, 1)), np.zeros((600, 20, 1)))[:, 0, 0]
    assert abs(ranks.mean() - 10) < 1.5
    assert set(ranks) == set(range(21))


def test_gamma_and_the_band_are_as_defined():
    w = world(1, datasets=40, draws=30)
    pooled = pooled_ranks(w.truth, w.draws)
    found = uniformity(pooled, replicates=50)
    for k in range(2):
        ranks, gamma = pooled[:, 0, k], 1.0
        for c in range(1, 31):
            count, binomial = (ranks < c).sum(), stats.binom(40, c / 31)
            gamma = min(gamma, 2 * binomial.cdf(count), 2 * binomial.sf(count - 1))
            assert found.seen[k, c - 1] == count / 40
        assert found.gamma[k] == pytest.approx(gamma)
    inside = ((found.low <= found.seen) & (found.seen <= found.high)).all(axis=1)
    assert (inside == (found.p_values > 0.05)).all()


@pytest.mark.false_failure(1e-6)
def test_an_independent_count_gives_the_same_p_value():
    # The null distribution of one quantity does not depend on the draws: uniform ranks will do. With 4,000 and 2,000
    # replicates the standard error of the difference is at most 0.014: five of them.
    w = world(2, datasets=50, draws=24, dim=1)
    pooled = pooled_ranks(w.truth, w.draws)
    found = uniformity(pooled, replicates=2_000)
    cuts, rng = np.arange(1, 25), np.random.default_rng(0)
    counts = (rng.integers(0, 25, (4_000, 50))[:, :, None] < cuts).sum(axis=1)
    binomial = stats.binom(50, cuts / 25)
    gamma = 2 * np.minimum(binomial.cdf(counts), binomial.sf(counts - 1)).min(axis=1)
    assert found.p_value == pytest.approx(np.mean(gamma <= found.gamma[0] + 1e-12), abs=0.07)


def test_identical_quantities_cost_nothing():
    # Ten copies of one parameter are one: adjusted by their number alone, p would be ten times as large.
    w = world(3, datasets=60, draws=40, dim=1, fault="shifted")
    one = uniformity(pooled_ranks(w.truth, w.draws), replicates=500)
    ranks = np.repeat(pooled_ranks(w.truth, w.draws), 10, axis=2)
    assert uniformity(ranks, replicates=500).p_values == pytest.approx(np.full(10, one.p_value), abs=1e-12)


def test_many_draws_are_looked_at_in_few_places():
    w = world(4, datasets=20, draws=400)
    found = uniformity(pooled_ranks(w.truth, w.draws), replicates=20)
    assert len(found.at) == module.MOST_CUTS
    assert (np.diff(found.at) > 0).all()


@pytest.mark.parametrize(
    ("truth", "draws", "says"),
    [
        (np.zeros((30, 2)), np.zeros((30, 40, 3)), "got \\(30, 2\\) and"),
        (np.zeros((10, 2)), np.zeros((10, 40, 2)), "at least 20 data sets"),
        (np.zeros((30, 2)), np.full((30, 40, 2), np.nan), "30 of 30 data sets hold NaN"),
    ],
)
def test_says_what_was_expected(unchecked, truth, draws, says):
    with pytest.raises(ScorefoldError, match=says):
        pooled_ranks(truth, draws)
