"""Simulations as training data: cases in the N(0, I) space, and which of them each member does not see.

Cases are dealt into five folds, those of one parameter draw into one; member i of an ensemble holds out fold i modulo 5 for
validation, so that five members together have seen all cases and every case has a member that has not seen it.

Simulations that are large, in memory or mapped from the disk, are not taken to the device as a whole. A random part of them,
as many of every fold, is held there for everything that is fitted or judged outside the training steps: standardisation,
Gaussian base, validation, correction and the choice of set sizes. The steps themselves see all cases, block by block: an epoch
is a permutation of each fold, decided by (seed, epoch), and a block the next few cases of every fold, the same number of each.

Where simulations failed, a set ends before its first failed call (`simulations.py`), and a case is fair only if its size does
not depend on where that was. Losses then see a size s with a probability in proportion to c_s = 1/(m - s + 1), of those up to
the r observations that a case has, and a case in proportion to c_1 + … + c_r: for any s, all cases of s or more count alike,
and sizes come out as evenly as they were simulated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.simulation.simulations import Cut, Simulations, cut, split
from scorefold.train.training import MOST_UNSEEN, STEPS_A_ROUND, Training
from scorefold.types import Array, Float, Int, Key

FOLDS = 5
BYTES_IN_MEMORY = 256 << 20
"""Observations of more bytes are streamed."""
HELD_SHARE = 8
"""What is held, and every block, has at most one part in so many of them."""


class Cases(NamedTuple):
    """Training cases on the device: what a loss sees."""

    u: Float[Array, "cases dim"]
    x: Float[Array, "cases set x"]
    sizes: Int[Array, " cases"]
    """How many of the set's observations there are; 0 for a case that is there for the prior alone."""
    weights: Float[Array, " cases"] | None = None
    """How often to take a case, where sets may end before a failed call; None: all alike."""


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
        """How many blocks there are in an epoch."""
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


class TrainingSet(NamedTuple):
    """What one ensemble is trained on."""

    u: Float[np.ndarray, "cases dim"]
    """Of the cases below, in double precision, for what is fitted in closed form."""
    cases: Any
    """`Cases`: all of them, or those that a stream is judged by."""
    fold: np.ndarray
    """(cases,)"""
    seed: int
    stream: Stream | None = None
    """All cases, where they are more than fit in memory."""
    failed: bool = False
    """Simulations failed, so that u follows the prior given that they do not, and no longer the prior."""

    @property
    def x(self) -> np.ndarray:
        """(cases, set, x)"""
        return np.asarray(self.cases.x)

    @property
    def sizes(self) -> np.ndarray:
        """(cases,)"""
        return np.asarray(self.cases.sizes)

    @property
    def observations(self) -> np.ndarray:
        """(count, x) of all cases, one after the other."""
        x = self.x
        return x[np.arange(x.shape[1]) < self.sizes[:, None]]

    def unseen(self, members: int) -> np.ndarray:
        """(members, cases) booleans: which cases each member does not train on."""
        return held_out(self.fold, members)


def is_streamed(sims: Sequence[Simulations]) -> bool:
    """Whether any of the simulations are too large to be copied; then all of them stream."""
    return any(one.x.nbytes > BYTES_IN_MEMORY for one in sims)


