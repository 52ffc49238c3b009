"""A place in memory for the simulations of a run: takes what a store takes and gives what a store gives."""

import numpy as np

from scorefold.prior import Prior
from scorefold.simulation.calls import Calls
from scorefold.simulation.columns import joined_names
from scorefold.simulation.holes import opened
from scorefold.simulation.outcome import MISSING, Block
from scorefold.simulation.simulations import IN_RAM, Results, Simulations, gather, pieces


class Memory:
    """Rows for all calls of a run, once the shape of an observation is known."""

    def __init__(
        self,
        calls: Calls,
        prior: Prior | None = None,
        x_names: tuple[str, ...] = (),
        input_names: tuple[str, ...] = (),
        holes: bool = False,
    ):
        self.calls, self.prior, self.x_names, self.input_names = calls, prior, x_names, input_names
        self.holes = holes
        """Numbers may be missing (`simulation/holes.py`)."""
        self.shape: tuple[int, ...] | None = None
        self.x = np.zeros(0, np.float32)
        """(calls, *shape), 0 where a simulation failed or is missing"""
        self._status = np.full(calls.budget, MISSING, np.uint8)

    def begin(self, shape: tuple[int, ...]) -> None:
        """Observations have this shape."""
        self.shape, self.x_names = shape, joined_names(self.x_names, self.input_names, shape)
        self.x = np.zeros((self.calls.budget, *shape), np.float32)

    def missing(self) -> list[tuple[int, int]]:
        """Ranges of simulations that are not there."""
        edges = np.flatnonzero(np.diff(self._status == MISSING, prepend=False, append=False))
        return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]

    def add(self, block: Block) -> None:
        """Take in a block."""
        rows = slice(block.start, block.start + len(block.status))
        self.x[rows], self._status[rows] = block.x, block.status

    def finish(self) -> None:
        """Nothing is left to do."""

    def close(self) -> None:
        """Nobody waits for it."""

    def statuses(self) -> np.ndarray:
        """(calls,) what became of each, MISSING where it has not been made."""
        return self._status

    def simulations(self) -> Simulations:
        """The training cases of which all calls have been made, if the parameters are draws from a prior; asked for once."""
        assert self.prior is not None
        blocks = ((rows.start, self.x[rows]) for rows in pieces(self.x))
        results = Results(self._status, blocks, self.shape or (), self.x_names, self.input_names)
        sims = gather(self.prior, self.calls, results, self._sets)
        return opened(sims) if self.holes else sims

    def _sets(self, shape: tuple[int, ...]) -> np.ndarray:
        """Where cases go: sets of one observation over the simulations themselves, which close ranks, without a copy."""
        return self.x[: shape[0]].reshape(shape) if self.calls.set_size == 1 else IN_RAM(shape)
