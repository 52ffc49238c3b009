"""Make the simulations that a place lacks: the one way to run a simulator, whoever runs it and wherever the results go.

A *source* (`sources/`) turns numbers of simulations into results: in this process, compiled, or in worker processes; what the
simulator is and what was asked for decide which. A *place* keeps them: `Memory`, or a folder (`store/`). Any source goes with
any place, and simulation i is the same in all.
"""

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np

from scorefold.errors import ScorefoldError, SimulatorError
from scorefold.prior import Prior
from scorefold.progress import SILENT, bar
from scorefold.simulation.batched import Batched
from scorefold.simulation.calls import Calls
from scorefold.simulation.columns import joined_names
from scorefold.simulation.failures import Guard
from scorefold.simulation.holes import opened
from scorefold.simulation.outcome import MISSING, OK, Block, Outcome, block
from scorefold.simulation.pieces import pieces
from scorefold.simulation.simulations import IN_RAM, Results, Simulations, gather
from scorefold.simulation.sources.compiled import Compiled
from scorefold.simulation.sources.isolated import Isolated, LocalPool, pickled
from scorefold.simulation.sources.source import Gaps, InProcess, Shape, Source
from scorefold.simulation.workers import Workers


@runtime_checkable
class Place(Protocol):
    """Where the simulations of some calls are kept: in memory (`Memory`) or in a folder (`store/filling.py`). `run` asks it
    what is missing and hands it what was made.
    """

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
    """Make the simulations that a place lacks.

    Args:
        source: Who runs the simulator.
        place: Where results go; what it has already is not made again.
        guard: Counts failures.
        progress: Whether to show a bar.

    Raises:
        SimulatorError: Too many simulations fail, those that were there before included.
    """
    calls, shape, first = place.calls, place.shape, list[Outcome]()
    if shape is not None:
        place.begin(shape)
    done = count_done(place)
    with bar("simulating", calls.budget, progress, done) as report:
        if shape is None:
            shape, first = source.shape(calls.arguments, calls.budget, guard, SILENT if done else report)
            place.begin(shape)
        if first and not count_done(place):
            place.add(block(0, first, shape))  # guard and report have seen them
        for made in source.blocks(place.missing(), calls.arguments, shape):
            place.add(made)
            report.update(len(made.status), f"{guard.failed + int((made.status != OK).sum()):,} failed")
            guard.see(made)
    place.finish()
    guard.finish(place.statuses())


def count_done(place: Place) -> int:
    """How many of the calls have been made."""
    return place.calls.budget - sum(stop - start for start, stop in place.missing())


def check_simulator(simulator: Any, workers: Workers, inputs: bool = False) -> None:
    """Refuse what is no simulator, or cannot be run in this way, before anything is simulated.

    Args:
        simulator: What should be a function of θ and rng, or an `sf.Batched` one.
        workers: Who is to run it.
        inputs: Whether it is to be called with known inputs too.

    Raises:
        ScorefoldError: It cannot be called, or is a batched one for worker processes.
        SimulatorError: It takes other arguments.
    """
    if not callable(simulator):
        raise ScorefoldError(f"expected a simulator(theta, rng) -> x that can be called; got {type(simulator).__name__}")
    if not isinstance(simulator, Batched):
        _refuse_other_arguments(simulator, inputs)
    if isinstance(simulator, Batched) and (workers.count or workers.executor is not None or workers.limited):
        raise ScorefoldError(
            "expected executor, workers, timeout and memory only for simulators that run in worker processes; got them with "
            "a batched simulator, which is for this process. Leave them out."
        )


def _refuse_other_arguments(simulator: Callable[..., Any], inputs: bool) -> None:
    """A SimulatorError for a function that cannot be called with θ, rng and, if there are some, inputs; one whose arguments
    nobody knows passes.
    """
    try:
        signature = inspect.signature(simulator)
    except (TypeError, ValueError):
        return
    wanted = ("theta", "rng", "inputs") if inputs else ("theta", "rng")
    try:
        signature.bind(*wanted)
    except TypeError:
        name = getattr(simulator, "__name__", type(simulator).__name__)
        called = name if name.isidentifier() else "simulator"
        raise SimulatorError(
            f"expected a simulator that takes ({', '.join(wanted)}); got {name}{signature}. Write `def {called}"
            f"({', '.join(wanted)}): …`, and draw all random numbers from rng, a numpy.random.Generator: rng.normal(), "
            f"rng.integers(10).{_about_inputs(signature, inputs)}"
        ) from None


def _about_inputs(signature: inspect.Signature, inputs: bool) -> str:
    """What a third argument needs, or why there should be one."""
    if inputs:
        return " inputs are the known inputs of one observation, in an array."
    try:
        signature.bind(None, None, None)
    except TypeError:
        return ""
    return " A third argument gets the known inputs of an observation, if there are some: sf.simulate(…, inputs=…)."


@contextmanager
def source_of(simulator: Callable[..., Any], seed: int, workers: Workers, stored: bool) -> Iterator[Source]:
    """Who runs a simulator; processes that were started for it end with the `with` block.

    Args:
        simulator: A function of θ and rng, or an `sf.Batched` one, which runs compiled in this process.
        seed: Of the run.
        workers: What was asked for.
        stored: Whether results go to a store. Without a number of workers these run in processes, one to a core.

    Yields:
        The source.
    """
    if isinstance(simulator, Batched):
        yield Compiled(simulator, seed)
    elif workers.executor is not None:
        yield Isolated(pickled(simulator), seed, workers.executor, workers)
    elif workers.count or (workers.count is None and (stored or workers.limited)):
        pool = LocalPool(workers.count or _cores())
        try:
            yield Isolated(pickled(simulator), seed, pool, workers)
        finally:
            pool.shutdown()
    else:
        yield InProcess(simulator, seed)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Memory:
    """A place in memory: takes what a store takes and gives what a store gives.

    There are rows for all calls of a run, once the shape of an observation is known.
    """

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
        """Nothing: no other process waits for it."""

    def statuses(self) -> np.ndarray:
        """(calls,) what became of each, MISSING where it has not been made."""
        return self._status

    def simulations(self) -> Simulations:
        """The training cases of which all calls have been made, where the parameters are draws from a prior. It may be asked
        for once, as cases of one observation each take the place of the simulations.
        """
        assert self.prior is not None
        blocks = ((rows.start, self.x[rows]) for rows in pieces(self.x))
        results = Results(self._status, blocks, self.shape or (), self.x_names, self.input_names)
        sims = gather(self.prior, self.calls, results, self._sets)
        return opened(sims) if self.holes else sims

    def _sets(self, shape: tuple[int, ...]) -> np.ndarray:
        """Where cases go: sets of one observation over the simulations themselves, which close ranks, without a copy."""
        return self.x[: shape[0]].reshape(shape) if self.calls.set_size == 1 else IN_RAM(shape)
