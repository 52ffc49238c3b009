"""Training cases: parameters with a set of 1 … m observations each.

Case c has parameters θ_c ~ p(θ), a size s_c ~ U{1 … m} and s_c observations. A budget counts simulator calls, (m+1)/2 to
a case on average; the last case is cut so that the calls add up to the budget exactly.
"""

import mmap
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from scorefold.prior import Prior
from scorefold.simulation.outcome import rounded

LARGEST_BUDGET = 10**9
"""Simulations are counted in 32 bits on the device, and their parameters planned in memory."""
IN_MEMORY = 64 << 20
"""Observations of more bytes than this are mapped from the disk when they come from a store."""
PIECE = 16 << 20
"""Bytes looked at together."""
AROUND = 64 << 10
"""Bytes of a mapped file that come into memory with any one of them."""
IN_RAM = partial(np.zeros, dtype=np.float32)


class Plan(NamedTuple):
    """Which parameters to simulate, and which case each simulator call belongs to."""

    theta: np.ndarray
    """(cases, dim)"""
    sizes: np.ndarray
    """(cases,)"""
    case: np.ndarray
    """(calls,) the case of each simulator call"""


class Simulations(NamedTuple):
    """Simulated training cases, in memory or, of a large store, mapped from the disk."""

    prior: Prior
    theta: np.ndarray
    """(cases, dim)"""
    x: np.ndarray
    """(cases, m, *shape), padded with zeros after each case's observations"""
    sizes: np.ndarray
    """(cases,) how many observations each case has"""
    set_size: int
    """m"""
    budget: int
    """Simulator calls made, failed ones included."""
    failed: int
    """Simulator calls that gave no finite observation; they are not in `x`."""
    seed: int
    origin: np.ndarray
    """(cases,) which parameter draw a case belongs to; several once large sets have been cut"""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        return self.x.shape[2:]

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.shape)) or "scalar"
        return (
            f"Simulations({len(self.theta):,} cases from {self.budget:,} simulator calls, {self.failed:,} failed; "
            f"θ = ({', '.join(self.prior.names)}), x {shape}, sets of up to {self.set_size})"
        )


class Cut(NamedTuple):
    """The observations of simulations in sets of at most m, read when they are asked for; each set has its parameters."""

    sims: Simulations
    set_size: int
    case: np.ndarray
    """(sets,) the case that a set is from"""
    first: np.ndarray
    """(sets,) which of the case's observations is its first"""
    sizes: np.ndarray
    """(sets,)"""

    @property
    def origin(self) -> np.ndarray:
        """(sets,) which parameter draw a set belongs to."""
        return self.sims.origin[self.case]

    def take(self, rows: np.ndarray) -> Simulations:
        """Some of the sets, in memory; quickest where the cases of `rows` are in order."""
        sims, case, sizes = self.sims, self.case[rows], self.sizes[rows]
        place = np.minimum(self.first[rows][:, None] + np.arange(self.set_size), sims.set_size - 1)
        x = np.empty((len(rows), self.set_size, *sims.shape), sims.x.dtype)
        step = max(1, PIECE // max(x[:1].nbytes, AROUND))
        for at in (slice(start, start + step) for start in range(0, len(rows), step)):
            x[at] = sims.x[case[at, None], place[at]]
            let_go(sims.x)
        x[np.arange(self.set_size) >= sizes[:, None]] = 0
        return sims._replace(theta=sims.theta[case], x=x, sizes=sizes, set_size=self.set_size, origin=sims.origin[case])


def cut(sims: Simulations, set_size: int) -> Cut:
    """Sets of at most `set_size` observations."""
    set_size = min(set_size, sims.set_size)
    starts = range(0, sims.set_size, set_size)
    case = [np.flatnonzero(sims.sizes > start) for start in starts]
    first = np.repeat(starts, [len(some) for some in case])
    together = np.concatenate(case)
    return Cut(sims, set_size, together, first, np.minimum(sims.sizes[together] - first, set_size))


def split(sims: Simulations, set_size: int) -> Simulations:
    """The same observations in sets of at most `set_size`, each with its parameters, in memory."""
    if set_size >= sims.set_size:
        return sims
    parts = cut(sims, set_size)
    return parts.take(np.arange(len(parts.case)))


def pieces(array: np.ndarray) -> Iterator[slice]:
    """All rows of an array, a few at a time, so that what is computed from them takes little memory."""
    step = max(1, PIECE // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        yield slice(start, start + step)
        let_go(array)


def let_go(array: np.ndarray) -> None:
    """Pages of a mapped file that were read or written need not stay in this process's memory; the file has them."""
    mode: str | None = None
    pages: Any = array
    while isinstance(pages, np.ndarray):
        mode, pages = getattr(pages, "mode", mode), pages.base
    if isinstance(pages, mmap.mmap) and mode in ("r", "r+", "w+"):  # not "c", whose changes the file does not have
        pages.madvise(mmap.MADV_DONTNEED)


def plan(prior: Prior, budget: int, set_size: int, seed: int) -> Plan:
    """A pure function of its arguments; a larger budget continues a smaller one."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    sizes = rng.integers(1, set_size + 1, size=budget)
    ends = np.cumsum(sizes)
    cases = int(np.searchsorted(ends, budget)) + 1
    sizes = sizes[:cases]
    sizes[-1] -= ends[cases - 1] - budget
    return Plan(prior.sample(cases, seed), sizes, np.repeat(np.arange(cases), sizes))


def gather(prior: Prior, planned: Plan, x: np.ndarray, set_size: int, seed: int) -> Simulations:
    """Sets out of single observations (calls, *shape); calls whose observation is not finite are left out."""
    single, good = rounded(x)
    return gather_blocks(prior, planned, good, [(0, single)], x.shape[1:], set_size, seed)


def gather_blocks(
    prior: Prior,
    planned: Plan,
    good: np.ndarray,
    blocks: Iterable[tuple[int, np.ndarray]],
    shape: tuple[int, ...],
    set_size: int,
    seed: int,
    allocate: Callable[[tuple[int, ...]], np.ndarray] = IN_RAM,
) -> Simulations:
    """Sets out of blocks (first call, observations) that come one after the other; calls that are not good are left out."""
    case = planned.case[good]
    sizes = np.bincount(case, minlength=len(planned.theta))
    some = sizes > 0
    new = np.cumsum(some) - 1
    ends = np.cumsum(sizes)
    sets = allocate((int(some.sum()), set_size, *shape))
    done = 0
    for start, x in blocks:
        kept = good[start : start + len(x)]
        own = case[done : done + kept.sum()]
        place = np.arange(done, done + len(own)) - (ends - sizes)[own]
        sets[new[own], place] = x[kept]
        let_go(sets)
        done += len(own)
    return Simulations(
        prior,
        planned.theta[some],
        sets,
        sizes[some],
        set_size,
        len(planned.case),
        int((~good).sum()),
        seed,
        np.arange(some.sum()),
    )
