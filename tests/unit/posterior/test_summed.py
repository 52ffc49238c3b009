"""Tempering, NUTS and variational inference over summed terms with exact likelihoods, before anything is learned."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chance import one_of
from exact_posteriors import VARIANCES, Exact, summed
from full import shortly
from scipy import stats

from scorefold.errors import ScorefoldError, UntrustworthyDraws
from scorefold.posterior import sum_at_draws, sum_of_terms
from scorefold.posterior import summed as module
from scorefold.posterior.asked import Asked
from scorefold.sample import nuts
from scorefold.sample.nuts import Chains, Length, agreement, nuts_draws
from scorefold.sample.variational import tail_shape, variational_draws
from scorefold.simulation.simulate import simulate
from scorefold.tasks import bimodal
from scorefold.tasks.gaussian import standard_normal_prior
from scorefold.train.training import Training
from scorefold.train.training_set import training_sets


class TwoSides(eqx.Module):
    """The bimodal task's likelihood."""

    def prepare(self, x):
        return x

    def term(self, u, x):
        return bimodal.log_likelihood(u, x)


class Kinked(eqx.Module):
    """-|u - x|, whose second derivative is 0 wherever it exists."""

    def prepare(self, x):
        return x

    def term(self, u, x):
        return -jnp.abs(u - x).sum()


