"""NRE: close to a known posterior for any n, with and without the line to start from."""

from dataclasses import replace

import numpy as np
import pytest
from baseline import misses, observed, simulations
from scipy import stats

import scorefold as sf
from scorefold.errors import ScorefoldError
from scorefold.methods.nre import NRE
from scorefold.train.training import Training

pytestmark = pytest.mark.usefixtures("quick_to_compile")

TINY = NRE(width=16, depth=1, chains=4, warmup=150, training=Training(members=1, learning_rates=(1e-3,), steps=100))


@pytest.fixture(scope="module")
def posterior():
    return sf.fit(simulations(), TINY, seed=0)


# As for NLE.
@pytest.mark.parametrize("n", [8, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 2))])
def test_close_to_the_posterior(posterior, n):
    x = observed(n)
    draws = posterior.sample(x, 1_000, seed=0)
    shift, stretch = misses(draws.theta, x)
    assert shift < 0.4
    assert stretch < 0.3
    assert draws.info.converged
    assert draws.info.ess > 400


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::scorefold.errors.UntrustworthyDraws")
def test_the_paper_s_classifier_learns_the_ratio_by_itself():
    """From 1,500 pairs, without a line: the mean within 0.8 sd, the sd within a factor of 1.6."""
    own = replace(TINY, base=False, width=32, depth=2, training=Training(members=1, learning_rates=(3e-3,), steps=400))
    x = observed(2)
    draws = sf.fit(simulations(), own, seed=0).sample(x, 1_000)
    shift, stretch = misses(draws.theta, x)
    assert shift < 0.8
    assert stretch < 0.47


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::scorefold.errors.UntrustworthyDraws")
def test_series_go_through_an_embedding():
    sims = sf.simulate(sf.Prior({"a": stats.norm()}), lambda t, rng: t + rng.standard_normal(12), 400)
    posterior = sf.fit(sims, replace(TINY, base=False, embedding=sf.embeddings.Convolution(channels=(4,), out=4)), seed=0)
    assert np.isfinite(posterior.sample(np.zeros((1, 12)), 20, sampler="vi").theta).all()


def test_a_prior_from_draws_is_refused():
    prior = sf.Prior.from_draws(np.random.default_rng(0).standard_normal((200, 2)))
    sims = sf.simulate(prior, lambda theta, rng: theta + rng.standard_normal(2), 100)
    with pytest.raises(ScorefoldError, match="known density for NRE"):
        sf.fit(sims, TINY)


def test_settings_that_make_no_sense():
    with pytest.raises(ScorefoldError, match="depth of NRE to be at least 1"):
        replace(TINY, depth=0)
