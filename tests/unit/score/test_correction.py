"""The correction of a trained score, fitted to networks whose error is known. Nothing is trained.

Statistical comparisons use fixed seeds; on fresh ones the false-failure rate is stated at each of them.
"""

import equinox as eqx
import failing
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_gaussian import COUNT, DIM, GRID, MEMBERS, NOISE, SHAPE, UNIT, R, as_cases, exact_base, linear_gaussian

from scorefold.score.correction import CORRECTED_LEVELS, _over_levels, fit_correction
from scorefold.score.gaussian_base import GaussianBase
from scorefold.score.network import ScoreModel, ScoreNetwork
from scorefold.train.training_set import TrainingSet


def some_network(seed=None, bias=((0.0, 0.0), (0.0, 0.0))):
    """Members whose output is a constant, or noise."""
    like = eqx.filter_eval_shape(ScoreNetwork, SHAPE, key=jax.random.key(0))
    flat, tree = jax.tree.flatten(like)
    rng = np.random.default_rng(seed)
    network = jax.tree.unflatten(tree, [jnp.asarray(rng.standard_normal((MEMBERS, *v.shape)), jnp.float32) for v in flat])
    if seed is not None:
        return network
    constant = (jnp.zeros_like(network.out.weight), jnp.asarray(bias, jnp.float32))
    return eqx.tree_at(lambda n: (n.out.weight, n.out.bias), network, constant)


HALVES = np.arange(COUNT) % 2 == np.arange(MEMBERS)[:, None]


def correction_of(network, base, u, x, seed=0):
    half = TrainingSet(u, as_cases(u, x), np.arange(COUNT) % 2, seed)
    return fit_correction(ScoreModel(network, UNIT, base), half, MEMBERS, GRID)


def gammas(control):
    return np.asarray(GRID.gamma, np.float64)[np.asarray(control.t, int) - 1][:, None]


def standard_errors(gamma, wider=1.0):
    """At least those of offset and slope: features have variance 1, and ±noise share a case."""
    diffused, assumed = (gamma * r + 1 - gamma for r in (R, wider * R))
    return np.sqrt(gamma * (1 - R) * diffused / assumed**2 / COUNT)  # of the scores given u_t


@pytest.mark.false_failure(5e-6)
def test_a_planted_bias_is_found():
    """With mean μ + δ and covariance w R, -Γ_w⁻¹ (u - √γ (μ + δ)) has the mean √γ Γ_w⁻¹ δ + (1 - Γ_w⁻¹ Γ) u - u given u."""
    delta, wider = np.array([0.4, -0.3]), 0.6
    control = correction_of(some_network(), exact_base(delta, wider), *linear_gaussian(COUNT, seed=1))
    gamma = gammas(control)
    assert len(gamma) == CORRECTED_LEVELS
    assumed = gamma * wider * R + 1 - gamma
    offset, slope = np.sqrt(gamma) * delta / assumed, 1 - (gamma * R + 1 - gamma) / assumed
    se = standard_errors(gamma, wider)
    shrunk = 3 * (se**2).sum(axis=1) / (offset**2 + slope**2).sum(axis=1)  # the share that shrinkage takes
    assert shrunk.max() < 0.05
    # 5.5 standard errors or more: 4 times in 10⁸; 126 comparisons: once in 200,000 seeds.
    for found, true in ((control.offset, offset), (control.slope, slope[:, :, None] * np.eye(DIM))):
        allowed = 5.5 * se if true.ndim == 2 else 5.5 * se[:, :, None]
        limit = shrunk.reshape(-1, *(1,) * (true.ndim - 1))
        assert (np.abs(found - true) < allowed + 1.5 * limit * np.abs(true)).all()
    np.testing.assert_allclose(control.gate, 0.0)


@pytest.mark.false_failure(1e-6)
def test_without_a_bias_nothing_is_corrected():
    ratios = []
    for seed in range(20):
        control = correction_of(some_network(), exact_base(), *linear_gaussian(COUNT, seed=[2, seed]), seed=seed)
        se = standard_errors(gammas(control))
        found = (np.asarray(control.offset) ** 2).sum(axis=1) + (np.asarray(control.slope) ** 2).sum(axis=(1, 2))
        ratios.append(found / (3 * (se**2).sum(axis=1)))
    # Without shrinkage the mean would be about 1. With it a fit of 6 numbers leaves (y - 1)₊²/y on average 0.10, y ~ χ²₆/6;
    # a mean over 20 seeds above 0.6 is less likely than 10⁻⁶ (the levels of one seed are taken as one).
    assert np.mean(ratios) < 0.6


@pytest.mark.false_failure(2e-6)
@pytest.mark.parametrize(("factor", "gate"), [(-1.0, 1.0), (-2.0, 0.5), (-4.0, 0.25), (1.0, 0.0)])
def test_the_gate_keeps_what_lowers_the_loss(factor, gate):
    """R = I and a mean that is δ instead of 0: a residual √γ f is best kept at -δ·f/|f|²."""
    delta = np.array([0.8, -0.6])
    base = GaussianBase(jnp.zeros((1, DIM, DIM)), jnp.asarray(delta, jnp.float32)[None], jnp.eye(DIM)[None], jnp.ones((1, DIM)))
    u, x = np.random.default_rng(3).standard_normal((2, COUNT, DIM))
    control = correction_of(some_network(bias=(factor * delta, factor * delta)), base, u, x)
    # ±noise cancels, and what is left has standard error 1/(|f| √n): 5.5 of them, 4 times in 10⁸.
    np.testing.assert_allclose(control.gate, gate, atol=5.5 / (abs(factor) * np.sqrt(COUNT)))
    left = np.sqrt(gammas(control)) * delta * (1 + factor * np.asarray(control.gate)[:, None])
    np.testing.assert_allclose(control.offset, left, atol=0.05)  # there is no other noise in this score


