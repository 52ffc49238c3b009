"""How a simulator is run: by how many processes, with which limits, and how many failures are borne."""

import math
from concurrent.futures import Executor
from dataclasses import dataclass

from scorefold import settings
from scorefold.errors import ScorefoldError

MAX_FAILURES = 0.1
LARGEST_MEMORY = 2**63 - 1


@settings.spelled
@dataclass(frozen=True)
class Workers:
    """Who runs a simulator, and within which limits: the `workers` argument of everything that simulates.

    Take it when a number of processes is not all you want to say. A plain number k means `Workers(k)`, and None `Workers()`.

    Args:
        count: Local processes, each with the simulator in a child of its own, so that a crash costs one simulation. 0 is this
            process. With None (default) simulations run in this process, or with one process to a core if there is a store,
            a timeout or a limit of memory. With an executor: how many workers it has, if it does not say so itself.
        timeout: Seconds that one simulation may take; then its process is killed. None (default) is no limit.
        memory: Bytes that the process of a simulation may take. None (default) is no limit.
        executor: Where simulations run instead: anything with the interface of `concurrent.futures.Executor`, such as Dask's
            `Client(...).get_executor()` or `mpi4py.futures.MPIPoolExecutor()`.
        max_failures: The fraction of simulations that may fail, 0.1 by default. More stop the run with the first failure's
            traceback; 1 never stops it.

    Raises:
        ScorefoldError: A setting is not what is expected, or two of them cannot be had together.

    `sf.Batched` simulators run compiled in this process: only `max_failures` has a meaning for them.

    Example:
        >>> import numpy as np, scipy.stats, scorefold as sf
        >>> prior = sf.Prior({"rate": scipy.stats.norm(0, 1)})
        >>> def simulator(theta, rng):
        ...     return theta + rng.normal(size=3)
        >>> sims = sf.simulate(prior, simulator, budget=100, workers=sf.Workers(count=0, max_failures=0.2))
        >>> sims.x.shape
        (100, 1, 3)
        >>> sf.Workers(count=8, timeout=60.0).timeout
        60.0
    """

    count: int | None = None
    timeout: int | float | None = None
    memory: int | float | None = None
    executor: Executor | None = None
    max_failures: int | float = MAX_FAILURES

    def __post_init__(self) -> None:
        if self.count is not None and (not settings.fits(self.count, int) or self.count < 0):
            raise ScorefoldError(
                f"expected workers to be a whole number ≥ 0, 0 for none but this process; got {self.count!r:.80}"
            )
        for name, value, unit in (("timeout", self.timeout, "seconds"), ("memory", self.memory, "bytes")):
            if value is not None and not (settings.fits(value, float) and value > 0):
                raise ScorefoldError(f"expected {name} to be a positive number of {unit}; got {value!r:.80}")
        if self.executor is not None and not callable(getattr(self.executor, "submit", None)):
            raise ScorefoldError(
                "expected a concurrent.futures.Executor, such as Dask's Client(...).get_executor(); got "
                f"{type(self.executor).__name__}"
            )
        if not settings.fits(self.max_failures, float) or not 0 <= self.max_failures <= 1:
            raise ScorefoldError(f"expected max_failures to be a fraction from 0 to 1; got {self.max_failures!r:.80}")
        if self.count == 0 and self.executor is not None:
            raise ScorefoldError("expected an executor or workers=0, which is this process; got both. Leave one out.")
        if self.count == 0 and self.limited:
            raise ScorefoldError(
                "expected timeout and memory only for simulators that run in worker processes; got them with workers=0, which "
                "is this process. Leave them out."
            )

    @property
    def limited(self) -> bool:
        """Whether a simulation has limits that only a process of its own can keep."""
        return self.timeout is not None or self.memory is not None

    @property
    def most_bytes(self) -> int | None:
        """`memory` as the system takes it."""
        return None if self.memory is None else max(1, math.floor(min(self.memory, LARGEST_MEMORY)))


def as_workers(workers: int | Workers | None) -> Workers:
    """What `workers=` of `sf.simulate` means: a number of local processes, an `sf.Workers`, or None for the default, all as an
    `sf.Workers`.
    """
    return workers if isinstance(workers, Workers) else Workers(workers)
