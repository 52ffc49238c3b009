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
from scorefold.simulation.batched import Batched
from scorefold.simulation.outcome import NOT_FINITE, OK, STATUS, Block, Outcome, not_finite, rounded
from scorefold.simulation.sources.engine import LEAST, Gaps, Guard, Rows
from scorefold.types import Array, new_key

BATCH = 1_024
BATCH_BYTES = 64 << 20


class Compiled:
    """The simulator, ready to run."""

    def __init__(self, simulator: Batched, seed: int, dim: int):
        root = new_key(int(seed))
        self._keys: Callable[[Array], Array] = jax.jit(jax.vmap(lambda i: jax.random.fold_in(root, i)))
        self._function = jax.jit(simulator.function)
        self.dim = dim

    def shape(self, theta: Rows, budget: int, guard: Guard) -> tuple[tuple[int, ...], list[Outcome]]:
        """Of an observation, known before anything runs."""
        keys = jax.eval_shape(self._keys, jax.ShapeDtypeStruct((BATCH,), jnp.int32))
        try:
            x = jax.eval_shape(self._function, jax.ShapeDtypeStruct((BATCH, self.dim), jnp.float32), keys)
        except Exception as error:
            raise _failed((BATCH, self.dim), error) from error
        checked(getattr(x, "shape", ()), BATCH)
        return tuple(x.shape[1:]), []

    def blocks(self, gaps: Gaps, theta: Rows, shape: tuple[int, ...]) -> Iterator[Block]:
        """All simulations in the gaps, batches put together to a second's worth."""
        fitting = max(1, BATCH_BYTES // (4 * max(1, int(np.prod(shape)))))
        batch = min(BATCH, 1 << (fitting.bit_length() - 1))
        for start, stop in gaps:
            parts: list[Block] = []
            began = time.perf_counter()
            for first in range(start - start % batch, stop, batch):
                parts.append(self._batch(first, batch, max(start, first), min(stop, first + batch), theta))
                if time.perf_counter() - began > LEAST or first + batch >= stop:
                    yield _together(parts)
                    parts, began = [], time.perf_counter()

    def _batch(self, first: int, batch: int, start: int, stop: int, theta: Rows) -> Block:
        """Simulations start … stop-1 of the batch that begins with `first`."""
        rows = theta(start, stop)
        padded = np.repeat(rows[:1], batch, axis=0)
        padded[start - first : stop - first] = rows
        began = time.perf_counter()
        x = run_batch(self._function, padded, self._keys(jnp.arange(first, first + batch)))[start - first : stop - first]
        each = (time.perf_counter() - began) / batch
        single, good = rounded(x)
        single[~good] = 0
        at = int(good.argmin())
        failure = None if good.all() else (start + at, f"{STATUS[NOT_FINITE]}: {not_finite(x[at])}")
        status = np.where(good, OK, NOT_FINITE).astype(np.uint8)
        return Block(start, single, status, np.full(len(x), each, np.float32), failure)


def _together(parts: list[Block]) -> Block:
    x, status, seconds = (np.concatenate([getattr(part, key) for part in parts]) for key in ("x", "status", "seconds"))
    return Block(parts[0].start, x, status, seconds, next((part.failure for part in parts if part.failure), None))


def run_batch(function: Callable[..., Array], theta: np.ndarray, keys: Array) -> np.ndarray:
    """One observation for each row of θ, as float64."""
    try:
        x = settings.numbers("observations", function(jnp.asarray(theta, jnp.float32), keys))
    except Exception as error:
        raise _failed(theta.shape, error) from error
    checked(x.shape, len(theta))
    return x


def checked(shape: tuple[int, ...], rows: int) -> None:
    """Refuse what is not one observation per row."""
    if not shape or shape[0] != rows:
        raise SimulatorError(
            f"expected the batched simulator to return one observation per row, ({rows}, …); got shape {shape}"
        )


def _failed(shape: tuple[int, ...], error: Exception) -> SimulatorError:
    return SimulatorError(f"the batched simulator failed on θ of shape {shape}: {type(error).__name__}: {error}")
