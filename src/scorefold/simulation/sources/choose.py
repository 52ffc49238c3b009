"""Which source runs a simulator: what it is and what was asked for decide."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from scorefold.errors import ScorefoldError
from scorefold.simulation.advice import refuse_other_arguments
from scorefold.simulation.batched import Batched
from scorefold.simulation.sources.compiled import Compiled
from scorefold.simulation.sources.here import InProcess
from scorefold.simulation.sources.isolated import Isolated, pickled
from scorefold.simulation.sources.pool import LocalPool
from scorefold.simulation.sources.source import Source
from scorefold.simulation.workers import Workers


def check(simulator: Any, workers: Workers, inputs: bool = False) -> None:
    """A ScorefoldError for what is no simulator (of θ, rng and perhaps inputs), or cannot be run by such workers."""
    if not callable(simulator):
        raise ScorefoldError(f"expected a simulator(theta, rng) -> x that can be called; got {type(simulator).__name__}")
    if not isinstance(simulator, Batched):
        refuse_other_arguments(simulator, inputs)
    if isinstance(simulator, Batched) and (workers.count or workers.executor is not None or workers.limited):
        raise ScorefoldError(
            "expected executor, workers, timeout and memory only for simulators that run in worker processes; got them with "
            "a batched simulator, which is for this process. Leave them out."
        )


@contextmanager
def source_of(simulator: Callable[..., Any], seed: int, workers: Workers, stored: bool) -> Iterator[Source]:
    """The source; without a number of workers simulations that are stored run in processes, one to a core."""
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
