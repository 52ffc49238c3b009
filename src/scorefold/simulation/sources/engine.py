"""From missing simulations to rows: in this process, in compiled batches, or in worker processes behind an executor.

Every way yields blocks of finished simulations in whatever order they come; simulation i is the same in all of them. Work for
an executor goes out in tasks of about TARGET seconds, at most two to a worker in flight, so that the driver holds little and
loses little.
"""

import itertools
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np

from scorefold.errors import ScorefoldError, SimulatorError
from scorefold.simulation.outcome import OK, STATUS, Block, Outcome, block, evaluate
from scorefold.simulation.sources.worker import Task, Worker, run_task

TARGET = 5.0
LEAST = 1.0
"""Seconds of work in a task, and at least while there is enough."""
MOST_ROWS = 16_384
IN_FLIGHT = 2
ATTEMPTS = 3
PROBE = 8
"""Simulations by which the shape of an observation is found out."""
ALL_FAILED = 20
ENOUGH = 100

Gaps = list[tuple[int, int]]
Rows = Callable[[int, int], np.ndarray]
"""θ of simulations start … stop-1"""


class LocalPool(Executor):
    """Threads of this process, each with a child process of its own."""

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
        """Stop the children, whatever they are doing."""
        for worker in self._all:
            worker.abandon()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._all:
            worker.stop()


