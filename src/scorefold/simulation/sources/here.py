"""A plain simulator in this process: no overhead, but a crash of it is a crash of this process."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from scorefold.simulation.failures import Guard
from scorefold.simulation.outcome import Block, Outcome, block, evaluate
from scorefold.simulation.sources.source import BLOCK_SECONDS, Gaps, Rows, Shape, probed_shape


class InProcess(NamedTuple):
    """Calls the simulator here, one simulation after the other."""

    simulator: Callable[..., Any]
    seed: int

    def shape(self, theta: Rows, budget: int, guard: Guard) -> tuple[Shape, list[Outcome]]:
        """Of an observation, by simulating."""
        return probed_shape(self._probe, theta, budget, guard)

    def _probe(self, start: int, theta: np.ndarray) -> list[Outcome]:
        return [evaluate(self.simulator, one, self.seed, start + row, None) for row, one in enumerate(theta)]

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
