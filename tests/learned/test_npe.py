"""NPE: close to a known posterior for any n it was trained for, and clear about what it cannot do."""

from dataclasses import replace

import numpy as np
import pytest
from baseline import misses, observed, simulations

import scorefold as sf
from scorefold.errors import ScorefoldError
from scorefold.methods.npe import NPE
from scorefold.train.training import Training

pytestmark = pytest.mark.usefixtures("quick_to_compile")

TINY = NPE(layers=2, width=16, depth=1, training=Training(members=1, learning_rates=(1e-3,), steps=100))


@pytest.fixture(scope="module")
def sims():
    return simulations(3_000, set_size=8)


@pytest.fixture(scope="module", params=["affine", pytest.param("spline", marks=pytest.mark.full)])
def posterior(request, sims):
    return sf.fit(sims, replace(TINY, flow=request.param), seed=0)


# With 670 cases the fitted line alone misses by about 0.1 sd at n = 8, and 1,000 draws by 0.03: limits are three times that.
@pytest.mark.parametrize("n", [1, 2, 8])
def test_close_to_the_posterior(posterior, n):
    x = observed(n)
    draws = posterior.sample(x, 1_000, seed=0)
    shift, stretch = misses(draws.theta, x)
    assert shift < 0.4
    assert stretch < 0.3
    assert draws.info.converged
    assert draws.n == n


def test_the_seed_decides_and_the_order_does_not(posterior):
    x = observed(4)
    one, again, other, turned = (
        posterior.sample(data, 50, seed=seed).theta for data, seed in ((x, 1), (x, 1), (x, 2), (x[::-1], 1))
    )
    assert (one == again).all()
    assert (one != other).any()
    np.testing.assert_allclose(turned, one, atol=1e-3)


def test_more_observations_than_trained_for_are_refused(posterior):
    with pytest.raises(ScorefoldError, match="at most 8 observations, as NPE was trained; got 9"):
        posterior.sample(observed(9), 10)


def test_options_of_other_methods_are_refused(posterior):
    with pytest.raises(ScorefoldError, match="expected only x_obs, draws and seed for NPE; got rule"):
        posterior.sample(observed(1), 10, rule="diffused")


def test_observations_far_from_all_simulations_are_reported(posterior):
    with pytest.warns(sf.errors.UntrustworthyDraws, match="ran away"):
        draws = posterior.sample(np.full((8, 2), 1e9), 100)
    assert draws.info.diverged


@pytest.mark.parametrize("wrong", [{"flow": "planar"}, {"layers": 0}, {"width": 0}])
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(ScorefoldError, match=r"expected (flow affine or spline|(layers|width) of NPE to be at least 1)"):
        replace(TINY, **wrong)


@pytest.mark.full
def test_a_prior_from_draws_is_learned():
    """A prior with its mass on a ring's two sides, and observations that say next to nothing: the draws are the prior's."""
    rng = np.random.default_rng(0)
    theta = np.where(rng.random((2_000, 1)) < 0.5, -2.0, 2.0) + 0.3 * rng.standard_normal((2_000, 1))
    prior = sf.Prior.from_draws(theta)
    sims = sf.simulate(prior, lambda theta, rng: 50 * rng.standard_normal(1), 1_000)
    posterior = sf.fit(sims, replace(TINY, training=Training(members=1, learning_rates=(5e-3,), steps=400)), seed=0)
    draws = posterior.sample(np.zeros((1, 1)), 1_000).theta
    assert np.mean(np.abs(np.abs(draws) - 2) < 1.0) > 0.8  # a Gaussian has 0.4 there
    assert 0.3 < np.mean(draws > 0) < 0.7
