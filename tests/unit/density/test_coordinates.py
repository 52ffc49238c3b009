"""Coordinates of parameters, and the choice of coordinates and maps in which a line fits best."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import scorefold as sf
from scorefold.density.coordinates import KNOTS, LOG, THETA, U, at, choices, identity
from scorefold.density.straighten import Allowed, straighten
from scorefold.prior.proposal import GaussianProposal

PLACES = np.linspace(-5.9, 5.9, 1_001)


def seen_as(kind, prior):
    found = choices(prior)
    return found.coordinates(np.where(found.free[kind], kind, U))


def test_without_a_choice_they_are_the_identity():
    u = jnp.asarray(np.stack([PLACES, 2 * PLACES], axis=1), jnp.float32)
    np.testing.assert_allclose(at(identity(2), u), u, atol=1e-5)  # also beyond the last knots
    np.testing.assert_array_equal(at(None, u), u)


@pytest.mark.parametrize(
    "law", [scipy.stats.uniform(-3, 6), scipy.stats.beta(2, 5), scipy.stats.lognorm(0.5), scipy.stats.gamma(2)]
)
def test_they_are_the_standardised_theta(law):
    prior = sf.Prior({"a": law})
    theta = law.ppf(scipy.stats.norm.cdf(PLACES))
    v = np.asarray(at(seen_as(THETA, prior), jnp.asarray(PLACES[:, None], jnp.float32)))[:, 0]
    near = np.abs(PLACES) < 3.5
    np.testing.assert_allclose(v[near], ((theta - law.mean()) / law.std())[near], atol=3e-3)


@pytest.mark.parametrize(
    ("law", "log_mean", "log_sd"),
    [
        (scipy.stats.uniform(0, 3), np.log(3) - 1, 1.0),  # -log of a uniform number is exponential
        (scipy.stats.expon(), -np.euler_gamma, np.pi / np.sqrt(6)),  # Gumbel
        (scipy.stats.halfnorm(), -(np.euler_gamma + np.log(2)) / 2, np.pi / np.sqrt(8)),
    ],
)
def test_they_are_the_standardised_logarithm(law, log_mean, log_sd):
    log_theta = np.log(law.ppf(scipy.stats.norm.cdf(PLACES)))
    places = seen_as(LOG, sf.Prior({"a": law}))
    v = np.asarray(at(places, jnp.asarray(PLACES[:, None], jnp.float32)))[:, 0]
    near = np.abs(PLACES) < 3.5
    np.testing.assert_allclose(v[near], ((log_theta - log_mean) / log_sd)[near], atol=3e-3)


def test_a_logarithm_is_another_coordinate_of_positive_numbers_only():
    laws = {"a": scipy.stats.uniform(-1, 2), "b": scipy.stats.lognorm(0.5), "c": scipy.stats.uniform(0, 1)}
    assert choices(sf.Prior(laws)).free[LOG].tolist() == [False, False, True]


def test_their_slope_is_that_of_theta():
    places = seen_as(THETA, sf.Prior({"a": scipy.stats.uniform(0, 1)}))
    slope = jax.vmap(jax.grad(lambda u: places(u[None])[0]))(jnp.asarray(PLACES, jnp.float32))
    np.testing.assert_allclose(slope, np.sqrt(12) * scipy.stats.norm.pdf(PLACES), atol=1e-4)


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
    assert not found.free[[THETA, LOG]].any()
    values = found.coordinates(np.full(prior.dim, THETA)).values
    np.testing.assert_allclose(values, np.tile(KNOTS, (prior.dim, 1)), atol=1e-6)


def chosen(prior, simulate, inputs=0, changing=False):
    """What every parameter is seen as, and the maps of x."""
    rng = np.random.default_rng(0)
    theta = prior.sample(2_000, seed=0)
    x = simulate(theta, rng)
    found, tables = straighten(prior, x, prior.to_normal(theta), inputs, Allowed(changing)), choices(prior).tables
    near = np.isclose(found.coordinates.values, tables, atol=1e-4).all(axis=2)
    return near.argmax(axis=0).tolist(), found.standardize.kinds


WIDE = sf.Prior({"a": scipy.stats.uniform(-10, 20), "b": scipy.stats.uniform(0, 1)})
POSITIVE = sf.Prior({"a": scipy.stats.lognorm(0.4)})


def test_a_simulator_that_adds_noise_to_theta_is_seen_in_theta():
    assert chosen(WIDE, lambda theta, rng: theta + 0.1 * rng.normal(size=theta.shape))[0] == [THETA, THETA]


def test_a_simulator_that_adds_noise_to_u_is_seen_in_u():
    assert chosen(WIDE, lambda theta, rng: WIDE.to_normal(theta) + 0.1 * rng.normal(size=theta.shape))[0] == [U, U]


def test_each_parameter_has_its_own():
    def simulate(theta, rng):
        u = WIDE.to_normal(theta)
        return np.stack([theta[:, 0], u[:, 1]], axis=1) + 0.1 * rng.normal(size=theta.shape)

    assert chosen(WIDE, simulate)[0] == [THETA, U]


def test_outliers_do_not_hide_a_straight_line():
    assert chosen(WIDE, lambda theta, rng: theta + 0.1 * rng.standard_t(1.5, size=theta.shape))[0] == [THETA, THETA]


def test_the_noise_decides_how_x_is_seen():
    """Log-normal x may be as it is or its logarithm: the one in which noise is the same everywhere."""
    around = chosen(POSITIVE, lambda theta, rng: theta + 0.05 * rng.normal(size=theta.shape))
    times = chosen(POSITIVE, lambda theta, rng: theta * np.exp(0.02 * rng.normal(size=theta.shape)))
    assert around == ([THETA], ("none",))
    assert times == ([U], ("log",))


def test_inputs_are_given_and_not_mapped_anew():
    def simulate(theta, rng):
        dose = np.exp(rng.normal(size=(len(theta), 1)))
        return np.concatenate([theta * dose + 0.1 * rng.normal(size=theta.shape), dose], axis=1)

    assert chosen(POSITIVE, simulate, inputs=1)[1][-1] == "log"


RATE = sf.Prior({"a": scipy.stats.norm(0, 1), "b": scipy.stats.halfnorm()})


def test_what_multiplies_is_seen_as_its_logarithm():
    assert chosen(RATE, lambda theta, rng: theta[:, 1:] * rng.gamma(3.0, size=(len(theta), 2)))[0][1] == LOG


@pytest.mark.parametrize("law", [scipy.stats.halfnorm(), scipy.stats.uniform(0.1, 4.9), scipy.stats.expon()])
def test_an_sd_is_seen_as_its_logarithm_and_x_as_it_is(law):
    """Heavy tails of x come from the sd, and a line without changing noise would map them away."""
    prior = sf.Prior({"a": scipy.stats.norm(0, 1), "b": law})

    def simulate(theta, rng):
        return theta[:, :1] + theta[:, 1:] * rng.normal(size=(len(theta), 3))

    assert chosen(prior, simulate, changing=True) == ([U, LOG], ("none",) * 3)


def test_noise_that_stays_the_same_changes_no_choice():
    def simulate(theta, rng):
        return theta + 0.1 * rng.normal(size=theta.shape)

    assert chosen(WIDE, simulate, changing=True) == chosen(WIDE, simulate)
