"""Numbers that are missing, on their way from a simulator to training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import scorefold as sf
from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.posterior.observations import checked
from scorefold.simulation.holes import COPIES, MOST, dropped, filled

PRIOR = sf.Prior({"a": stats.norm(0, 1)})


def some_missing(theta, rng):
    x = theta[0] + rng.normal(size=3)
    x[rng.uniform(size=3) < 0.4] = np.nan
    return x


@sf.Batched
def some_missing_in_jax(theta, keys):
    def one(theta, key):
        x = theta[0] + jax.random.normal(key, (3,))
        return jnp.where(jax.random.bernoulli(jax.random.fold_in(key, 1), 0.4, (3,)), jnp.nan, x)

    return jax.vmap(one)(theta, keys)


# Of 300 observations of 3 numbers 0.4³ have none; 34 % of the others' numbers are missing, ± 0.016.
@pytest.mark.false_failure(2e-6)
@pytest.mark.parametrize("simulator", [some_missing, some_missing_in_jax], ids=["plain", "batched"])
def test_holes_are_kept_when_asked_for(simulator):
    with pytest.warns(ScorefoldWarning, match="failed"):  # those of nothing but NaN
        sims = sf.simulate(PRIOR, simulator, 300, missing=True)
    assert sims.missing
    holes = np.isnan(sims.x[:, 0])
    assert 0.2 < holes.mean() < 0.48
    assert not holes.all(axis=1).any()
    assert np.abs(sims.x[~np.isnan(sims.x)]).max() < 10


def test_otherwise_nan_is_a_failure():
    with pytest.raises(ScorefoldError, match="not finite"):
        sf.simulate(PRIOR, some_missing, 300)
    assert not sf.simulate(PRIOR, lambda theta, rng: theta + rng.normal(size=2), 100).missing


def test_given_simulations():
    theta = PRIOR.sample(200, seed=0)
    x = theta + np.random.default_rng(0).normal(size=(200, 2))
    x[::3, 0] = np.nan
    x[5] = np.nan
    with pytest.warns(ScorefoldWarning, match="1 of 200"):
        sims = sf.Simulations(PRIOR, theta, x, missing=True)
    assert len(sims.theta) == 199
    assert np.isnan(sims.x).sum() == 67
    with pytest.raises(ScorefoldError, match="hold NaN"):
        sf.Simulations(PRIOR, theta, x)
    x[0, 1] = np.inf
    with pytest.warns(ScorefoldWarning, match="2 of 200"):
        assert len(sf.Simulations(PRIOR, theta, x, missing=True).theta) == 198


def test_a_store_and_inputs_are_refused(tmp_path):
    with pytest.raises(ScorefoldError, match="neither a store nor inputs"):
        sf.simulate(PRIOR, some_missing, 300, missing=True, store=tmp_path / "store")
    with pytest.raises(ScorefoldError, match="neither a store nor inputs"):
        sf.simulate(PRIOR, some_missing, 300, missing=True, inputs=np.ones((5, 1)))
    with pytest.raises(ScorefoldError, match="no inputs"):
        sf.Simulations(PRIOR, np.zeros((60, 1)), np.zeros((60, 2)), missing=True, inputs=np.ones((60, 1)))


@pytest.mark.false_failure(1e-6)
def test_training_drops_numbers_at_random():
    sims = sf.simulate(PRIOR, lambda theta, rng: theta + rng.normal(size=4), 400, set_size=2, missing=True)
    more = dropped(sims, 1)
    cases = len(sims.theta)
    assert len(more.theta) == len(more.origin) == COPIES * cases
    assert np.array_equal(more.x[:cases], sims.x), "once as they were simulated"
    real = np.arange(2) < more.sizes[:, None]
    assert not np.isnan(more.x[~real]).any()
    holes = np.isnan(more.x[cases:][real[cases:]])
    assert not holes.all(axis=1).any()
    assert abs(holes.mean() - MOST / 2 * 3 / 4) < 0.05
    assert holes.mean(axis=0).min() > 0.2
    assert np.array_equal(
        np.nan_to_num(more.x[cases:]), np.where(np.isnan(more.x[cases:]), 0, np.tile(sims.x, (COPIES - 1, 1, 1)))
    )


def test_medians_stand_for_holes_where_ranges_are_looked_at():
    theta = PRIOR.sample(99, seed=0)
    x = np.tile([[1.0, 5.0]], (99, 1)) + np.arange(99)[:, None]
    x[:10, 1] = np.nan
    sims = sf.Simulations(PRIOR, theta, x, missing=True)
    assert np.array_equal(filled(sims).x[:10, 0, 1], np.full(10, np.nanquantile(x[:, 1], 0.5, method="nearest")))
    assert np.array_equal(filled(sims).x[10:], sims.x[10:])


def test_observations():
    x = np.array([[1.0, np.nan], [np.nan, np.nan]])
    assert np.isnan(checked(x, (2,), (), missing=True)).sum() == 3
    with pytest.raises(ScorefoldError, match="missing=True"):
        checked(x, (2,), ())
    with pytest.raises(ScorefoldError, match="hold NaN or infinity"):
        checked(np.array([[np.inf, 1.0]]), (2,), (), missing=True)


@pytest.mark.parametrize("method", ["nle", "nre", "npe", "abc"])
def test_methods_that_cannot_refuse(method):
    sims = sf.simulate(PRIOR, lambda theta, rng: theta + rng.normal(size=2), 100, missing=True)
    with pytest.raises(ScorefoldError, match="without missing numbers"):
        sf.fit(sims, method)
