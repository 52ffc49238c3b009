"""Nothing lost, nothing repeated: kills, crashes, hangs, lost workers and every way to run end in the same store.

The short form; the numbers that are promised are in the tests marked `full`. Nothing here is left to chance but the moments of
the kills, and the outcome must not depend on them.
"""

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import plain_simulators as simulators
import pytest
from peak_memory import SUPPORT
from scipy import stats
from users_environment import users_environment

from scorefold.disk import durable, locks
from scorefold.errors import ScorefoldError, ScorefoldWarning, SimulatorError
from scorefold.prior import Prior
from scorefold.simulation.batched import Batched
from scorefold.simulation.outcome import STATUS, stream
from scorefold.simulation.simulate import simulate
from scorefold.simulation.sources import compiled, isolated
from scorefold.simulation.sources import source as here
from scorefold.simulation.store import description
from scorefold.simulation.store.filling import StoreFilling
from scorefold.simulation.store.store import Store
from scorefold.simulation.workers import Workers

PRIOR = Prior({"a": stats.norm(0, 1), "b": stats.uniform(0, 2)})


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch):
    monkeypatch.setattr(isolated, "TASK_SECONDS", 0.2)
    monkeypatch.setattr(isolated, "SHORTEST_TASK", 0.05)
    monkeypatch.setattr(here, "BLOCK_SECONDS", 0.05)
    monkeypatch.setattr(description, "MOST_ROWS", 64)


def digest(path):
    files = (file for file in sorted(Path(path).rglob("*")) if file.is_file() and file.parent.name != "runtimes")
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def statuses(path):
    return np.concatenate([part["status"] for _, part in Store.open(path).read()])


# Kills

DRIVER = Path(__file__).parents[1] / "support" / "killed_driver.py"


