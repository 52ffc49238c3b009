"""What all sources of simulations are alike in, and how the shape of an observation is found.

A source is given gaps, ranges of simulations that are wanted, and yields blocks of finished ones in whatever order they come.
Simulation i is the same in all of them, up to the last bit.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

import numpy as np

from scorefold.simulation.failures import ALL_FAILED, Guard
from scorefold.simulation.outcome import Block, Outcome, block

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

    def shape(self, theta: Rows, budget: int, guard: Guard) -> tuple[Shape, list[Outcome]]:
        """The shape of an observation, and the first simulations if they had to be made to know it."""
        ...

    def blocks(self, gaps: Gaps, theta: Rows, shape: Shape) -> Iterator[Block]:
        """All simulations in the gaps."""
        ...


def probed_shape(
    probe: Callable[[int, np.ndarray], list[Outcome]], theta: Rows, budget: int, guard: Guard
) -> tuple[Shape, list[Outcome]]:
    """The shape most observations have among the first PROBE simulations, or the next if these all failed; and all of them."""
    outcomes: list[Outcome] = []
    while len(outcomes) < budget:
        start = len(outcomes)
        count = min(PROBE, ALL_FAILED - start) if start < ALL_FAILED else PROBE
        some = probe(start, theta(start, min(start + count, budget)))
        outcomes += some
        shapes = Counter(one.x.shape for one in some if one.x is not None)
        shape = shapes.most_common(1)[0][0] if shapes else ()
        guard.see(block(start, some, shape))
        if shapes:
            return shape, outcomes
    raise guard.error()