def training_sets(
    sims: Sequence[Simulations], set_size: int, training: Training, seeds: Sequence[int], prior_too: bool = False
) -> list[TrainingSet]:
    """Cases of at most `set_size` observations for each of the simulations.

    With `prior_too`, draws of a prior without a density join them as cases of no observation.
    """
    extras = [_prior_draws(one, set_size) if prior_too else np.zeros((0, one.prior.dim)) for one in sims]
    failed = any(one.failed for one in sims)
    weighs = failed and (set_size > 1 or any(len(extra) for extra in extras))
    if not is_streamed(sims):
        whole = zip(sims, extras, seeds, strict=True)
        return [_whole(split(one, set_size), extra, seed, weighs)._replace(failed=failed) for one, extra, seed in whole]
    parts = [cut(one, set_size) for one in sims]
    fold = [folds(_origin(part.origin, extra), seed) for part, extra, seed in zip(parts, extras, seeds, strict=True)]
    fit_in = max(1, BYTES_IN_MEMORY // HELD_SHARE // (FOLDS * len(sims) * parts[0].set_size * sims[0].x[0, 0].nbytes))
    needed = -(-STEPS_A_ROUND * training.batch // (FOLDS - 1))
    each = min(fit_in, needed, *(int(np.bincount(one, minlength=FOLDS).min()) for one in fold))
    blocks = _Blocks(min(fit_in, MOST_UNSEEN), each, weighs)
    return [_part(*one, blocks)._replace(failed=failed) for one in zip(parts, extras, fold, seeds, strict=True)]


class _Blocks(NamedTuple):
    """How a stream is cut up."""

    held: int
    """Cases of every fold held in memory."""
    each: int
    """Cases of every fold in a block."""
    weighs: bool


def _whole(sims: Simulations, extra: np.ndarray, seed: int, weighs: bool) -> TrainingSet:
    """All cases in memory."""
    u, x, sizes = sims.prior.to_normal(sims.theta), sims.x.reshape(*sims.x.shape[:2], -1), sims.sizes
    if len(extra):
        u, x = np.concatenate([u, extra]), np.concatenate([x, np.zeros((len(extra), *x.shape[1:]), x.dtype)])
        sizes = np.concatenate([sizes, np.zeros(len(extra), sizes.dtype)])
    return TrainingSet(u, on_device(u, x, sizes, weighs), folds(_origin(sims.origin, extra), seed), int(seed))


def _part(part: Cut, extra: np.ndarray, fold: np.ndarray, seed: int, blocks: _Blocks) -> TrainingSet:
    """So many of each fold held, and so many in a block."""
    rows = np.sort(permuted(fold, [seed, 13])[:, : blocks.held], axis=1).reshape(-1)
    stream = Stream(lambda rows: on_device(*_take(part, extra, rows), blocks.weighs), fold, blocks.each, int(seed))
    u, x, sizes = _take(part, extra, rows)
    return TrainingSet(u, on_device(u, x, sizes, blocks.weighs), fold[rows], int(seed), stream)


def _take(part: Cut, extra: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """u, x and sizes at these rows: sets first, then draws of the prior alone."""
    real = rows < len(part.case)
    some = part.take(rows[real])
    x = some.x.reshape(*some.x.shape[:2], -1)
    if real.all():
        return some.prior.to_normal(some.theta), x, some.sizes
    u, sizes = np.zeros((len(rows), some.prior.dim)), np.zeros(len(rows), int)
    u[real], u[~real], sizes[real] = some.prior.to_normal(some.theta), extra[rows[~real] - len(part.case)], some.sizes
    filled = np.zeros((len(rows), *x.shape[1:]), x.dtype)
    filled[real] = x
    return u, filled, sizes


def _prior_draws(sims: Simulations, set_size: int) -> np.ndarray:
    """Draws of the prior, at most as many as there are cases; none of one whose density is known."""
    if sims.prior.has_density:
        return np.zeros((0, sims.prior.dim))
    return sims.prior.draws_normal[: int((-(-sims.sizes // set_size)).sum())]


def _origin(origin: np.ndarray, extra: np.ndarray) -> np.ndarray:
    return np.concatenate([origin, origin.max() + 1 + np.arange(len(extra))])


def on_device(u: np.ndarray, x: np.ndarray, sizes: np.ndarray, weighs: bool = False) -> Cases:
    """As losses want them."""
    cases = Cases(jnp.asarray(u, jnp.float32), jnp.asarray(x, jnp.float32), jnp.asarray(sizes, jnp.int32))
    if not weighs:
        return cases
    weights = np.concatenate([[0.0], np.cumsum(shares(x.shape[1]))])[sizes]
    weights[sizes == 0] = weights[sizes > 0].mean() if (sizes > 0).any() else 1.0
    return cases._replace(weights=jnp.asarray(weights, jnp.float32))


def shares(largest: int) -> np.ndarray:
    """c_1 … c_m, by which sizes of sets are chosen where sets may end before a failed call."""
    return 1 / np.arange(largest, 0, -1)


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
    """Every other case with a random part of its observations (also a fair case), and some with none for the prior.

    Cases with weights are drawn by these, and all have a random part of their observations.
    """
    if cases.weights is not None:
        return _drawn(cases, key)
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


def _drawn(cases: Cases, key: Key) -> Cases:
    """Cases by their weights, and sizes by their shares; those without observations stay so."""
    assert cases.weights is not None
    key_rows, key_size = jax.random.split(key)
    rows = jax.random.categorical(key_rows, jnp.log(cases.weights), shape=cases.weights.shape)
    u, x, most, _ = jax.tree.map(lambda v: v[rows], cases)
    ends = jnp.asarray(np.cumsum(shares(x.shape[1])), jnp.float32)
    height = jax.random.uniform(key_size, most.shape) * ends[most - 1]
    return Cases(u, x, jnp.minimum(1 + jnp.searchsorted(ends, height, side="right"), most).astype(most.dtype))
