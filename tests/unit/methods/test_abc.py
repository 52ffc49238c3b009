"""Rejection ABC: close to a known posterior, within the bounds, and clear about what it cannot do."""

from dataclasses import replace

import failing
import jax
import numpy as np
import pytest
from baseline import misses, observed, simulations
from scipy import stats

import scorefold as sf
from scorefold.errors import ScorefoldError, UntrustworthyDraws
from scorefold.methods.abc import ABC, adjusted, epanechnikov, moments


@pytest.fixture(scope="module")
def sims():
    return simulations(120_000, set_size=8)


# At n = 8 only 150 of 3,450 sets are kept, worth 105 draws: the mean has a standard error of 0.1 sd, the sd one of 0.07.
# Limits are seven of them.
@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("n", [1, 2, 8])
@pytest.mark.parametrize("summary", ["moments", "regression"])
def test_close_to_the_posterior(sims, n, summary):
    x = observed(n)
    draws = sf.fit(sims, ABC(summary=summary, accept=0.03)).sample(x, 2_000, seed=0)
    shift, stretch = misses(draws.theta, x)
    assert shift < 0.7
    assert stretch < 0.5
    assert draws.info.converged
    assert draws.info.accepted <= draws.info.simulations
    assert draws.info.nearest <= draws.info.distance


@pytest.mark.false_failure(1e-6)
def test_a_smaller_tolerance_is_narrower_without_adjustment(sims):
    x = observed(1)
    wide, narrow = (sf.fit(sims, ABC(accept=a, adjust=False)).sample(x, 2_000).theta.std(0) for a in (0.5, 0.01))
    assert (narrow < wide).all()


def test_the_seed_decides(sims):
    posterior = sf.fit(sims, "abc")
    one, again, other = (posterior.sample(observed(2), 50, seed=s).theta for s in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()


@pytest.mark.false_failure(1e-6)
def test_draws_stay_within_bounds():
    prior = sf.Prior({"p": stats.beta(1, 1)})
    sims = sf.simulate(prior, lambda theta, rng: rng.binomial(20, theta).astype(float), 2_000)
    theta = sf.fit(sims, "abc").sample(np.array([[20.0]]), 500).theta
    assert ((theta > 0) & (theta < 1)).all()
    assert theta.mean() > 0.9


@pytest.mark.false_failure(1e-6)
def test_a_prior_from_draws_will_do():
    prior = sf.Prior.from_draws(np.random.default_rng(0).standard_normal((500, 2)))
    sims = sf.simulate(prior, lambda theta, rng: theta + 0.1 * rng.standard_normal(2), 500)
    theta = sf.fit(sims, "abc").sample(np.array([[0.5, 0.5]]), 100).theta
    np.testing.assert_allclose(theta.mean(0), 0.5, atol=0.2)


def test_more_observations_than_simulated_together_are_refused(sims):
    with pytest.raises(ScorefoldError, match=r"simulated sets of 9 observations or more; got 0\..*smc_abc"):
        sf.fit(sims, "abc").sample(observed(9), 10)


@pytest.mark.filterwarnings("ignore::scorefold.errors.UnlikeSimulations")
def test_observations_unlike_any_simulation_are_reported(sims):
    with pytest.warns(sf.errors.UntrustworthyDraws, match="no simulation is like"):
        draws = sf.fit(sims, "abc").sample(np.full((1, 2), 1e6), 10)
    assert not draws.info.converged


@pytest.mark.parametrize("wrong", [{"accept": 0.0}, {"accept": 2.0}, {"summary": "median"}])
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(ScorefoldError, match="0 < accept ≤ 1"):
        replace(ABC(), **wrong)


@pytest.mark.false_failure(0)
def test_summaries_adjustment_and_weights():
    x = np.random.default_rng(0).standard_normal((5, 4, 3))
    assert moments(x).shape == (5, 6)
    np.testing.assert_allclose(moments(x)[:, :3], x.mean(1))
    np.testing.assert_allclose(moments(x[:, ::-1]), moments(x))
    s = np.random.default_rng(1).standard_normal((50, 2))
    u = s @ np.array([[1.0], [2.0]]) + 0.5
    np.testing.assert_allclose(adjusted(u, s, np.array([1.0, -1.0]), np.full(50, 0.02)), -0.5, atol=1e-3)
    weights = epanechnikov(np.array([0.0, 0.5, 1.0]))
    np.testing.assert_allclose(weights, np.array([1, 0.75, 0]) / 1.75)
    np.testing.assert_allclose(epanechnikov(np.ones(4)), 0.25)


@pytest.mark.false_failure(1e-6)
def test_sets_in_which_calls_failed_are_compared_as_far_as_they_did_not():
    """What sets of n are compared with comes from parameters with n successes."""
    (posterior,) = ABC().train([failing.simulations(40_000, set_size=4)], [0], progress=False)
    for n in range(1, 5):
        u, (mean, variance) = posterior.u[posterior.sizes >= n, 0], failing.given_success(n)
        assert abs(u.mean() - mean) < 5.5 * np.sqrt(variance / len(u))  # beyond it 4 times in 10⁸


# 5 % of 20,000 are worth some 700 draws, less under the other prior: 8 standard errors of the mean are 0.35 posterior sd.
@pytest.mark.false_failure(1e-9)
def test_under_another_prior():
    prior = sf.Prior({"a": stats.norm(0, 1)})
    sims = sf.simulate(prior, sf.Batched(lambda theta, keys: theta + normal_noise(keys)), 20_000)
    posterior = sf.fit(sims, ABC(accept=0.05))
    theta = posterior.sample([[0.4]], 4_000, prior=sf.Prior({"a": stats.norm(1, 0.5)})).theta
    precision = 1 / 0.5**2 + 1
    assert abs(theta.mean() - (4 * 1 + 0.4) / precision) < 0.35 / np.sqrt(precision)
    assert abs(theta.std() * np.sqrt(precision) - 1) < 0.3
    assert posterior.sample([[0.4]], 500, prior=sf.Prior({"a": stats.uniform(0, 1)})).theta.min() >= 0
    narrow = sf.Prior({"a": stats.norm(1, 0.001)})
    with pytest.warns(UntrustworthyDraws, match=r"under the other prior the 1,000 simulations that were kept are worth \d+\."):
        posterior.sample([[0.4]], 100, prior=narrow)


def normal_noise(keys):
    return jax.vmap(lambda key: jax.random.normal(key, (1,)))(keys)
