"""A batched JAX simulator, in this process, in batches of one compiled shape.

Simulation i's random stream is `jax.random.fold_in(new_key(seed), i)`. Batch b always holds simulations bB … bB+B-1, whatever
is missing of them and wherever the budget ends, because results round differently in batches of other sizes.
"""

import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from scorefold import settings
from scorefold.errors import SimulatorError
from scorefold.progress import SILENT, Report
from scorefold.simulation.batched import Batched
from scorefold.simulation.failures import Guard
from scorefold.simulation.outcome import FAILURES_KEPT, NOT_FINITE, OK, Block, Outcome, not_finite, rounded
from scorefold.simulation.sources.source import BLOCK_SECONDS, Gaps, Rows, Shape
from scorefold.types import Array, new_key

BATCH = 1_024
BATCH_BYTES = 64 << 20


_keys = jax.jit(jax.vmap(jax.random.fold_in, (None, 0)))


class Compiled:
    """A batched simulator compiled by JAX, in this process: for simulators that are written in JAX, far quicker than one call
    after the other.
    """

    def __init__(self, simulator: Batched, seed: int):
        self._root = new_key(seed)
        self._function = jax.jit(simulator.function)

    def shape(self, theta: Rows, budget: int, guard: Guard, report: Report = SILENT) -> tuple[Shape, list[Outcome]]:
        """The shape of an observation, known before anything runs."""
        dim = theta(0, 1).shape[1]
        keys = jax.eval_shape(_keys, self._root, jax.ShapeDtypeStruct((BATCH,), jnp.int32))
        try:
            x = jax.eval_shape(self._function, jax.ShapeDtypeStruct((BATCH, dim), jnp.float32), keys)
        except Exception as error:
            raise _failed((BATCH, dim), error) from error
        refuse_other_rows(getattr(x, "shape", ()), BATCH)
        return tuple(x.shape[1:]), []

    def blocks(self, gaps: Gaps, theta: Rows, shape: Shape) -> Iterator[Block]:
        """All simulations in the gaps, batches put together to a second's worth."""
        fitting = max(1, BATCH_BYTES // (4 * max(1, int(np.prod(shape)))))
        batch = min(BATCH, 1 << (fitting.bit_length() - 1))
        for start, stop in gaps:
            parts: list[Block] = []
            began = time.perf_counter()
            for first in range(start - start % batch, stop, batch):
                try:
                    parts.append(self._batch(first, batch, max(start, first), min(stop, first + batch), theta))
                except (KeyboardInterrupt, SimulatorError):
                    if parts:
                        yield _together(parts)  # what is done is not lost
                    raise
                if time.perf_counter() - began > BLOCK_SECONDS or first + batch >= stop:
                    yield _together(parts)
                    parts, began = [], time.perf_counter()

    def _batch(self, first: int, batch: int, start: int, stop: int, theta: Rows) -> Block:
        """Simulations start … stop-1 of the batch that begins with `first`."""
        rows = theta(start, stop)
        padded = np.repeat(rows[:1], batch, axis=0)
        padded[start - first : stop - first] = rows
        began = time.perf_counter()
        keys = _keys(self._root, jnp.arange(first, first + batch))
        x = run_batch(self._function, padded, keys)[start - first : stop - first]
        each = (time.perf_counter() - began) / batch
        single, good = rounded(x)
        single[~good] = 0
        failed = np.flatnonzero(~good)[:FAILURES_KEPT].tolist()
        status = np.where(good, OK, NOT_FINITE).astype(np.uint8)
        failures = tuple((start + row, NOT_FINITE, not_finite(x[row])) for row in failed)
        return Block(start, single, status, np.full(len(x), each, np.float32), failures)


def _together(parts: list[Block]) -> Block:
    x, status, seconds = (np.concatenate([getattr(part, key) for part in parts]) for key in ("x", "status", "seconds"))
    failures = tuple(one for part in parts for one in part.failures)[:FAILURES_KEPT]
    return Block(parts[0].start, x, status, seconds, failures)


def run_batch(function: Callable[..., Array], theta: np.ndarray, keys: Array) -> np.ndarray:
    """One observation for each row of θ, as float64."""
    try:
        x = settings.numbers("observations", function(jnp.asarray(theta, jnp.float32), keys))
    except Exception as error:
        raise _failed(theta.shape, error) from error
    refuse_other_rows(x.shape, len(theta))
    return x


def refuse_other_rows(shape: tuple[int, ...], rows: int) -> None:
    """Refuse what is not one observation per row."""
    if not shape or shape[0] != rows:
        raise SimulatorError(
            f"expected the batched simulator to return one observation per row, ({rows}, …); got shape {shape}"
        )


def _failed(shape: tuple[int, ...], error: Exception) -> SimulatorError:
    return SimulatorError(f"the batched simulator failed on θ of shape {shape}: {type(error).__name__}: {error}")
