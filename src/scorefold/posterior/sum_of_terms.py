"""The sum of the terms log p(x_j|u) of n observations at one u, added up a chunk at a time, and each of them.

Observations that are the same are added up once, times their number; they are padded to a few bucket sizes. The sum at the
draws of a cloud is in `sum_at_draws.py`.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.compose.from_proposal import Tilt
from scorefold.compose.other_prior import OtherPrior
from scorefold.density.mean_terms import MeanTerms, Terms
from scorefold.posterior.asked import Asked
from scorefold.sample.ascent import ascend, curvatures
from scorefold.sample.nuts import Chains, all_chains
from scorefold.train.rows import bucket
from scorefold.types import Array, Cloud, Float, Key, Scalar, Theta

CHUNK = 64
"""Observations whose terms are computed together."""
MASSES = 256
"""Draws of x at each u, by which the mass of a geometric mean of densities is measured."""
ASCENT = 30
"""Steps uphill."""
GRADIENTS_TOGETHER = 32
"""Draws at which members are compared at a time."""


def padded(x: np.ndarray) -> Float[Array, "... obs x"]:
    """With copies of the last one up to a bucket's size."""
    missing = bucket(x.shape[-2]) - x.shape[-2]
    return jnp.asarray(np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, missing), (0, 0)], mode="edge"), jnp.float32)


def counted(x: np.ndarray) -> tuple[Float[Array, "obs x"], Float[Array, " obs"]]:
    """Observations that differ, padded, and how often each is there: of counts and choices many are the same."""
    different, times = np.unique(x, axis=0, return_counts=True)
    if len(different) == len(x):  # in the order they came in
        return padded(x), times_padded(np.ones(len(x)))
    return padded(different), times_padded(times)


def times_padded(times: np.ndarray) -> Float[Array, " obs"]:
    """How often each observation counts, and 0 for those that fill up the bucket."""
    return jnp.asarray(np.pad(times, (0, bucket(len(times)) - len(times))), jnp.float32)


def log_density(u: Theta, data: tuple[Terms, Float[Array, "obs x"], Array, Tilt | None]) -> Scalar:
    """log p(u) + Σ_j of the members' mean term, each observation as often as it counts."""
    terms, x, times, tilt = data
    parts = (x.reshape(-1, min(CHUNK, len(x)), x.shape[1]), times.reshape(-1, min(CHUNK, len(x))))

    def one(x: Array) -> Scalar:
        return terms.term(u, terms.prepare(x))

    def add(total: Scalar, part: tuple[Array, Array]) -> tuple[Scalar, None]:
        return total + jnp.sum(jnp.where(part[1] > 0, part[1] * jax.vmap(one)(part[0]), 0.0)), None

    start = -jnp.sum(u**2) / 2 + (0.0 if tilt is None else tilt.log_ratio(u[None])[0])
    if len(parts[0]) == 1:
        return add(start, jax.tree.map(lambda v: v[0], parts))[0]
    # In reverse the terms of a chunk are computed again rather than kept.
    return jax.lax.scan(jax.checkpoint(add), start, parts)[0]


def mean_of_each(terms: Terms, x: Any, u: Cloud) -> Float[Array, "points obs"]:
    """The members' mean term of each prepared observation."""
    return jax.lax.map(lambda u: jax.lax.map(lambda x: terms.term(u, x), x, batch_size=CHUNK), u)


def log_density_asked(v: Theta, data: tuple[tuple[Terms, Float[Array, "obs x"], Array, Tilt | None], Asked]) -> Scalar:
    """`log_density` under another prior, or along the plane of some parameters."""
    own, asked = data
    u = asked.back(v[None])[0]
    value = log_density(u, own)
    return value if asked.other is None else value + asked.other.log_ratio_at(u, asked.tilt)


@eqx.filter_jit
def volumes(terms: Any, x: Float[Array, "obs x"]) -> Float[Array, " obs"]:
    """What the terms leave out of log p(x|u)."""
    return jax.lax.map(terms.log_volume, x, batch_size=CHUNK)


