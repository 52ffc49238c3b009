"""Training and control on problems with a known answer.

Compiling is nearly all of the time here, so tests share shapes and settings: one program with a base, one without.
Statistical comparisons use fixed seeds; on fresh ones the false-failure rate is stated at each of them.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorefold import tasks
from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.noise import levels
from scorefold.score.denoising import Fixed, case_loss, score_objective
from scorefold.score.ensemble import ScoreEnsemble
from scorefold.score.fit_correction import KNOTS, fit_correction
from scorefold.score.gaussian_base import GaussianBase, fit_gaussian_base
from scorefold.score.network import ScoreModel, ScoreNetwork, Shape
from scorefold.score.standardize import Standardize, fit_standardize
from scorefold.simulation.simulate import simulate
from scorefold.train import loop
from scorefold.train.loop import train
from scorefold.train.training import History, Training
from scorefold.train.training_set import Cases, TrainingSet, folds, thinned
from scorefold.train.training_set import held_out as held_out_folds

pytestmark = pytest.mark.usefixtures("quick_to_compile")

MEMBERS = 2
GRID = levels("log-snr", 50)
PROGRAMS = ("_untrained", "_round", "_validate")


def held_out(origin, members, seed):
    return held_out_folds(folds(origin, seed), members)


def as_cases(u, x):
    u, x = jnp.asarray(u, jnp.float32), jnp.asarray(x, jnp.float32)
    return Cases(u, x[:, None], jnp.ones(len(u), jnp.int32))


def training_set(cases, seed):
    return TrainingSet(np.asarray(cases.u, np.float64), cases, folds(np.arange(len(cases.u)), seed), seed)


def fit_scores(shape, sets, fixed, training):
    return train(score_objective(shape), sets, fixed, training, shape.base)


def fit_score(shape, standardize, base, cases, training, seed):
    return fit_scores(shape, [training_set(cases, seed)], [Fixed(GRID, standardize, base)], training)[0]


def leaves(tree):
    return [np.asarray(v) for v in jax.tree.leaves(tree)]


def identical(a, b):
    return all(np.array_equal(v, w) for v, w in zip(leaves(a), leaves(b), strict=True))


# Which cases a member does not see


@pytest.mark.parametrize("cases", [100, 503])
def test_five_members_hold_out_disjoint_fifths_that_cover_all_cases(cases):
    out = held_out(np.arange(cases), 5, seed=0)
    assert out.shape == (5, cases)
    assert (out.sum(axis=0) == 1).all()
    assert np.ptp(out.sum(axis=1)) <= 1


def test_more_members_share_folds_and_fewer_take_the_first():
    five = held_out(np.arange(100), 5, seed=0)
    np.testing.assert_array_equal(held_out(np.arange(100), 7, seed=0), five[[0, 1, 2, 3, 4, 0, 1]])
    np.testing.assert_array_equal(held_out(np.arange(100), 2, seed=0), five[:2])
    assert not np.array_equal(held_out(np.arange(100), 5, seed=1), five)


def test_cases_of_one_origin_are_held_out_together():
    origin = np.repeat(np.arange(50), 3)
    out = held_out(origin, 5, seed=0).reshape(5, 50, 3)
    assert (out == out[:, :, :1]).all()
    assert (out.sum(axis=0) == 1).all()


# Sets with a random part of their observations


def test_a_thinned_case_holds_some_of_its_own_observations():
    sizes = jnp.asarray(np.random.default_rng(0).integers(1, 5, 400), jnp.int32)
    x = jnp.where(jnp.arange(4)[:, None] < sizes[:, None, None], 1.0 + jnp.arange(1600.0).reshape(400, 4, 1), 0.0)
    thin = thinned(Cases(jnp.zeros((400, 1)), x, sizes), jax.random.key(0), learns_prior=False)
    assert (thin.sizes >= 1).all()
    assert (thin.sizes <= sizes).all()
    for case in range(400):
        kept, own = (np.asarray(v[case, :size, 0]) for v, size in ((thin.x, thin.sizes[case]), (x, sizes[case])))
        assert len(set(kept)) == len(kept)
        assert set(kept) <= set(own)
    # Whole cases: half, and of the others 1/size. 400 of them with a chance between 1/2 and 1: 5 sd are 0.125.
    chance = float(jnp.mean(0.5 + 0.5 / sizes))
    assert abs(float(jnp.mean(thin.sizes == sizes)) - chance) < 0.125  # fails once in a million seeds


def test_single_observations_are_left_as_they_are_and_the_prior_takes_its_share():
    cases = as_cases(np.zeros((1000, 2)), np.arange(3000.0).reshape(1000, 3))
    same = thinned(cases, jax.random.key(0), learns_prior=False)
    assert identical(same, cases)
    some = thinned(cases, jax.random.key(0), learns_prior=True)
    assert abs(float(jnp.mean(some.sizes == 0)) - 0.5) < 0.08  # 5 sd


# Without a base, on the Gaussian task


SLOW, FAST = 1e-6, 2e-2
PLAIN = Training(members=MEMBERS, learning_rates=(SLOW, FAST), steps=150, batch=64, weight_decay=0.1, average=0.98)


class Trained(NamedTuple):
    network: ScoreNetwork
    history: History
    compiled: dict[str, int]


def train_plain(cases, seed=0):
    standardize = fit_standardize(PLAIN_X)
    return fit_score(PLAIN_SHAPE, standardize, None, cases, PLAIN, seed)


def plain_cases():
    task = tasks.get("gaussian")
    sims = simulate(task.prior, task.simulator, 600, seed=0)
    return as_cases(sims.prior.to_normal(sims.theta), sims.x[:, 0])


PLAIN_CASES = plain_cases()
PLAIN_X = np.asarray(PLAIN_CASES.x[:, 0])
PLAIN_SHAPE = Shape(10, 10, 1, width=16, depth=1, base=False)


@pytest.fixture(scope="module")
def plain():
    before = {name: getattr(loop, name)._cache_size() for name in PROGRAMS}
    network, history = train_plain(PLAIN_CASES)
    return Trained(network, history, {name: getattr(loop, name)._cache_size() - before[name] for name in PROGRAMS})


def test_training_beats_a_score_of_zero(plain):
    # A score of zero has a loss of 1 ± 0.015. Over 24 other seeds this one had 0.51 ± 0.014: the limit is 6 sd away.
    assert (plain.history.validation[:, 0] > 1).all()
    assert (plain.history.validation[:, -1] < 0.6).all()
    assert (plain.history.train[:, -1] < 0.6).all()


def test_the_better_learning_rate_is_chosen(plain):
    history = plain.history
    assert history.learning_rate == FAST
    assert set(history.losses) == {SLOW, FAST}
    assert history.losses[SLOW] > 1 > history.losses[FAST]
    assert history.validation.shape == (MEMBERS, history.train.shape[1] + 1)
    np.testing.assert_allclose(history.validation.min(axis=1).mean(), history.losses[FAST], rtol=1e-6)
    np.testing.assert_array_equal(history.kept, history.validation.argmin(axis=1))
    assert history.skipped == 0


def test_the_network_returned_is_the_one_reported(plain):
    """The loss of the network on the cases it has not seen, computed once more with other noise and levels."""
    out = held_out(np.arange(len(PLAIN_CASES.u)), MEMBERS, 0)
    rng = np.random.default_rng(0)
    standardize = fit_standardize(PLAIN_X)

    @jax.jit
    def losses(network, cases, level, noise):
        model = ScoreModel(network, standardize, None)
        return jax.vmap(lambda *at: case_loss(model, *at))(*cases, level, noise)

    for member in range(MEMBERS):
        network = jax.tree.map(lambda v, m=member: v[m], plain.network)
        rows = np.tile(np.flatnonzero(out[member]), 40)
        cases = jax.tree.map(lambda v, rows=rows: v[rows], PLAIN_CASES)
        drawn = rng.integers(0, len(GRID.t), len(rows))
        level = jax.tree.map(lambda v, drawn=drawn: v[drawn], GRID)
        noise = jnp.asarray(rng.standard_normal(cases.u.shape), jnp.float32)
        loss = np.asarray(losses(network, cases, level, noise))
        # History's own error is that of 4 draws a case, at levels better spread: less than of 40/4 times as many rows here.
        error = loss.std() * np.sqrt(1 / len(loss) + 10 / len(loss))
        assert abs(loss.mean() - plain.history.validation[member].min()) < 5.5 * error  # 4 times in 10⁸


def test_every_round_runs_the_same_program(plain):
    assert plain.compiled == dict.fromkeys(PROGRAMS, 1)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(plain):
    compiled = [getattr(loop, name)._cache_size() for name in PROGRAMS]
    again, history = train_plain(PLAIN_CASES)
    assert identical(plain.network, again)
    np.testing.assert_array_equal(plain.history.validation, history.validation)
    other, _ = train_plain(PLAIN_CASES, seed=1)
    matrices = [(v, w) for v, w in zip(leaves(plain.network), leaves(other), strict=True) if v.ndim == 3]
    assert matrices
    assert all(np.abs(v - w).max() > 1e-2 for v, w in matrices)
    assert compiled == [getattr(loop, name)._cache_size() for name in PROGRAMS], "a new seed must not recompile"


def test_members_differ(plain):
    for v in leaves(plain.network):
        assert len(v) == MEMBERS
        assert v.ndim < 3 or np.abs(v[0] - v[1]).max() > 1e-2


@pytest.mark.usefixtures("plain")  # compiled
def test_updates_without_a_finite_gradient_are_left_out_and_counted():
    seen_by_all = np.flatnonzero(~held_out(np.arange(len(PLAIN_CASES.u)), MEMBERS, 0).any(axis=0))
    with pytest.warns(ScorefoldWarning, match="training steps were left out because the gradient was not finite"):
        network, history = train_plain(PLAIN_CASES._replace(u=PLAIN_CASES.u.at[seen_by_all[0]].set(jnp.nan)))
    epochs = MEMBERS * history.train.shape[1] * history.epochs_a_round
    assert epochs / 2 < history.skipped <= epochs  # once an epoch, unless it is among the 480 % 64 cases left over
    assert all(np.isfinite(v).all() for v in leaves(network))
    assert (history.validation[:, -1] < 0.6).all()


@pytest.mark.usefixtures("plain")
def test_training_that_never_works_says_so():
    with pytest.raises(ScorefoldError, match=r"training failed: no learning rate of \(1e-06, 0\.02\) gave a finite validation"):
        train_plain(PLAIN_CASES._replace(u=jnp.full_like(PLAIN_CASES.u, jnp.nan)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"members": 0},
        {"steps": 0},
        {"batch": 0},
        {"patience": 0},
        {"learning_rates": ()},
        {"learning_rates": (1e-3, 0.0)},
        {"average": 1.0},
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(ScorefoldError, match=rf"expected members, steps, .*; got Training\(.*{next(iter(wrong))}="):
        Training(**wrong)


# With a base, on u ~ N(0, I), x = u + noise in two dimensions: the base is the whole truth

DIM = 2
NOISE = np.array([0.5, 1.0])  # variances
R = NOISE / (1 + NOISE)
UNIT = Standardize(jnp.zeros(DIM), jnp.ones(DIM))
SHAPE = Shape(DIM, DIM, 1, width=8, depth=1)
# Fast and without decay, so that a network that is kept when it should not be is far off.
RESIDUAL = Training(members=MEMBERS, learning_rates=(2e-2,), steps=150, batch=64, weight_decay=0.0, average=0.98)
COUNT = 2000


def linear_gaussian(count, seed):
    rng = np.random.default_rng(seed)
    u = rng.standard_normal((count, DIM))
    return u, u + rng.standard_normal((count, DIM)) * np.sqrt(NOISE)


def exact_base(offset=(0.0, 0.0), wider=1.0):
    """p(u | x), and wrong by an offset of the mean and a factor of the covariance where asked."""
    arrays = (np.diag(1 / (1 + NOISE)), np.array(offset), np.eye(DIM), wider * R)
    return GaussianBase(*(jnp.asarray(v, jnp.float32)[None] for v in arrays))


@eqx.filter_jit
def residual_share(ensemble, cases, key):
    """At every level, the sd of what the members add on average, in units of the sd of the base's score."""

    def at(level, key):
        theta = jnp.sqrt(level.gamma) * cases.u + jnp.sqrt(1 - level.gamma) * jax.random.normal(key, cases.u.shape)

        def one(network, theta, x, size):
            model = ensemble.member(network)
            embedded = model.embed(x, size)
            return model.base_score(theta, level, embedded), model.residual_score(theta, level, embedded)

        over_cases = jax.vmap(one, in_axes=(None, 0, 0, 0))
        base, residual = jax.vmap(over_cases, in_axes=(0, None, None, None))(ensemble.network, theta, cases.x, cases.sizes)
        return jnp.sqrt(jnp.mean(jnp.mean(residual, axis=0) ** 2) / jnp.mean(base**2))

    return jax.lax.map(lambda a: at(*a), (GRID, jax.random.split(key, len(GRID.t))))


