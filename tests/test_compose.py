"""The factorized rule against closed forms: one set, the conjugate Gaussian, every task's own likelihood."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorefold import tasks
from scorefold.compose.factorized import PRIOR_RULES, factorized, reference_sd
from scorefold.noise import SCHEDULES, Level, levels
from scorefold.tasks.exact import composed_score
from scorefold.tasks.gaussian import VARIANCES

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLOUD = np.random.default_rng(0).standard_normal((16, 10))


def level(gamma, remaining):
    return Level(*(jnp.asarray(v, jnp.float32) for v in (1.0, gamma, gamma, remaining)))


def exact_total(name, x):
    return composed_score(jax.vmap(tasks.get(name).single_posterior)(jnp.asarray(x, jnp.float32)))


@partial(jax.jit, static_argnames=("name", "rule"))
def _composed(name, rule, x, at, u):
    return factorized(exact_total(name, x), len(x), rule)(u, at)


def composed(name, x, rule, at, u=CLOUD):
    return np.asarray(_composed(name, rule, x, at, jnp.asarray(u, jnp.float32)))


# One set


@pytest.mark.parametrize("rule", PRIOR_RULES)
@pytest.mark.parametrize(("gamma", "remaining"), [(0.9999, 0.9975), (0.5, 0.5), (1e-4, 0.0)])
def test_one_set_gives_the_single_score(rule, gamma, remaining):
    # Bit by bit, for a score that is nothing like a Gaussian's.
    def single(u, level):
        return jnp.sin(3 * u) * level.gamma - u**3

    u, at = jnp.asarray(CLOUD, jnp.float32), level(gamma, remaining)
    assert np.array_equal(factorized(single, 1, rule)(u, at), single(u, at))


# The conjugate Gaussian: p(θ|x_j) = N(μ_j, v), diffused N(√γ μ_j, γ v + 1-γ)


@pytest.mark.parametrize("rule", PRIOR_RULES)
@pytest.mark.parametrize("n", [2, 8, 300])
@pytest.mark.parametrize(("gamma", "remaining"), [(1.0, 1.0), (0.9, 0.75), (0.3, 0.5), (1e-4, 0.0)])
def test_conjugate_gaussian(rule, n, gamma, remaining):
    _, x = tasks.get("gaussian").observe(n, 0)
    means, variances = x / (1 + VARIANCES), VARIANCES / (1 + VARIANCES)
    total = ((np.sqrt(gamma) * means.sum(0) - n * CLOUD) / (gamma * variances + 1 - gamma)).astype(np.float64)
    prior = -CLOUD * (remaining if rule == "tempered" else 1.0)
    expected = total + (1 - n) * prior
    got = composed("gaussian", x, rule, level(gamma, remaining))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * n)


@pytest.mark.parametrize("rule", PRIOR_RULES)
@pytest.mark.parametrize("n", [1, 8])
def test_without_noise_it_is_the_score_of_the_conjugate_posterior(rule, n):
    _, x = tasks.get("gaussian").observe(n, 1)
    precision = 1 + n / VARIANCES
    expected = x.sum(0) / VARIANCES - precision * CLOUD
    np.testing.assert_allclose(composed("gaussian", x, rule, level(1.0, 1.0)), expected, rtol=1e-4, atol=1e-5 * n)


@pytest.mark.parametrize("rule", PRIOR_RULES)
@pytest.mark.parametrize("name", tasks.names())
@pytest.mark.parametrize("n", [1, 10])
def test_without_noise_it_is_the_gradient_of_the_tasks_log_posterior(name, n, rule):
    # The prior of these tasks is N(0, I), so that u = θ.
    task = tasks.get(name)
    _, x = task.observe(n, 2)
    u = jnp.asarray(CLOUD[:, : task.prior.dim], jnp.float32)

    def log_posterior(theta):
        likelihoods = jax.vmap(task.log_likelihood, in_axes=(None, 0))(theta, jnp.asarray(x, jnp.float32))
        return likelihoods.sum() - jnp.sum(theta**2) / 2

    expected = jax.jit(jax.vmap(jax.grad(log_posterior)))(u)
    np.testing.assert_allclose(composed(name, x, rule, level(1.0, 1.0), u), expected, rtol=2e-3, atol=2e-4 * n)


def test_the_prior_counts_sets_not_observations():
    # PF-NPSE: 6 observations in 2 sets of 3 have the prior to the power 1 - 2 (the paper prints 1 - 6).
    _, x = tasks.get("gaussian").observe(6, 3)
    sums = x.reshape(2, 3, 10).sum(1)
    precision = 1 + 3 / VARIANCES

    def total(u, level):
        return sum(s / VARIANCES - precision * u for s in sums)

    got = np.asarray(factorized(total, 2, "diffused")(jnp.asarray(CLOUD), level(1.0, 1.0)))
    np.testing.assert_allclose(got, x.sum(0) / VARIANCES - (1 + 6 / VARIANCES) * CLOUD, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rule", PRIOR_RULES)
def test_the_number_of_sets_may_be_traced(rule):
    _, x = tasks.get("gaussian").observe(7, 0)
    total, at, u = exact_total("gaussian", x), level(0.4, 0.6), jnp.asarray(CLOUD, jnp.float32)
    traced = jax.jit(lambda sets: factorized(total, sets, rule)(u, at))(jnp.asarray(7))
    np.testing.assert_allclose(traced, factorized(total, 7, rule)(u, at), rtol=1e-5, atol=1e-4)


# The last level


def test_reference_sd():
    assert [reference_sd(k, "diffused") for k in (1, 4, 1000)] == [1.0, 1.0, 1.0]
    assert [reference_sd(k, "tempered") for k in (1, 4, 10_000)] == [1.0, 0.5, 0.01]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("rule", PRIOR_RULES)
@pytest.mark.parametrize("n", [1, 8])
def test_reference_sd_is_that_of_the_score_at_the_last_level(schedule, rule, n):
    # Up to what is left of the observations there: a pull of about n √γ_T.
    _, x = tasks.get("gaussian").observe(n, 0)
    last = jax.tree.map(lambda v: v[-1], levels(schedule))
    got = composed("gaussian", x, rule, last)
    left_over = 2 * n * np.sqrt(float(last.gamma)) * (np.abs(x).max() + 1)
    np.testing.assert_allclose(got, -CLOUD / reference_sd(n, rule) ** 2, atol=left_over)
    assert left_over < 0.3 * n
