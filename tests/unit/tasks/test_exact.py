"""Exact scores against the densities they are scores of, and sets of them against plain sums."""

import dataclasses
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from scorefold import tasks
from scorefold.errors import ScorefoldError
from scorefold.noise import Level
from scorefold.tasks import exact
from scorefold.tasks.exact import GaussianMixture, diffused, exact_sets, log_density, score

densities = jax.jit(jax.vmap(log_density, in_axes=(None, 0)))
gradients = jax.jit(jax.vmap(jax.grad(log_density, 1), in_axes=(None, 0)))


NAMES = ["gaussian", "mixture", "bimodal", "correlated"]


@pytest.fixture(params=NAMES)
def task(request):
    return tasks.get(request.param)


# Gaussian mixtures


def some_mixture(dim=3):
    rng = np.random.default_rng(0)
    weights = jax.nn.log_softmax(jnp.asarray(rng.normal(size=4)))
    means, variances = rng.normal(size=(4, dim)), rng.uniform(0.05, 2, size=(4, dim))
    return GaussianMixture(weights, jnp.asarray(means), jnp.asarray(variances))


@pytest.mark.parametrize("gamma", [1.0, 0.999, 0.5, 0.01])
def test_score_is_the_gradient_of_the_log_density(gamma):
    at_level = diffused(some_mixture(), gamma)
    theta = np.random.default_rng(1).normal(size=(20, 3))
    theta[10:] *= 100  # far out, where every component's density is zero in float32
    ours = jax.jit(jax.vmap(score, in_axes=(None, 0)))(at_level, jnp.asarray(theta))
    expected = gradients(at_level, jnp.asarray(theta))
    assert np.isfinite(ours).all()
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gamma", [0.95, 0.5, 0.05])
def test_diffused_density_is_the_convolution(gamma):
    one_d, theta, y = some_mixture(dim=1), np.linspace(-12, 12, 4001), np.array([-2, 0, 0.7, 3])
    kernel = stats.norm.pdf(y[:, None], np.sqrt(gamma) * theta, np.sqrt(1 - gamma))
    expected = np.trapezoid(np.exp(densities(one_d, jnp.asarray(theta)[:, None])) * kernel, theta)
    ours = np.exp(densities(diffused(one_d, gamma), jnp.asarray(y)[:, None]))
    np.testing.assert_allclose(ours, expected, rtol=1e-4)


# Sets of one observation


def level(gamma):
    return Level(*(jnp.asarray(v, jnp.float32) for v in (3.0, gamma, 1 - gamma, gamma, 1 - gamma, 0.5)))


def some_sets(task, n, padding=0):
    """n observations, then padding far away, and draws of which some are near the posterior."""
    x = task.observe(n, seed=0)[1]
    sets = exact_sets(task, np.concatenate([x, np.full((padding, x.shape[1]), 1e3)]))
    u = np.concatenate([task.prior.to_normal(draws) for draws in (task.prior.sample(15, 1), task.reference(x, 5, 1))])
    return eqx.tree_at(lambda sets: sets.count, sets, jnp.int32(n)), jnp.asarray(u, jnp.float32)


@cache
def over_pairs(function, change):
    """Compiled once for every function of (u, x, γ)."""
    over_draws = jax.vmap(change(function) if change else function, in_axes=(0, None, None))
    return jax.jit(jax.vmap(over_draws, in_axes=(None, 0, None)))


def plain_sum(function, u, x, gamma, change=None):
    """Over observations, of a function of (u, x, γ), or of what `change` makes of it, at every draw."""
    return np.asarray(over_pairs(function, change)(u, x, jnp.float32(gamma)), np.float64).sum(0)


def assert_close(ours, expected):
    np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("gamma", [0.999, 0.3])
