"""A two-dimensional task with a known posterior, on which every method is tried, trained for a moment, and how right it is.

θ ~ N(0, I), x | θ ~ N(A θ, diag(v)): the posterior of n observations is Gaussian, with precision I + n Aᵀ diag(v)⁻¹ A.
"""

import jax
import jax.numpy as jnp
import numpy as np

import scorefold as sf
from scorefold.simulation.batched import Batched
from scorefold.simulation.simulate import simulate
from scorefold.tasks.gaussian import standard_normal_prior

A = np.array([[1.0, 0.5], [0.0, 1.0]])
V = np.array([0.5, 1.0])
PRIOR = standard_normal_prior(2)


def _one(theta, key):
    return jnp.asarray(A, jnp.float32) @ theta + jnp.sqrt(jnp.asarray(V, jnp.float32)) * jax.random.normal(key, (2,))


SIMULATOR = Batched(jax.vmap(_one))


def simulations(budget=1_500, set_size=1, seed=0):
    return simulate(PRIOR, SIMULATOR, budget, set_size, seed)


def observed(n):
    rng = np.random.default_rng(n)
    return rng.standard_normal(2) @ A.T + rng.standard_normal((n, 2)) * np.sqrt(V)


def exact(x):
    """The posterior's mean and sd."""
    precision = np.eye(2) + len(x) * A.T / V @ A
    covariance = np.linalg.inv(precision)
    return covariance @ (A.T / V @ x.sum(0)), np.sqrt(np.diag(covariance))


def misses(theta, x):
    """The largest shift of a mean, in posterior sd, and the largest |log ratio| of the sds."""
    mean, sd = exact(x)
    return np.abs((theta.mean(0) - mean) / sd).max(), np.abs(np.log(theta.std(0) / sd)).max()


LARGEST = 8
"""Observations in a simulated set, and the most that NPE and NPSE take."""
TRAINING = sf.Training(members=1, learning_rates=(1e-3,), steps=100)
NETWORK = {"width": 16, "depth": 1, "training": TRAINING}
METHODS = {
    "f-npse": (sf.NPSE(set_size=1, correction=False, **NETWORK), 1),
    "pf-npse": (sf.NPSE(**NETWORK), LARGEST),
    "npse": (sf.NPSE(composes=False, correction=False, **NETWORK), LARGEST),
    "npe": (sf.NPE(layers=2, **NETWORK), LARGEST),
    "nle": (sf.NLE(layers=2, chains=4, warmup=150, **NETWORK), 1),
    "nre": (sf.NRE(chains=4, warmup=150, **NETWORK), 1),
    "abc": (sf.ABC(), LARGEST),
}
"""Each with the size of the sets it is simulated in."""
SHORTLY = ("f-npse", "npe", "abc")
"""Those that `make test` tries. Draws of NLE and NRE take longest, and unit/posterior/test_summed.py has their machinery."""


def trained(name, seed=0):
    """A method's posterior. On this task the fitted line is right, and 100 steps leave it so."""
    method, set_size = METHODS[name]
    return sf.fit(simulations(4_000 if set_size > 1 else 3_000, set_size, seed), method, seed=seed)
