"""A worker's child: what a simulator may do to it, and what becomes of that one simulation."""

import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import plain_simulators as simulators
import pytest

from scorefold.errors import ScorefoldError, SimulatorError
from scorefold.simulation.outcome import CRASHED, MEMORY, NOT_FINITE, OK, RAISED, SHAPE, TIMEOUT, Outcome, evaluate
from scorefold.simulation.sources import worker as module
from scorefold.simulation.sources.child import decode, encode
from scorefold.simulation.sources.isolated import pickled
from scorefold.simulation.sources.worker import Task, Worker, run_task, stop_own_child

THETA = np.random.default_rng(0).normal(size=(5, 2))


def task(simulator, rows=THETA, shape=None, timeout=None, memory=None, seed=3, start=40):
    return Task(pickled(simulator), seed, start, rows, shape, timeout, memory)


def run(simulator, **wishes):
    job = task(simulator, **wishes)
    worker = Worker(job.payload, job.memory)
    try:
        return worker.run(job)
    finally:
        worker.stop()


def descendants():
    """Processes below this one, by what /proc says."""
    found, parents = [], {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    state, parent = file.read().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                parents[int(entry)] = int(parent)
    for pid in parents:
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid() and pid != above:
            found.append(pid)
    return found


SEEN = [
    (simulators.echo, {}, OK, ""),
    (simulators.echo, {"shape": (3,)}, OK, ""),
    (simulators.scalar, {}, OK, ""),
    (simulators.image, {}, OK, ""),
    (simulators.echo, {"shape": (2,)}, SHAPE, r"shape \(2,\), as the others have; got \(3,\)"),
    (simulators.crashes, {}, CRASHED, "SIGSEGV"),
    (simulators.exits, {}, CRASHED, "exit status 3"),
    (simulators.forks_and_crashes, {"rows": THETA[:1]}, CRASHED, "SIGSEGV"),
    (simulators.leaves, {}, RAISED, "SystemExit: good-bye"),
    (simulators.nothing, {}, RAISED, "expected an observation to be numbers; got NoneType"),
    (simulators.text, {}, RAISED, "expected an observation to be numbers"),
    (simulators.huge, {}, NOT_FINITE, "single precision .* logarithms"),
    (simulators.hangs, {"timeout": 0.3, "rows": THETA[:2]}, TIMEOUT, "timeout of 0.3 s"),
    (simulators.hoards, {"memory": 500 << 20, "rows": THETA[:1]}, MEMORY, "MemoryError"),
]


@pytest.mark.parametrize(("simulator", "wishes", "status", "message"), SEEN)
def test_whatever_happens_is_a_status_of_each_simulation(simulator, wishes, status, message):
    outcomes = run(simulator, **wishes)
    assert [one.status for one in outcomes] == [status] * len(wishes.get("rows", THETA))
    for row, one in enumerate(outcomes):
        if status == OK:
            here = evaluate(simulator, THETA[row], 3, 40 + row, None)
            np.testing.assert_array_equal(one.x, here.x)
            assert one.x.dtype == np.float32
        else:
            assert one.x is None
            assert re.search(message, one.text, re.DOTALL), one.text


def test_a_failure_harms_no_neighbour():
    rows = np.repeat(np.random.default_rng(0).normal(size=(20, 1)), 2, axis=1)
    outcomes = run(simulators.raises, rows=rows)
    assert {one.status for one in outcomes} == {OK, RAISED}
    for row, one in zip(rows, outcomes, strict=True):
        assert one.status == (RAISED if row[0] > -0.5 else OK)
        assert ("ZeroDivisionError: no susceptibles left" in one.text) == (one.status == RAISED)


def test_hangs_are_reclaimed_soon():
    outcomes = run(simulators.hangs, rows=THETA[:2], timeout=0.2)
    assert all(0.2 <= one.seconds <= 2.2 for one in outcomes)


def test_the_child_loads_no_jax_and_is_not_this_process():
    assert run(simulators.light)[0].x == 0
    assert {int(one.x) for one in run(simulators.process)} != {os.getpid()}


def test_a_simulator_may_print(capfd):
    outcomes = run(simulators.prints)
    assert [one.status for one in outcomes] == [OK] * 5
    assert "to standard output" in capfd.readouterr().err


def test_closures_and_lambdas_work():
    shift = np.array([1.0, 2.0])
    outcomes = run(lambda theta, rng: theta + shift)
    np.testing.assert_array_equal([one.x for one in outcomes], (THETA + shift).astype(np.float32))


def gone(pid, within=5.0):
    until = time.monotonic() + within
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.02)
    return not os.path.exists(f"/proc/{pid}")


def test_nothing_is_left_when_a_worker_stops(tmp_path, monkeypatch):
    before = set(descendants())
    worker = Worker(task(simulators.echo).payload, None)
    worker.run(task(simulators.echo))
    assert len(set(descendants()) - before) == 1
    worker.stop()
    assert set(descendants()) <= before
    monkeypatch.setenv("NOTE", str(tmp_path / "pid"))
    run(simulators.starts_another, rows=THETA[:1], timeout=1.0)
    assert gone(int((tmp_path / "pid").read_text())), "what a simulator has started ends with its child"


