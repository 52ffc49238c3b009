"""What all sources of simulations are alike in, how the shape of an observation is found, and the source in this process.

A source is given gaps, ranges of simulations that are wanted, and yields blocks of finished ones in whatever order they come.
Simulation i is the same in all of them, up to the last bit.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from scorefold.progress import SILENT, Report
from scorefold.simulation.failures import ALL_FAILED, Guard
from scorefold.simulation.outcome import Block, Outcome, block, evaluate

BLOCK_SECONDS = 1.0
"""A source in this process hands over a block after so many seconds."""
PROBE = 8
"""Simulations by which the shape of an observation is found out."""

Shape = tuple[int, ...]
Gaps = list[tuple[int, int]]
Rows = Callable[[int, int], np.ndarray]
"""θ of simulations start … stop-1, with their inputs behind it if there are some"""


@runtime_checkable
class Source(Protocol):
    """Who runs the simulator: this process, a compiled program or worker processes."""

    def shape(self, theta: Rows, budget: int, guard: Guard, report: Report = SILENT) -> tuple[Shape, list[Outcome]]:
        """Find out the shape of an observation.

        Args:
            theta: Gives the parameters of a range of simulations.
            budget: How many simulations there are.
            guard: Counts failures.
            report: Is told of every simulation that has to be made for it.

        Returns:
            The shape, and the first simulations if they had to be made to know it.
        """
        ...

    def blocks(self, gaps: Gaps, theta: Rows, shape: Shape) -> Iterator[Block]:
        """Make simulations.

        Args:
            gaps: Ranges of those that are wanted.
            theta: Gives the parameters of a range.
            shape: Of an observation.

        Yields:
            Blocks of finished simulations, in whatever order they come.
        """
        ...


def probed_shape(
    probe: Callable[[int, np.ndarray], Iterable[tuple[int, Outcome]]],
    theta: Rows,
    budget: int,
    guard: Guard,
    report: Report = SILENT,
) -> tuple[Shape, list[Outcome]]:
    """Find the shape of an observation by simulating: the one that most have among the first PROBE simulations.

    Args:
        probe: Makes simulations from a number on, for parameters: their numbers and outcomes, in whatever order they come.
        theta: Gives the parameters of a range.
        budget: How many simulations there are.
        guard: Counts failures, and ends the run where too many fail.
        report: Is told of every simulation, since the first ones may take long.

    Returns:
        The shape, and all simulations that were made to know it: the next ones are tried where all of the first failed.
    """
    outcomes: list[Outcome] = []
    while len(outcomes) < budget:
        start = len(outcomes)
        count = min(PROBE, ALL_FAILED - start) if start < ALL_FAILED else PROBE
        made: dict[int, Outcome] = {}
        for number, one in probe(start, theta(start, min(start + count, budget))):
            made[number] = one
            report(f"{guard.failed + sum(other.x is None for other in made.values()):,} failed")
        some = [made[number] for number in sorted(made)]
        outcomes += some
        shapes = Counter(one.x.shape for one in some if one.x is not None)
        shape = shapes.most_common(1)[0][0] if shapes else ()
        guard.see(block(start, some, shape))
        if shapes:
            return shape, outcomes
    raise guard.error()


class InProcess(NamedTuple):
    """Calls a plain simulator in this process, one simulation after the other: no overhead, but its crash is ours."""

    simulator: Callable[..., Any]
    seed: int

    def shape(self, theta: Rows, budget: int, guard: Guard, report: Report = SILENT) -> tuple[Shape, list[Outcome]]:
        """The shape of an observation, by simulating."""
        return probed_shape(self._probe, theta, budget, guard, report)

    def _probe(self, start: int, theta: np.ndarray) -> Iterator[tuple[int, Outcome]]:
        for number, one in enumerate(theta, start):
            yield number, evaluate(self.simulator, one, self.seed, number, None)

    def blocks(self, gaps: Gaps, theta: Rows, shape: Shape) -> Iterator[Block]:
        """All simulations in the gaps, a second's worth at a time."""
        for start, stop in gaps:
            at, began = start, time.perf_counter()
            outcomes: list[Outcome] = []
            for row, one in enumerate(theta(start, stop)):
                try:
                    outcomes.append(evaluate(self.simulator, one, self.seed, start + row, shape))
                except KeyboardInterrupt:
                    if outcomes:
                        yield block(at, outcomes, shape)  # what is done is not lost
                    raise
                if time.perf_counter() - began > BLOCK_SECONDS or start + row == stop - 1:
                    yield block(at, outcomes, shape)
                    at, outcomes, began = start + row + 1, [], time.perf_counter()
