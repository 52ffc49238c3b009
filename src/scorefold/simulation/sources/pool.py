"""An executor on this machine: threads of this process, each with a child process of its own."""

import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from scorefold.simulation.outcome import Outcome
from scorefold.simulation.sources.worker import Task, Worker


class LocalPool(Executor):
    """So many threads, each of which waits for its child."""

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