def killed(kills, budget, tmp_path, limit):
    """What the driver says of the kills."""
    said = []
    for name, times in (("killed", kills), ("whole", 0)):
        command = [sys.executable, str(DRIVER), str(tmp_path / name), str(times), str(budget)]
        said.append(subprocess.run(command, timeout=limit, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    assert digest(tmp_path / "killed") == digest(tmp_path / "whole")
    return said[0]


def test_three_kills_lose_and_repeat_nothing(tmp_path):
    killed(3, 2_000, tmp_path, 60)


@pytest.mark.full
def test_two_hundred_kills_lose_and_repeat_nothing(tmp_path, figure):
    figure(killed(200, 100_000, tmp_path, 1_200))


# Every way is the same


class Reversed(Executor):
    """Runs the last task first."""

    def __init__(self):
        self.tasks = []

    def submit(self, function, /, *args, **kwargs):
        future = Future()
        self.tasks.append((future, function, args))
        threading.Timer(0.02, self.work).start()
        return future

    def work(self):
        future, function, args = self.tasks.pop()
        future.set_result(function(*args))


def spawned():
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"))


WAYS = {
    "one worker": lambda: Workers(1),
    "two workers": lambda: Workers(2),
    "threads": lambda: Workers(executor=ThreadPoolExecutor(3)),
    "processes": lambda: Workers(executor=spawned()),
    "the last first": lambda: Workers(4, executor=Reversed()),
}


@pytest.fixture(scope="module")
def in_process(tmp_path_factory):
    """The store of `echo`, written in this process."""
    path = tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(description, "MOST_ROWS", 64)
        sims = simulate(PRIOR, simulators.echo, 300, set_size=3, seed=4, store=path, workers=0)
    return digest(path), sims


def assert_same(sims, others):
    for field in ("theta", "x", "sizes", "origin"):
        np.testing.assert_array_equal(getattr(sims, field), getattr(others, field))


@pytest.mark.parametrize("way", WAYS)
def test_every_way_writes_the_same_store(tmp_path, in_process, way):
    workers = WAYS[way]()
    sims = simulate(PRIOR, simulators.echo, 300, set_size=3, seed=4, store=tmp_path, workers=workers)
    if isinstance(workers.executor, ThreadPoolExecutor | ProcessPoolExecutor):
        workers.executor.shutdown()
    assert digest(tmp_path) == in_process[0]
    assert_same(sims, in_process[1])


def test_without_a_store_it_is_the_same_too(in_process):
    assert_same(simulate(PRIOR, simulators.echo, 300, set_size=3, seed=4, workers=2), in_process[1])
    assert_same(simulate(PRIOR, simulators.echo, 300, set_size=3, seed=4), in_process[1])


def test_a_finished_store_is_read_and_not_made_again(tmp_path, in_process):
    simulate(PRIOR, simulators.echo, 300, set_size=3, seed=4, store=tmp_path, workers=0)

    class Idle(Executor):
        def submit(self, *args, **kwargs):
            raise AssertionError("asked to work")

    again = simulate(PRIOR, simulators.echo, 300, set_size=3, seed=4, store=tmp_path, workers=Workers(executor=Idle()))
    assert_same(again, in_process[1])
    fewer = simulate(PRIOR, simulators.echo, 200, set_size=3, seed=4, store=tmp_path, workers=Workers(executor=Idle()))
    assert fewer.budget == 200
    assert digest(tmp_path) == in_process[0]


def test_a_larger_budget_continues(tmp_path, in_process):
    for budget in (110, 111, 300):
        simulate(PRIOR, simulators.echo, budget, set_size=3, seed=4, store=tmp_path, workers=1)
    assert digest(tmp_path) == in_process[0]


def test_a_second_driver_waits_and_makes_nothing_twice(tmp_path, monkeypatch):
    """While another one fills the store, which here is done by copying what it would have made."""
    how = {"set_size": 3, "seed": 4, "workers": 0}
    simulate(PRIOR, simulators.echo, 300, store=tmp_path / "whole", **how)
    simulate(PRIOR, simulators.echo, 110, store=tmp_path / "shared", **how)
    made, results, real = [], [], StoreFilling.add

    def add(self, block):
        made.append(len(block.status))
        real(self, block)

    def drive():
        results.append(simulate(PRIOR, simulators.echo, 300, store=tmp_path / "shared", **how))

    monkeypatch.setattr(StoreFilling, "add", add)
    driver = threading.Thread(target=drive)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with locks.alone(tmp_path / "shared" / "lock", lambda: None):
            driver.start()
            until = time.monotonic() + 60
            while not said and time.monotonic() < until:
                time.sleep(0.05)
            assert "another process is filling the store" in str(said[0].message)
            shutil.copytree(tmp_path / "whole" / "shards", tmp_path / "shared" / "shards", dirs_exist_ok=True)
            assert driver.is_alive()
        driver.join()
    assert not made
    assert digest(tmp_path / "shared") == digest(tmp_path / "whole")
    assert len(results) == 1


def test_a_full_disk_loses_nothing(tmp_path, in_process, monkeypatch):
    real, calls = durable.write_once, iter(range(1_000))

    def write_once(*args):
        if next(calls) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args)

    how = {"set_size": 3, "seed": 4, "store": tmp_path, "workers": 1}
    with monkeypatch.context() as patch:
        patch.setattr(durable, "write_once", write_once)
        with pytest.raises(ScorefoldError, match=r"No space left on device.* kept"):
            simulate(PRIOR, simulators.echo, 300, **how)
    assert 0 < Store.open(tmp_path).stop() < 300
    simulate(PRIOR, simulators.echo, 300, **how)
    assert digest(tmp_path) == in_process[0]


def test_where_there_are_no_locks_two_drivers_do_no_harm(tmp_path, in_process, monkeypatch):
    def none(file):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    def drive():
        results.append(simulate(PRIOR, simulators.echo, 300, set_size=3, seed=4, store=tmp_path, workers=1))

    monkeypatch.setattr(locks, "take", none)
    monkeypatch.setattr(durable, "sweep", lambda temporary: 0)
    results = []
    drivers = [threading.Thread(target=drive) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert digest(tmp_path) == in_process[0]
    for sims in results:
        assert_same(sims, in_process[1])
    assert len(results) == 2


def test_a_driver_that_was_killed_keeps_nobody_waiting(tmp_path, in_process):
    """The lock ends with the process."""
    code = (
        "import os, sys; sys.path[:0] = [{folder!r}]\n"
        "from pathlib import Path; from scorefold.disk import locks\n"
        "with locks.alone(Path({lock!r}), lambda: None): os.kill(os.getpid(), 9)"
    )
    tmp_path.joinpath("lock").touch()
    source = Path(durable.__file__).parents[2]
    subprocess.run([sys.executable, "-c", code.format(folder=str(source), lock=str(tmp_path / "lock"))], check=False)
    simulate(PRIOR, simulators.echo, 300, set_size=3, seed=4, store=tmp_path, workers=0)
    assert digest(tmp_path) == in_process[0]


def test_what_cannot_be_stored_is_not_simulated(tmp_path):
    def never(theta, rng):
        raise AssertionError("called")

    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ScorefoldError, match="a folder with other files"):
        simulate(PRIOR, never, 100, store=tmp_path, workers=0)
    with pytest.raises(ScorefoldError, match="'norminvgauss' is not a distribution that files may hold"):
        simulate(Prior({"a": stats.norminvgauss(1.25, 0.5)}), never, 100, store=tmp_path / "new", workers=0)
    assert not (tmp_path / "new").exists()


def test_another_run_is_refused(tmp_path, in_process):
    def other(theta, rng):
        return np.append(theta, rng.uniform())

    simulate(PRIOR, simulators.echo, 100, seed=4, store=tmp_path, workers=0)
    before = digest(tmp_path)
    with pytest.raises(ScorefoldError, match=r"simulator\n    in the store: echo .*\n    now:          .*other"):
        simulate(PRIOR, other, 100, seed=4, store=tmp_path, workers=0)
    with pytest.raises(ScorefoldError, match=r"seed\n    in the store: 4\n    now:          5"):
        simulate(PRIOR, simulators.echo, 100, seed=5, store=tmp_path, workers=0)
    with pytest.raises(ScorefoldError, match="prior of a\n"):
        simulate(Prior({"a": stats.norm(0, 2), "b": stats.uniform(0, 2)}), simulators.echo, 100, seed=4, store=tmp_path)
    assert digest(tmp_path) == before


@Batched
def batched_echo(theta, keys):
    noise = jax.vmap(jax.random.normal)(keys)
    return jnp.column_stack([theta, jnp.where(noise > 2, jnp.nan, noise)])


def test_batches_go_into_the_store_the_same_in_all_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "BATCH", 128)
    with pytest.warns(ScorefoldWarning, match=r"of 1,000 simulations failed \(\d+ not finite\)"):
        whole = simulate(PRIOR, batched_echo, 1_000, seed=4, store=tmp_path / "whole")
    for budget in (100, 333, 1_000):
        with pytest.warns(ScorefoldWarning, match="not finite"):
            parts = simulate(PRIOR, batched_echo, budget, seed=4, store=tmp_path / "parts")
    assert digest(tmp_path / "whole") == digest(tmp_path / "parts")
    assert_same(whole, parts)


