"""Edges that the parameters move: where there is one it is found, and what is made of it is a density."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import scorefold as sf
from scorefold.density.coordinates import at
from scorefold.density.edges import blank, closest_edge, edges_of
from scorefold.density.straighten import Allowed, straighten
from scorefold.posterior import sum_of_terms as sums
from scorefold.score.standardize import standardized

PRIOR = sf.Prior({"place": scipy.stats.uniform(0.2, 1.0), "scale": scipy.stats.uniform(0.2, 1.3)})
COUNT = 3_000
VISIBLE = np.array([0.5, 0.9]), np.array([1.1, 0.3])
"""Parameters at which densities are integrated."""


def lognormal(theta, rng):
    """(count, 1), all above the first parameter."""
    return theta[:, :1] + theta[:, 1:] * np.exp(0.5 * rng.standard_normal((len(theta), 1)))


def exponential(theta, rng):
    return theta[:, :1] + theta[:, 1:] * rng.exponential(size=(len(theta), 1))


def from_above(theta, rng):
    return -exponential(theta, rng)


def found_in(simulate, inputs=0):
    theta = PRIOR.sample(COUNT, seed=0)
    x = simulate(theta, np.random.default_rng(0))
    return straighten(PRIOR, x, PRIOR.to_normal(theta), inputs, Allowed(changing=True, edges=True))


@pytest.mark.false_failure(1e-8)
@pytest.mark.parametrize(("simulate", "side"), [(lognormal, 1), (exponential, 1), (from_above, -1)])
def test_an_edge_is_found_with_the_parameter_that_moves_it(simulate, side):
    found = found_in(simulate)
    assert found.edges.side.tolist() == [side]
    slope = np.asarray(found.edges.slope)[0] * float(found.standardize.scale[0]) / np.std(PRIOR.sample(COUNT, seed=0)[:, 0])
    assert slope[0] == pytest.approx(side, abs=0.15)
    assert slope[1] == 0


@pytest.mark.false_failure(1e-8)
def test_an_input_may_move_an_edge():
    def simulate(theta, rng):
        delay = rng.uniform(size=(len(theta), 1))
        return np.concatenate([theta[:, :1] + delay + exponential(0 * theta + [0, 0.5], rng), delay], axis=1)

    found = found_in(simulate, inputs=1)
    assert found.edges.side.tolist() == [1]
    assert np.asarray(found.edges.slope)[0, 2] > 0.1


@pytest.mark.false_failure(1e-8)
def test_edges_know_inputs_as_the_line_does():
    """An input that is mapped to its logarithm moves an edge by that logarithm."""

    def simulate(theta, rng):
        dose = np.exp(rng.standard_normal((len(theta), 1)))
        return np.concatenate([theta[:, :1] + 0.3 * np.log(dose) + exponential(0 * theta + [0, 0.5], rng), dose], axis=1)

    found = found_in(simulate, inputs=1)
    theta = PRIOR.sample(COUNT, seed=0)
    x = simulate(theta, np.random.default_rng(0))
    z = standardized(found.standardize, x)
    assert found.standardize.kinds[1] == "log"
    given = np.concatenate([np.asarray(at(found.coordinates, jnp.asarray(PRIOR.to_normal(theta)))), z[:, 1:]], axis=1)
    distance = z[:, 0] - given @ np.asarray(found.edges.slope)[0] - float(found.edges.offset[0])
    assert (distance > 0).mean() > 0.99
    assert np.median(distance) < 2


@pytest.mark.false_failure(1e-8)
@pytest.mark.parametrize(
    "simulate",
    [
        lambda theta, rng: theta[:, :1] + 0.1 * rng.standard_normal((len(theta), 1)),
        lambda theta, rng: theta[:, 1:] * rng.gamma(3.0, size=(len(theta), 1)),  # an edge at 0
        lambda theta, rng: -np.abs(theta[:, :1] - 0.7) + 0.02 * rng.uniform(size=(len(theta), 1)),  # two of them
        lambda theta, rng: theta[:, :1] * rng.poisson(0.5, size=(len(theta), 1)),  # the same value again and again
        lambda theta, rng: np.ones((len(theta), 1)),
    ],
    ids=["no edge", "one that stays", "an arm of a tent", "few values", "a constant"],
)
def test_none_is_found_where_no_parameter_moves_one(simulate):
    assert found_in(simulate).edges is None


@pytest.mark.false_failure(1e-8)
def test_cases_lie_beyond_the_closest_edge():
    rng = np.random.default_rng(1)
    given = rng.standard_normal((COUNT, 4))
    z = given @ [0.5, -0.2, 0.0, 0.1] + rng.exponential(size=COUNT)
    free = np.array([True, True, False, True])
    edge = closest_edge(z, given, 1.0, free)
    off = z - given @ edge.slope - edge.offset
    assert off.min() >= -1e-9
    assert np.isclose(off, 0, atol=1e-6).sum() >= 4  # a vertex of the linear program
    assert edge.slope[2] == 0
    np.testing.assert_allclose(edge.slope, [0.5, -0.2, 0.0, 0.1], atol=0.05)


def test_what_is_said_of_slopes_is_their_slope():
    rng = np.random.default_rng(2)
    given = rng.standard_normal((200, 2))
    z = np.stack([given[:, 0] + rng.exponential(size=200), rng.standard_normal(200)], axis=1)
    edge = closest_edge(z[:, 0], given, 1.0, np.ones(2, bool)).with_margin(0.05)
    edges = edges_of({0: edge}, z, given)
    for value in (-0.3, 0.02, 1.0, 4.0, 7.0):  # beyond the edge, near it, and where outliers are drawn in
        at, v = jnp.array([value, 0.3]), jnp.array([0.1, -0.2])
        slopes = jnp.diagonal(jax.jacfwd(lambda z, v=v: edges(z, v))(at))
        # `edges` is given numbers with outliers drawn in, and says the slope by those.
        np.testing.assert_allclose(edges.log_slopes(at, v), jnp.log(slopes), atol=1e-4)


def test_without_an_edge_nothing_changes():
    z, v = jnp.array([0.3, -7.0]), jnp.array([1.0])
    np.testing.assert_array_equal(blank(2, 1)(z, v), z)
    np.testing.assert_array_equal(blank(2, 1).log_slopes(z, v), 0.0)


@pytest.fixture(scope="module")
def lines():
    """The straight line alone, with edges and without."""
    theta = PRIOR.sample(COUNT, seed=3)
    sims = sf.Simulations(PRIOR, theta, lognormal(theta, np.random.default_rng(3))[:, None])
    return {edges: sf.NLE(edges=edges).line(sims, seed=0) for edges in (True, False)}


@pytest.mark.parametrize("theta", VISIBLE)
def test_the_likelihood_is_a_density_of_x(lines, theta):
    x = np.linspace(-1, 12, 20_001)[:, None]
    density = np.exp(lines[True].log_likelihoods(x, PRIOR.to_normal(theta[None])))[0]
    assert np.trapezoid(density, x[:, 0]) == pytest.approx(1.0, abs=2e-3)


@pytest.mark.false_failure(1e-8)
def test_a_line_from_an_edge_is_nearly_right_where_one_without_is_not(lines):
    theta = PRIOR.sample(1_000, seed=4)
    x, u = lognormal(theta, np.random.default_rng(4)), PRIOR.to_normal(theta)
    exact = scipy.stats.lognorm(0.5, scale=theta[:, 1]).logpdf(x[:, 0] - theta[:, 0])
    off = {}
    for edges, line in lines.items():
        terms = jax.vmap(lambda u, x, line=line: line.terms.term(u, line.terms.prepare(x)))
        value = np.asarray(terms(jnp.asarray(u, jnp.float32), jnp.asarray(x, jnp.float32)))
        off[edges] = (exact - value - np.asarray(sums.volumes(line.terms, jnp.asarray(x, jnp.float32)))).mean()
    assert off[True] < 0.02
    assert off[False] > 0.05
