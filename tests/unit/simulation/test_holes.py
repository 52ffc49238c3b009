"""Numbers that are missing, on their way from a simulator to training."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import scorefold as sf
from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.posterior.observations import checked, with_inputs
from scorefold.simulation import holes
from scorefold.simulation.holes import COPIES, MOST_DROPPED, dropped, filled
from scorefold.simulation.store import store as stored
from scorefold.simulation.store.export import to_parquet

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


@pytest.mark.parametrize(("simulator", "workers"), [(some_missing, 0), (some_missing, 2), (some_missing_in_jax, 0)])
def test_a_store_keeps_holes(tmp_path, simulator, workers):
    store = tmp_path / "store"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScorefoldWarning)
        here = sf.simulate(PRIOR, simulator, 300, missing=True)
        sims = sf.simulate(PRIOR, simulator, 200, missing=True, store=store, workers=workers)
        sims = sf.simulate(PRIOR, simulator, 300, missing=True, store=store, workers=workers)
    again = sf.Store.open(store).simulations()
    for one in (sims, again):
        assert one.missing
        assert np.array_equal(one.x, here.x, equal_nan=True)
        assert np.array_equal(one.theta, here.theta)
    with pytest.raises(ScorefoldError, match="missing="):
        sf.simulate(PRIOR, simulator, 300, store=store, workers=workers)
    parquet = pytest.importorskip("pyarrow.parquet")
    to_parquet(sf.Store.open(store), tmp_path / "out.parquet")
    rows = parquet.read_table(tmp_path / "out.parquet").to_pydict()
    x = np.array([one for one, status in zip(rows["x"], rows["status"], strict=True) if status == "ok"], np.float32)
    assert np.array_equal(x, here.x[:, 0], equal_nan=True)


@pytest.mark.false_failure(1e-6)
def test_holes_of_simulations_that_are_mapped_from_a_store(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "IN_MEMORY", 0)
    with pytest.warns(ScorefoldWarning, match="failed"):
        sims = sf.simulate(PRIOR, some_missing, 300, missing=True, store=tmp_path / "store", workers=0)
    assert isinstance(sims.x, np.memmap)
    assert 0.2 < np.isnan(sims.x).mean() < 0.48
    assert len(dropped(sims, 0).theta) == COPIES * len(sims.theta)
    monkeypatch.setattr(holes, "COPIED_BYTES", 100)
    with pytest.raises(ScorefoldError, match="copies are held in memory"):
        dropped(sims, 0)


def with_dose(theta, rng, inputs):
    x = theta[0] * inputs[0] + rng.normal(size=2)
    x[rng.uniform(size=2) < 0.3] = np.nan
    return x


@sf.Batched
def with_dose_in_jax(theta, keys, inputs):
    def one(theta, key, inputs):
        x = theta[0] * inputs[0] + jax.random.normal(key, (2,))
        return jnp.where(jax.random.bernoulli(jax.random.fold_in(key, 1), 0.3, (2,)), jnp.nan, x)

    return jax.vmap(one)(theta, keys, inputs)


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("simulator", [with_dose, with_dose_in_jax], ids=["plain", "batched"])
def test_inputs_are_never_missing(simulator, tmp_path):
    known = {"inputs": np.array([[1.0], [2.0]]), "input_names": ["dose"]}
    with pytest.warns(ScorefoldWarning, match="failed"):  # those without an outcome
        sims = sf.simulate(PRIOR, simulator, 300, missing=True, **known)
    holes = np.isnan(sims.x[:, 0])
    assert holes[:, :2].any()
    assert not holes[:, :2].all(axis=1).any()
    assert not holes[:, 2].any()
    more = np.isnan(dropped(sims, 0).x[:, 0])
    assert more[len(sims.theta) :, :2].mean() > holes[:, :2].mean() + 0.1
    assert not more[:, :2].all(axis=1).any()
    assert not more[:, 2].any()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScorefoldWarning)
        kept = sf.simulate(PRIOR, simulator, 300, missing=True, store=tmp_path / "store", workers=0, **known)
    assert np.array_equal(kept.x, sims.x, equal_nan=True)


def test_given_simulations_with_holes_and_inputs():
    theta = PRIOR.sample(200, seed=0)
    x = theta + np.random.default_rng(0).normal(size=(200, 2))
    x[::3, 0] = np.nan
    x[5] = np.nan
    with pytest.warns(ScorefoldWarning, match="1 of 200"):  # without an outcome
        sims = sf.Simulations(PRIOR, theta, x, missing=True, inputs=np.ones((200, 1)))
    assert len(sims.theta) == 199
    with pytest.raises(ScorefoldError, match="Inputs are always known"):
        sf.Simulations(PRIOR, theta, x, missing=True, inputs=np.full((200, 1), np.nan))
    seen = np.array([[1.0, np.nan, 2.0]])
    assert np.isnan(with_inputs(seen, None, (3,), ("a", "b", "dose"), ("dose",), missing=True)).sum() == 1
    with pytest.raises(ScorefoldError, match="Inputs are always known"):
        with_inputs(seen[:, ::-1] * [1, 1, np.nan], None, (3,), ("a", "b", "dose"), ("dose",), missing=True)


def test_a_series_that_ends_early_is_one_with_holes_at_its_end():
    """Ragged series: as long as the longest, NaN behind the end of each."""

    def series(theta, rng):
        walk = np.cumsum(theta[0] + rng.normal(size=6))
        walk[rng.integers(1, 7) :] = np.nan
        return walk

    sims = sf.simulate(PRIOR, series, 300, missing=True)
    ends = (~np.isnan(sims.x[:, 0])).sum(axis=1)
    assert set(ends) == {1, 2, 3, 4, 5, 6}
    assert sims.failed == 0
    theta = PRIOR.sample(100, seed=1)
    rng = np.random.default_rng(0)
    ragged = [np.cumsum(one + rng.normal(size=rng.integers(1, 7))) for one in theta[:, 0]]
    padded = np.array([np.pad(one, (0, 6 - len(one)), constant_values=np.nan) for one in ragged])
    given = sf.Simulations(PRIOR, theta, padded, missing=True)
    assert given.failed == 0
    assert np.array_equal(np.isnan(given.x[:, 0]), np.isnan(padded))


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
    assert abs(holes.mean() - MOST_DROPPED / 2 * 3 / 4) < 0.05
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
    with pytest.raises(ScorefoldError, match="hold infinity"):
        checked(np.array([[np.inf, 1.0]]), (2,), (), missing=True)


def test_the_method_that_cannot_refuses():
    sims = sf.simulate(PRIOR, lambda theta, rng: theta + rng.normal(size=2), 100, missing=True)
    with pytest.raises(ScorefoldError, match="any method but ABC"):
        sf.fit(sims, "abc")


def test_what_cannot_be_is_refused_before_anything_is_simulated(unchecked):
    def never(theta, rng):
        raise AssertionError("it was called")

    by_draws = sf.Prior.from_draws(np.random.default_rng(0).normal(size=(200, 1)), names=["a"])
    with pytest.raises(ScorefoldError, match="a prior that is written down where numbers may be missing"):
        sf.simulate(by_draws, never, 100, missing=True)
    with pytest.raises(ScorefoldError, match="a prior that is written down where numbers may be missing"):
        sf.Simulations(by_draws, by_draws.sample(60, 0), np.zeros((60, 2)), missing=True)
    with pytest.raises(ScorefoldError, match="missing to be True or False; got 'yes'"):
        sf.simulate(PRIOR, never, 100, missing="yes")


def test_a_simulator_of_ragged_series_is_told_what_to_do():
    with pytest.raises(ScorefoldError, match="With missing=True the ends of short ones may be NaN"):
        sf.simulate(PRIOR, lambda theta, rng: rng.normal(size=int(rng.integers(1, 4))), 100)