def test_a_child_that_died_between_tasks_is_nobodys_fault():
    worker = Worker(task(simulators.process).payload, None)
    first = worker.run(task(simulators.process))
    worker.child.kill()
    worker.child.process.wait()
    second = worker.run(task(simulators.process))
    worker.stop()
    assert {one.status for one in first + second} == {OK}
    assert first[0].x != second[0].x


def test_a_child_that_dies_before_it_takes_up_a_task_blames_nobody(monkeypatch):
    worker = Worker(task(simulators.echo).payload, None)
    hand_over, deaths = module._hand_over, []

    def dies_twice(child, job, done):
        if len(deaths) < 2:
            deaths.append(child.kill())
        return hand_over(child, job, done)

    monkeypatch.setattr(module, "_hand_over", dies_twice)
    assert [one.status for one in worker.run(task(simulators.echo))] == [OK] * 5
    monkeypatch.setattr(module, "_hand_over", lambda child, job, done: (child.kill(), hand_over(child, job, done)))
    with pytest.raises(ScorefoldError, match="ended 3 times without taking up a task"):
        worker.run(task(simulators.echo))
    worker.stop()


def test_an_abandoned_worker_stops_waiting():
    worker = Worker(task(simulators.hangs).payload, None)
    caught = []

    def wait():
        try:
            worker.run(task(simulators.hangs))
        except ScorefoldError as error:
            caught.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    while worker.child is None:
        time.sleep(0.01)
    worker.abandon()
    thread.join(10)
    assert caught == ["the run was stopped"]


def test_run_task_keeps_a_child_of_its_own():
    pids = {int(one.x) for _ in range(2) for one in run_task(task(simulators.process))}
    assert len(pids) == 1
    assert set(descendants()) >= pids
    run_task(task(simulators.echo))
    assert not pids & set(descendants()), "another simulator takes its place"
    stop_own_child()


def test_a_simulator_that_cannot_be_loaded_stops_the_run():
    class Unloadable:
        def __reduce__(self):
            return (exec, ("raise RuntimeError('not here')",))

        def __call__(self, theta, rng):
            return theta

    with pytest.raises(SimulatorError, match=r"(?s)could not be loaded in a worker process.*RuntimeError: not here") as caught:
        run(Unloadable())
    assert "Define it in a module" in str(caught.value)

    class Deadly(Unloadable):
        def __reduce__(self):
            return (os._exit, (5,))

    with pytest.raises(SimulatorError, match=r"worker process, which died \(exit status 5\)"):
        run(Deadly())


def test_a_simulator_that_cannot_be_sent_is_refused():
    lock = threading.Lock()
    with pytest.raises(SimulatorError, match=r"cannot be pickled .*workers=0"):
        pickled(lambda theta, rng: lock)


DRIVER = """
import os, sys, time
import numpy as np
from scorefold.simulation.sources.worker import Task, Worker
import cloudpickle

def stuck(theta, rng):
    open({path!r}, "w").write(str(os.getpid()))
    while True:
        time.sleep(1)

payload = cloudpickle.dumps(stuck)
Worker(payload, None).run(Task(payload, 0, 0, np.zeros((1, 1)), None, None, None))
"""


def test_children_die_with_a_killed_parent(tmp_path):
    note = tmp_path / "pid"
    script = tmp_path / "driver.py"
    script.write_text(DRIVER.format(path=str(note)))
    driver = subprocess.Popen([sys.executable, str(script)])
    until = time.monotonic() + 60
    while not (note.exists() and note.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    child = int(note.read_text())
    assert os.path.exists(f"/proc/{child}")
    driver.kill()
    driver.wait()
    assert gone(child)


@pytest.mark.parametrize(
    "one",
    [
        Outcome(OK, np.float32(3.5).reshape(()), 0.1),
        Outcome(OK, np.arange(6, dtype=np.float32).reshape(2, 3), 0.1),
        Outcome(OK, np.zeros((0, 2), np.float32), 0.1),
        Outcome(RAISED, None, 0.1, "Traceback …"),
    ],
)
def test_outcomes_go_through_frames(one):
    again = decode(encode(one))
    assert (again.status, again.seconds, again.text) == (one.status, one.seconds, one.text)
    np.testing.assert_array_equal(again.x, one.x)


@pytest.mark.parametrize("frame", [b"", b"\x00" * 5, encode(Outcome(OK, np.ones((2, 2), np.float32), 0.0))[:-3]])
def test_frames_that_are_none_are_refused(frame):
    with pytest.raises(ValueError, match="buffer"):
        decode(frame)


def test_long_texts_keep_their_beginning_and_end():
    one = decode(encode(Outcome(RAISED, None, 0.0, "begin" + "x" * 10**6 + "end")))
    assert len(one.text) < 21_000
    assert one.text.startswith("begin")
    assert one.text.endswith("end")
