"""A store as the place for the simulations of a run: what is there is refused or continued, what is new is kept at once."""

import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from scorefold.disk import locks
from scorefold.errors import FolderVanished, NoPermission, ReadOnly, ScorefoldWarning
from scorefold.prior import Prior
from scorefold.simulation.calls import Calls
from scorefold.simulation.columns import joined_names
from scorefold.simulation.inputs import Inputs
from scorefold.simulation.outcome import Block
from scorefold.simulation.simulations import Simulations
from scorefold.simulation.store import description
from scorefold.simulation.store.fingerprint import describe_inputs, fingerprint
from scorefold.simulation.store.store import Store


class StoreFilling:
    """The store at a path, once the shape of an observation is known; what cannot end well is refused before anything runs."""

    def __init__(
        self,
        path: Path,
        prior: Prior,
        simulator: Callable[..., Any],
        calls: Calls,
        x_names: tuple[str, ...] = (),
        inputs: Inputs | None = None,
        holes: bool = False,
    ):
        self.path, self.prior, self.simulator, self.calls, self.x_names = path, prior, simulator, calls, x_names
        self.inputs, self.holes = inputs, holes
        self.shape: tuple[int, ...] | None = None
        self._store: Store | None = None
        self._lock, self._waited, self._added = ExitStack(), False, False
        self._status = np.zeros(0, np.uint8)
        description.refuse_other(path)
        self._about(())
        if Store.exists(path):
            there = description.read(path)
            shape = tuple(there["shape"])
            description.refuse_difference(path, there, self._about(shape))
            self.shape = shape

    def _about(self, shape: tuple[int, ...]) -> dict[str, Any]:
        version = import_module(__name__.split(".")[0]).__version__
        simulator = fingerprint(self.simulator)
        about = description.describe(self.prior, simulator, self.calls.seed, self.calls.set_size, shape, version)
        named: dict[str, Any] = {description.X_NAMES: list(self.x_names)} if self.x_names else {}
        named |= {description.HOLES: True} if self.holes else {}
        return about | named | ({} if self.inputs is None else {description.INPUTS: describe_inputs(self.inputs)})

    def begin(self, shape: tuple[int, ...]) -> None:
        """Observations have this shape: open the store, or make it."""
        joined_names(self.x_names, () if self.inputs is None else self.inputs.names, shape)
        self.shape, self._store = shape, Store.create(self.path, self.prior, self._about(shape))
        if self.missing():
            self._lock.enter_context(locks.alone(self.path / "lock", self._wait))
        if self._waited:
            self.store.scan()

    def _wait(self) -> None:
        """Another process fills the store."""
        self._waited = True
        warnings.warn(
            f"another process is filling the store {self.path}. This one waits for it, and then makes what is still missing.",
            ScorefoldWarning,
            stacklevel=2,
        )

    def close(self) -> None:
        """Let others fill the store."""
        self._lock.close()

    @property
    def store(self) -> Store:
        """The store, after `begin`."""
        assert self._store is not None
        return self._store

    def missing(self) -> list[tuple[int, int]]:
        """Ranges of simulations that are not there."""
        return self.store.missing(self.calls.budget) if self._store else [(0, self.calls.budget)]

    def add(self, block: Block) -> None:
        """Keep a block."""
        self._added = True
        start, stop = block.start, block.start + len(block.status)
        self.store.add(block, self.calls.rows(start, stop), self.calls.case[start:stop])

    def finish(self) -> None:
        """The last look: what other writers have left, merged and swept."""
        with suppress(*(() if self._added else (ReadOnly, NoPermission))):  # a finished store may be one that is only read
            self.store.finish(self.calls.budget)
        self._status = self.store.statuses(self.calls.budget)
        if len(self._status) != self.calls.budget:
            raise FolderVanished(f"expected {self.calls.budget:,} simulations in {self.path}; some are gone. Who removed them?")

    def statuses(self) -> np.ndarray:
        """(calls,) what became of each, after `finish`."""
        return self._status

    def simulations(self) -> Simulations:
        """The training cases, after `finish`; mapped from disk where they are large."""
        sims = self.store.gather(self.calls, self._status)
        return sims._replace(x_names=joined_names(self.x_names, sims.input_names, sims.shape)) if self.x_names else sims
