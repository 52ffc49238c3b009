"""Learned scores at draws: of every member alone, for trust, and of sets that belong to one draw each, for checks."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.noise import Level
from scorefold.posterior.pilots import PaddedSets
from scorefold.posterior.trust import JUDGED, JUDGED_OF_MANY, MANY_SETS, MemberScores
from scorefold.sample.self_tuned import preconditioner
from scorefold.score.ensemble import ScoreEnsemble
from scorefold.train.rows import bucket
from scorefold.types import Array, Cloud, Float, untuned

SCORED_TOGETHER = 8
"""Sets whose single scores are computed at a time."""
PAIRS_TOGETHER = 64
"""Sets scored each at its own draw, at a time."""


def with_more_room(padded: PaddedSets) -> PaddedSets:
    """One data set's sets, padded to a power of eight, so that few programs serve any number of them."""
    count = len(padded.sizes)
    room = 8 ** int(np.ceil(np.log2(count) / 3))
    x = jnp.pad(padded.x[0], ((0, room - count), (0, 0), (0, 0)))
    return PaddedSets(x, jnp.pad(padded.sizes, (0, room - count), mode="edge"), padded.number)


def members_at(ensemble: ScoreEnsemble, padded: PaddedSets, level: Level, some: np.ndarray) -> MemberScores:
    """The composed scores of every member at some draws, of one data set."""
    at = jnp.asarray(np.resize(some, (filled_up(len(some)), some.shape[1])), jnp.float32)
    composed, gives_way = (np.asarray(one, np.float64) for one in by_member(ensemble, with_more_room(padded), level, at))
    return MemberScores(composed[:, : len(some)], gives_way)


def compared_at(sets: int, dim: int) -> int:
    """Draws at which members are compared, given so many sets."""
    return JUDGED if sets < MANY_SETS else max(JUDGED_OF_MANY, 4 * dim)


def filled_up(draws: int) -> int:
    """So many draws at which members are compared, as few programs serve."""
    return max(JUDGED_OF_MANY, bucket(draws))


@untuned
def by_member(
    ensemble: ScoreEnsemble, padded: PaddedSets, level: Level, u: Cloud
) -> tuple[Float[Array, "members draws dim"], Float[Array, "dim dim"]]:
    """Every member's composed score at the draws, and how far these give way to it.

    What proposals add is the same for all of them, and left out.
    """

    def one(network: Any) -> Cloud:
        alone = replace(ensemble, network=jax.tree.map(lambda v: v[None], network))
        sets = alone.embed(padded.x, padded.sizes, padded.number)
        return sets.total(u, level) + (1 - sets.count) * sets.prior(u, level)

    with jax.default_matmul_precision("highest"):
        composed = jax.lax.map(one, ensemble.network)
        return composed, response(u, composed)


def response(u: Cloud, scores: Float[Array, "members draws dim"]) -> Float[Array, "dim dim"]:
    """How far draws move where the score is off by one: the inverse of the mean score's slope around the draws, within a mode.

    Args:
        u: (draws, dim).
        scores: (members, draws, dim), every member's composed score there.

    Returns:
        (dim, dim), symmetric.
    """
    root = preconditioner(u, scores.mean(axis=0), jax.random.key(0))
    return root @ root.T


@untuned
def at_pairs(ensemble: ScoreEnsemble, x: Array, size: Array, level: Level, u: Cloud) -> tuple[Cloud, Array]:
    """g(u, X) = s(u, X) - ∇ log p(u) and ∂g/∂u of each pair, a few pairs at a time."""

    def one(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        x, at = pair
        sets = ensemble.embed(x[None], size[None], jnp.ones((), int))

        def own(u: Array) -> Array:
            score = sets.chunk(sets.prepare(u[None], level), level, jnp.zeros(1, int))[0, 0]
            return score - sets.prior(u[None], level)[0]

        return own(at), jax.jacfwd(own)(at)

    with jax.default_matmul_precision("highest"):
        return jax.lax.map(one, (x, u), batch_size=PAIRS_TOGETHER)


def all_pairs(ensemble: ScoreEnsemble, x: np.ndarray, level: Level, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores of many sets, each at a draw of its own, less the prior's, as checks need them.

    Args:
        ensemble: The networks.
        x: (pairs, set, features).
        level: The noise level.
        u: (pairs, dim).

    Returns:
        The scores (pairs, dim) and their derivatives (pairs, dim, dim). Pairs are padded, so that few programs serve any number
        of them.
    """
    count, size = x.shape[:2]
    sets = np.zeros((-(-count // PAIRS_TOGETHER) * PAIRS_TOGETHER, ensemble.network.shape.largest_set, x.shape[2]))
    sets[:count, :size] = x
    at = jnp.asarray(np.resize(u, (len(sets), u.shape[1])), jnp.float32)
    score, jacobian = at_pairs(ensemble, jnp.asarray(sets, jnp.float32), jnp.asarray(size), level, at)
    return np.asarray(score, np.float64)[:count], np.asarray(jacobian, np.float64)[:count]


@untuned
def single_scores(
    ensemble: ScoreEnsemble, x: Array, count: Array, level: Level, u: Cloud
) -> tuple[Float[Array, "sets draws dim"], Cloud]:
    """The scores of sets of one observation each, a few sets at a time."""
    with jax.default_matmul_precision("highest"):
        sets = ensemble.embed(x, jnp.ones(len(x), jnp.int32), count)
        prepared = sets.prepare(u, level)
        together = min(SCORED_TOGETHER, len(x))
        index = jnp.arange(len(x)).reshape(-1, together)
        scores = jax.lax.map(lambda some: sets.chunk(prepared, level, some), index)
        return scores.reshape(len(x), *u.shape), sets.prior(u, level)
