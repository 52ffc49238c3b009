"""A worker: one isolated child that simulates, watched so that nothing it does harms more than one simulation.

The child (`child.py`) is started afresh, never forked from this process, which may have loaded JAX. It answers simulation by
simulation. When it dies, or is silent for longer than the timeout and is killed, the simulation at hand gets the status, a new
child is started, and the rest of the rows go to it. A child that dies before it has taken up a task blames nobody.

`run_task` is what goes to an executor: a function of values alone, in this or any other process. Each thread has a child of its
own, kept for the next task; the kernel kills it when that thread ends.
"""

import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import NamedTuple

import numpy as np

from scorefold.errors import ScorefoldError, SimulatorError
from scorefold.simulation.outcome import CRASHED, TIMEOUT, Outcome
from scorefold.simulation.sources.child import LENGTH, READY, decode

LOADING = 300.0
"""Seconds that starting a child and loading the simulator may take."""
SECONDS_OF_SILENCE = 1.0
"""Seconds after which a silent child is looked after."""
STARTS_TRIED = 3
LONGEST_FRAME = 1 << 32


class Task(NamedTuple):
    """Simulations start, start + 1, … of one seed, one for each row of θ."""

    payload: bytes
    """The pickled simulator."""
    seed: int
    start: int
    theta: np.ndarray
    shape: tuple[int, ...] | None
    timeout: float | None
    memory: int | None


class _Gone(Exception):
    """The child is dead, or has been killed."""


class _Silent(Exception):
    """Nothing came before the deadline."""


class Child:
    """A running child with its simulator loaded."""

    def __init__(self, payload: bytes, memory: int | None):
        main = "from scorefold.simulation.sources.child import main"
        code = f"import sys; sys.path[:] = {sys.path!r}; {main}; main({os.getpid()})"
        threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            env=threads | dict(os.environ),
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._sink, self._source = self.process.stdin, self.process.stdout
        self._poll = select.poll()
        self._poll.register(self._source, select.POLLIN)
        self._buffer = bytearray()
        self._stopped = False
        try:
            self.send(json.dumps({"memory": memory}).encode())
            self.send(payload)
            answer = self.receive(time.monotonic() + LOADING)
        except (_Gone, _Silent) as error:
            how = "took too long" if isinstance(error, _Silent) else f"died ({self.stop()})"
            self.stop()
            raise SimulatorError(f"the simulator could not be loaded in a worker process, which {how}") from None
        if answer != READY:
            self.stop()
            enough = "" if memory is None else f" and allow it more than {memory:,} bytes of memory"
            raise SimulatorError(
                "the simulator could not be loaded in a worker process. Define it in a module that workers can import, or in "
                f"the script itself{enough}.\n{answer.decode(errors='replace')}"
            )

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self.process.poll() is None

    def send(self, frame: bytes) -> None:
        """One frame to the child."""
        view = memoryview(LENGTH.pack(len(frame)) + frame)
        try:
            while view:
                view = view[self._sink.write(view) or 0 :]
        except (BrokenPipeError, ConnectionResetError):
            raise _Gone from None

    def receive(self, deadline: float | None) -> bytes:
        """One frame from the child."""
        length = None
        while True:
            if length is None and len(self._buffer) >= LENGTH.size:
                length = LENGTH.unpack_from(self._buffer)[0]
                if length > LONGEST_FRAME:
                    raise _Gone  # a child that has overwritten its own memory
            if length is not None and len(self._buffer) >= LENGTH.size + length:
                frame = bytes(self._buffer[LENGTH.size : LENGTH.size + length])
                del self._buffer[: LENGTH.size + length]
                return frame
            left = np.inf if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._poll.poll(1000 * min(left, SECONDS_OF_SILENCE)):
                if left <= SECONDS_OF_SILENCE:
                    raise _Silent
                if not self.alive and not self._poll.poll(0):  # dead, and something it has started holds the pipe open
                    raise _Gone
                continue
            part = os.read(self._source.fileno(), 1 << 20)
            if not part:
                raise _Gone
            self._buffer += part

    def stop(self) -> str:
        """Kill the child and all it has started; how it ended, in words."""
        if self._stopped:
            return ended(self.process.returncode)
        if self.process.returncode is None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # one that is dying by itself should say how
                self.process.wait(0 if self._open() else 1)
        code = self.process.poll()
        self.kill()
        self._stopped = True
        self.process.wait()
        self._sink.close()
        self._source.close()
        return ended(code)

    def kill(self) -> None:
        """SIGKILL to the child and to all that it has started."""
        # Not twice: another process may have the number by then.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._stopped:
                os.killpg(self.process.pid, signal.SIGKILL)

    def _open(self) -> bool:
        """Whether the pipe from the child has another end."""
        return not self._source.closed and not any(event & select.POLLHUP for _, event in self._poll.poll(0))


