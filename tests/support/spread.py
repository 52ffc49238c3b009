"""A task whose observations tell of θ by their spread alone: θ ~ N(0, 1), x | θ ~ N(0, e^{2θ}).

x and θ are uncorrelated, so a straight line finds nothing, and the Gaussian base that methods start from is the prior. All that
is known of θ after n observations, sd 1/√(2n) about, a network must have learned.
"""

import jax
import jax.numpy as jnp
import numpy as np

import scorefold as sf
from scorefold.simulation.batched import Batched
from scorefold.simulation.simulate import simulate
from scorefold.tasks.gaussian import standard_normal_prior

N = 8
GRID = np.linspace(-6, 6, 4_001)
RATES = {
    "trained": {"learning_rates": (3e-3,), "patience": 999},
    "learned nothing": {"learning_rates": (1e-12,), "patience": 1},
}
"""With the second the weights stay where they start, and so the same programs serve both."""


def _one(theta, key):
    return jnp.exp(theta) * jax.random.normal(key, (1,))


SIMULATOR = Batched(jax.vmap(_one))


def method(name, rate):
    """A small network of the method."""
    how = {"width": 32, "depth": 2, "training": sf.Training(members=1, steps=1_000, **RATES[rate])}
    return {
        "f-npse": sf.NPSE(set_size=1, correction=False, **how),
        "npe": sf.NPE(layers=2, **how),
        "nle": sf.NLE(layers=2, changing=False, sampler="vi", **how),  # noise that changes is all there is to learn
        "nre": sf.NRE(sampler="vi", **how),
    }[name]


def trained(name, rate, seed=0):
    """A posterior by one of the methods and of the rates."""
    sims = simulate(standard_normal_prior(1), SIMULATOR, 6_000, N if name == "npe" else 1, seed)
    return sf.fit(sims, method(name, rate), seed=seed)


def observed(theta, seed):
    return np.exp(theta) * np.random.default_rng(seed).standard_normal((N, 1))


def error(draws, x):
    """How far the draws have to be moved to be the posterior's: the distance of their quantiles, in its sd."""
    log = -(GRID**2) / 2 - len(x) * GRID - (x**2).sum() * np.exp(-2 * GRID) / 2
    density = np.exp(log - log.max())
    density /= density.sum()
    mean = density @ GRID
    quantiles = np.interp((np.arange(len(draws)) + 0.5) / len(draws), np.cumsum(density), GRID)
    return float(np.abs(np.sort(draws.ravel()) - quantiles).mean() / np.sqrt(density @ (GRID - mean) ** 2))


def mean_error(posterior, seed=0):
    """Over four data sets, whose spread is a third of the prior's median to three times it."""
    data = [observed(theta, [seed, i]) for i, theta in enumerate((-1.0, -0.4, 0.4, 1.0))]
    return float(np.mean([error(posterior.sample(x, 500, seed=seed).theta, x) for x in data]))
