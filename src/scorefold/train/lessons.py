"""What learned methods train on: simulations as cases in the N(0, I) space, and who holds out which of them.

Simulations that are mapped from the disk because they are large are not taken into memory as a whole. A random part of them,
as many of every fold, stays there for everything that is fitted or judged outside the training steps: standardisation, Gaussian
base, validation, control and the choice of sets. The steps themselves see all cases, block by block (`train/cases.py`).
Parameters and sizes of the cases are in memory all the time, as `Simulations` has them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from scorefold.simulation.simulations import Cut, Simulations, cut, split
from scorefold.train.loop import MOST_UNSEEN, Lesson
from scorefold.train.training import STEPS_A_ROUND, Training
from scorefold.train.training_set import FOLDS, Cases, Stream, folds, held_out, permuted

AT_ONCE = 256 << 20
"""Mapped observations of more bytes are streamed; what is held, and every block, has at most an eighth of it."""
SHARE = 8


class Material(NamedTuple):
    """Cases in memory: all of them, or those that are held."""

    u: np.ndarray
    """(cases, dim)"""
    x: np.ndarray
    """(cases, m, x)"""
    sizes: np.ndarray
    """(cases,) 0 for a draw of the prior alone"""
    fold: np.ndarray
    """(cases,)"""
    stream: Stream | None

    @property
    def observations(self) -> np.ndarray:
        """(count, x) all of them, one after the other."""
        return self.x[np.arange(self.x.shape[1]) < self.sizes[:, None]]

    def lesson(self, fixed: Any, members: int, seed: int) -> Lesson:
        """With what training does not change."""
        return Lesson(on_device(self.u, self.x, self.sizes), fixed, held_out(self.fold, members), seed, self.stream)


def streamed(sims: Sequence[Simulations]) -> bool:
    """Whether any of the simulations are mapped and too large; then all of them stream."""
    return any(isinstance(one.x, np.memmap) and one.x.nbytes > AT_ONCE for one in sims)


def materials(
    sims: Sequence[Simulations], set_size: int, training: Training, seeds: Sequence[int], prior_too: bool = False
) -> list[Material]:
    """Cases of at most `set_size` observations; with `prior_too`, draws of a prior without a density join them as such."""
    extras = [_draws(one, set_size) if prior_too else np.zeros((0, one.prior.dim)) for one in sims]
    if not streamed(sims):
        return [_whole(split(one, set_size), extra, seed) for one, extra, seed in zip(sims, extras, seeds, strict=True)]
    parts = [cut(one, set_size) for one in sims]
    fold = [folds(_origin(part.origin, extra), seed) for part, extra, seed in zip(parts, extras, seeds, strict=True)]
    fit_in = max(1, AT_ONCE // SHARE // (FOLDS * len(sims) * parts[0].set_size * sims[0].x[0, 0].nbytes))
    needed = -(-STEPS_A_ROUND * training.batch // (FOLDS - 1))
    each = min(fit_in, needed, *(int(np.bincount(one, minlength=FOLDS).min()) for one in fold))
    return [_part(*one, min(fit_in, MOST_UNSEEN), each) for one in zip(parts, extras, fold, seeds, strict=True)]


def _part(part: Cut, extra: np.ndarray, fold: np.ndarray, seed: int, held: int, each: int) -> Material:
    """So many of each fold held, and so many in a block."""
    rows = np.sort(permuted(fold, [seed, 13])[:, :held], axis=1).reshape(-1)
    stream = Stream(lambda rows: on_device(*_take(part, extra, rows)), fold, each, seed)
    return Material(*_take(part, extra, rows), fold[rows], stream)


def on_device(u: np.ndarray, x: np.ndarray, sizes: np.ndarray) -> Cases:
    """As training wants them."""
    return Cases(jnp.asarray(u, jnp.float32), jnp.asarray(x, jnp.float32), jnp.asarray(sizes, jnp.int32))


def _draws(sims: Simulations, set_size: int) -> np.ndarray:
    """Draws of the prior, at most as many as there are cases; none of one whose density is known."""
    if sims.prior.has_density:
        return np.zeros((0, sims.prior.dim))
    return sims.prior.draws_normal[: int((-(-sims.sizes // set_size)).sum())]


def _origin(origin: np.ndarray, extra: np.ndarray) -> np.ndarray:
    return np.concatenate([origin, origin.max() + 1 + np.arange(len(extra))])


def _whole(sims: Simulations, extra: np.ndarray, seed: int) -> Material:
    u, x, sizes = sims.prior.to_normal(sims.theta), sims.x.reshape(*sims.x.shape[:2], -1), sims.sizes
    if len(extra):
        u, x = np.concatenate([u, extra]), np.concatenate([x, np.zeros((len(extra), *x.shape[1:]), x.dtype)])
        sizes = np.concatenate([sizes, np.zeros(len(extra), sizes.dtype)])
    return Material(u, x, sizes, folds(_origin(sims.origin, extra), seed), None)


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