def ended(code: int | None) -> str:
    """An exit status in words."""
    if code is None:
        return "killed"
    return f"exit status {code}" if code >= 0 else signal.Signals(-code).name


class Worker:
    """A simulator in a child, and in another one when that has died."""

    def __init__(self, payload: bytes, memory: int | None):
        self.payload, self.memory = payload, memory
        self.child: Child | None = None
        self.abandoned = False

    def run(self, task: Task) -> list[Outcome]:
        """The outcomes of all rows."""
        outcomes: list[Outcome] = []
        attempts = 0
        while len(outcomes) < len(task.theta):
            child = self._running()
            try:
                _hand_over(child, task, len(outcomes))
            except (_Gone, _Silent):
                attempts += 1
                how = child.stop()
                if attempts >= STARTS_TRIED:
                    raise ScorefoldError(
                        f"a worker's process ended {STARTS_TRIED} times without taking up a task ({how})"
                    ) from None
                continue
            attempts = 0
            outcomes += _take_back(child, task, len(task.theta) - len(outcomes))
        return outcomes

    def _running(self) -> Child:
        if not self.abandoned and (self.child is None or not self.child.alive):
            self.stop()
            self.child = Child(self.payload, self.memory)
        if self.child is None or self.abandoned:
            self.stop()
            raise ScorefoldError("the run was stopped")
        return self.child

    def abandon(self) -> None:
        """Called from another thread: let the one that waits for the child find it dead, and start no other."""
        self.abandoned = True
        if (child := self.child) is not None:
            child.kill()

    def stop(self) -> None:
        """Stop the child, if there is one."""
        if self.child is not None:
            self.child.stop()
        self.child = None


def _hand_over(child: Child, task: Task, done: int) -> None:
    shape = None if task.shape is None else list(task.shape)
    head = {"seed": task.seed, "start": task.start + done, "shape": shape, "dim": task.theta.shape[1]}
    child.send(json.dumps(head).encode())
    child.send(np.ascontiguousarray(task.theta[done:], "<f8").tobytes())
    child.receive(time.monotonic() + LOADING)


def _take_back(child: Child, task: Task, count: int) -> list[Outcome]:
    """Outcomes as they come; at the first that does not come the child is stopped."""
    outcomes: list[Outcome] = []
    while len(outcomes) < count:
        began = time.monotonic()
        try:
            outcomes.append(decode(child.receive(None if task.timeout is None else began + task.timeout)))
        except _Silent:
            child.stop()
            text = f"no answer within the timeout of {task.timeout:g} s"
            return [*outcomes, Outcome(TIMEOUT, None, time.monotonic() - began, text)]
        except (_Gone, ValueError):
            text = f"the process that ran it ended: {child.stop()}"
            return [*outcomes, Outcome(CRASHED, None, time.monotonic() - began, text)]
    return outcomes


_OWN = threading.local()


def run_task(task: Task) -> list[Outcome]:
    """Simulate in this thread's child."""
    # A process forked off this one has a copy of its workers, but not their children.
    key = (os.getpid(), hashlib.sha256(task.payload).digest(), task.memory)
    if getattr(_OWN, "key", None) != key:
        stop_own_child()
        _OWN.worker, _OWN.key = Worker(task.payload, task.memory), key
    try:
        return _OWN.worker.run(task)
    except BaseException:
        stop_own_child()
        raise


def stop_own_child() -> None:
    """Stop this thread's child, if it has one."""
    key, worker = getattr(_OWN, "key", None), getattr(_OWN, "worker", None)
    _OWN.worker = _OWN.key = None
    if worker is not None and key is not None and key[0] == os.getpid():
        worker.stop()
