"""Fill a store, or memory, with the simulations that it lacks."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from scorefold.prior import Prior
from scorefold.progress import gauge
from scorefold.simulation.outcome import OK, STATUS, Block, Outcome, block
from scorefold.simulation.simulations import Plan, Simulations
from scorefold.simulation.sources.engine import Gaps, Guard, Rows
from scorefold.simulation.store import description
from scorefold.simulation.store.fingerprint import fingerprint
from scorefold.simulation.store.memory import Memory
from scorefold.simulation.store.store import Store


class Order(NamedTuple):
    """What is to be simulated."""

    prior: Prior
    simulator: Callable[..., Any]
    planned: Plan
    set_size: int
    seed: int

    def theta(self, start: int, stop: int) -> np.ndarray:
        """Of simulations start … stop-1."""
        return self.planned.theta[self.planned.case[start:stop]]

    def written(self, simulation: int) -> str:
        """θ of one simulation, with all digits."""
        values = self.theta(simulation, simulation + 1)[0]
        return (
            "(" + ", ".join(f"{name} = {value!r}" for name, value in zip(self.prior.names, values.tolist(), strict=True)) + ")"
        )

    def about(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """The description of a store for it."""
        version = import_module(__name__.split(".")[0]).__version__
        return description.describe(self.prior, fingerprint(self.simulator), self.seed, self.set_size, shape, version)


@runtime_checkable
class Source(Protocol):
    """Where simulations come from: in-process, compiled or isolated."""

    def blocks(self, gaps: Gaps, theta: Rows, shape: tuple[int, ...]) -> Iterator[Block]:
        """All simulations in the gaps."""
        ...

    def shape(self, theta: Rows, budget: int, guard: Guard) -> tuple[tuple[int, ...], list[Outcome]]:
        """The shape of an observation, and the first simulations if they had to be made to know it."""
        ...


def fill(order: Order, source: Source, path: Path | None, max_failures: float, progress: bool) -> tuple[Simulations, str]:
    """Make what is missing, in the store at `path` or in memory; the cases, and how those failed that are left out."""
    budget, case = len(order.planned.case), order.planned.case
    guard = Guard(max_failures, order.written)
    shape, probed = _shape(order, source, path, guard)
    sink = Memory(shape, budget) if path is None else Store.create(path, order.prior, order.about(shape))
    done = budget - sum(stop - start for start, stop in sink.missing(budget))
    with gauge("simulating", budget, done, progress) as report:

        def take(seen: Block) -> None:
            start, stop = seen.start, seen.start + len(seen.status)
            sink.add(seen, order.theta(start, stop), case[start:stop])
            report(stop - start, f"{guard.failed:,} failed")

        if probed and not done:
            take(block(0, probed, shape))
        for seen in source.blocks(sink.missing(budget), order.theta, shape):
            take(seen)
            guard.see(seen)
    sink.finish(budget)
    if isinstance(sink, Memory):
        sims = sink.simulations(order.prior, order.planned, order.set_size, order.seed)
    else:
        sims = sink.simulations(budget, order.planned)
    counts = sink.counts(budget) if sims.failed else {}
    guard.finish(counts, lambda: sink.first_failed(budget))
    return sims, f"failed ({', '.join(f'{n:,} {name}' for name, n in counts.items() if n and name != STATUS[OK])})"


def _shape(order: Order, source: Source, path: Path | None, guard: Guard) -> tuple[tuple[int, ...], list[Outcome]]:
    if path is not None:  # what cannot end well should not begin
        description.refuse_other(path)
        order.about(())
        if Store.exists(path):
            there = description.read(path)
            description.refuse_difference(path, there, order.about(tuple(there["shape"])))
            return tuple(there["shape"]), []
    return source.shape(order.theta, len(order.planned.case), guard)