WIDE = Prior({"size": stats.uniform(36, 3)})


def beyond(theta, rng):
    return np.array([1.0, 10.0 ** theta[0]])


@Batched
def batched_beyond(theta, keys):
    return jnp.column_stack([jnp.ones(len(theta)), 10.0 ** theta[:, 0]])


@pytest.mark.parametrize("simulator", [beyond, batched_beyond])
def test_numbers_beyond_single_precision_fail_the_same_in_every_way(tmp_path, simulator):
    """Of 10^36 … 10^39 a third is within ±1e37; the rest, infinite in float32 or not, has a status and is left out."""
    count = None if isinstance(simulator, Batched) else 1
    for how in ({"workers": Workers(0, max_failures=0.9)}, {"store": tmp_path, "workers": Workers(count, max_failures=0.9)}):
        with pytest.warns(ScorefoldWarning, match=r"of 300 simulations failed .*not finite"):
            sims = simulate(WIDE, simulator, 300, **how)
        wanted = WIDE.sample(300, 0)
        np.testing.assert_array_equal(sims.theta, wanted[wanted[:, 0] <= 37])
        assert sims.x.max() <= 1e37
    assert set(statuses(tmp_path)) == {STATUS.index("ok"), STATUS.index("not finite")}
    with pytest.raises(SimulatorError, match=r"(?s)got \d+ of \d+: \d+ not finite.*first to fail was simulation"):
        simulate(WIDE, simulator, 300, store=tmp_path, workers=count)


# Faults


def faults(budget, timeout, workers, path):
    began = time.monotonic()
    how = Workers(workers, timeout, max_failures=0.5)
    with pytest.warns(ScorefoldWarning, match=rf"^\d+ of {budget:,} simulations failed \(.* crashed.*\) and were left out"):
        sims = simulate(PRIOR, simulators.faulty, budget, seed=2, store=path, workers=how)
    wanted = [simulators.fault(stream(2, i)) for i in range(budget)]
    got = [STATUS[code] for code in statuses(path)]
    assert got == wanted
    assert {"ok", "crashed", "timed out", "not finite"} <= set(got)
    healthy = np.array([status == "ok" for status in wanted])
    noise = []
    for i in np.flatnonzero(healthy):
        rng = stream(2, int(i))
        rng.uniform()
        noise.append(rng.normal())
    np.testing.assert_array_equal(sims.x[:, 0, 2], np.float32(noise))
    np.testing.assert_allclose(sims.x[:, 0, :2], sims.theta, rtol=1e-6)
    assert sims.failed == (~healthy).sum()
    seconds = Store.open(path).runtimes(0, budget)
    hung = seconds[np.array(wanted) == "timed out"]
    assert (hung >= timeout - 0.01).all()
    assert (hung <= timeout + 2).all()
    counts = ", ".join(f"{got.count(status):,} {status}" for status in STATUS if status in got)
    return f"{counts}; hangs ended {hung.max() - timeout:.2f} s after their timeout at most; {time.monotonic() - began:.0f} s"