@pytest.mark.false_failure(0)
def test_a_check_sees_how_scores_bend_at_kinks():
    """E[g gᵀ + ∇g] = 0 for the right likelihood; derivatives at points are 0 here, and called it 100 % too steep."""
    rng = np.random.default_rng(0)
    u = 0.2 * rng.normal(size=(2_000, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
    quantiles = stats.laplace.ppf((np.arange(2_000) + 0.5) / 2_000)
    x = u + np.stack([rng.permutation(quantiles) for _ in range(2)], axis=1)
    found = summed(Kinked()).at_pairs(x[:, None], u)
    spread = found.score.T @ found.score / len(u)
    np.testing.assert_allclose(spread, np.eye(2), atol=0.1)
    np.testing.assert_allclose(found.jacobian.mean(axis=0), -np.eye(2), atol=0.2)


@pytest.mark.false_failure(0)
def test_smooth_scores_bend_as_their_derivatives_say():
    u, x = np.random.default_rng(0).normal(size=(2, 50, 2))
    found = summed(Exact()).at_pairs(x[:, None], u)
    right = np.broadcast_to(-np.diag(1 / VARIANCES), (50, 2, 2))
    np.testing.assert_allclose(found.jacobian, right, rtol=1e-3, atol=1e-4)


def observed(n):
    return np.random.default_rng(n).normal([0.7, -0.5], np.sqrt(VARIANCES), (n, 2))


# 1,000 draws with an effective size of 500 or more: the mean has a standard error of 0.045 sd, the sd one of 0.032 of itself;
# 0.25 and 0.18 are 5.6 of them.
@pytest.mark.false_failure(1e-6)
@pytest.mark.filterwarnings("ignore::scorefold.errors.UntrustworthyDraws")
@pytest.mark.parametrize(
    ("sampler", "n"),
    shortly(
        [(sampler, n) for sampler in ("smc", "nuts", "vi") for n in (1, 2, 8, 70)],
        ("smc", 8),
        ("nuts", 8),
        ("vi", 8),
    ),
)
def test_the_conjugate_gaussian(sampler, n):
    x = observed(n)
    # Chains this short have not converged for one seed in 14.
    draws = one_of(lambda seed: summed(Exact()).sample(x, 1_000, seed=seed, sampler=sampler), lambda d: d.info.converged)
    precision = 1 + n / VARIANCES
    mean, sd = x.sum(0) / VARIANCES / precision, precision**-0.5
    assert (np.abs(draws.theta.mean(0) - mean) < 0.25 * sd).all()
    assert (np.abs(draws.theta.std(0) / sd - 1) < 0.18).all()


def test_the_sum_does_not_see_padding_or_chunks(monkeypatch):
    x, u = jnp.asarray(observed(5), jnp.float32), jnp.array([0.2, 0.4])
    exact = -jnp.sum(u**2) / 2 + sum(Exact().term(u, one) for one in x)
    padded = jnp.concatenate([x, jnp.full((3, 2), 1e6)])
    data = (Exact(), padded, sum_of_terms.times_padded(np.ones(5)), None)
    value, slope = jax.value_and_grad(sum_of_terms.log_density)(u, data)
    monkeypatch.setattr(sum_of_terms, "CHUNK", 2)
    chunked, chunked_slope = jax.value_and_grad(sum_of_terms.log_density)(u, data)
    np.testing.assert_allclose([value, chunked], exact, rtol=1e-5)
    np.testing.assert_allclose(slope, chunked_slope, rtol=1e-4)
    assert jnp.isfinite(slope).all()


def test_the_same_observation_many_times_counts_as_often():
    values = observed(3)
    x = values[np.random.default_rng(0).integers(3, size=50)]
    different, times = sum_of_terms.counted(x)
    assert times.sum() == 50
    assert (times > 0).sum() == 3
    u = jnp.array([0.2, 0.4])
    exact = -jnp.sum(u**2) / 2 + sum(Exact().term(u, jnp.asarray(one, jnp.float32)) for one in x)
    np.testing.assert_allclose(sum_of_terms.log_density(u, (Exact(), different, times, None)), exact, rtol=1e-5)
    whole = sum_at_draws.likelihoods(u[None], sum_at_draws.prepared(Exact(), different, times, None))[0]
    np.testing.assert_allclose(whole[0] - jnp.sum(u**2) / 2, exact, rtol=1e-5)


class FarIsNotANumber(Exact):
    """The same, but for observations beyond 100."""

    def term(self, u, x):
        return jnp.where(jnp.any(x > 100), jnp.nan, super().term(u, x))


# The bounds of the conjugate Gaussian above, for three data sets.
@pytest.mark.false_failure(1e-6)
@pytest.mark.full
def test_the_chains_of_many_data_sets_move_side_by_side(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(module, "TERMS_TOGETHER", 96)  # three data sets of 8 observations with 4 chains, then one
    monkeypatch.delattr(module, "nuts_draws")
    x = np.stack([observed(8), observed(8) + 1, observed(8) - 2, np.full((8, 2), 1e3)])
    with pytest.warns(UntrustworthyDraws, match="has not settled for . of 4 data sets"):
        many = one_of(
            lambda k: summed(FarIsNotANumber()).sample_many(x, 1_000, seed=1 + k),
            lambda many: many.converged[:3].all(),
            tries=10,
        )
    precision = 1 + 8 / VARIANCES
    mean, sd = x[:3].sum(1) / VARIANCES / precision, precision**-0.5
    assert many.converged.tolist() == [True, True, True, False]
    assert many.diverged.tolist() == [False, False, False, True]
    assert (np.abs(many.theta[:3].mean(1) - mean) < 0.25 * sd).all()
    assert (np.abs(many.theta[:3].std(1) / sd - 1) < 0.18).all()
    assert np.isnan(many.theta[3]).all()


@pytest.mark.filterwarnings("ignore::scorefold.errors.UntrustworthyDraws")  # few draws
@pytest.mark.parametrize("sampler", shortly(module.SAMPLERS_OF_SUMS, "vi"))
def test_on_cores_many_data_sets_come_one_after_the_other(sampler):
    x = np.stack([observed(2), observed(2) + 1])
    p = summed(Exact(), sampler=sampler)
    many = p.sample_many(x, 50, seed=[3, 4])
    assert (many.theta[1] == p.sample(x[1], 50, seed=4).theta).all()


def test_a_clouds_likelihoods_are_the_sum():
    x, u = jnp.asarray(observed(37), jnp.float32), jnp.asarray(np.random.default_rng(0).normal(size=(6, 2)), jnp.float32)
    padded = jnp.concatenate([x, jnp.full((27, 2), 1e6)])
    found = sum_at_draws.likelihoods(u, sum_at_draws.prepared(Exact(), padded, sum_of_terms.times_padded(np.ones(37)), None))
    exact = jax.vmap(jax.value_and_grad(lambda u: sum(Exact().term(u, one) for one in x)))(u)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), tuple(found), exact)


# Means of 100 draws with an sd of 0.7 at most: were they independent, the differences would have a standard error of 0.1.
@pytest.mark.full
@pytest.mark.false_failure(1e-6)
def test_the_clouds_of_many_data_sets_move_side_by_side(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.delattr(module, "tempered_draws")
    x = np.stack([observed(2), observed(2) + 1, np.full((2, 2), 1e3)])
    with pytest.warns(UntrustworthyDraws, match="1 of 3 data sets"):
        many = summed(FarIsNotANumber(), sampler="smc").sample_many(x, 100, seed=[3, 4, 5])
    monkeypatch.undo()
    alone = summed(FarIsNotANumber(), sampler="smc").sample(x[1], 100, seed=4)
    assert many.diverged.tolist() == [False, False, True]
    np.testing.assert_allclose(many.theta[1].mean(0), alone.theta.mean(0), atol=0.6)


@pytest.mark.false_failure(1e-6)
@pytest.mark.full
def test_chains_in_different_modes_are_reported():
    """Modes 12 sd apart: 24 chains fall on one side only once in 10⁷ seeds."""
    x = np.array([1.2, 1.2]) + 0.5 * np.random.default_rng(0).standard_normal((8, 2))
    with pytest.warns(UntrustworthyDraws, match="different"):
        draws = summed(TwoSides(), chains=24).sample(x, 400, seed=0)
    assert draws.info.r_hat > 1.5
    assert not draws.info.converged
    assert 0 < np.mean(draws.theta[:, 0] > 0) < 1


def test_a_posterior_far_from_gaussian_is_reported_by_vi():
    def heavy_tails(u, data):
        return -jnp.sum(jnp.log1p(4 * u**2))

    _, info = variational_draws(heavy_tails, jnp.zeros(()), 2, 100, jax.random.key(0), 500)
    assert info.tail_shape > 0.7
    assert not info.converged


@pytest.mark.parametrize("u", [np.zeros((2, 500, 2)), np.full((2, 500, 2), np.nan)], ids=["standing still", "not numbers"])
def test_chains_that_went_nowhere_are_refused(monkeypatch, u):
    monkeypatch.setattr(nuts, "_chains", lambda *_: (u, np.zeros((2, 500), bool)))
    with pytest.raises(ScorefoldError, match="did not move"):
        nuts_draws(lambda u, data: data * jnp.sum(u), jnp.zeros(()), Chains(2, 2, Length(10, 500)), 10, jax.random.key(0))


@pytest.mark.false_failure(1e-6)
def test_agreement_sees_a_shift_and_a_stretch():
    u = np.random.default_rng(0).standard_normal((4, 500, 2))
    r_hat, ess = agreement(u)
    assert r_hat < 1.02
    assert ess > 1_000
    for changed in (u + np.array([2, 0, 0, 0])[:, None, None], u * np.array([3, 1, 1, 1])[:, None, None]):
        assert agreement(changed)[0] > 1.1


@pytest.mark.false_failure(1e-6)
def test_the_tail_of_weights():
    rng = np.random.default_rng(0)
    assert tail_shape(0.1 * rng.standard_normal(2_000)) < 0.5
    assert tail_shape(3 * rng.standard_normal(2_000)) > 0.7
    assert tail_shape(np.array([0.0, np.nan])) == np.inf


def test_single_observations_go_with_their_parameters():
    sims = simulate(standard_normal_prior(2), lambda theta, rng: theta, 300, set_size=3)
    (cases,) = training_sets([sims], 1, Training(), [0])
    assert cases.x.shape == (300, 1, 2)
    assert (cases.sizes == 1).all()
    np.testing.assert_allclose(cases.u, cases.observations, atol=1e-5)
    of_one = {tuple(u): set() for u in cases.u}
    for u, fold in zip(cases.u, cases.fold, strict=True):
        of_one[tuple(u)].add(fold)
    assert len(of_one) == len(sims.theta)
    assert all(len(folds) == 1 for folds in of_one.values())


def whole_sum(n, times=None):
    """Of n different observations, padded, each as often as said."""
    times = np.ones(n) if times is None else times
    return sum_at_draws.prepared(Exact(), sum_of_terms.padded(observed(n)), sum_of_terms.times_padded(times), None)


def places(some, whole):
    """Which of the observations each one is."""
    there = np.asarray(some.x)[np.asarray(some.times) > 0]
    return [int(np.flatnonzero((np.asarray(whole.x) == one).all(axis=1))[0]) for one in there]


def test_a_levelled_sum_lacks_its_value_at_a_point():
    whole, u = whole_sum(37, np.arange(1.0, 38)), jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)), jnp.float32)
    level = sum_at_draws.levelled(whole, u[0])
    exact = sum_at_draws.likelihoods(u, whole)[0]
    found = sum_at_draws.likelihoods(u, level)[0]
    assert found[0] == 0
    np.testing.assert_allclose(found, exact - exact[0], rtol=1e-4)
    np.testing.assert_allclose(sum_at_draws.level(level), exact[0], rtol=1e-5)
    assert sum_at_draws.level(whole) == 0


