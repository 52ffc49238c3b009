"""Observations cut into sets, and scores that do not depend on how they were cut.

With exact scores the partition does not matter. Those of trained networks differ from one partition to another, so several of
them take turns.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.compose import Rule
from scorefold.compose.sets import sizes_of_sets
from scorefold.errors import ScorefoldError
from scorefold.noise import Level, Score
from scorefold.posterior.pilots import PaddedSets
from scorefold.score.ensemble import EnsembleSets
from scorefold.score.set_size import PartitionTable, chosen_size
from scorefold.types import Array, Callable, Cloud, Key

MOST_PARTITIONS, FEWEST_PARTITIONS, SETS_OF_PARTITIONS = 32, 4, 8_192
"""Partitions of the observations that steps take turns with: fewer where these would be very many sets together."""
SMALLEST_GROUP = 128
"""Draws that share a partition in a step."""


def partition(x: np.ndarray, set_size: int, width: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Cut n observations at random into k = ⌈n/m⌉ disjoint sets of nearly equal size.

    Args:
        x: (n, features).
        set_size: m.
        width: How much room a set has; the rest is zeros.
        rng: Which observations share a set.

    Returns:
        The sets (k, width, features) and their sizes (k,).
    """
    sizes = sizes_of_sets(len(x), set_size)
    padded = np.zeros((len(sizes), width, x.shape[1]))
    padded[np.arange(width) < sizes[:, None]] = x[rng.permutation(len(x))]
    return padded, sizes


def set_size_for(n: int, set_size: int | str | None, largest: int, composes: bool, table: PartitionTable) -> tuple[int, str]:
    """How many observations a set is to have where there are n of them.

    Args:
        n: How many observations there are.
        set_size: What was asked for: a number, "auto" for what unseen simulations favour, or None for as many as were trained.
        largest: The most that were trained.
        composes: Whether sets are composed; otherwise all observations are one set.
        table: What unseen simulations favour.

    Returns:
        The number, and why, in words.

    Raises:
        ScorefoldError: It was not trained for so many.
    """
    asked = int(set_size) if isinstance(set_size, int | np.integer) and not isinstance(set_size, bool) else None
    known = set_size is None or (isinstance(set_size, str) and set_size == "auto")
    if not known and (asked is None or not 1 <= asked <= largest):
        raise ScorefoldError(f"expected set_size between 1 and {largest}, as trained, or 'auto'; got {set_size!r:.60}")
    if not composes:
        if n > largest:
            raise ScorefoldError(
                f"expected at most {largest} observations, as NPSE was trained; got {n}. Simulate with a larger set_size, "
                "or use method='pf-npse', which composes sets."
            )
        if asked is not None and asked < n:
            raise ScorefoldError(
                f"expected set_size of at least {n}, as NPSE takes all {n} observations in one set; got {set_size}. Leave "
                "set_size out, or use method='pf-npse', which composes sets."
            )
        return largest, "all observations in one set"
    if set_size is None:
        return largest, f"sets of up to {largest}, as trained"
    if asked is not None:
        return asked, f"sets of up to {set_size}, as asked"
    if not table or n == 1:
        return largest, f"sets of up to {largest}: there was nothing to choose from"
    return chosen_size(table, n, largest)


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


def over_partitions(rule: Rule, embed: Callable[[Array], EnsembleSets], padded: PaddedSets) -> Score:
    """The composed score of one partition or another: in every step, groups of the draws pick one each.

    Draws that take turns follow the mean of the partitions' scores, at the cost of one. `embed` gives the scores of sets of
    observations (sets, set, x).
    """
    flat = padded.x.reshape(-1, padded.x.shape[-1])
    places = padded.others
    assert places is not None

    def own(places: Array) -> tuple[Array, Array]:
        sets = embed(flat[places])
        return sets.join, sets.mean

    first = embed(flat[places[0]])  # all have its sizes
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