def test_single_score_is_the_gradient_of_the_single_log_density(task, gamma):
    sets, u = some_sets(task, 2)
    ours = plain_sum(task.single_score, u, sets.x, gamma)
    assert_close(ours, plain_sum(task.single_log_density, u, sets.x, gamma, jax.grad))


def test_single_log_density_without_noise_is_prior_times_likelihood(task):
    """At γ = 1, up to a constant for each observation."""
    sets, u = some_sets(task, 1)
    theta = jnp.asarray(task.prior.from_normal(u), jnp.float32)
    likelihood = jax.jit(jax.vmap(task.log_likelihood, in_axes=(0, None)))(theta, sets.x[0])
    ours = plain_sum(task.single_log_density, u, sets.x, 1.0)
    difference = ours - np.asarray(likelihood - jnp.sum(u**2, axis=1) / 2, np.float64)
    np.testing.assert_allclose(difference, difference[0], atol=2e-5 * np.abs(ours).max())


@eqx.filter_jit
def totals(sets, u):
    return sets.total(u, level(0.7)), sets.log_densities(u, level(0.7))


# Part of a chunk; two chunks, the second in part; more draws than fit at once.
@pytest.mark.parametrize(
    ("name", "n", "padding", "at_once"),
    [("mixture", 3, 1, 4), ("bimodal", 6, 0, 4), ("bimodal", 4, 3, 4), ("correlated", 2, 0, 1)],
)
def test_totals_are_sums_over_the_real_observations(name, n, padding, at_once, monkeypatch):
    task = tasks.get(name)
    sets, u = some_sets(task, n, padding)
    monkeypatch.setattr(exact, "PAIRS_AT_ONCE", {"cpu": 4 * len(u) if at_once == 4 else 7})
    assert sets.at_once(len(u)) == at_once
    score, log_density = totals(sets, u)
    assert_close(score, plain_sum(task.single_score, u, sets.x[:n], 0.7))
    assert_close(log_density, plain_sum(task.single_log_density, u, sets.x[:n], 0.7))


def test_picked_observations_keep_their_order_and_precision():
    sets, u = some_sets(tasks.get("bimodal"), 6)
    precision = jnp.eye(2) * jnp.arange(6.0)[:, None, None]
    some = sets.with_precision(precision).pick(jnp.asarray([4, 1, 0]), jnp.int32(2))
    np.testing.assert_array_equal(some.precision[some.group][:, 0, 0], [4, 1, 0])
    wanted = sets.x[jnp.asarray([4, 1])]
    score, log_density = totals(some, u)
    assert_close(score, plain_sum(sets.single_score, u, wanted, 0.7))
    assert_close(log_density, plain_sum(sets.single_log_density, u, wanted, 0.7))


def test_the_prior_is_standard_normal():
    sets, u = some_sets(tasks.get("bimodal"), 2)
    gradient = jax.grad(lambda u: sets.prior_log_density(u, level(0.4)).sum())(u)
    np.testing.assert_array_equal(sets.prior(u, level(0.4)), gradient)
    difference = np.asarray(sets.prior_log_density(u, level(0.4))) - stats.norm.logpdf(np.asarray(u, np.float64)).sum(1)
    np.testing.assert_allclose(difference, difference[0], atol=1e-4)


@pytest.mark.parametrize("name", ["bimodal", "correlated"])
def test_jacobians_are_those_of_the_single_scores(name):
    task = tasks.get(name)
    sets, u = some_sets(task, 3)
    ours = jax.jit(lambda u: sets.fold(u, level(0.7), lambda chunk: chunk.jacobian.sum(axis=0), jacobian=True))(u)
    assert_close(ours, plain_sum(task.single_score, u, sets.x, 0.7, jax.jacfwd))


def test_a_task_without_single_scores_is_refused():
    task = dataclasses.replace(tasks.get("gaussian"), single_score=None)
    with pytest.raises(ScorefoldError, match=r"'gaussian'\. Train a network"):
        exact_sets(task, np.zeros((1, 10)))
