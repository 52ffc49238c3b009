"""Binary numbers and counts: probabilities that add up to 1, exact in the tails, one number after the other."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats
from shaken import shaken

import scorefold as sf
from scorefold.density.cells import Lattice, log_cell, log_ndtr
from scorefold.density.likelihood import Likelihood, LikelihoodShape, likelihood_loss, likelihood_network, seen_cases
from scorefold.density.line import fit_line
from scorefold.density.mean_terms import MeanTerms
from scorefold.methods.nle import MOST_WHOLE, lattices_of
from scorefold.score.standardize import fit_standardize, standardized

KEY = jax.random.key(0)
NO = jnp.zeros((), bool)
U = jnp.array([0.3, -0.8])


# The probability of a cell


def test_the_normal_distribution_function_and_its_slope():
    x = np.concatenate([np.linspace(-8, 5, 5_001), [-1e3, -100.0, -30.0]]).astype(np.float32)
    exact = special.log_ndtr(x.astype(np.float64))
    np.testing.assert_allclose(jax.jit(jax.vmap(log_ndtr))(x), exact, rtol=1e-6, atol=2e-7)
    slopes = np.exp(stats.norm.logpdf(x[:-3].astype(np.float64)) - exact[:-3])
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(log_ndtr)))(x[:-3]), slopes, rtol=1e-4)


@pytest.mark.parametrize(("low", "high"), [(-0.3, 0.9), (-9.0, -8.0), (6.0, 6.5), (-0.02, 0.05), (12.0, 12.5), (-3.0, 3.0)])
def test_a_cell_is_the_difference_of_two_normal_distribution_functions(low, high):
    side = -1 if low > 0 else 1  # where SciPy does not round to 0
    ends = sorted((side * low, side * high))
    exact = stats.norm.logcdf(ends[1]) + np.log1p(-np.exp(stats.norm.logcdf(ends[0]) - stats.norm.logcdf(ends[1])))
    np.testing.assert_allclose(log_cell(jnp.float32(low), jnp.float32(high), NO, NO), exact, rtol=2e-5)


@pytest.mark.parametrize("middle", [0.0, -2.0, 5.0])
def test_a_narrow_cell_is_a_density_times_its_width(middle):
    for wide in (1e-2, 1e-4, 1e-6):
        found = log_cell(jnp.float32(middle - wide / 2), jnp.float32(middle + wide / 2), NO, NO)
        tolerance = 0.01 if wide > 1e-5 or middle == 0 else 0.5  # beside 5, single precision ends at 5e-7
        np.testing.assert_allclose(found, stats.norm.logpdf(middle) + np.log(wide), atol=tolerance)


def test_the_first_cell_begins_and_the_last_ends_at_infinity():
    yes = jnp.ones((), bool)
    np.testing.assert_allclose(log_cell(jnp.float32(3), jnp.float32(-1), yes, NO), stats.norm.logcdf(-1), rtol=1e-5)
    np.testing.assert_allclose(log_cell(jnp.float32(2), jnp.float32(0), NO, yes), stats.norm.logsf(2), rtol=1e-5)


def test_gradients_are_finite_however_far_and_narrow_a_cell_is():
    for low in (-1e3, -30.0, -1.0, 0.0, 2.0, 40.0, 1e3):
        for wide in (0.0, 1e-7, 1e-3, 0.5, 100.0):
            slopes = jax.grad(log_cell, (0, 1))(jnp.float32(low), jnp.float32(low + wide), NO, NO)
            assert np.isfinite(slopes).all()


@pytest.mark.parametrize("far", [1.0, 12.0, 14.0, 40.0, 1e3])
def test_gradients_are_finite_in_the_first_and_the_last_cell_of_a_number_that_hardly_varies(far):
    yes = jnp.ones((), bool)
    for low, high, first, last in ((-1.0, far, yes, NO), (-far, 1.0, NO, yes)):
        slopes = jax.grad(log_cell, (0, 1))(jnp.float32(low), jnp.float32(high), first, last)
        assert np.isfinite(slopes).all()


# A reaction time, a choice and a count, with an input


def simulated(count=2_000, seed=0):
    """u, and x = (a positive number, a choice of 1 or 2, a count up to 5, an input)."""
    rng = np.random.default_rng(seed)
    u, given = rng.normal(size=(count, 2)), rng.uniform(1, 2, count)
    time = np.exp(0.3 * u[:, 0] + 0.2 * rng.normal(size=count))
    choice = 1.0 + (rng.normal(size=count) < u[:, 1])
    number = rng.binomial(5, 1 / (1 + np.exp(-u[:, 0])))
    return u, np.stack([time, choice, number, given], axis=1).astype(np.float32)


LATTICE = Lattice(jnp.array([1, 2, 0]), jnp.array([1.0, 0.0]), jnp.ones(2), jnp.array([2.0, 5.0]))


SHAPE = LikelihoodShape(2, 4, 8, 1, 2, "affine", 1, 2)


@cache
def model(scale=0.3, line=True):
    """One with random weights."""
    u, x = simulated()
    standardize = fit_standardize(x)
    z = standardized(standardize, x)
    straight = fit_line(z[:, [1, 2, 0]], np.concatenate([u, z[:, 3:]], axis=1)) if line else None
    network = likelihood_network(SHAPE, key=KEY)
    return Likelihood(shaken(network, scale) if scale else network, standardize, straight, LATTICE)


def probabilities(own, u=U, given=1.5, times=None):
    """e^term at every choice, count and time."""
    times = jnp.ones(1) if times is None else times
    choice, number, time = jnp.meshgrid(jnp.array([1.0, 2.0]), jnp.arange(6.0), times, indexing="ij")
    x = jnp.stack([time, choice, number, jnp.full(time.shape, given)], axis=-1)
    return x, jax.jit(jnp.vectorize(lambda x: own.term(u, own.prepare(x)), signature="(x)->()"))(x)


@pytest.mark.parametrize("line", [True, False])
def test_probabilities_and_densities_add_up_to_one(line):
    own = model(line=line)
    stacked = jax.tree.map(lambda v: v[None], own.network)
    terms = MeanTerms(stacked, None, own.standardize, own.line, Likelihood, own.lattice)
    times = jnp.exp(jnp.linspace(-6.0, 6.0, 401))
    x, log = probabilities(own, times=times)
    log = log + jax.jit(jnp.vectorize(terms.log_volume, signature="(x)->()"))(x)
    whole = np.trapezoid(np.exp(np.asarray(log, np.float64)), np.asarray(times, np.float64), axis=-1)
    np.testing.assert_allclose(whole.sum(), 1.0, atol=0.01)


def test_a_choice_is_not_given_the_count_that_comes_after_it():
    own = model()
    first = jax.tree.map(lambda v: v[0], own.network.cells)

    @jax.jit
    def choice(x):
        seen = own.whitened(U, own.prepare(x))
        return first.parameters(jnp.array(0), seen.cells.y, seen.given), seen.cells.high[0]

    (one, end), (other, same) = (choice(jnp.array([1.0, 2.0, count, 1.5])) for count in (3.0, 0.0))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(end, same, rtol=1e-6)


def test_at_its_start_it_is_the_line_in_cells():
    own, x = model(scale=0), np.array([1.0, 2.0, 3.0, 1.5])
    z, line = standardized(own.standardize, x), own.line
    given = np.concatenate([U, z[3:]])
    mean = np.asarray(line.slope @ given + line.offset)
    root = np.linalg.inv(np.asarray(line.whiten, np.float64))
    cut = (standardized(own.standardize, x - [0, 0.5, 0, 0])[1] - mean[0]) / root[0, 0]
    y = z[[1, 2, 0]] - mean
    ends = [standardized(own.standardize, x + np.array([0, 0, side, 0]))[2] - mean[1] for side in (-0.5, 0.5)]
    number = [(end - root[1, 0] * y[0] / root[0, 0]) / root[1, 1] for end in ends]
    time = np.linalg.solve(root, y)[2]
    exact = stats.norm.logsf(cut) + np.log(np.diff(stats.norm.cdf(number))[0]) + stats.norm.logpdf(time)
    np.testing.assert_allclose(own.term(U, own.prepare(jnp.asarray(x, jnp.float32))), exact, rtol=1e-4)


@pytest.mark.parametrize(("odd", "even"), [(7.0, 5.0), (-1.0, 0.0), (2.2, 2.0)])
def test_a_value_that_was_never_simulated_counts_as_the_nearest(odd, even):
    own = model()
    term = jax.jit(lambda x: own.term(U, own.prepare(x)))
    found = [term(jnp.array([1.0, 2.0, number, 1.5])) for number in (odd, even)]
    np.testing.assert_array_equal(*found)


@pytest.mark.false_failure(1e-6)
def test_draws_have_the_probabilities():
    own, x = model(), jnp.array([1.0, 1.0, 0.0, 1.5])
    keys = jax.random.split(KEY, 1_000)
    drawn = jax.jit(jax.vmap(lambda key: own.drawn(U, x, key)))(keys)
    cells, residual = drawn.cells, drawn.y
    z = standardized(own.standardize, np.stack([np.ones(6), [1, 2, 1, 1, 1, 1], np.arange(6), np.ones(6)], axis=1))
    choice = np.abs(np.asarray(cells.y)[:, :1] - z[:2, 1]).argmin(axis=1)
    number = np.abs(np.asarray(cells.y)[:, 1:] - z[:, 2]).argmin(axis=1)
    times = jnp.exp(jnp.linspace(-6.0, 6.0, 401))
    at, log = probabilities(own, times=times)
    terms = MeanTerms(jax.tree.map(lambda v: v[None], own.network), None, own.standardize, own.line, Likelihood, own.lattice)
    log = log + jax.jit(jnp.vectorize(terms.log_volume, signature="(x)->()"))(at)
    exact = np.trapezoid(np.exp(np.asarray(log, np.float64)), np.asarray(times, np.float64), axis=-1)
    shares = np.bincount(6 * choice + number, minlength=12) / 1_000
    assert np.abs(shares - exact.ravel()).max() < 5.5 * np.sqrt(0.25 / 1_000)
    assert np.isfinite(residual).all()
    mass = jax.jit(lambda key: terms.masses(U, x, key, 20))(KEY)
    np.testing.assert_allclose(mass, 1.0, rtol=1e-4)  # one member is its own mean


def test_the_loss_is_the_mean_of_the_terms():
    own = model()
    u, x = (jnp.asarray(v, jnp.float32) for v in simulated(20))
    each = jax.jit(jax.vmap(lambda u, x: own.term(u, own.prepare(x))))(u, x)
    fixed, cases = (None, own.standardize, own.line, own.lattice), (u, x[:, None], jnp.ones(20, int))
    seen = seen_cases(SHAPE, fixed, cases)
    np.testing.assert_allclose(eqx.filter_jit(likelihood_loss)(own.network, fixed, seen, KEY), -np.mean(each), rtol=1e-4)


# Which numbers are binary or counts


PRIOR = sf.Prior({"a": stats.norm(0, 1)})


def sims_of(x, **names):
    return sf.Simulations(PRIOR, PRIOR.sample(len(x), seed=0), x, **names)


def test_binary_numbers_and_counts_are_found_in_the_simulations():
    rng = np.random.default_rng(0)
    columns = {
        "time": rng.normal(size=300), "choice": 2.0 * rng.integers(2, size=300) - 1, "count": rng.poisson(30, size=300),
        "constant": np.ones(300),
    }  # fmt: skip
    (found,) = lattices_of([sims_of(np.stack(list(columns.values()), axis=1), x_names=tuple(columns))])
    np.testing.assert_array_equal(found.order, [1, 2, 0, 3])
    np.testing.assert_array_equal(found.low, [-1, columns["count"].min()])
    np.testing.assert_array_equal(found.step, [2, 1])
    np.testing.assert_array_equal(found.high, [1, columns["count"].max()])


def test_what_is_continuous_large_or_too_much_is_left_as_it_is():
    rng = np.random.default_rng(0)
    assert lattices_of([sims_of(rng.normal(size=(300, 2)))]) == [None]
    assert lattices_of([sims_of(np.round(1e8 * rng.uniform(size=300)))]) == [None]
    assert lattices_of([sims_of(rng.integers(3, size=(300, MOST_WHOLE + 1)))]) == [None]


def test_trained_together_a_number_must_be_a_count_in_all_simulations():
    rng = np.random.default_rng(0)
    one, other = rng.poisson(3, size=(300, 2)).astype(float), rng.poisson(3, size=(300, 2)).astype(float)
    other[:, 0] += 0.5
    for found in lattices_of([sims_of(one), sims_of(other)]):
        np.testing.assert_array_equal(found.order, [1, 0])
