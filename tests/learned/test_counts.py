"""Likelihoods of counts and choices against exact posteriors of 100 observations."""

import numpy as np
import pytest
import scipy.stats

import scorefold as sf

N, TRIES = 100, 20
METHOD = sf.NLE(width=32, training=sf.Training(members=2, learning_rates=(1e-3,), steps=1_000))
CHANCE = sf.Prior({"p": scipy.stats.uniform(0, 1)})
DECIDING = sf.Prior({"bias": scipy.stats.norm(0, 1), "speed": scipy.stats.norm(0, 1)})
SLOWER, NOISE = 0.6, 0.3


def heads(theta, rng):
    return float(rng.binomial(TRIES, theta[0]))


def decision(theta, rng):
    """A time and a choice: a choice of 1 is slower."""
    choice = float(rng.normal() < theta[0])
    return np.array([np.exp(theta[1] + SLOWER * choice + NOISE * rng.normal()), choice])


def misses(draws, mean, sd):
    """The largest shift in sd, and the largest |log ratio| of the sds."""
    return np.abs((draws.theta.mean(axis=0) - mean) / sd).max(), np.abs(np.log(draws.theta.std(axis=0) / sd)).max()


@pytest.mark.full
@pytest.mark.false_failure(1e-6)
def test_a_binomial_count_has_its_probabilities_and_the_beta_posterior(quick_to_run, tmp_path):
    """Taken for continuous, the count gives means up to 4 sd off."""
    posterior = sf.fit(sf.simulate(CHANCE, heads, 3_000, seed=0), METHOD, seed=0)
    assert posterior.whole == 1
    p, values = (np.arange(50) + 0.5) / 50, np.arange(TRIES + 1.0)
    found = posterior.log_likelihoods(values[:, None], CHANCE.to_normal(p[:, None]))
    exact = scipy.stats.binom.logpmf(values, TRIES, p[:, None])
    assert np.exp(found).sum(axis=1).max() < 1.001, "members that disagree leave less than 1"
    assert np.sum(np.exp(exact) * (exact - found), axis=1).mean() < 0.05, "nats; 0.01 in other trainings"
    for true in (0.3, 0.9):
        x = np.random.default_rng(1).binomial(TRIES, true, size=N).astype(float)
        beta = scipy.stats.beta(1 + x.sum(), 1 + (TRIES - x).sum())
        draws = posterior.sample(x, 500)
        shift, widths = misses(draws, beta.mean(), beta.std())
        assert shift < 2.5
        assert widths < 0.7
    back = sf.load(posterior.save(tmp_path / "model"))
    np.testing.assert_array_equal(back.sample(x, 500).theta, draws.theta)


@pytest.mark.full
@pytest.mark.false_failure(1e-6)
def test_a_time_and_a_choice_have_their_posterior(quick_to_run):
    posterior = sf.fit(sf.simulate(DECIDING, decision, 3_000, seed=0, x_names=("time", "choice")), METHOD, seed=0)
    assert posterior.whole == 1
    rng = np.random.default_rng(2)
    x = np.stack([decision(np.array([0.5, -0.7]), rng) for _ in range(N)])
    grid = np.linspace(-4, 4, 8_001)
    ones = x[:, 1].sum()
    log = -(grid**2) / 2 + ones * scipy.stats.norm.logcdf(grid) + (N - ones) * scipy.stats.norm.logsf(grid)
    weight = np.exp(log - log.max())
    mean = (weight * grid).sum() / weight.sum()
    sd = np.sqrt((weight * (grid - mean) ** 2).sum() / weight.sum())
    precision = 1 + N / NOISE**2
    speed = (np.log(x[:, 0]) - SLOWER * x[:, 1]).sum() / NOISE**2 / precision
    shift, widths = misses(posterior.sample(x, 500), np.array([mean, speed]), np.array([sd, precision**-0.5]))
    assert shift < 2.5
    assert widths < 0.7
