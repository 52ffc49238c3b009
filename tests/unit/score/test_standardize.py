"""The rule that straightens columns, on laws where the answer is known; the map itself beyond what was simulated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorefold.score.standardize import KNEE, departure, fit_standardize, standardized

RNG = np.random.default_rng(0)
NORMAL = RNG.standard_normal(4_000)
COLUMNS = {
    "normal": (NORMAL, "none"),
    "normal, far from 0": (1e4 + NORMAL, "none"),
    "uniform": (RNG.uniform(-1, 1, 4_000), "none"),
    "uniform, positive": (RNG.uniform(1, 2, 4_000), "none"),
    "constant": (np.full(4_000, 3.0), "none"),
    "two values": (RNG.integers(0, 2, 4_000).astype(float), "none"),
    "Student's t with 5": (RNG.standard_t(5, 4_000), "none"),
    "log-normal, narrow": (np.exp(0.2 * NORMAL), "log"),
    "log-normal, over decades": (np.exp(4 * NORMAL), "log"),
    "log-normal, tiny": (1e-20 * np.exp(3 * NORMAL), "log"),
    "sinh of normal": (np.sinh(4 * NORMAL), "asinh"),
    "counts with zeros": (RNG.poisson(np.exp(1 + 2 * NORMAL)).astype(float), "asinh"),
    "both signs over decades": (np.sign(NORMAL) * np.exp(10 * np.abs(NORMAL)), "asinh"),
    "two heaps": (np.where(NORMAL > 0.5, NORMAL + 30, NORMAL - 30), "ranks"),
}
TABLE = np.stack([column for column, _ in COLUMNS.values()], axis=1)


@pytest.fixture(scope="module")
def fitted():
    return fit_standardize(TABLE)


@pytest.mark.parametrize("name", COLUMNS)
def test_the_rule(fitted, name):
    assert fitted.kinds[list(COLUMNS).index(name)] == COLUMNS[name][1]


def test_what_was_straightened_is_straighter_and_of_unit_scale(fitted):
    z = standardized(fitted, TABLE)
    assert np.isfinite(z).all()
    for i, kind in enumerate(fitted.kinds):
        if kind != "none":
            assert departure(z[:, i]) < 0.75 * departure(TABLE[:, i])
            assert abs(np.median(z[:, i])) < 0.05 or kind == "asinh"
    assert np.abs(np.median(z, axis=0)).max() < 1.01


@pytest.mark.parametrize("factor", [1e-3, 7.0, 1e4])
def test_units_do_not_matter(fitted, factor):
    # Where nothing is lost in single precision.
    again = fit_standardize(factor * TABLE)
    assert again.kinds == fitted.kinds
    np.testing.assert_allclose(standardized(again, factor * TABLE), standardized(fitted, TABLE), atol=2e-3)


def test_the_order_of_values_is_kept_also_outside(fitted):
    # A straightened value never falls while x rises, below 0 and beyond what was simulated too.
    reach = np.abs(TABLE).max(axis=0)
    line = np.concatenate([-np.logspace(2, -6, 200), [0.0], np.logspace(-6, 2, 200)])[:, None] * reach
    z = standardized(fitted, line)
    assert np.isfinite(z).all()
    assert (np.diff(z, axis=0) >= -1e-5).all()


def test_the_logarithm_goes_on_along_its_tangent(fitted):
    column = list(COLUMNS).index("log-normal, narrow")
    unit = float(fitted.straight.unit[column])

    def f(x):
        return fitted.straight(jnp.full(TABLE.shape[1], x))[column]

    slopes = [float(jax.grad(f)(unit * part)) for part in (0.999, 1.001)]
    np.testing.assert_allclose(slopes, 1 / unit, rtol=2e-3)
    np.testing.assert_allclose(f(-unit), np.log(unit) - 2, rtol=1e-5)


def test_outliers_go_on_logarithmically(fitted):
    x = np.median(TABLE, axis=0)
    column = list(COLUMNS).index("normal")
    x[column] = 1e6
    assert KNEE < float(fitted(jnp.asarray(x, jnp.float32))[column]) < KNEE + np.log(2e6)


def test_one_column_does_not_depend_on_the_others(fitted):
    alone = fit_standardize(TABLE[:, 7:8])
    np.testing.assert_allclose(standardized(alone, TABLE[:, 7:8]), standardized(fitted, TABLE)[:, 7:8], atol=1e-6)