def below():
    own = str(os.getpid())
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:2]
            command = Path(f"/proc/{entry}/cmdline").read_text()
        except OSError:
            continue
        if state != "Z" and "scorefold.simulation.sources.child" in command and parent in (own, "1"):
            found.append(entry)
    return found


def test_faults_are_statuses_and_leave_no_process_behind(tmp_path):
    faults(120, 0.5, 2, tmp_path)
    assert not below()


@pytest.mark.full
def test_faults_in_thousands(tmp_path, figure):
    figure(faults(2_000, 1.0, 4, tmp_path))
    assert not below()


@pytest.mark.parametrize("workers", [0, 1])
def test_failing_too_often_stops_the_run_and_shows_the_first(tmp_path, workers, figure):
    with pytest.raises(SimulatorError) as caught:
        simulate(PRIOR, simulators.raises, 5_000, store=tmp_path, workers=workers)
    message = str(caught.value)
    first = int(np.flatnonzero(PRIOR.sample(1000, 0)[:, 0] > -0.5)[0])
    a, b = PRIOR.sample(1000, 0)[first].tolist()
    assert "at most a fraction 0.1 (max_failures)" in message
    assert f"The first to fail was simulation {first}, θ = (a = {a!r}, b = {b!r}), raised" in message
    assert "Traceback (most recent call last)" in message
    assert 'raise ZeroDivisionError("no susceptibles left")' in message
    made = Store.open(tmp_path).stop()
    figure(f"stopped after {made:,} of 5,000 simulations")
    assert 0 < made < 5_000, "what was finished stays, and the rest was not tried"


def test_a_store_with_too_many_failures_is_refused_again(tmp_path):
    with pytest.warns(ScorefoldWarning, match=r"simulations failed \(\d+ raised\)"):
        simulate(PRIOR, simulators.raises, 300, store=tmp_path, workers=Workers(0, max_failures=0.9))
    first = int(np.flatnonzero(PRIOR.sample(300, 0)[:, 0] > -0.5)[0])
    with pytest.raises(
        SimulatorError, match=rf"of 300: \d+ raised.*\n.*simulation {first}, θ = \(a = .*, raised: in an earlier"
    ):
        simulate(PRIOR, simulators.raises, 300, store=tmp_path, workers=0)


@pytest.mark.parametrize(("max_failures", "stops"), [(0.0, True), (0.3, True), (0.9, False), (1.0, False)])
def test_how_many_failures_are_too_many_is_a_choice(max_failures, stops):
    if stops:
        with pytest.raises(SimulatorError, match=f"fraction {max_failures:g} "):
            simulate(PRIOR, simulators.raises, 300, workers=Workers(1, max_failures=max_failures))
    else:
        with pytest.warns(ScorefoldWarning, match=r"simulations failed \(\d+ raised\)"):
            sims = simulate(PRIOR, simulators.raises, 300, workers=Workers(1, max_failures=max_failures))
        assert (sims.theta[:, 0] <= -0.5).all()


@pytest.mark.parametrize(
    ("simulator", "max_failures", "tried", "how"),
    [
        (simulators.crashes, 0.5, "20", "crashed.*SIGSEGV"),
        (simulators.text, 1.0, "100", "raised.*expected an observation to be numbers"),
    ],
)
def test_a_simulator_that_never_works_leaves_no_store(tmp_path, simulator, max_failures, tried, how):
    with pytest.raises(SimulatorError, match=rf"(?s)got {tried} of {tried}: .*first to fail was simulation 0, .*{how}"):
        simulate(PRIOR, simulator, 100, store=tmp_path, workers=Workers(2, max_failures=max_failures))
    assert not Store.exists(tmp_path)


def test_an_interrupted_run_stops_its_children(monkeypatch):
    def interrupt():
        time.sleep(0.7)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        simulate(PRIOR, simulators.hangs, 100, workers=2)
    assert not below()


# Executors that fail


class Flaky(ThreadPoolExecutor):
    """Loses every third task once, as clusters do."""

    lost = frozenset()

    def submit(self, function, /, *args, **kwargs):
        start = args[0].start
        if start % 3 == 0 and start not in self.lost:
            self.lost |= {start}
            function = self.lose
        return super().submit(function, *args, **kwargs)

    def lose(self, *args):
        raise ConnectionError("worker lost")


