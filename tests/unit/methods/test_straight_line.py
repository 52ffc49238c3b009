"""Posteriors from a straight line: the conjugate Gaussian in closed form, from a proposal beside it, in sets, and a curve."""

import jax.numpy as jnp
import numpy as np
import pytest

from scorefold.methods.refine.straight_line import composed, likest, locate
from scorefold.prior.proposal import GaussianProposal, TruncatedProposal, whole
from scorefold.score.gaussian_base import GaussianBase
from scorefold.simulation.simulate import simulate
from scorefold.tasks.gaussian import standard_normal_prior

NOISE = np.array([0.2, 0.3, 0.4])
PRIOR = standard_normal_prior(3)
ASIDE = GaussianProposal(np.array([0.9, -0.6, 0.2]), np.array([[0.2, 0.05, 0.0], [0.05, 0.2, 0.0], [0.0, 0.0, 0.4]]))
PROPOSALS = {
    "the prior": whole(3),
    "gaussian": ASIDE,
    "truncated": TruncatedProposal(np.eye(3), -2 * np.ones(3), 2 * np.ones(3)),
}


def simulator(theta, rng):
    return theta + NOISE * rng.standard_normal(3)


def exact(x):
    precision = 1 + len(x) / NOISE**2
    return x.sum(axis=0) / NOISE**2 / precision, precision**-0.5


@pytest.mark.false_failure(0)
@pytest.mark.parametrize("sizes", [[1], [1] * 7, [2, 2, 1]])
def test_composition_is_exact_for_exact_lines(sizes):
    # Under u = m + A w: w | X of size s is N(s R AᵀS⁻¹(x̄ - m), R), R⁻¹ = I + s AᵀS⁻¹A.
    rng, sizes = np.random.default_rng(0), np.array(sizes)
    x = rng.standard_normal((len(sizes), 2, 3))
    pull = ASIDE.root.T / NOISE**2
    inverses = [np.eye(3) + s * pull @ ASIDE.root for s in (1, 2)]
    weights = [s * np.linalg.solve(inverse, pull) for s, inverse in zip((1, 2), inverses, strict=True)]
    values, vectors = zip(*(np.linalg.eigh(np.linalg.inv(inverse)) for inverse in inverses), strict=True)
    offsets = [-weight @ ASIDE.mean for weight in weights]
    base = GaussianBase(*(jnp.asarray(np.stack(part), jnp.float32) for part in (weights, offsets, vectors, values)))
    mean, covariance = composed(base, x, sizes, ASIDE)
    every = np.concatenate([one[:size] for one, size in zip(x, sizes, strict=True)])
    truth, sd = exact(every)
    np.testing.assert_allclose(ASIDE.from_w(mean), truth, atol=1e-4)
    np.testing.assert_allclose(ASIDE.root @ covariance @ ASIDE.root.T, np.diag(sd**2), atol=1e-4)


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("set_size", [1, 3])
@pytest.mark.parametrize("name", PROPOSALS)
def test_a_gaussian_is_found_from_few_simulations(name, set_size):
    # 2,000 calls and n = 5: an error of about √(5/2000) = 0.05 sd, times the noise over the region's width; allowed is 0.6.
    proposal = PROPOSALS[name]
    theta = np.array([0.8, -0.5, 0.1])
    x = theta + NOISE * np.random.default_rng(1).standard_normal((5, 3))
    sims = simulate(PRIOR.proposing(proposal), simulator, 2_000, set_size, seed=2)
    u = proposal.from_w(locate(sims, proposal, x, set_size, 2_000, 0))
    mean, sd = exact(x)
    assert np.abs((u.mean(axis=0) - mean) / sd).max() < 0.6
    np.testing.assert_allclose(u.std(axis=0) / sd, 1, atol=0.3)


@pytest.mark.false_failure(1e-6)
def test_a_curve_is_followed_where_the_observations_are():
    # x = θ³ + noise over the whole prior: a line through everything is 3 sd off at θ = 2.
    def curved(theta, rng):
        return theta**3 + 0.5 * rng.standard_normal(1)

    prior = standard_normal_prior(1)
    sims = simulate(prior, curved, 4_000, seed=0)
    x = 8 + 0.5 * np.random.default_rng(0).standard_normal((8, 1))
    u = locate(sims, whole(1), x, 1, 1_000, 0)
    sd = 0.5 / 12 / np.sqrt(8)
    assert abs(u.mean() - np.cbrt(x.mean())) < 3 * sd
    assert 0.5 < u.std() / sd < 2


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("set_size", [1, 3])
def test_the_simulations_most_like_the_observations(set_size):
    # Of 3,000 calls the nearest hundredth, 30 at least: around the answer, and much narrower than the prior.
    theta = np.array([0.8, -0.5, 0.1])
    x = theta + NOISE * np.random.default_rng(1).standard_normal((5, 3))
    sims = simulate(PRIOR, simulator, 3_000, set_size, seed=2)
    u = likest(sims, x)
    assert len(u) == 30
    assert np.abs(u.mean(axis=0) - theta).max() < 0.5
    assert u.std(axis=0).max() < 0.6