class Isolated(NamedTuple):
    """A plain simulator behind an executor."""

    payload: bytes
    seed: int
    executor: Executor
    workers: int | None
    timeout: float | None
    memory: int | None

    def shape(self, theta: Rows, budget: int, guard: "Guard") -> tuple[tuple[int, ...], list[Outcome]]:
        """Of an observation, by simulating."""
        return probed_shape(self._probe, theta, budget, guard)

    def _probe(self, start: int, theta: np.ndarray) -> list[Outcome]:
        spans = [(start + row, start + row + 1) for row in range(len(theta))]
        done = self._scatter(iter(spans), lambda a, b: theta[a - start : b - start], None)
        return [outcomes[0] for _, outcomes in sorted(done, key=lambda pair: pair[0])]

    def blocks(self, gaps: Gaps, theta: Rows, shape: tuple[int, ...]) -> Iterator[Block]:
        """All simulations in the gaps."""
        pace = _Pace(gaps, self.size)
        for start, outcomes in self._scatter(pace.spans(), theta, shape):
            pace.learn([one.seconds for one in outcomes])
            yield block(start, outcomes, shape)

    def size(self) -> int:
        """How many workers there are now."""
        if self.workers is not None:
            return self.workers
        if (client := getattr(self.executor, "_client", None)) is not None and hasattr(client, "nthreads"):
            return max(1, sum(client.nthreads().values()))  # Dask
        for name in ("_max_workers", "num_workers", "max_workers"):
            if isinstance(number := getattr(self.executor, name, None), int) and number > 0:
                return number
        return os.cpu_count() or 1

    def _scatter(
        self, spans: Iterator[tuple[int, int]], theta: Rows, shape: tuple[int, ...] | None
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

    def _submit(self, span: tuple[int, int, int], theta: Rows, shape: tuple[int, ...] | None) -> Future:
        start, stop, _ = span
        task = Task(self.payload, self.seed, start, theta(start, stop), shape, self.timeout, self.memory)
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
            if attempt < ATTEMPTS:
                return None
            raise ScorefoldError(
                f"the executor failed {ATTEMPTS} times on one task ({type(error).__name__}: {error}). What was finished is "
                "kept where there is a store; look after the executor's workers and run it again to continue."
            ) from error


class _Pace:
    """How many simulations go into a task."""

    def __init__(self, gaps: Gaps, workers: Callable[[], int]):
        self.gaps, self.workers = gaps, workers
        self.left = sum(stop - start for start, stop in gaps)
        self.each: float | None = None
        """seconds"""

    def learn(self, seconds: list[float]) -> None:
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
        most, least = (max(1, min(MOST_ROWS, int(seconds / self.each))) for seconds in (TARGET, LEAST))
        return max(least, min(most, share))


class InProcess(NamedTuple):
    """A plain simulator in this process, where a crash is a crash."""

    simulator: Callable[..., Any]
    seed: int

    def shape(self, theta: Rows, budget: int, guard: "Guard") -> tuple[tuple[int, ...], list[Outcome]]:
        """Of an observation, by simulating."""
        return probed_shape(self._probe, theta, budget, guard)

    def _probe(self, start: int, theta: np.ndarray) -> list[Outcome]:
        return [evaluate(self.simulator, one, self.seed, start + row, None) for row, one in enumerate(theta)]

    def blocks(self, gaps: Gaps, theta: Rows, shape: tuple[int, ...]) -> Iterator[Block]:
        """All simulations in the gaps, a second's worth at a time."""
        for start, stop in gaps:
            rows, at, began = theta(start, stop), start, time.perf_counter()
            outcomes: list[Outcome] = []
            for row, one in enumerate(rows):
                outcomes.append(evaluate(self.simulator, one, self.seed, start + row, shape))
                if time.perf_counter() - began > LEAST or row == len(rows) - 1:
                    yield block(at, outcomes, shape)
                    at, outcomes, began = start + row + 1, [], time.perf_counter()


class Guard:
    """Counts what came, and stops a run that fails too often."""

    def __init__(self, max_failures: float, describe: Callable[[int], str]):
        self.max_failures, self.describe = max_failures, describe
        self.counts: Counter[str] = Counter()
        self.first: tuple[int, str] | None = None

    @property
    def done(self) -> int:
        """Simulations seen."""
        return self.counts.total()

    @property
    def failed(self) -> int:
        """Those without an observation."""
        return self.done - self.counts[STATUS[OK]]

    def see(self, seen: Block) -> None:
        """Count a block."""
        self.counts.update(STATUS[code] for code in seen.status.tolist())
        if seen.failure and (self.first is None or seen.failure[0] < self.first[0]):
            self.first = seen.failure
        p, done, failed = self.max_failures, self.done, self.failed
        beyond_chance = failed > p * done + 3 * np.sqrt(p * (1 - p) * done)
        if p < 1 and ((done >= ENOUGH and beyond_chance) or failed == done >= ALL_FAILED or (p == 0 and failed)):
            raise self.error()

    def finish(self, counts: Mapping[str, int], first: Callable[[], int]) -> None:
        """At the end the fraction of all is what counts, those of earlier runs included; `first` finds the first failure."""
        self.counts = Counter(counts)
        if self.failed > self.max_failures * self.done:
            self.first = self.first or (first(), "in an earlier run, which said how")
            raise self.error()

    def summary(self) -> str:
        """Of the failures, by kind."""
        return ", ".join(f"{self.counts[name]:,} {name}" for name in STATUS[1:] if self.counts[name])

    def error(self) -> SimulatorError:
        """With the first failure."""
        index, text = self.first or (0, "")
        return SimulatorError(
            f"expected at most a fraction {self.max_failures:g} (max_failures) of simulations to fail; got {self.failed:,} of "
            f"{self.done:,}: {self.summary()}. The run was stopped; what was finished is kept where there is a store. "
            f"Mend the simulator, narrow the prior or raise max_failures.\nThe first to fail was simulation {index}, "
            f"θ = {self.describe(index)}, {text}"
        )


def probed_shape(
    probe: Callable[[int, np.ndarray], list[Outcome]], theta: Rows, budget: int, guard: Guard
) -> tuple[tuple[int, ...], list[Outcome]]:
    """The shape most observations have among the first PROBE simulations, or the next if these all failed; and all of them."""
    outcomes: list[Outcome] = []
    while len(outcomes) < budget:
        start = len(outcomes)
        some = probe(start, theta(start, min(start + PROBE, budget)))
        outcomes += some
        shapes = Counter(one.x.shape for one in some if one.x is not None)
        shape = shapes.most_common(1)[0][0] if shapes else ()
        guard.see(block(start, some, shape))
        if shapes:
            return shape, outcomes
    raise guard.error()
