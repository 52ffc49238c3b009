"""Coordinates of parameters, and the choice of coordinates and maps in which a line fits best."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import scorefold as sf
from scorefold.density.coordinates import KNOTS, at, choices, identity
from scorefold.density.straighten import straighten
from scorefold.prior.proposal import GaussianProposal

U = np.linspace(-5.9, 5.9, 1_001)


def as_theta(prior):
    found = choices(prior)
    return found.coordinates(found.free)


def test_without_a_choice_they_are_the_identity():
    u = jnp.asarray(np.stack([U, 2 * U], axis=1), jnp.float32)
    np.testing.assert_allclose(at(identity(2), u), u, atol=1e-5)  # also beyond the last knots
    np.testing.assert_array_equal(at(None, u), u)


@pytest.mark.parametrize(
    "law", [scipy.stats.uniform(-3, 6), scipy.stats.beta(2, 5), scipy.stats.lognorm(0.5), scipy.stats.gamma(2)]
)
def test_they_are_the_standardised_theta(law):
    prior = sf.Prior({"a": law})
    theta, v = law.ppf(scipy.stats.norm.cdf(U)), np.asarray(at(as_theta(prior), jnp.asarray(U[:, None], jnp.float32)))[:, 0]
    near = np.abs(U) < 3.5
    np.testing.assert_allclose(v[near], ((theta - law.mean()) / law.std())[near], atol=3e-3)


def test_their_slope_is_that_of_theta():
    places = as_theta(sf.Prior({"a": scipy.stats.uniform(0, 1)}))
    slope = jax.vmap(jax.grad(lambda u: places(u[None])[0]))(jnp.asarray(U, jnp.float32))
    np.testing.assert_allclose(slope, np.sqrt(12) * scipy.stats.norm.pdf(U), atol=1e-4)


@pytest.mark.parametrize(
    "prior",
    [
        sf.Prior({"a": scipy.stats.norm(3, 2)}),
        sf.Prior({"a": scipy.stats.cauchy()}),
        sf.Prior(scipy.stats.multivariate_normal([0, 1], [[1, 0.5], [0.5, 1]])),
        sf.Prior({"a": scipy.stats.uniform(0, 1)}).proposing(GaussianProposal(np.zeros(1), np.eye(1))),
    ],
    ids=["Gaussian", "heavy tails", "correlated", "a proposal"],
)
def test_where_there_is_no_choice(prior):
    found = choices(prior)
    assert not found.free.any()
    np.testing.assert_allclose(found.coordinates(found.free).values, np.tile(KNOTS, (prior.dim, 1)), atol=1e-6)


def chosen(prior, simulate, inputs=0):
    """Which parameters are θ, and the maps of x."""
    rng = np.random.default_rng(0)
    theta = prior.sample(2_000, seed=0)
    x = simulate(theta, rng)
    found = straighten(prior, x, prior.to_normal(theta), inputs)
    return (~np.isclose(found.coordinates.values, KNOTS).all(axis=1)).tolist(), found.standardize.kinds


WIDE = sf.Prior({"a": scipy.stats.uniform(-10, 20), "b": scipy.stats.uniform(0, 1)})
POSITIVE = sf.Prior({"a": scipy.stats.lognorm(0.4)})


def test_a_simulator_that_adds_noise_to_theta_is_seen_in_theta():
    assert chosen(WIDE, lambda theta, rng: theta + 0.1 * rng.normal(size=theta.shape))[0] == [True, True]


def test_a_simulator_that_adds_noise_to_u_is_seen_in_u():
    assert chosen(WIDE, lambda theta, rng: WIDE.to_normal(theta) + 0.1 * rng.normal(size=theta.shape))[0] == [False, False]


def test_each_parameter_has_its_own():
    def simulate(theta, rng):
        u = WIDE.to_normal(theta)
        return np.stack([theta[:, 0], u[:, 1]], axis=1) + 0.1 * rng.normal(size=theta.shape)

    assert chosen(WIDE, simulate)[0] == [True, False]


def test_outliers_do_not_hide_a_straight_line():
    assert chosen(WIDE, lambda theta, rng: theta + 0.1 * rng.standard_t(1.5, size=theta.shape))[0] == [True, True]


def test_the_noise_decides_how_x_is_seen():
    """Log-normal x may be as it is or its logarithm: the one in which noise is the same everywhere."""
    around = chosen(POSITIVE, lambda theta, rng: theta + 0.05 * rng.normal(size=theta.shape))
    times = chosen(POSITIVE, lambda theta, rng: theta * np.exp(0.02 * rng.normal(size=theta.shape)))
    assert around == ([True], ("none",))
    assert times == ([False], ("log",))


def test_inputs_are_given_and_not_mapped_anew():
    def simulate(theta, rng):
        dose = np.exp(rng.normal(size=(len(theta), 1)))
        return np.concatenate([theta * dose + 0.1 * rng.normal(size=theta.shape), dose], axis=1)

    assert chosen(POSITIVE, simulate, inputs=1)[1][-1] == "log"
