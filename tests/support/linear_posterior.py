"""A composed posterior that is right without training: observations x = θ + noise, and a Gaussian base fitted to many of them.

Its networks are those before training, which add nothing; what is spoiled on purpose is the correction of the mean.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from untrained import HISTORY

import scorefold as sf
from scorefold.noise import levels
from scorefold.posterior.composed import ComposedPosterior
from scorefold.posterior.reach import fit_reach
from scorefold.score.correction import Correction, knots_of
from scorefold.score.ensemble import ScoreEnsemble
from scorefold.score.gaussian_base import fit_gaussian_base
from scorefold.score.network import ScoreNetwork
from scorefold.score.standardize import fit_standardize, standardized

NOISE = np.array([0.7, 1.3])
CASES = 200_000


def simulator(theta, rng):
    return theta + NOISE * rng.standard_normal(2)


def linear_posterior(members=2):
    prior = sf.Prior({"a": stats.norm(0, 1), "b": stats.norm(0, 1)})
    method = sf.NPSE(set_size=1, width=4, depth=1, T=100, training=sf.Training(members=members, steps=1))
    rng = np.random.default_rng(0)
    u = rng.standard_normal((CASES, 2))
    x = u + NOISE * rng.standard_normal((CASES, 2))
    standardize = fit_standardize(x[:5_000])
    z = standardized(standardize, x)
    base = fit_gaussian_base(z[:, None], np.ones(CASES, int), u)
    shape = method.network_shape(2, True, (2,), 1)
    network = jax.vmap(lambda key: ScoreNetwork(shape, key=key))(jax.random.split(jax.random.key(0), members))
    t = np.asarray(levels(method.schedule, method.T).t)[knots_of(method.T)]
    flat = (jnp.ones(len(t)), jnp.zeros((len(t), 2)), jnp.zeros((len(t), 2, 2)))
    ensemble = ScoreEnsemble(network, standardize, base, Correction(jnp.asarray(t, jnp.float32), *flat))
    return ComposedPosterior(prior, method, ensemble, HISTORY, {}, (2,), 1, 0.01, fit_reach(z[:20_000], u[:20_000], CASES))


def spoiled(posterior, offset=(0.0, 0.0), slope=((0.0, 0.0), (0.0, 0.0))):
    """With a score that misses, for every observation, by offset + slope u."""
    old = posterior.ensemble.correction
    moved = old.offset - jnp.asarray(offset, jnp.float32), old.slope - jnp.asarray(slope, jnp.float32)
    return replace(posterior, ensemble=replace(posterior.ensemble, correction=Correction(old.t, old.gate, *moved)))


def exact(x):
    """Mean and sd of the true posterior."""
    precision = len(x) / NOISE**2 + 1
    return x.sum(axis=0) / NOISE**2 / precision, precision**-0.5