def test_a_term_that_is_not_a_number_takes_nothing_off():
    x = np.vstack([observed(7), [1e3, 1e3]])
    whole = sum_at_draws.prepared(FarIsNotANumber(), sum_of_terms.padded(x), sum_of_terms.times_padded(np.ones(8)), None)
    heights = np.asarray(sum_at_draws.levelled(whole, jnp.zeros(2)).heights)
    assert np.isfinite(heights).all()
    assert np.flatnonzero(heights == 0).tolist() == [7]


def test_every_observations_part_of_the_sum():
    whole, u = whole_sum(37, np.arange(1.0, 38)), jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)), jnp.float32)
    level = sum_at_draws.levelled(whole, u[0])
    terms = np.asarray(sum_at_draws.terms_at(level, u))
    assert terms.shape == (3, 64)
    assert (terms[:, 37:] == 0).all()  # padding
    assert (terms[0] == 0).all()
    np.testing.assert_allclose(terms.sum(axis=1), sum_at_draws.likelihoods(u, level)[0], rtol=1e-4, atol=1e-3)


# Over 20 repetitions with 400 seeds, mean weights were off by up to 18 % and their sum by 1 %, rms; with 1,600 it is half of
# that, and the limits are 8 and 10 times as much.
@pytest.mark.false_failure(1e-7)
@pytest.mark.parametrize("sized", [False, True])
def test_some_observations_stand_for_all(sized):
    rng = np.random.default_rng(0)
    times = rng.integers(1, 5, 37).astype(float)
    whole = whole_sum(37, times)._replace(x=np.arange(64.0), heights=np.zeros(64))
    size = np.append(rng.uniform(0.5, 2, 37), np.full(27, 1e9)) if sized else None
    total = np.zeros(37)
    for seed in range(1_600):
        some = sum_at_draws.some_of(whole, 8, seed, size)
        assert len(some.times) == len(some.x) == len(some.heights) == 64  # as many as before, 8 of them there
        times_of = np.asarray(some.times)
        assert np.flatnonzero(times_of).tolist() == list(range(8))
        np.add.at(total, np.asarray(some.x)[:8].astype(int), times_of[:8])  # padding would be out of bounds
    np.testing.assert_allclose(total / 1_600, times, rtol=0.75)
    np.testing.assert_allclose(total.sum() / 1_600, times.sum(), rtol=0.05)