@pytest.mark.full
def test_where_the_base_is_the_truth_the_network_is_not_kept():
    u, x = linear_gaussian(COUNT, seed=0)
    cases, base = as_cases(u, x), fit_gaussian_base(x[:, None], np.ones(COUNT, int), u)
    network, history = fit_score(SHAPE, UNIT, base, cases, RESIDUAL, seed=0)
    share = np.asarray(residual_share(ScoreEnsemble(network, UNIT, base, None), cases, jax.random.key(0)))
    # Over 30 other seeds 0.02 ± 0.02 and at most 0.06; keeping the last weights instead of the best gives about 0.2.
    assert share.max() < 0.12
    assert (history.kept == history.validation.argmin(axis=1)).all()


# Several ensembles together


@pytest.mark.full
def test_ensembles_trained_together_are_those_trained_alone():
    """Each has its own cases, standardisation, base and seed; only rounding differs."""
    short = Training(members=MEMBERS, steps=50, batch=64)
    sets, fixed = [], []
    for seed in (0, 1):
        u, x = linear_gaussian(COUNT, seed=seed)
        x = (1 + seed) * x + seed
        fitted = fit_standardize(x)
        z = np.asarray(jax.vmap(fitted)(jnp.asarray(x, jnp.float32)))
        base = fit_gaussian_base(z[:, None], np.ones(COUNT, int), u)
        sets.append(training_set(as_cases(u, x), seed))
        fixed.append(Fixed(GRID, fitted, base))
    together = fit_scores(SHAPE, sets, fixed, short)
    for one, known, (network, history) in zip(sets, fixed, together, strict=True):
        (own, own_history), *_ = fit_scores(SHAPE, [one], [known], short)
        np.testing.assert_allclose(history.validation, own_history.validation, rtol=2e-3)
        difference = [np.abs(a - b).max() for a, b in zip(leaves(network), leaves(own), strict=True)]
        assert max(difference) < 0.02
    assert not np.allclose(together[0][1].validation, together[1][1].validation, rtol=5e-3)