@eqx.filter_jit
def masses(terms: MeanTerms, u: Cloud, x: Float[Array, "draws x"], key: Key) -> Float[Array, "draws count"]:
    """`MeanTerms.masses` at every draw."""
    keys = jax.random.split(key, len(u))
    return jax.lax.map(lambda at: terms.masses(at[0], at[1], at[2], MASSES), (u, x, keys))


@eqx.filter_jit
def each_term(terms: Terms, x: Float[Array, "obs x"], u: Cloud) -> Float[Array, "points obs"]:
    """The members' mean term of each observation."""
    with jax.default_matmul_precision("highest"):
        return mean_of_each(terms, jax.vmap(terms.prepare)(x), u)


@eqx.filter_jit
def term_of_members(terms: MeanTerms, x: Float[Array, "obs x"], u: Cloud) -> Float[Array, "members draws obs"]:
    """Every member's term of each observation."""
    with jax.default_matmul_precision("highest"):
        prepared = jax.vmap(terms.prepare)(x)
        return jnp.moveaxis(jax.lax.map(lambda u: jax.vmap(lambda x: terms.by_member(u, x))(prepared), u), -1, 0)


@eqx.filter_jit
def climbed(
    u: Cloud, data: tuple[tuple[Terms, Float[Array, "obs x"], Array, Tilt | None], Asked], by_volume: OtherPrior | None
) -> tuple[Cloud, Float[Array, "draws dim dim"]]:
    """Uphill on the density of u, or of θ; and the curvatures there."""

    def one(u: Theta) -> Scalar:
        value = log_density_asked(u, data)
        return value if by_volume is None else value + by_volume.log_ratio_at(u, data[1].tilt)

    def score(u: Cloud) -> Cloud:
        return jax.lax.map(jax.grad(one), u)

    with jax.default_matmul_precision("highest"):
        top = ascend(score, u, ASCENT)
        return top, curvatures(score, top)


@eqx.filter_jit
def values_by_member(terms: MeanTerms, x: Float[Array, "obs x"], times: Array, u: Cloud) -> Float[Array, "members draws"]:
    """Every member's sum, without the tilt, which they share."""

    def one(network: Any) -> Float[Array, " draws"]:
        alone = replace(terms, network=jax.tree.map(lambda v: v[None], network))
        return jax.lax.map(lambda u: log_density(u, (alone, x, times, None)), u, batch_size=GRADIENTS_TOGETHER)

    with jax.default_matmul_precision("highest"):
        return jax.lax.map(one, terms.network)


@eqx.filter_jit
def scores_of_members(terms: MeanTerms, x: Float[Array, "obs x"], u: Theta) -> Float[Array, "members obs dim"]:
    """∇_u of every member's term of each observation, at one u."""

    def one(x: Array) -> Array:
        prepared = terms.prepare(x)
        return jax.jacrev(lambda u: terms.by_member(u, prepared))(u)

    with jax.default_matmul_precision("highest"):
        return jnp.moveaxis(jax.lax.map(one, x, batch_size=GRADIENTS_TOGETHER), 0, 1)


@eqx.filter_jit
def paired_scores(terms: Terms, x: Float[Array, "pairs x"], u: Cloud) -> Cloud:
    """∇_u log p(x|u) for each pair, a few at a time."""

    def one(pair: tuple[Array, Array]) -> Array:
        prepared = terms.prepare(pair[0])
        return jax.grad(lambda u: terms.term(u, prepared))(pair[1])

    with jax.default_matmul_precision("highest"):
        return jax.lax.map(one, (x, u), batch_size=GRADIENTS_TOGETHER)


@eqx.filter_jit
def chains_of_many(
    data: tuple[Terms, Float[Array, "sets obs x"], Array, Tilt | None], chains: Chains, keys: Array
) -> tuple[Float[Array, "sets chains length dim"], Array]:
    """Those of each data set."""
    terms, x, times, tilt = data
    return jax.vmap(lambda x, key: all_chains(log_density, (terms, x, times, tilt), chains, key))(x, keys)
