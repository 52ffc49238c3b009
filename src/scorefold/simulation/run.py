"""Make the simulations that a place lacks: the one way to run a simulator, whoever runs it and wherever the results go.

A *source* (`sources/`) turns numbers of simulations into results: in this process, compiled, or in worker processes. A *place*
(`store/`) keeps them: in memory or in a folder. Any source goes with any place, and simulation i is the same in all.
"""

from typing import Protocol, runtime_checkable

import numpy as np

from scorefold.progress import bar
from scorefold.simulation.calls import Calls
from scorefold.simulation.failures import Guard
from scorefold.simulation.outcome import OK, Block, block
from scorefold.simulation.sources.source import Gaps, Shape, Source


@runtime_checkable
class Place(Protocol):
    """Where the simulations of some calls are kept: in memory or in a store."""

    calls: Calls
    shape: Shape | None
    """Of an observation; None while nobody knows."""

    def begin(self, shape: Shape) -> None:
        """Observations have this shape; nothing is added before."""
        ...

    def missing(self) -> Gaps:
        """Ranges of simulations that are not there."""
        ...

    def add(self, block: Block) -> None:
        """Keep a block."""
        ...

    def finish(self) -> None:
        """Nothing is missing any more."""
        ...

    def statuses(self) -> np.ndarray:
        """(calls,) what became of each."""
        ...


def run(source: Source, place: Place, guard: Guard, progress: bool) -> None:
    """Make what is missing; a SimulatorError if too many simulations fail, those that were there before included."""
    calls = place.calls
    shape, first = (place.shape, []) if place.shape is not None else source.shape(calls.arguments, calls.budget, guard)
    place.begin(shape)
    done = count_done(place)
    with bar("simulating", calls.budget, progress, done) as report:

        def keep(made: Block, new: int) -> None:
            place.add(made)
            report.update(len(made.status), f"{guard.failed + new:,} failed")

        if first and not done:
            keep(block(0, first, shape), 0)  # the guard has seen them
        for made in source.blocks(place.missing(), calls.arguments, shape):
            keep(made, int((made.status != OK).sum()))
            guard.see(made)
    place.finish()
    guard.finish(place.statuses())


def count_done(place: Place) -> int:
    """How many of the calls have been made."""
    return place.calls.budget - sum(stop - start for start, stop in place.missing())
