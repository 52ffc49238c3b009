"""Known inputs of observations: what an experiment set and did not find out, as a motion coherence or the size of a household.

With an input c for each observation the simulator draws x ~ p(x | θ, c), and the posterior is

    p(θ | x_1, c_1 … x_n, c_n) ∝ p(θ) ∏_j p(x_j | θ, c_j).

In simulations c ~ p(c) is drawn independently of θ. So (x, c) is an observation like any other, of density p(c) p(x | θ, c).
Its score in θ, and its likelihood ratio, are those of x given c, whatever p(c) is, and scores add up as they do without inputs.
Observations therefore hold their outcomes and then, as their last numbers, their inputs. Which is which only a likelihood of x
has to know (`density/likelihood.py`), and whoever simulates again: near one data set with that one's own inputs, otherwise
with inputs as they were simulated.

The inputs of simulations b B … b B + B - 1 come from a stream of their own: those of simulation i are a pure function of
(seed, i).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scorefold import settings
from scorefold.errors import ScorefoldError
from scorefold.simulation import columns
from scorefold.simulation.batched import Batched
from scorefold.simulation.outcome import LARGEST_X
from scorefold.simulation.wrapped import WithInputs, refuse_arrays

INPUTS_A_STREAM = 1_024
"""B: inputs drawn from one stream."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """Where the inputs of simulations come from: a table, rows of which are drawn at random, or a sampler."""

    names: tuple[str, ...]
    table: np.ndarray | None
    """(rows, inputs)"""
    sampler: Callable[[np.random.Generator], Any] | None = None

    def drawn(self, seed: int, start: int, stop: int) -> np.ndarray:
        """(stop - start, inputs) of simulations start … stop-1."""
        first = start // INPUTS_A_STREAM
        blocks = [self._block(seed, number) for number in range(first, -(-stop // INPUTS_A_STREAM))]
        together = np.concatenate(blocks) if blocks else np.zeros((0, len(self.names)))
        return together[start - first * INPUTS_A_STREAM : stop - first * INPUTS_A_STREAM]

    def _block(self, seed: int, number: int) -> np.ndarray:
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3, number)))
        if self.table is not None:
            return self.table[rng.integers(len(self.table), size=INPUTS_A_STREAM)]
        assert self.sampler is not None
        return np.stack([_drawn_once(self.sampler, rng, len(self.names)) for _ in range(INPUTS_A_STREAM)])


def inputs_from(inputs: Any, names: Sequence[str] | None) -> Inputs | None:
    """What known inputs are drawn from, as `sf.simulate` is told.

    Args:
        inputs: A function of rng that draws them, a table whose rows are drawn at random, or None for none.
        names: Their names. Default None: a DataFrame's columns, or numbers.

    Returns:
        The `Inputs`, or None.

    Raises:
        ScorefoldError: They are not numbers, or the names do not fit.
    """
    if inputs is None:
        if names is not None:
            raise ScorefoldError(
                "expected input_names only with inputs, a table of them or a function inputs(rng); got no inputs"
            )
        return None
    if callable(inputs) and not columns.is_table(inputs):
        first = _drawn_once(inputs, np.random.default_rng(0), None)
        return Inputs(_checked_names(names, len(first)), None, inputs)
    table, found = table_of("inputs", inputs, columns.outcome_names(names))
    if len(table) == 0:
        raise ScorefoldError("expected a table of inputs with a row or more; got none")
    return Inputs(_checked_names(names or found or None, table.shape[1]), table)


def table_of(what: str, inputs: Any, names: tuple[str, ...]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Inputs (rows, inputs), and the names of a table's columns; one number a row may be a list."""
    if columns.is_table(inputs):
        table, found = columns.numbers(what, inputs, names)
    else:
        table, found = settings.numbers(what, inputs), ()
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or table.shape[1] == 0:
        raise ScorefoldError(
            f"expected {what} with a row of numbers for each observation, (n, inputs); got shape {table.shape}"
        )
    _refuse_strange(what, table)
    return table, found


def joined(simulator: Callable[..., Any], dim: int) -> Callable[..., Any]:
    """A simulator that takes θ with the inputs behind it, and returns outcomes with the inputs behind them."""
    return (
        Batched(_BatchedWithInputs(simulator.function, dim)) if isinstance(simulator, Batched) else WithInputs(simulator, dim)
    )


@dataclass(frozen=True)
class _BatchedWithInputs:
    function: Callable[..., Any]
    dim: int

    def __call__(self, both: Any, keys: Any) -> Any:
        import jax.numpy as jnp

        theta, inputs = both[:, : self.dim], both[:, self.dim :]
        x = self.function(theta, keys, inputs)
        refuse_arrays(x.shape[1:])
        return jnp.concatenate([x.reshape(len(both), -1).astype(both.dtype), inputs], axis=1)


def _drawn_once(sampler: Callable[[np.random.Generator], Any], rng: np.random.Generator, count: int | None) -> np.ndarray:
    try:
        value = sampler(rng)
    except Exception as error:
        raise ScorefoldError(
            f"expected inputs(rng) to draw the inputs of one observation from a numpy.random.Generator; it raised "
            f"{type(error).__name__}: {error}"
        ) from error
    row = settings.numbers("what inputs(rng) returns", value)
    if row.ndim > 1 or row.size == 0 or (count is not None and row.size != count):
        wanted = "a number or a list of numbers" if count is None else f"{count} numbers, as before"
        raise ScorefoldError(f"expected inputs(rng) to return {wanted}, the inputs of one observation; got shape {row.shape}")
    _refuse_strange("what inputs(rng) returns", row)
    return row.reshape(-1)


def _refuse_strange(what: str, values: np.ndarray) -> None:
    if not (np.abs(values) <= LARGEST_X).all():
        raise ScorefoldError(
            f"expected {what} to be finite numbers within ±{LARGEST_X:.0e}; got others. Inputs are always known."
        )


def _checked_names(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"input[{i}]" for i in range(count))
    return settings.names("input (input_names)", [names] if isinstance(names, str) else names, count)
