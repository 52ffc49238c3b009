"""Scores of observations with holes: standardisation, base, networks, and draws where the answer is known."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from full import shortly
from scipy import stats
from untrained import HISTORY

import scorefold as sf
from scorefold.errors import ScorefoldError
from scorefold.noise import CLEAN, levels
from scorefold.posterior.composed import ComposedPosterior
from scorefold.score.embedding import joined, with_channels
from scorefold.score.ensemble import ScoreEnsemble
from scorefold.score.masked_base import MaskedBase, fit_masked_base
from scorefold.score.network import ScoreNetwork, Shape
from scorefold.score.standardize import Standardize, fit_standardize, standardized

A = np.array([[1.0, 0.2], [0.0, 1.0], [0.5, -0.5]])
B = np.array([0.3, -0.2, 0.1])
S = np.array([[0.5, 0.2, 0.0], [0.2, 0.8, 0.1], [0.0, 0.1, 0.3]])
UNIT = Standardize(jnp.zeros(3), jnp.ones(3), missing=True)
BASE = MaskedBase(*(jnp.asarray(v, jnp.float32) for v in (A, B, S)))


def simulated(count, rng, rate=0.3):
    u = rng.standard_normal((count, 2))
    x = u @ A.T + B + rng.standard_normal((count, 3)) @ np.linalg.cholesky(S).T
    return u, np.where(rng.uniform(size=x.shape) < rate, np.nan, x)


def conjugate(x):
    """Mean and covariance of u given the numbers that are there."""
    precision, pull = np.eye(2), np.zeros(2)
    for one in x:
        there = ~np.isnan(one)
        told = np.linalg.solve(S[np.ix_(there, there)], A[there]).T
        precision, pull = precision + told @ A[there], pull + told @ (one - B)[there]
    return np.linalg.solve(precision, pull), np.linalg.inv(precision)


def seen(x):
    return jnp.asarray(np.concatenate([np.nan_to_num(x), np.isnan(x)], axis=1), jnp.float32)


@pytest.mark.false_failure(0)  # rounding alone
def test_the_base_is_the_posterior_of_what_is_there():
    _, x = simulated(4, np.random.default_rng(0))
    x[3] = np.nan
    for size in (1, 3, 4):
        mean, vectors, variances = BASE.of(seen(x), jnp.asarray(size))
        right, covariance = conjugate(x[:size])
        np.testing.assert_allclose(mean, right, atol=1e-4)
        np.testing.assert_allclose((vectors * variances) @ vectors.T, covariance, atol=1e-4)
    mean, _, variances = BASE.of(seen(x[3:]), jnp.asarray(1))
    np.testing.assert_allclose(mean, 0, atol=1e-6)
    np.testing.assert_allclose(variances, 1, atol=1e-6)
    complete = np.linalg.inv(np.eye(2) + 3 * A.T @ np.linalg.solve(S, A))
    np.testing.assert_allclose(BASE.matrix(1.0, CLEAN, jnp.asarray(3)), complete, atol=1e-4)


@pytest.mark.false_failure(1e-6)
def test_the_fit_takes_each_number_from_the_cases_that_have_it():
    u, x = simulated(20_000, np.random.default_rng(1))
    found = fit_masked_base(np.asarray(seen(x)), u)
    np.testing.assert_allclose(found.slope, A, atol=0.06)
    np.testing.assert_allclose(found.offset, B, atol=0.06)
    np.testing.assert_allclose(found.noise, S, atol=0.06)


def test_standardising_with_holes():
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(3, 2, 2_000), np.exp(rng.normal(size=2_000)), np.full(2_000, np.nan)], axis=1)
    holes = rng.uniform(size=x.shape) < 0.3
    x[holes] = np.nan
    scale = fit_standardize(x, missing=True)
    z = standardized(scale, x)
    assert z.shape == (2_000, 6)
    assert np.isfinite(z).all()
    assert np.array_equal(z[:, 3:] == 1, np.isnan(x))
    assert (z[:, :3][np.isnan(x)] == 0).all()
    assert scale.kinds[:2] == ("none", "log")
    alone = fit_standardize(x[~np.isnan(x[:, 0]), :1])
    np.testing.assert_allclose(z[~np.isnan(x[:, 0]), 0], standardized(alone, x[~np.isnan(x[:, 0]), :1])[:, 0], atol=1e-5)


@pytest.mark.false_failure(0)  # rounding alone
@pytest.mark.full
def test_sets_have_the_scores_of_the_single_model():
    shape = Shape(2, 3, 2, width=8, depth=1, missing=True)
    network = jax.vmap(lambda key: ScoreNetwork(shape, key=key))(jax.random.split(jax.random.key(0), 2))
    rng = np.random.default_rng(0)
    network = jax.tree.map(lambda v: jnp.asarray(0.3 * rng.standard_normal(v.shape), v.dtype), network)
    ensemble = ScoreEnsemble(network, UNIT, BASE, None)
    _, x = simulated(8, rng)
    x, sizes = jnp.asarray(x.reshape(4, 2, 3), jnp.float32), jnp.array([2, 2, 1, 1])
    level = jax.tree.map(lambda v: v[200], levels())
    u = jnp.asarray(rng.normal(size=(5, 2)), jnp.float32)
    sets = ensemble.embed(x, sizes, jnp.asarray(4))
    found = sets.chunk(sets.prepare(u, level), level, jnp.arange(4))

    @jax.jit
    def alone(network, x, size):
        member = ensemble.member(network)
        return jax.vmap(lambda u: member(u, level, member.embed(x, size)))(u)

    for j in range(4):
        each = [alone(jax.tree.map(lambda v, i=i: v[i], network), x[j], sizes[j]) for i in range(2)]
        np.testing.assert_allclose(found[j], np.mean(each, axis=0), atol=2e-4)
    picked = sets.pick(jnp.array([2, 0]), jnp.asarray(2))
    np.testing.assert_allclose(picked.total(u, level), found[2] + found[0], atol=1e-3)


@pytest.mark.parametrize(
    ("observation", "as_seen"), [((12,), (12, 2)), ((12, 3), (12, 6)), ((12, 20), (12, 20, 2)), ((4, 5, 3), (4, 5, 6))]
)
def test_an_embedding_sees_holes_as_channels(observation, as_seen):
    numbers = int(np.prod(observation))
    assert with_channels(observation) == as_seen
    found = joined(jnp.concatenate([jnp.arange(numbers), 1000 + jnp.arange(numbers)]).astype(jnp.float32), observation)
    assert found.shape == as_seen
    first, second = found.reshape(-1)[0], found.reshape(*as_seen[:1], -1)[-1, -1]
    assert (first, second) == (0, 1000 + numbers - 1)


def exact_posterior():
    """Right without training: the true line as the base, and networks that add nothing."""
    prior = sf.Prior({"a": stats.norm(0, 1), "b": stats.norm(0, 1)})
    method = sf.NPSE(set_size=1, width=4, depth=1, T=100, missing=True, correction=False, training=sf.Training(members=2))
    shape = method.network_shape(2, True, (3,), 1)
    network = jax.vmap(lambda key: ScoreNetwork(shape, key=key))(jax.random.split(jax.random.key(0), 2))
    ensemble = ScoreEnsemble(network, UNIT, BASE, None)
    return ComposedPosterior(prior, method, ensemble, HISTORY, {}, (3,), 1, 0.01)


# Means and sds of 1,000 draws, within 8 standard errors and a little for the sampler.
@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("n", shortly([1, 20], 1))
def test_draws_given_observations_with_holes(n):
    posterior = exact_posterior()
    _, x = simulated(n, np.random.default_rng(3))
    x = x[~np.isnan(x).all(axis=1)]  # an observation without any number tells nothing, and is refused
    drawn = posterior.sample(x, 1_000)
    mean, covariance = conjugate(x)
    sd = np.sqrt(np.diag(covariance))
    assert (np.abs(drawn.theta.mean(axis=0) - mean) < 0.3 * sd).all()
    assert (np.abs(drawn.theta.std(axis=0) / sd - 1) < 0.22).all()
    if n == 1:
        return
    for rule in ("gauss", "damped"):
        again = posterior.sample(x, 1_000, rule=rule, sampler="ddim" if rule == "gauss" else None)
        assert (np.abs(again.theta.mean(axis=0) - mean) < 0.3 * sd).all()


def test_what_is_not_for_holes_says_so():
    posterior = exact_posterior()
    _, x = simulated(3, np.random.default_rng(3))
    with pytest.raises(ScorefoldError, match="complete observations to check"):
        posterior.check(x, lambda theta, rng: theta)
    with pytest.raises(ScorefoldError, match="complete observations to refine"):
        posterior.refine(x, lambda theta, rng: theta)
    without = replace(posterior, method=replace(posterior.method, missing=False))
    with pytest.raises(ScorefoldError, match="hold NaN"):
        without.sample(x)
