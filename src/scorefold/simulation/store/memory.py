"""Simulations in memory, for a run without a store: takes what a store takes and gives what a store gives."""

import numpy as np

from scorefold.prior import Prior
from scorefold.simulation.outcome import OK, STATUS, Block
from scorefold.simulation.simulations import Plan, Simulations, gather_blocks


class Memory:
    """Rows for `budget` simulations."""

    def __init__(self, shape: tuple[int, ...], budget: int):
        self.shape = shape
        self._x = np.zeros((budget, *shape), np.float32)
        self._status = np.full(budget, len(STATUS), np.uint8)

    def missing(self, stop: int) -> list[tuple[int, int]]:
        """Ranges of simulations that are not there."""
        gone = np.flatnonzero(np.diff(self._status[:stop] == len(STATUS), prepend=False, append=False))
        return [(int(a), int(b)) for a, b in gone.reshape(-1, 2)]

    def add(self, block: Block, theta: np.ndarray, case: np.ndarray) -> None:
        """Take in a block; θ and cases are in the plan anyway."""
        rows = slice(block.start, block.start + len(block.status))
        self._x[rows], self._status[rows] = block.x, block.status

    def finish(self, stop: int) -> None:
        """Nothing is left to do."""

    def counts(self, stop: int) -> dict[str, int]:
        """How many simulations have each status."""
        return dict(zip(STATUS, np.bincount(self._status[:stop], minlength=len(STATUS)).tolist(), strict=True))

    def first_failed(self, stop: int) -> int:
        """The first simulation that is not ok; `stop` if all are."""
        return next(iter(np.flatnonzero(self._status[:stop] != OK).tolist()), stop)

    def simulations(self, prior: Prior, planned: Plan, set_size: int, seed: int) -> Simulations:
        """The training cases."""
        return gather_blocks(prior, planned, self._status == OK, [(0, self._x)], self.shape, set_size, seed)
