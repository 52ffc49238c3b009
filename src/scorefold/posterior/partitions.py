"""Observations cut into sets, and scores that do not depend on how they were cut.

With exact scores the partition does not matter. Those of trained networks differ from one partition to another, so several of
them take turns.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.compose import Rule
from scorefold.noise import Level, Score
from scorefold.posterior.pilots import PaddedSets
from scorefold.score.ensemble import EnsembleSets, ScoreEnsemble
from scorefold.score.set_size import cut
from scorefold.types import Array, Cloud, Key

MOST_PARTITIONS, FEWEST_PARTITIONS, SETS_OF_PARTITIONS = 32, 4, 8_192
"""Partitions of the observations that steps take turns with: fewer where these would be very many sets together."""
SMALLEST_GROUP = 128
"""Draws that share a partition in a step."""


def partition(x: np.ndarray, set_size: int, width: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Cut n observations at random into k = ⌈n/m⌉ disjoint sets of nearly equal size: (k, width, x) and their sizes."""
    sizes = cut(len(x), set_size)
    padded = np.zeros((len(sizes), width, x.shape[1]))
    padded[np.arange(width) < sizes[:, None]] = x[rng.permutation(len(x))]
    return padded, sizes


def other_partitions(sizes: np.ndarray, count: int, width: int) -> np.ndarray | None:
    """(partitions, sets, width): for partitions of the same observations, where each has them in the first one; padded sets.

    They depend on the sizes alone: it is the first partition that is random. None where all partitions are the same.
    """
    if count == 1 or sizes.max() == 1:
        return None
    real = (np.arange(width) < sizes[:, None]) & (np.arange(len(sizes)) < count)[:, None]
    partitions = int(np.clip(SETS_OF_PARTITIONS // len(sizes), FEWEST_PARTITIONS, MOST_PARTITIONS))
    places = np.zeros((partitions, *real.shape), np.int32)
    rng = np.random.default_rng(sizes[:count])
    for one in places:
        one[real] = rng.permutation(np.flatnonzero(real))
    return places


def over_partitions(rule: Rule, ensemble: ScoreEnsemble, padded: PaddedSets) -> Score:
    """The composed score of one partition or another: in every step, groups of the draws pick one each.

    Draws that take turns follow the mean of the partitions' scores, at the cost of one.
    """
    flat = padded.x.reshape(-1, padded.x.shape[-1])
    places = padded.others
    assert places is not None

    def embed(places: Array) -> EnsembleSets:
        return ensemble.embed(flat[places], padded.sizes, padded.number)

    def own(places: Array) -> tuple[Array, Array]:
        sets = embed(places)
        return sets.join, sets.mean

    first = embed(places[0])  # all have its sizes
    join, mean = jax.lax.map(own, places)

    def score(u: Cloud, level: Level, key: Key) -> Cloud:
        def one(group: tuple[Array, Cloud, Key]) -> Cloud:
            which, u, key = group
            return rule.score(replace(first, join=join[which], mean=mean[which]))(u, level, key)

        key_pick, key_score = jax.random.split(key)
        groups = max(1, len(u) // SMALLEST_GROUP)
        picked = jax.random.permutation(key_pick, len(places))[jnp.arange(groups) % len(places)]
        grouped = u.reshape(groups, -1, u.shape[1])
        return jax.lax.map(one, (picked, grouped, jax.random.split(key_score, groups))).reshape(u.shape)

    return score
