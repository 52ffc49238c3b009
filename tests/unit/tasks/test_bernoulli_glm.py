"""Bernoulli GLM: the design and the prior against sums written out, and the reference by NUTS against importance sampling.

60 means fail beyond 5.5 standard errors and 10 p-values below 10⁻⁶: on fresh seeds they would fail falsely once in 80,000.
"""

import importance
import numpy as np
import pytest
from scipy import stats

from scorefold import tasks
from scorefold.errors import ScorefoldError
from scorefold.tasks import bernoulli_glm as glm


def test_the_design_is_the_stimulus_and_its_lags():
    stimulus = glm.V[:, 1]
    assert glm.V.shape == (100, 10)
    assert stimulus[0] == pytest.approx(0.49671415)  # the first normal number of the seed 42
    for t in (0, 3, 99):
        for lag in range(9):
            assert glm.V[t, 1 + lag] == (stimulus[t - lag] if t >= lag else 0)
    assert (glm.V[:, 0] == 1).all()


def test_the_prior_dislikes_second_differences():
    """-2 log p(f) = Σ_i (f_i - 2 f_{i-1} + f_{i-2} + √(i/9) f_i)² up to a constant, with f = 0 before its start."""
    prior, rng = tasks.get("bernoulli_glm").prior, np.random.default_rng(0)

    def exponent(theta):
        f = np.r_[0, 0, theta[1:]]
        return theta[0] ** 2 / 2 + sum((f[i + 2] - 2 * f[i + 1] + f[i] + np.sqrt(i / 9) * f[i + 2]) ** 2 for i in range(9))

    theta = rng.standard_normal((20, 10))
    differences = prior.log_prob(theta) + np.array([exponent(one) for one in theta]) / 2
    np.testing.assert_allclose(differences, differences[0], rtol=1e-10)


def test_no_two_spike_trains_have_the_same_summary():
    """As the likelihood has it: of 20,000 random trains all that differ have different x."""
    spikes = np.unique(np.random.default_rng(0).uniform(size=(20_000, 100)) < 0.02, axis=0)
    x = spikes @ glm.V
    assert len(np.unique(np.round(x, 9), axis=0)) == len(spikes)


SETS = ((1, 1), (1, 2), (30, 3), (1_000, 4))


@pytest.fixture(scope="module")
def some_chains():
    """Drawn for together."""
    x = [tasks.get("bernoulli_glm").observe(n, seed)[1] for n, seed in SETS]
    return x, glm.posteriors(x, 1_000, [0] * len(SETS))


@pytest.mark.parametrize("which", range(len(SETS)))
@pytest.mark.full
def test_reference_against_importance_sampling(some_chains, which):
    """20 means a set; proposals around the mode, which SciPy finds, so that they know nothing of the chains."""
    x, chains = some_chains[0][which], some_chains[1][which]
    assert chains.good(1_000)
    prior = tasks.get("bernoulli_glm").prior

    def log_density(theta):
        return theta @ x.sum(0) - len(x) * np.logaddexp(0, theta @ glm.V.T).sum(1) + prior.log_prob(theta)

    mode, covariance = importance.mode_and_covariance(log_density, np.zeros(10))
    points, log_weight = importance.log_weights(log_density, mode, covariance, 60_000, np.random.default_rng(1))
    importance.assert_same_moments(chains.draws, points, log_weight, 5_000, effective=500)


@pytest.mark.false_failure(2e-6)
@pytest.mark.full
@pytest.mark.usefixtures("quick_to_run")
def test_true_parameters_rank_like_reference_draws():
    """θ* and 9 draws are exchangeable given x: 10 p-values, over 160 sets of 3 observations."""
    task = tasks.get("bernoulli_glm")
    truth, x = zip(*(task.observe(3, seed) for seed in range(160)), strict=True)
    ranks = []
    for theta, chains in zip(truth, glm.posteriors(list(x), 1_000, list(range(160))), strict=True):
        ranks.append((chains.draws[::111][:9] < theta).sum(0))
    for column in np.array(ranks).T:
        assert stats.chisquare(np.bincount(column, minlength=10)).pvalue > 2e-7


def test_more_spikes_than_bins_are_refused():
    with pytest.raises(ScorefoldError, match="between 0 and 100 spikes"):
        tasks.get("bernoulli_glm").reference(np.r_[101.0, np.zeros(9)][None], 10, 0)