# Correction


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
    return fit_correction(ScoreEnsemble(network, UNIT, base, None), half, MEMBERS, GRID)


def gammas(control):
    return np.asarray(GRID.gamma, np.float64)[np.asarray(control.t, int) - 1][:, None]


def standard_errors(gamma, wider=1.0):
    """At least those of offset and slope: features have variance 1, and ±noise share a case."""
    diffused, assumed = (gamma * r + 1 - gamma for r in (R, wider * R))
    return np.sqrt(gamma * (1 - R) * diffused / assumed**2 / COUNT)  # of the scores given u_t


def test_a_planted_bias_is_found():
    """With mean μ + δ and covariance w R, -Γ_w⁻¹ (u - √γ (μ + δ)) has the mean √γ Γ_w⁻¹ δ + (1 - Γ_w⁻¹ Γ) u - u given u."""
    delta, wider = np.array([0.4, -0.3]), 0.6
    control = correction_of(some_network(), exact_base(delta, wider), *linear_gaussian(COUNT, seed=1))
    gamma = gammas(control)
    assert len(gamma) == KNOTS
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


def test_the_gate_closes_on_noise():
    control = correction_of(some_network(seed=5), exact_base(), *linear_gaussian(COUNT, seed=5))
    assert np.max(control.gate) < 0.2  # over 60 other seeds 0.007 on average and at most 0.06
