"""NLE: close to a known posterior for any n, by NUTS and by variational inference."""

from dataclasses import replace

import numpy as np
import pytest
from baseline import misses, observed, simulations

import scorefold as sf
from scorefold.errors import ScorefoldError
from scorefold.methods.nle import NLE
from scorefold.train.training import Training

pytestmark = pytest.mark.usefixtures("quick_to_compile")

TINY = NLE(layers=2, width=16, depth=1, chains=4, warmup=150, training=Training(members=1, learning_rates=(1e-3,), steps=100))


@pytest.fixture(scope="module")
def posterior():
    return sf.fit(simulations(), TINY, seed=0)


# 1,500 pairs fix the line to 0.03 in each coefficient, 0.1 posterior sd at n = 8; 1,000 draws add 0.05. Limits: thrice that.
@pytest.mark.parametrize(
    ("sampler", "n"),
    [
        ("nuts", 8),
        pytest.param("vi", 2, marks=pytest.mark.full),
        *(pytest.param(*cell, marks=pytest.mark.full) for cell in (("nuts", 1), ("nuts", 2), ("vi", 1), ("vi", 8))),
    ],
)
def test_close_to_the_posterior(posterior, sampler, n):
    x = observed(n)
    draws = posterior.sample(x, 1_000, seed=0, sampler=sampler)
    shift, stretch = misses(draws.theta, x)
    assert shift < 0.4
    assert stretch < 0.3
    assert draws.info.converged
    assert draws.how == sampler


@pytest.mark.full
def test_the_order_of_observations_does_not_matter(posterior):
    x = observed(2)
    one, turned = (posterior.sample(data, 400, seed=1, sampler="vi").theta for data in (x, x[::-1]))
    np.testing.assert_allclose(one.mean(0), turned.mean(0), atol=0.02)


@pytest.mark.full
def test_members_are_averaged_and_sets_are_taken_apart():
    two = replace(TINY, flow="spline", training=Training(members=2, learning_rates=(1e-3,), steps=50))
    posterior = sf.fit(simulations(1_500, set_size=3), two, seed=0)
    x = observed(5)
    assert posterior.history.validation.shape[0] == 2
    shift, stretch = misses(posterior.sample(x, 500, sampler="vi").theta, x)
    assert shift < 0.4
    assert stretch < 0.3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"flow": "planar"}, "affine or spline"), ({"sampler": "gibbs"}, "nuts, vi"), ({"chains": 1}, "2 chains or more")],
)
def test_settings_that_make_no_sense(wrong, message):
    with pytest.raises(ScorefoldError, match=message):
        replace(TINY, **wrong)


def test_a_prior_from_draws_is_refused():
    prior = sf.Prior.from_draws(np.random.default_rng(0).standard_normal((200, 2)))
    sims = sf.simulate(prior, lambda theta, rng: theta + rng.standard_normal(2), 100)
    with pytest.raises(ScorefoldError, match="known density for NLE, which multiplies it with the likelihood"):
        sf.fit(sims, TINY)
