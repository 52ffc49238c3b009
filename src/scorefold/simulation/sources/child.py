"""The child process of a worker: reads parameters, calls the simulator, writes what became of each call.

Frames are a length (8 bytes, little-endian) and so many bytes. The parent sends a JSON object of limits and the pickled
simulator; the child answers READY or the traceback of a simulator that cannot be loaded. Then, as often as wanted, the parent
sends a JSON object {start, seed, shape, dim} and θ as float64 rows; the child answers READY at once and one frame for each
simulation as soon as it is done, so that when it dies the parent knows in which one. Simulators may print: what they write to
standard output goes to standard error.

A child ends when its input ends or nothing has come for IDLE seconds, and is killed by the kernel (Linux) when the thread that
started it ends, also by SIGKILL.
"""

import json
import os
import select
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from scorefold.simulation.outcome import OK, Outcome, evaluate

READY = b"ready"
LENGTH = struct.Struct("<Q")
OUTCOME = struct.Struct("<Bdi")
"""Status, seconds and number of axes; then the axes as int64 and the values as float32, or a text."""
LONGEST_TEXT = 20_000
IDLE = 60.0
PR_SET_PDEATHSIG = 1


def encode(one: Outcome) -> bytes:
    """An outcome as a frame."""
    if one.x is None:
        text = one.text if len(one.text) <= LONGEST_TEXT else one.text[:1000] + "\n…\n" + one.text[1000 - LONGEST_TEXT :]
        return OUTCOME.pack(one.status, one.seconds, -1) + text.encode(errors="replace")
    return OUTCOME.pack(OK, one.seconds, one.x.ndim) + np.array(one.x.shape, "<i8").tobytes() + one.x.astype("<f4").tobytes()


def decode(frame: bytes) -> Outcome:
    """The outcome of a frame; ValueError where it is none."""
    try:
        status, seconds, axes = OUTCOME.unpack_from(frame)
    except struct.error as error:
        raise ValueError(str(error)) from error
    rest = frame[OUTCOME.size :]
    if axes < 0:
        return Outcome(status, None, seconds, rest.decode(errors="replace"))
    shape = tuple(map(int, np.frombuffer(rest, "<i8", count=axes)))
    return Outcome(status, np.frombuffer(rest, "<f4", offset=8 * axes).reshape(shape).astype(np.float32), seconds)


def main(parent: int) -> None:
    """Serve until the parent is done."""
    source, sink = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    _die_with(parent)
    limits = json.loads(_read(source))
    _limit_memory(limits["memory"])
    try:
        import cloudpickle

        simulator = cloudpickle.loads(_read(source))
    except BaseException:
        _write(sink, traceback.format_exc().encode())
        return
    _write(sink, READY)
    while True:
        if not select.select([source], [], [], IDLE)[0]:
            return
        task, rows = json.loads(_read(source)), _read(source)
        _write(sink, READY)
        theta = np.frombuffer(rows, "<f8").reshape(-1, task["dim"])
        _serve(simulator, task, theta, sink)


def _serve(simulator: Callable[..., Any], task: dict[str, Any], theta: np.ndarray, sink: int) -> None:
    shape = None if task["shape"] is None else tuple(task["shape"])
    for row, one in enumerate(theta):
        _write(sink, encode(evaluate(simulator, one, task["seed"], task["start"] + row, shape)))


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _limit_memory(most: int | None) -> None:
    """Limit memory to so many bytes, and where it runs out have the kernel take this process and not its parent."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # no core files
    if most is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def _read(source: int) -> bytes:
    return _exactly(source, LENGTH.unpack(_exactly(source, LENGTH.size))[0])


def _exactly(source: int, count: int) -> bytes:
    parts, left = [], count
    while left:
        part = os.read(source, min(left, 1 << 20))
        if not part:
            os._exit(0)  # the parent is gone, or done
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _write(sink: int, frame: bytes) -> None:
    view = memoryview(LENGTH.pack(len(frame)) + frame)
    try:
        while view:
            view = view[os.write(sink, view) :]
    except BrokenPipeError:
        os._exit(0)