class Lost(Flaky):
    def submit(self, function, /, *args, **kwargs):
        return ThreadPoolExecutor.submit(self, self.lose, *args)


class Closed(Executor):
    def submit(self, function, /, *args, **kwargs):
        raise RuntimeError("cannot schedule new futures after shutdown")


def test_lost_tasks_are_done_again(tmp_path, in_process):
    with Flaky(2) as executor:
        simulate(PRIOR, simulators.echo, 300, set_size=3, seed=4, store=tmp_path, workers=Workers(executor=executor))
        assert len(executor.lost) > 2
    assert digest(tmp_path) == in_process[0]


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        (lambda: Lost(2), r"failed 3 times on one task \(ConnectionError: worker lost\)"),
        (Closed, r"takes no more work \(RuntimeError"),
    ],
)
def test_an_executor_that_is_beyond_hope_ends_the_run(executor, message):
    with executor() as own, pytest.raises(ScorefoldError, match=message):
        simulate(PRIOR, simulators.echo, 100, workers=Workers(executor=own))


def test_few_tasks_are_in_flight():
    most = 0

    class Counting(ThreadPoolExecutor):
        flying = 0

        def submit(self, function, /, *args, **kwargs):
            nonlocal most
            self.flying += 1
            most = max(most, self.flying)
            future = super().submit(function, *args, **kwargs)
            future.add_done_callback(lambda _: setattr(self, "flying", self.flying - 1))
            return future

    with Counting(3) as executor:
        simulate(PRIOR, simulators.echo, 500, workers=Workers(executor=executor))
    assert most <= 2 * 3


# Dask


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_dask_writes_the_same_store(tmp_path, in_process, cluster):
    simulate(PRIOR, simulators.echo, 300, set_size=3, seed=4, store=tmp_path, workers=Workers(executor=cluster.get_executor()))
    assert digest(tmp_path) == in_process[0]


def test_a_dask_worker_killed_in_mid_run_changes_nothing(tmp_path, cluster, monkeypatch, figure):
    monkeypatch.setenv("PAUSE", "0")  # here; not where Dask's workers are
    simulate(PRIOR, simulators.slow_echo, 300, seed=4, store=tmp_path / "here", workers=0)
    pids = cluster.run(os.getpid)
    victims = []

    def shards():
        return list((tmp_path / "dask").glob("shards/*"))

    def kill():
        until = time.monotonic() + 60
        while not shards() and time.monotonic() < until:
            time.sleep(0.01)
        there = sum(stop - start for start, stop in (map(int, path.name.split("-")[:2]) for path in shards()))
        figure(f"one of {len(pids)} workers killed when {there} of 300 simulations were there")
        victims.append(next(iter(pids.values())))
        os.kill(victims[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    simulate(
        PRIOR, simulators.slow_echo, 300, seed=4, store=tmp_path / "dask", workers=Workers(executor=cluster.get_executor())
    )
    assert victims, "the run was over before the kill"
    thread.join()
    assert not os.path.exists(f"/proc/{victims[0]}")
    assert digest(tmp_path / "dask") == digest(tmp_path / "here")


# Memory

MEASURED = """
import sys
from peak_memory import peak_memory
import jax, jax.numpy as jnp, numpy as np
import scorefold as sf
from scipy import stats
def plain(theta, rng): return np.append(theta, rng.normal())
@sf.Batched
def batched(theta, keys): return jnp.column_stack([theta, jax.vmap(jax.random.normal)(keys)])
prior = sf.Prior({"a": stats.norm(0, 1), "b": stats.uniform(0, 2)})
kind, budget, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
sims = sf.simulate(prior, batched if kind == "batched" else plain, budget, store=path, workers=None if kind == "batched" else 2)
assert len(sims.theta) == budget
print(peak_memory())
"""


@pytest.mark.full
@pytest.mark.parametrize("kind", ["batched", "isolated"])
def test_memory_hardly_grows_with_the_budget(tmp_path, kind, figure):
    megabytes = []
    for budget in (10_000, 1_000_000):
        command = [sys.executable, "-c", MEASURED, kind, str(budget), str(tmp_path / str(budget))]
        done = subprocess.run(command, timeout=1_200, check=True, stdout=subprocess.PIPE, env=users_environment() | SUPPORT)
        megabytes.append(int(done.stdout))
    figure(f"{megabytes[0]} MB with 10,000 simulations, {megabytes[1]} MB with 1,000,000")
    assert megabytes[1] - megabytes[0] <= 200
