"""Denoising score matching: the loss of score networks.

Minimised over the network, with t uniform on the schedule's levels, u_t = √γ_t u + √(1-γ_t) ε and σ_t = √(1-γ_t):

    E ‖ ε + σ_t s(u_t, t, X) ‖² / dim

("A connection between score matching and denoising autoencoders", Vincent, 2011; the noise form of Ho, Jain and Abbeel,
2020). Both +ε and -ε are used for every case: at low noise the target -ε/σ is mostly odd in ε, and the pair cancels it.

With sets of several observations every other case is thinned to a random part of its set, which is a fair case too.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from scorefold.noise import Level
from scorefold.score.fixed import Fixed
from scorefold.score.network import ScoreModel, ScoreNetwork, Shape
from scorefold.train.rows import few_at_a_time
from scorefold.train.steps import Objective
from scorefold.train.training_set import Cases, thinned
from scorefold.types import Array, Float, Key, Scalar

VALIDATION_STRATA = 4

Over = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes a function of one row a function of many."""


def case_loss(model: ScoreModel, u: Array, x: Array, size: Array, level: Level, noise: Float[Array, " dim"]) -> Scalar:
    """Denoising loss of one case at one level, ‖ε + σ s(u_t, t, X)‖² / dim, averaged over +ε and -ε; `size` of the observations
    x count.
    """
    embedded = model.embed(x, size)
    sigma = jnp.sqrt(level.noise)

    def one(noise: Array) -> Scalar:
        theta = jnp.sqrt(level.gamma) * u + sigma * noise
        return jnp.mean((noise + sigma * model(theta, level, embedded)) ** 2)

    return jnp.mean(jax.vmap(one)(jnp.stack([noise, -noise])))


def _batch_loss(network: ScoreNetwork, fixed: Fixed, cases: Cases, key: Key, over: Over = jax.vmap) -> Scalar:
    """The mean loss of some cases, `over` all of which one case's loss is taken."""
    key_t, key_noise = jax.random.split(key)
    model = ScoreModel(network, fixed.standardize, fixed.base)
    count, T = len(cases.u), len(fixed.levels.t)
    spread = (jnp.arange(count) + jax.random.uniform(key_t, (count,))) / count  # stratified over the levels
    level = jax.tree.map(lambda v: v[jnp.minimum((spread * T).astype(int), T - 1)], fixed.levels)
    noise = jax.random.normal(key_noise, cases.u.shape)
    return jnp.mean(over(partial(case_loss, model))(cases.u, cases.x, cases.sizes, level, noise))


def score_loss(network: ScoreNetwork, fixed: Fixed, cases: Cases, key: Key) -> Scalar:
    """The loss of some cases, every other one thinned, each at one level."""
    key_thin, key = jax.random.split(key)
    return _batch_loss(network, fixed, thinned(cases, key_thin, network.shape.learns_prior), key)


def score_validation(network: ScoreNetwork, fixed: Fixed, cases: Cases, key: Key) -> Scalar:
    """The loss of cases as they are (where their sizes are fair: see `training_set.py`), each at several levels."""
    if cases.weights is not None:
        key_thin, key = jax.random.split(key)
        cases = thinned(cases, key_thin, network.shape.learns_prior)
    keys = jax.random.split(key, VALIDATION_STRATA)
    return jnp.mean(jax.lax.map(lambda k: _batch_loss(network, fixed, cases, k, few_at_a_time), keys))


def score_objective(shape: Shape) -> Objective:
    """What to train a score network by: denoising, with a `Fixed` as what training does not change.

    Args:
        shape: The network's sizes.

    Returns:
        An `Objective` for `train.loop.train`: how the network is made, its loss, and the loss by which it is judged.
    """
    return Objective(ScoreNetwork, shape, score_loss, score_validation)
