"""Training cases, and who does not see which of them.

Cases are dealt into five folds, those of one origin into one; member i of an ensemble holds out fold i modulo 5 for validation,
so that five members together have seen all cases and every case has a member that has not seen it.

Cases of a store larger than memory stream by in blocks: an epoch is a permutation of each fold, decided by (seed, epoch), and a
block the next few cases of every fold, the same number of each, so that all members see the same number in every block.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.types import Array, Float, Int, Key

FOLDS = 5


class Cases(NamedTuple):
    """Training cases in the N(0, I) space, on the device."""

    u: Float[Array, "cases dim"]
    x: Float[Array, "cases set x"]
    sizes: Int[Array, "cases"]
    """0 for a case that is there for the prior only"""


@dataclass(frozen=True, eq=False)
class Stream:
    """Cases that are read block by block."""

    take: Callable[[np.ndarray], Any]
    """The cases at these rows, on the device."""
    fold: np.ndarray
    """(rows,) of all cases there are"""
    each: int
    """Cases of every fold in a block."""
    seed: int

    def rows(self, number: int) -> np.ndarray:
        """(folds, each) of block `number`; each fold's in the order they are stored."""
        epoch, place = divmod(number, self._blocks)
        return np.sort(self._order(epoch)[:, place * self.each : (place + 1) * self.each], axis=1)

    @cached_property
    def _blocks(self) -> int:
        """In an epoch."""
        return int(np.bincount(self.fold, minlength=FOLDS).min()) // self.each

    @cached_property
    def _order(self) -> Callable[[int], np.ndarray]:
        """The permutation of an epoch; that of the latest is kept, as all its blocks need it."""
        return lru_cache(maxsize=1)(lambda epoch: permuted(self.fold, [self.seed, 11, epoch]))

    def block(self, number: int) -> Any:
        """The cases of block `number`, fold by fold."""
        return self.take(self.rows(number).reshape(-1))

    def unseen(self, members: int) -> np.ndarray:
        """(members, cases) booleans: which of any block's cases each member does not train on."""
        return held_out(np.repeat(np.arange(FOLDS), self.each), members)


def folds(origin: np.ndarray, seed: int) -> np.ndarray:
    """(cases,) the fold of each; cases of one origin stay together."""
    origins, place = np.unique(origin, return_inverse=True)
    return (np.random.default_rng([seed, 3]).permutation(len(origins)) % FOLDS)[place]


def held_out(fold: np.ndarray, members: int) -> np.ndarray:
    """(members, cases) booleans: which cases each member does not train on."""
    return np.stack([fold == member % FOLDS for member in range(members)])


def permuted(fold: np.ndarray, seed: list[int]) -> np.ndarray:
    """(folds, fewest) rows of each fold in random order, as many as the smallest fold has."""
    rng, fewest = np.random.default_rng(seed), int(np.bincount(fold, minlength=FOLDS).min())
    return np.stack([rng.permutation(np.flatnonzero(fold == one))[:fewest] for one in range(FOLDS)])


def thinned(cases: Cases, key: Key, learns_prior: bool) -> Cases:
    """Every other case with a random part of its observations (also a fair case), and some with none for the prior."""
    count, largest = cases.x.shape[:2]
    key_order, key_size, key_keep, key_none = jax.random.split(key, 4)
    x, sizes = cases.x, cases.sizes
    if largest > 1:
        place = jnp.where(jnp.arange(largest) < sizes[:, None], jax.random.uniform(key_order, (count, largest)), 2.0)
        x = jnp.take_along_axis(x, jnp.argsort(place, axis=1)[..., None], axis=1)
        part = 1 + jnp.floor(jax.random.uniform(key_size, (count,)) * sizes).astype(int)
        sizes = jnp.where(jax.random.bernoulli(key_keep, 0.5, (count,)), sizes, jnp.minimum(part, sizes))
    if learns_prior:
        sizes = jnp.where(jax.random.bernoulli(key_none, 1 / (largest + 1), (count,)), 0, sizes)
    return Cases(cases.u, x, sizes)
