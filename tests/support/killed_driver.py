"""Simulate into a store in forked drivers, now and then two at once, that are killed at random moments; look after each round
that nothing was lost.

    python killed_driver.py STORE KILLS BUDGET

Drivers are forked from a process that has imported everything but computed nothing, to save 200 times the importing; their
workers' children are started afresh, as always.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
from scipy import stats

from scorefold.prior import Prior
from scorefold.simulation.simulate import simulate
from scorefold.simulation.sources import isolated
from scorefold.simulation.store import description
from scorefold.simulation.store import store as store_module
from scorefold.simulation.store.store import Store

isolated.TASK_SECONDS, isolated.SHORTEST_TASK = 0.05, 0.02
description.MOST_ROWS, store_module.SMALL_SHARDS = 256, 16

AT_WORK = 0.5
"""The share of kills that come when the driver has begun to work; the others may come before."""
PRIOR = Prior({"a": stats.norm(0, 1), "b": stats.uniform(0, 2)})


def simulator(theta, rng):
    time.sleep(float(os.environ["PAUSE"]))
    return np.append(theta, rng.normal())


def run(path, budget):
    simulate(PRIOR, simulator, budget, set_size=2, seed=1, store=path, workers=2)


def rows(path):
    """Every simulation there, by number, with what it holds."""
    held = {}
    for start, part in Store.open(path).read():
        for row in range(len(part["status"])):
            assert start + row not in held, f"simulation {start + row} is there twice"
            held[start + row] = (part["x"][row].tobytes(), int(part["status"][row]))
    return held


def children():
    """Simulating processes of this test, living ones."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{entry}/cmdline").read_text()
            state, parent = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if "scorefold.simulation.sources.child" in command and state != "Z" and parent == "1":
            found.append(entry)
    return found


def start(path, budget):
    driver = os.fork()
    if driver == 0:
        try:
            run(path, budget)
        finally:
            os._exit(0)
    return driver


def files(path):
    """The names of the shards."""
    return set(os.listdir(path / "shards")) if (path / "shards").is_dir() else set()


def wait_for_work(path):
    """Until something new is in the store: on a busy machine workers may take seconds to start."""
    before, until = files(path), time.monotonic() + 20
    while files(path) == before and time.monotonic() < until:
        time.sleep(0.005)


def main(path, kills, budget):
    held, moments = {}, random.Random(0)
    os.environ["PAUSE"] = "0.002"
    done = 0
    while done < kills:
        drivers = [start(path, budget) for _ in range(moments.choice([1, 1, 2]))]
        for driver in drivers:
            if moments.random() < AT_WORK:
                wait_for_work(path)
            time.sleep(moments.uniform(0.0, 0.9))
            os.kill(driver, signal.SIGKILL)
            _, status = os.waitpid(driver, 0)
            assert os.WIFSIGNALED(status), "the run was over before it could be killed: give it a larger budget"
            done += 1
        if Store.exists(path):
            now = rows(path)
            assert held.items() <= now.items(), "a committed simulation was lost or changed"
            held = now
    until = time.monotonic() + 5
    while children() and time.monotonic() < until:
        time.sleep(0.05)
    assert not children(), "a child has outlived its driver"
    print(f"{done} kills, {len(held):,} of {budget:,} simulations made between them")
    os.environ["PAUSE"] = "0"
    run(path, budget)
    assert len(rows(path)) == budget


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
