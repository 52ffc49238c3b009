"""Which cases a member holds out, and sets with a random part of their observations."""

import failing
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorefold.train.training import Training
from scorefold.train.training_set import Cases, folds, thinned, training_sets
from scorefold.train.training_set import held_out as held_out_folds


def held_out(origin, members, seed):
    return held_out_folds(folds(origin, seed), members)


def as_cases(u, x):
    u, x = jnp.asarray(u, jnp.float32), jnp.asarray(x, jnp.float32)
    return Cases(u, x[:, None], jnp.ones(len(u), jnp.int32))


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


@pytest.mark.false_failure(1e-6)
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


@pytest.mark.false_failure(1e-6)
def test_single_observations_are_left_as_they_are_and_the_prior_takes_its_share():
    cases = as_cases(np.zeros((1000, 2)), np.arange(3000.0).reshape(1000, 3))
    same = thinned(cases, jax.random.key(0), learns_prior=False)
    assert all(np.array_equal(v, w) for v, w in zip(same, cases, strict=True))
    some = thinned(cases, jax.random.key(0), learns_prior=True)
    assert abs(float(jnp.mean(some.sizes == 0)) - 0.5) < 0.08  # 5 sd


# Simulations that failed


@pytest.mark.false_failure(2e-6)
@pytest.mark.full
def test_where_calls_failed_a_case_of_s_observations_comes_from_parameters_with_s_successes():
    (made,) = training_sets([failing.simulations(40_000, set_size=4)], 4, Training(), [0])
    assert made.failed
    some = thinned(made.cases, jax.random.key(0), learns_prior=False)
    u, sizes = np.asarray(some.u)[:, 0], np.asarray(some.sizes)
    for s in range(1, 5):
        mean, variance = failing.given_success(s)
        # Cases are drawn with replacement: of two standard errors' squares at most, 5.5 of them, 4 times in 10⁸ beyond.
        assert abs(u[sizes == s].mean() - mean) < 5.5 * np.sqrt(2 * variance / (sizes == s).sum())
    assert np.bincount(sizes, minlength=5)[0] == 0


def test_where_nothing_failed_cases_have_no_weights():
    (made,) = training_sets([failing.simulations(2_000)._replace(failed=0, calls=None)], 1, Training(), [0])
    assert made.cases.weights is None
    assert not made.failed
