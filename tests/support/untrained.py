"""Posteriors of composed scores with all that belongs to them, in random numbers: for what does not need right draws."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import scorefold as sf
from scorefold.posterior.composed import ComposedPosterior
from scorefold.score.ensemble import skeleton
from scorefold.score.fit_correction import knots_of
from scorefold.score.set_size import Choice
from scorefold.train.training import History

MARGINALS = sf.Prior({"a": stats.norm(0, 1), "b": stats.uniform(0, 1)})
NORMAL = sf.Prior(stats.multivariate_normal([0, 1], [[1, 0.5], [0.5, 2]]), names=["a", "b"])
DRAWS = sf.Prior.from_draws(np.random.default_rng(0).normal(size=(200, 2)), names=["a", "b"])


def own_embedding(shape, key):
    return eqx.nn.MLP(shape[0], 3, 4, 1, key=key)


# (method, prior, shape of an observation, largest set)
CASES = {
    "f-npse": (sf.NPSE(set_size=1), MARGINALS, (2,), 1),
    "pf-npse": (sf.NPSE(), MARGINALS, (2,), 3),
    "npse": (sf.NPSE(composes=False), MARGINALS, (2,), 3),
    "conservative": (sf.NPSE(conservative=True, sampler=sf.samplers.Metropolis(levels=3, last=3)), MARGINALS, (2,), 1),
    "without base and control": (sf.NPSE(base=False, correction=False, schedule="cosine", T=50), MARGINALS, (2,), 1),
    "rule and sampler": (sf.NPSE(rule=sf.rules.Damped(batch=7), sampler="langevin"), MARGINALS, (2,), 1),
    "convolution": (sf.NPSE(embedding="convolution"), MARGINALS, (12,), 1),
    "configured convolution": (sf.NPSE(embedding=sf.embeddings.Convolution(channels=(2, 3), out=4)), MARGINALS, (5, 2), 2),
    "attention": (sf.NPSE(embedding=sf.embeddings.Attention(width=8, heads=2, layers=1)), MARGINALS, (4, 2), 1),
    "own embedding": (sf.NPSE(embedding=own_embedding), MARGINALS, (3,), 1),
    "multivariate normal": (sf.NPSE(), NORMAL, (2,), 1),
    "prior from draws": (sf.NPSE(), DRAWS, (2,), 2),
    "scalar observations": (sf.NPSE(), MARGINALS, (), 2),
}


def untrained(case, width=4, members=2):
    """A posterior of random numbers, with all that belongs to it."""
    method, prior, shape, largest = CASES[case]
    method = dataclasses.replace(method, width=width, depth=1, training=sf.Training(members=members))
    knots = len(knots_of(method.T)) if method.correction else None
    like = skeleton(method.network_shape(2, prior.has_density, shape, largest), members, knots)
    rng = np.random.default_rng(0)
    ensemble = jax.tree.map(lambda v: jnp.asarray(rng.uniform(0.1, 0.9, v.shape), v.dtype), like)
    if knots is not None:
        ensemble = eqx.tree_at(lambda e: e.correction.t, ensemble, jnp.linspace(1.0, method.T, knots))
    history = History(
        np.ones((2, 2), np.float32), np.array([[1, np.nan, 2]] * 2, np.float32), np.array([0, 2]), 3, 2e-3, {2e-3: 1.0}, 4
    )
    table = {3: Choice(3, 1, 20, {1: 0.0, 3: 0.1}, {1: 0.0, 3: 0.01})} if largest == 3 else {}
    return ComposedPosterior(prior, method, ensemble, history, table, shape)


def loaded(case, folder):
    return sf.load(folder, embedding=own_embedding) if case == "own embedding" else sf.load(folder)