def test_padding_is_never_chosen():
    whole = whole_sum(37)._replace(x=jnp.arange(64.0)[:, None])
    for size in (None, np.ones(64)):
        chosen = np.concatenate([np.asarray(sum_at_draws.some_of(whole, 8, seed, size).x)[:8, 0] for seed in range(40)])
        assert chosen.max() < 37
        assert len(np.unique(chosen)) > 30


def test_an_observation_as_large_as_the_others_is_there_once():
    whole = whole_sum(37, np.full(37, 3.0))
    size = np.ones(64)
    size[[4, 9]] = 1e4, 100.0
    for seed in range(20):
        some = sum_at_draws.some_of(whole, 8, seed, size)
        chosen = places(some, whole)
        assert chosen[:2] == [4, 9]
        assert {4, 9}.isdisjoint(chosen[2:])
        np.testing.assert_allclose(some.times[:8], [3.0, 3.0] + [3 * 35 / 6] * 6, rtol=1e-6)


def test_some_keep_what_was_taken_off():
    whole = sum_at_draws.levelled(whole_sum(37), jnp.array([0.2, 0.4]))
    some = sum_at_draws.some_of(whole, 8, 0)
    np.testing.assert_array_equal(some.heights[:8], np.asarray(whole.heights)[places(some, whole)])
    assert sum_at_draws.likelihoods(jnp.array([[0.2, 0.4]]), some)[0][0] == 0


# The same draws and observations, however many there are of either.
@pytest.mark.false_failure(0)
@pytest.mark.parametrize(("draws", "n"), [(1, 1), (3, 37), (300, 5)])
def test_one_program_serves_any_number_of_draws_and_observations(draws, n):
    whole = sum_at_draws.prepared(Exact(), *sum_at_draws.roomy(observed(n)), None)
    assert len(whole.times) == sum_at_draws.LEAST_ROOM
    u = np.random.default_rng(0).normal(size=(draws, 2)).astype(np.float32)
    found = sum_at_draws.at_draws(u, (whole, Asked()))
    exact = jax.vmap(jax.value_and_grad(lambda u: sum(Exact().term(u, jnp.asarray(one, jnp.float32)) for one in observed(n))))(
        u
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), tuple(found[:2]), exact)
    np.testing.assert_allclose(sum_at_draws.at_draws(u, (whole, Asked()), slopes=False).value, exact[0], rtol=1e-4)
    np.testing.assert_allclose(found.of_members[0], exact[1], rtol=1e-4)


def test_what_one_draw_rules_out_is_not_ruled_out_for_others():
    whole = sum_at_draws.prepared(FarIsNotANumber(), *sum_at_draws.roomy(np.vstack([observed(3), [[1e3, 1e3]]])), None)
    assert np.isnan(sum_at_draws.at_draws(np.zeros((2, 2)), (whole, Asked())).value).all()

    class Half(Exact):
        def term(self, u, x):
            return jnp.where(u[0] > 0, super().term(u, x), -jnp.inf)

    half = sum_at_draws.prepared(Half(), *sum_at_draws.roomy(observed(3)), None)
    value = sum_at_draws.at_draws(np.array([[1.0, 0.0], [-1.0, 0.0], [2.0, 0.0]]), (half, Asked())).value
    assert np.isfinite(value).tolist() == [True, False, True]
