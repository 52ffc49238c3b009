"""Cells → records: each a function of its description, the same after a kill −9 as without one."""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, CancelledError, Future
from dataclasses import replace

import numpy as np
import pytest
from pretended import compared

from scorefold import tasks
from scorefold.app.bench import bench_cells as run
from scorefold.app.bench.bench_figures import SHOWN
from scorefold.app.bench.bench_plan import cells, grouped
from scorefold.app.bench.drive import _returned, drive, history, missing, parse_executor
from scorefold.app.bench.record import RECORDS, appending, described, read
from scorefold.errors import ScorefoldError
from scorefold.posterior.posterior import Posterior

TINY = cells("tiny", "budget=500")


def by_key(folder):
    return {record["key"]: compared(record) for record in read(folder / RECORDS)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One uninterrupted run."""
    out = tmp_path_factory.mktemp("bench")
    assert drive(TINY, out, about={"preset": "tiny"}) == len(TINY)
    return out


@pytest.mark.full
def test_every_cell_has_a_record_with_its_measures(folder):
    records = read(folder / RECORDS)
    assert [record["key"] for record in records] == [cell.key for cell in TINY]
    for record in records:
        assert set(record["measures"]) == {"c2st", "mmd2", "shift", "sd_ratio", "sliced_wasserstein"}
        assert 0 <= record["measures"]["c2st"] <= 1
        assert -0.1 < record["measures"]["mmd2"] < 0.8
        assert 0 < record["measures"]["sliced_wasserstein"] < 100
        assert record["training"]["learning_rate"] == 2e-3
        assert set(record["seconds"]) == {"simulate", "train", "draw"}
        assert isinstance(record["converged"], bool)


@pytest.mark.full
def test_draws_and_truth_are_kept_for_the_figures_that_show_them(folder):
    assert set(run.SHOWN_TASKS) == set(SHOWN)
    cell, record = TINY[0], read(folder / RECORDS)[0]
    assert np.shape(record["draws"]) == (cell.draws, 2)
    assert record["truth"] == pytest.approx(tasks.get(cell.task).observe(1, cell.parameters)[0], rel=1e-5)


@pytest.mark.full
def test_a_cell_alone_is_the_same_as_among_others(folder):
    alone = list(run.run_group([TINY[5]]))
    assert compared(alone[0]) == by_key(folder)[TINY[5].key]


@pytest.mark.full
def test_a_second_run_has_nothing_to_do(folder, monkeypatch):
    monkeypatch.setattr(run, "train", lambda group: pytest.fail("trained again"))
    before = (folder / RECORDS).read_bytes()
    assert drive(TINY, folder) == 0
    assert (folder / RECORDS).read_bytes() == before
    assert [note["missing"] for note in history(folder)] == [len(TINY), 0]


CHILD = """
from pathlib import Path
from scorefold.app.bench.drive import drive
from scorefold.app.bench.bench_plan import cells
drive(cells("tiny", "budget=500"), Path({out!r}))
"""


@pytest.mark.full
def test_killed_and_resumed_is_as_if_nothing_had_happened(folder, tmp_path):
    child = subprocess.Popen([sys.executable, "-c", CHILD.format(out=str(tmp_path))])
    waited = time.monotonic() + 300
    while child.poll() is None and time.monotonic() < waited:
        if (tmp_path / RECORDS).exists() and (tmp_path / RECORDS).read_bytes().count(b"\n") >= 2:
            break
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL, "it should have been killed in mid-run"
    left = missing(TINY, tmp_path)
    assert 0 < len(left) < len(TINY)
    assert drive(TINY, tmp_path) == len(left)
    assert by_key(tmp_path) == by_key(folder)
    assert len(read(tmp_path / RECORDS)) == len((tmp_path / RECORDS).read_text().splitlines()) == len(TINY)


class Stopped(Exception):
    pass


@pytest.mark.parametrize("after", [0, 1, 3, 7, 14])
def test_stopped_after_any_record_and_resumed(after, tmp_path, monkeypatch):
    """The same with records that cost nothing, for a stop between any two of them, in every configuration."""
    planned, asked = cells("smoke"), []

    def pretend(own, tell=None):
        asked.append(own[0].group)
        yield from (described(cell) | {"measures": {"c2st": len(cell.key) / 100}} for cell in own)

    def stop(event):
        if event.what == "record" and len(read(tmp_path / RECORDS)) > after:
            raise Stopped

    monkeypatch.setattr(run, "run_group", pretend)
    with pytest.raises(Stopped):
        drive(planned, tmp_path, watch=stop)
    assert len(read(tmp_path / RECORDS)) == after + 1
    asked.clear()
    drive(planned, tmp_path)
    assert asked == list(grouped(planned[after + 1 :])), "what is finished is not trained again"
    assert [record["key"] for record in read(tmp_path / RECORDS)] == [cell.key for cell in planned]


class Refuses(Posterior):
    prior, method, history, shape = tasks.get("bimodal").prior, None, None, (2,)

    def draw(self, x, draws, seed, options=None):
        raise ScorefoldError("draws are not finite")


def test_draws_that_are_refused_count_as_wholly_wrong():
    (drawn,) = run.draw(TINY[:1], run.Trained({TINY[0].training: Refuses()}, {}, {"train": 1.0}))
    (record,) = run.measure([drawn], batch=1)
    nothing = dict.fromkeys(("shift", "sd_ratio", "sliced_wasserstein"))
    assert record["measures"] == {"c2st": 1.0, "mmd2": pytest.approx(0.787, abs=1e-3), **nothing}
    assert record["failed"] == "draws are not finite"
    assert record["diverged"]


@pytest.mark.full
def test_data_sets_drawn_together_have_their_own_draws():
    two = [replace(TINY[0], parameters=parameters) for parameters in (1_000, 1_001)]
    trained = run.train(TINY[0].group)
    together, apart = run.draw(two, trained), [run.draw([cell], trained)[0] for cell in two]
    for one, other in zip(together, apart, strict=True):
        assert one.cell == other.cell
        assert compared(one.record) | {"draws": 0} == compared(other.record) | {"draws": 0}
        assert one.theta == pytest.approx(other.theta, abs=0.02)
    assert not np.allclose(together[0].theta, together[1].theta, atol=0.1)


def test_on_an_accelerator_data_sets_of_one_size_are_drawn_together(monkeypatch):
    one = TINY[0]
    mixed = [replace(one, n=n, parameters=p) for p in (1_000, 1_001) for n in (1, 5)]
    asked = []

    def draw(cells, trained):
        asked.append([(cell.n, cell.parameters) for cell in cells])
        return [run.Drawn(cell, None, described(cell)) for cell in cells]

    monkeypatch.setattr(run.jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(run, "train", lambda group: None)
    monkeypatch.setattr(run, "draw", draw)
    records = list(run.run_group(mixed))
    assert asked == [[(1, 1_000), (1, 1_001)], [(5, 1_000), (5, 1_001)]]
    assert [record["key"] for record in records] == [cell.key for cell in mixed]


@pytest.mark.full
def test_a_batch_of_classifiers_gives_each_cell_its_own_number(monkeypatch):
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(60, 2))
    monkeypatch.setattr(run, "reference_of", lambda cell: reference)
    drawn = [
        run.Drawn(cell, rng.normal(size=(60, 2)) + shift, described(cell))
        for cell, shift in zip(TINY[:3], (0.0, 1.0, 9.0), strict=True)
    ]
    together = [record["measures"]["c2st"] for record in run.measure(drawn, batch=4)]
    apart = [next(run.measure([one], batch=4))["measures"]["c2st"] for one in drawn]
    assert together == apart
    assert together[0] < together[1] < together[2] == 1.0


def test_cells_of_several_trainings_are_refused():
    with pytest.raises(ScorefoldError, match="share a training"):
        list(run.run_group([TINY[0], replace(TINY[0], budget=900)]))


@pytest.mark.parametrize("text", ["locl", "processes", "processes=0", "processes=two", "dask", "local=2"])
def test_unknown_executors_are_refused(text):
    with pytest.raises(ScorefoldError, match="expected the executor"):
        parse_executor(text)


def fails_with_3_000(own, tell=None):
    """Records that cost nothing; one configuration fails after its first."""
    for cell in own:
        yield described(cell) | {"measures": {"c2st": 0.5}}
        if cell.budget == 3_000:
            raise RuntimeError("out of\nmemory")


def free(own, tell=None):
    return (described(cell) | {"measures": {"c2st": 0.5}} for cell in own)


@pytest.fixture(params=["local", "dask"])
def executor(request):
    if request.param == "local":
        yield "local"
        return
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        yield f"dask={cluster.scheduler_address}"


def test_a_configuration_that_fails_does_not_stop_the_others(executor, tmp_path, monkeypatch):
    planned, events = cells("smoke"), []
    monkeypatch.setattr(run, "run_group", fails_with_3_000)
    with pytest.raises(ScorefoldError) as raised:
        drive(planned, tmp_path, executor, watch=events.append)
    line = r"RuntimeError: out of memory \(test_bench_run.py, line \d+\)"
    assert re.fullmatch(
        rf"1 of 4 configurations failed:\ngaussian f-npse \(default\) 3,000: {line}\n.* the same command tries .* again\.",
        str(raised.value),
    )
    (failed,) = [event for event in events if event.what == "failed"]
    assert failed.group.budget == 3_000
    assert re.fullmatch(line, failed.error)
    assert [event.what for event in events].count("start" if executor == "local" else "sent") == 4
    first = next(cell for cell in planned if cell.budget == 3_000)
    expected = {cell.key for cell in planned if cell.budget != 3_000} | {first.key}
    assert {record["key"] for record in read(tmp_path / RECORDS)} == expected
    monkeypatch.setattr(run, "run_group", free)
    assert drive(planned, tmp_path, executor) == 3
    assert missing(planned, tmp_path) == []


def test_only_the_first_failures_are_named(tmp_path):
    nowhere = [replace(TINY[0], task="nowhere", budget=budget) for budget in range(500, 505)]
    with pytest.raises(ScorefoldError, match="5 of 5 configurations failed") as raised:
        drive(nowhere, tmp_path)
    assert str(raised.value).count("nowhere f-npse") == 3
    assert "and 2 more." in str(raised.value)
    assert "line" not in str(raised.value), "an error of ours says enough"


def test_a_long_error_is_cut():
    assert len(run.failure(TINY[0], RuntimeError("much " * 1_000)).error) == run.LONGEST_ERROR


@pytest.mark.parametrize("error", [BrokenExecutor, CancelledError])
def test_what_ends_all_workers_is_not_one_configurations_failure(error):
    future = Future()
    future.set_exception(error())
    with pytest.raises(error):
        _returned(future, TINY[0].group)
    (future := Future()).set_exception(RuntimeError("the worker was killed"))
    (event,) = _returned(future, TINY[0].group)
    assert (event.what, event.group) == ("failed", TINY[0].group)
    assert event.error.startswith("RuntimeError: the worker was killed")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_stop_is_no_failure(stop, tmp_path, monkeypatch):
    def stopped(own, tell=None):
        raise stop

    monkeypatch.setattr(run, "run_group", stopped)
    with pytest.raises(stop):
        drive(TINY, tmp_path)


WORKERS = """
import os
import sys
import time
from pathlib import Path

from scorefold.app.bench import bench_cells as run
from scorefold.app.bench.drive import drive, title
from scorefold.app.bench.bench_plan import cells
from scorefold.app.bench.record import described
from scorefold.errors import ScorefoldError

out, executor, what = sys.argv[1:]


def pretend(own, tell=None):
    if what == "wait":
        Path(out, f"worker {os.getpid()}").touch()
        time.sleep(600)
    for cell in own:
        yield described(cell) | {"seen": os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE")}
        if cell.budget == 3_000:
            raise RuntimeError("out of memory")


run.run_group = pretend  # in the workers too: they import this file
if __name__ == "__main__":
    try:
        drive(cells("smoke"), Path(out), executor, watch=lambda event: print(event.what, title(event.group)))
    except ScorefoldError as error:
        sys.exit(f"scorefold: {error}")
"""


@pytest.fixture
def workers(tmp_path):
    """Starts a run whose worker processes pretend; its records go to tmp_path / "out"."""
    (tmp_path / "out").mkdir()
    (tmp_path / "workers.py").write_text(WORKERS)

    def start(*argv):
        there = {name: value for name, value in os.environ.items() if not name.startswith("XLA_")}
        command = [sys.executable, tmp_path / "workers.py", tmp_path / "out", *argv]
        return subprocess.Popen(command, env=there, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


@pytest.mark.full
def test_worker_processes_say_what_starts_and_what_fails(workers, tmp_path):
    said, error = (child := workers("processes=2", "run")).communicate(timeout=300)
    assert child.returncode == 1
    assert "scorefold: 1 of 4 configurations failed:\ngaussian f-npse (default) 3,000: RuntimeError: out of memory" in error
    lines = said.splitlines()
    assert lines[:2] == ["start gaussian f-npse (default) 1,000", "start gaussian f-npse (default) 3,000"]
    assert not lines[2].startswith("start"), "no more than there are workers"
    assert [line.split()[0] for line in sorted(lines)] == ["failed"] + 13 * ["record"] + 4 * ["start"]
    records = read(tmp_path / "out" / RECORDS)
    assert len(records) == 13
    assert {record["seen"] for record in records} == {"false"}, "workers leave an accelerator's memory to each other"


@pytest.mark.full
def test_worker_processes_end_when_their_parent_is_killed(workers, tmp_path):
    child, waited = workers("processes=2", "wait"), time.monotonic() + 300
    while len(there := list((tmp_path / "out").glob("worker *"))) < 2:
        assert child.poll() is None, child.stderr.read()
        assert time.monotonic() < waited
        time.sleep(0.02)
    child.kill()
    try:
        child.communicate(timeout=20)  # the end of its output: nobody holds the pipe any more
    except subprocess.TimeoutExpired:
        for path in there:
            os.kill(int(path.name.split()[1]), signal.SIGKILL)
        raise
    assert child.returncode == -signal.SIGKILL


@pytest.mark.full
def test_worker_processes_leave_an_accelerators_memory_to_each_other(folder, tmp_path, monkeypatch):
    (tmp_path / RECORDS).write_bytes((folder / RECORDS).read_bytes())
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"
    monkeypatch.setenv(name, "")  # so that it is put back
    monkeypatch.delenv(name)
    drive(TINY, tmp_path)
    assert name not in os.environ, "one process alone may have it all"
    drive(TINY, tmp_path, executor="processes=1")
    assert os.environ[name] == "false", "the driver has started JAX too"
    monkeypatch.setenv(name, "true")
    drive(TINY, tmp_path, executor="processes=1")
    assert os.environ[name] == "true"


@pytest.mark.full
def test_worker_processes_write_the_same_records(folder, tmp_path):
    drive(TINY, tmp_path, executor="processes=1")
    assert by_key(tmp_path) == by_key(folder)


@pytest.mark.full
def test_dask_workers_write_the_same_records(folder, tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        drive(TINY, tmp_path, executor=f"dask={cluster.scheduler_address}")
    assert by_key(tmp_path) == by_key(folder)


def test_a_folder_in_use_is_refused(tmp_path):
    with appending(tmp_path / RECORDS), pytest.raises(ScorefoldError, match="another run"):
        drive(TINY, tmp_path)
