"""A plain simulator in processes of its own, behind an executor.

Work goes out in tasks of about TASK_SECONDS, at most two to a worker in flight, so that the driver holds little and loses
little. A task that is lost with its worker goes out again.
"""

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np

from scorefold.errors import ScorefoldError, SimulatorError
from scorefold.progress import SILENT, Report
from scorefold.simulation.failures import Guard
from scorefold.simulation.outcome import Block, Outcome, block
from scorefold.simulation.sources.source import Gaps, Rows, Shape, probed_shape
from scorefold.simulation.sources.worker import Task, Worker, run_task
from scorefold.simulation.workers import Workers

TASK_SECONDS = 5.0
SHORTEST_TASK = 1.0
"""Seconds of work in a task, and at least while there is enough."""
ROWS_IN_TASK = 16_384
"""At most."""
IN_FLIGHT = 2
"""Tasks to a worker."""
SUBMISSIONS = 3
"""So often a task goes out before the executor is thought beyond hope."""


class Isolated(NamedTuple):
    """A simulator in worker processes: a crash, a hang or too much memory is a failure of one simulation, and not the end of
    the run.
    """

    payload: bytes
    seed: int
    executor: Executor
    workers: Workers

    def shape(self, theta: Rows, budget: int, guard: Guard, report: Report = SILENT) -> tuple[Shape, list[Outcome]]:
        """The shape of an observation, by simulating."""
        return probed_shape(self._probe, theta, budget, guard, report)

    def _probe(self, start: int, theta: np.ndarray) -> Iterator[tuple[int, Outcome]]:
        spans = [(start + row, start + row + 1) for row in range(len(theta))]
        for number, outcomes in self._scatter(iter(spans), lambda a, b: theta[a - start : b - start], None):
            yield number, outcomes[0]

    def blocks(self, gaps: Gaps, theta: Rows, shape: Shape) -> Iterator[Block]:
        """All simulations in the gaps."""
        pace = Pace(gaps, self.size)
        for start, outcomes in self._scatter(pace.spans(), theta, shape):
            pace.learn([one.seconds for one in outcomes])
            yield block(start, outcomes, shape)

    def size(self) -> int:
        """How many workers there are now."""
        if self.workers.count is not None:
            return self.workers.count
        if (client := getattr(self.executor, "_client", None)) is not None and hasattr(client, "nthreads"):
            return max(1, sum(client.nthreads().values()))  # Dask
        for name in ("_max_workers", "num_workers", "max_workers"):
            if isinstance(number := getattr(self.executor, name, None), int) and number > 0:
                return number
        return os.cpu_count() or 1

    def _scatter(
        self, spans: Iterator[tuple[int, int]], theta: Rows, shape: Shape | None
    ) -> Iterator[tuple[int, list[Outcome]]]:
        pending: dict[Future, tuple[int, int, int]] = {}
        again: deque[tuple[int, int, int]] = deque()
        try:
            while True:
                room = max(0, IN_FLIGHT * self.size() - len(pending))
                while again and room:
                    span = again.popleft()
                    pending[self._submit(span, theta, shape)] = span
                    room -= 1
                for start, stop in itertools.islice(spans, room):
                    pending[self._submit((start, stop, 1), theta, shape)] = (start, stop, 1)
                if not pending:
                    return
                for future in wait(pending, timeout=1.0, return_when=FIRST_COMPLETED).done:
                    start, stop, attempt = pending.pop(future)
                    outcomes = self._outcomes(future, attempt)
                    if outcomes is None:
                        again.append((start, stop, attempt + 1))
                    else:
                        yield start, outcomes
        finally:
            for future in pending:
                future.cancel()

    def _submit(self, span: tuple[int, int, int], theta: Rows, shape: Shape | None) -> Future:
        start, stop, _ = span
        task = Task(self.payload, self.seed, start, theta(start, stop), shape, self.workers.timeout, self.workers.most_bytes)
        try:
            return self.executor.submit(run_task, task)
        except Exception as error:
            raise ScorefoldError(
                f"the executor takes no more work ({type(error).__name__}: {error}). What was finished is kept where there is "
                "a store; run it again with a new executor to continue."
            ) from error

    def _outcomes(self, future: Future, attempt: int) -> list[Outcome] | None:
        """Nothing where the executor, not the simulator, has failed and there is hope."""
        try:
            return future.result()
        except ScorefoldError:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            if attempt < SUBMISSIONS:
                return None
            raise ScorefoldError(
                f"the executor failed {SUBMISSIONS} times on one task ({type(error).__name__}: {error}). What was finished is "
                "kept where there is a store; look after the executor's workers and run it again to continue."
            ) from error


class Pace:
    """How many simulations go into a task."""

    def __init__(self, gaps: Gaps, workers: Callable[[], int]):
        self.gaps, self.workers = gaps, workers
        self.left = sum(stop - start for start, stop in gaps)
        self.each: float | None = None
        """seconds"""

    def learn(self, seconds: list[float]) -> None:
        """So long took some simulations."""
        mean = float(np.mean(seconds)) + 1e-4
        self.each = mean if self.each is None else 0.7 * self.each + 0.3 * mean

    def spans(self) -> Iterator[tuple[int, int]]:
        """The gaps, cut as the simulations turn out to be quick or slow."""
        for start, stop in self.gaps:
            while start < stop:
                rows = min(self._rows(), stop - start)
                yield start, start + rows
                start += rows
                self.left -= rows

    def _rows(self) -> int:
        if self.each is None:
            return 1
        share = -(-self.left // (IN_FLIGHT * self.workers()))
        most, least = (max(1, min(ROWS_IN_TASK, int(seconds / self.each))) for seconds in (TASK_SECONDS, SHORTEST_TASK))
        return max(least, min(most, share))


def pickled(simulator: Callable[..., Any]) -> bytes:
    """A simulator as bytes that a child process can make it of again.

    Raises:
        SimulatorError: It cannot be pickled, as it holds an open file, a lock or a connection.
    """
    import cloudpickle

    try:
        return cloudpickle.dumps(simulator)
    except Exception as error:
        raise SimulatorError(
            "expected a simulator that can be sent to a worker process; it cannot be pickled "
            f"({type(error).__name__}: {error}). Open files, locks and connections inside of it, or run it in this process "
            "with workers=0."
        ) from error


class LocalPool(Executor):
    """An executor on this machine: so many threads of this process, each of which waits for a child process of its own. It runs
    nothing but `run_task`.
    """

    def __init__(self, workers: int):
        self._max_workers = workers
        self._threads = ThreadPoolExecutor(workers, "simulate")
        self._own = threading.local()
        self._all: list[Worker] = []

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future:
        """Only `run_task` ever comes here."""
        return self._threads.submit(self._run, *args)

    def _run(self, task: Task) -> list[Outcome]:
        if not hasattr(self._own, "worker"):
            self._own.worker = Worker(task.payload, task.memory)
            self._all.append(self._own.worker)
        return self._own.worker.run(task)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """Stop the children, whatever they are doing, and wait until they have ended. What they were simulating is lost."""
        for worker in self._all:
            worker.abandon()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._all:
            worker.stop()
