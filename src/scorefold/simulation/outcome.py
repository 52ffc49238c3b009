"""One simulation: its random stream, and what can become of it.

Simulation i's random stream is a pure function of (seed, i): `np.random.default_rng(SeedSequence(seed, spawn_key=(2, i)))`.
This module and `child.py` import NumPy and nothing heavier, because every worker's child does.
"""

import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from scorefold import settings

OK, RAISED, NOT_FINITE, SHAPE, TIMEOUT, CRASHED, MEMORY = range(7)
STATUS = ("ok", "raised", "not finite", "wrong shape", "timed out", "crashed", "out of memory")
"""Names of the status codes, by code."""
MISSING = len(STATUS)
"""Where a status would be, this says that the simulation has not been made."""
FAILURES_KEPT = 100
"""Of so many failures, the first ones, it is kept what was wrong."""

LARGEST_X = 1e37
"""Of an observation's numbers: beyond, differences of two overflow in single precision."""
TOO_LARGE = (
    f"expected observations that fit in single precision (within ±{LARGEST_X:.0e}); got larger ones. Rescale what the "
    "simulator returns, for instance by taking logarithms."
)


class Outcome(NamedTuple):
    """What became of one simulation: an observation where its status is OK, otherwise what went wrong. `block` puts many into
    rows.
    """

    status: int
    x: np.ndarray | None
    """The observation in single precision, where the status is OK."""
    seconds: float
    text: str = ""
    """What went wrong, in words or as a traceback."""


class Block(NamedTuple):
    """What became of the simulations start, start + 1, …: what a source hands over and a place keeps."""

    start: int
    x: np.ndarray
    """(rows, *shape) float32, 0 where a simulation failed"""
    status: np.ndarray
    """(rows,) uint8"""
    seconds: np.ndarray
    """(rows,) float32"""
    failures: tuple[tuple[int, int, str], ...]
    """Index, status and text of those that failed, the first FAILURES_KEPT of them."""


def stream(seed: int, index: int) -> np.random.Generator:
    """The random numbers of one simulation: a pure function of the seed and the simulation's number, so that who runs it does
    not matter.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2, index)))


def evaluate(simulator: Callable[..., Any], theta: np.ndarray, seed: int, index: int, shape: tuple[int, ...] | None) -> Outcome:
    """Call a simulator once, and tell what became of it. Nothing that it raises gets out, except Ctrl-C.

    Args:
        simulator: The function of θ and rng.
        theta: (dim,), its parameters, and known inputs if there are some.
        seed: Of the run.
        index: Which simulation this is.
        shape: What the observation should have. Default None while nobody knows.

    Returns:
        The status, with the observation in single precision or what went wrong, and the seconds that it took.
    """
    began = time.perf_counter()
    try:
        x = settings.numbers("an observation", simulator(theta.copy(), stream(seed, index)))
    except MemoryError:
        return Outcome(MEMORY, None, time.perf_counter() - began, traceback.format_exc())
    except (Exception, SystemExit):
        return Outcome(RAISED, None, time.perf_counter() - began, traceback.format_exc())
    seconds = time.perf_counter() - began
    if shape is not None and x.shape != shape:
        return Outcome(SHAPE, None, seconds, wrong_shape(shape, x.shape))
    (single,), (good,) = rounded(x[None])
    return Outcome(OK, single, seconds) if good else Outcome(NOT_FINITE, None, seconds, not_finite(x))


def rounded(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Observations (rows, …) in single precision, and which rows (rows,) are some: finite and within ±LARGEST_X."""
    with np.errstate(over="ignore"):
        single = x.astype(np.float32, order="C")
    return single, np.all(np.abs(single).reshape(len(x), -1) <= LARGEST_X, axis=1)


def not_finite(x: np.ndarray) -> str:
    """What is wrong with such an observation."""
    return TOO_LARGE if np.isfinite(x).all() else f"it returned NaN or infinity: {x!r:.200}"


def wrong_shape(shape: tuple[int, ...], got: tuple[int, ...]) -> str:
    """The sentence."""
    hint = " With missing=True the ends of short ones may be NaN." if len(shape) == len(got) > 0 else ""
    return f"expected an observation of shape {shape}, as the others have; got {got}. Return arrays of one fixed shape.{hint}"


def block(start: int, outcomes: list[Outcome], shape: tuple[int, ...]) -> Block:
    """Put outcomes of consecutive simulations into rows.

    Args:
        start: The number of the first.
        outcomes: What became of each.
        shape: Of an observation; one of another shape has failed.

    Returns:
        A `Block`, with zeros where a simulation failed.
    """
    x = np.zeros((len(outcomes), *shape), np.float32)
    status = np.array([one.status for one in outcomes], np.uint8)
    failures: list[tuple[int, int, str]] = []
    for row, one in enumerate(outcomes):
        if one.x is not None and one.x.shape != shape:
            one = Outcome(SHAPE, None, one.seconds, wrong_shape(shape, one.x.shape))
            status[row] = SHAPE
        if one.x is not None:
            x[row] = one.x
        elif len(failures) < FAILURES_KEPT:
            failures.append((start + row, one.status, one.text))
    return Block(start, x, status, np.array([one.seconds for one in outcomes], np.float32), tuple(failures))
