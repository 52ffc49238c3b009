"""A two-dimensional task with a known posterior, on which every baseline is tried, and how right it must be.

θ ~ N(0, I), x | θ ~ N(A θ, diag(v)): the posterior of n observations is Gaussian, with precision I + n Aᵀ diag(v)⁻¹ A.
"""

import jax
import jax.numpy as jnp
import numpy as np

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