@pytest.mark.false_failure(2e-6)
def test_every_case_is_judged_by_the_member_that_has_not_seen_it():
    """One half has mean a and the other -a; member 0 adds 2a and member 1 nothing."""
    a = np.array([0.8, -0.6])
    base = GaussianBase(jnp.zeros((1, DIM, DIM)), jnp.zeros((1, DIM)), jnp.eye(DIM)[None], jnp.ones((1, DIM)))
    x = np.zeros((COUNT, DIM))
    noise = np.random.default_rng(4).standard_normal((COUNT, DIM))
    network = some_network(bias=(2 * a, 0 * a))
    for sign, gate in ((1, 1.0), (-1, 0.0)):
        control = correction_of(network, base, noise + sign * a * np.where(HALVES[0], 1, -1)[:, None], x)
        # Standard error 2/√2000: 5.5 of them is 0.25, 4 times in 10⁸.
        np.testing.assert_allclose(control.gate, gate, atol=0.25)


@pytest.mark.false_failure(1e-6)
def test_the_gate_closes_on_noise():
    control = correction_of(some_network(seed=5), exact_base(), *linear_gaussian(COUNT, seed=5))
    assert np.max(control.gate) < 0.2  # over 60 other seeds 0.007 on average and at most 0.06


# Cases that do not follow the prior


def selected(count, seed):
    """u ~ N(0, I) that succeed with probability exp(-a (u_1 - c)²/2): Gaussian too, given that they do."""
    mean, variance = failing.given_success(1)
    rng = np.random.default_rng(seed)
    u = rng.standard_normal((count, DIM)) * [np.sqrt(variance), 1] + [mean, 0]
    return u, u + rng.standard_normal((count, DIM)) * np.sqrt(NOISE)


def base_given_success():
    """p(u | x, ok), exactly."""
    mean, variance = failing.given_success(1)
    prior = np.array([variance, 1.0])
    r = prior * NOISE / (prior + NOISE)
    arrays = (np.diag(r / NOISE), r / prior * [mean, 0], np.eye(DIM), r)
    return GaussianBase(*(jnp.asarray(v, jnp.float32)[None] for v in arrays))


@pytest.mark.full
@pytest.mark.false_failure(1e-6)
def test_where_simulations_failed_an_exact_score_stays_as_it_is():
    """The cases follow p(u | ok), and so does the mean of the exact scores: nothing is to be corrected."""
    found = {}
    for failed in (True, False):
        offsets = []
        for seed in range(10):
            u, x = selected(COUNT, [6, seed])
            cases = TrainingSet(u, as_cases(u, x), np.arange(COUNT) % 2, seed, failed=failed)
            control = fit_correction(ScoreModel(some_network(), UNIT, base_given_success()), cases, MEMBERS, GRID)
            offsets.append(control.offset[0])
        found[failed] = np.abs(np.mean(offsets, axis=0)).max()
    # At the lowest level a score has variance 1/r ≤ 4 around its mean: the mean of 10 × 2,000 is known to 0.014, six of which
    # are 0.085. Taken for draws of the prior, the cases are off by the score that success adds, a c = 0.75 at u = 0.
    assert found[True] < 0.085
    assert found[False] > 0.5


@pytest.mark.false_failure(1e-6)
def test_where_simulations_failed_a_planted_bias_is_found():
    delta = np.array([0.4, -0.3])
    u, x = selected(COUNT, 7)
    right = base_given_success()
    wrong = GaussianBase(right.weight, right.offset + jnp.asarray(delta, jnp.float32), right.vectors, right.variances)
    cases = TrainingSet(u, as_cases(u, x), np.arange(COUNT) % 2, 0, failed=True)
    control = fit_correction(ScoreModel(some_network(), UNIT, wrong), cases, MEMBERS, GRID)
    # R⁻¹ δ at the lowest level; standard errors as above, 2,000 cases.
    np.testing.assert_allclose(control.offset[0], delta / np.asarray(right.variances)[0], atol=6 * np.sqrt(4 / COUNT))


def test_it_is_judged_as_precisely_as_draws_are_made():
    """On accelerators products of float32 matrices are rounded to fewer bits unless all are asked for."""
    cases = as_cases(*linear_gaussian(10, seed=8))
    models = ScoreModel(some_network(), UNIT, exact_base())
    judge = jax.tree.map(lambda v: v[0], models.network)
    lowered = _over_levels.lower(models, judge, cases, None, GRID, jax.random.split(jax.random.key(0), len(GRID.t)))
    products = [line for line in lowered.as_text().splitlines() if "dot_general" in line]
    assert products
    assert all("HIGHEST" in line for line in products)
