"""What does a simulation cost beside the simulator's own time?

    python benchmarks/simulate_overhead.py
    python benchmarks/simulate_overhead.py --peer-python /path/to/an/environment/with/sbi/bin/python

A simulator that does next to nothing, called through scorefold: in batches, in this process and in isolated worker processes,
into memory and into a store; and, where an interpreter with sbi is given, through sbi's `simulate_for_sbi` with as many worker
processes. Times are the best of some repetitions, divided by the number of simulations; what the simulator itself takes (called
in a bare loop) is not taken off.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PEER = """
import sys, time, torch
from sbi.inference import simulate_for_sbi
from sbi.utils import BoxUniform
from sbi.utils.user_input_checks import process_prior, process_simulator
count, workers, repeats = map(int, sys.argv[1:])
prior, _, as_numpy = process_prior(BoxUniform(torch.zeros(2), torch.ones(2)))
def plain(theta):
    return torch.cat([theta, torch.randn(*theta.shape[:-1], 1)], dim=-1)
simulator = process_simulator(plain, prior, as_numpy)
for name, batch in (("one at a time", 1), ("batches of 1,000", 1000)):
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        simulate_for_sbi(simulator, prior, count, num_workers=workers, simulation_batch_size=batch, show_progress_bar=False)
        best = min(best, time.perf_counter() - began)
    print(f"sbi, {workers} workers, {name}|{best / count * 1e6:.1f}")
"""


def nothing(theta, rng):
    """Next to nothing, as plain simulators go."""
    import numpy as np

    return np.append(theta, rng.normal())


def best(run: Callable[[Path], object], count: int, repeats: int) -> float:
    """Microseconds a simulation."""
    seconds = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            run(Path(folder) / "store")
            seconds.append(time.perf_counter() - began)
    return min(seconds) / count * 1e6


def main() -> None:
    import jax
    import jax.numpy as jnp
    from scipy import stats

    import scorefold as sf

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batched", type=int, default=1_000_000, help="simulations in batches")
    parser.add_argument("--plain", type=int, default=20_000, help="simulations one at a time")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer-python", help="an interpreter that can import sbi")
    given = parser.parse_args()
    prior = sf.Prior({"a": stats.uniform(0, 1), "b": stats.uniform(0, 1)})
    batched = sf.Batched(lambda theta, keys: jnp.column_stack([theta, jax.vmap(jax.random.normal)(keys)]))

    def alone(path: Path) -> None:
        from scorefold.simulation.outcome import stream

        for i, theta in enumerate(prior.sample(given.plain, 0)):
            nothing(theta, stream(0, i))

    few, many, workers = given.plain, given.batched, given.workers
    rows = {
        "the simulator alone, with its random stream": (alone, few),
        "scorefold, batched, into a store": (lambda path: sf.simulate(prior, batched, many, store=path), many),
        "scorefold, batched, into memory": (lambda path: sf.simulate(prior, batched, many), many),
        "scorefold, this process, into memory": (lambda path: sf.simulate(prior, nothing, few), few),
        "scorefold, this process, into a store": (lambda path: sf.simulate(prior, nothing, few, store=path, workers=0), few),
        "scorefold, 1 isolated worker, into a store": (
            lambda path: sf.simulate(prior, nothing, few, store=path, workers=1),
            few,
        ),
        f"scorefold, {workers} isolated workers, into a store": (
            lambda path: sf.simulate(prior, nothing, few, store=path, workers=workers),
            few,
        ),
    }
    print(f"{'µs a simulation':>60}")
    for name, (run, count) in rows.items():
        print(f"{name:<50}{best(run, count, given.repeats):>10.1f}", flush=True)
    if given.peer_python:
        command = [given.peer_python, "-c", PEER, str(few), str(workers), str(given.repeats)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        for line in done.stdout.splitlines():
            name, _, value = line.partition("|")
            print(f"{name:<50}{value:>10}")
        if done.returncode:
            sys.exit(f"sbi could not be run with {given.peer_python}")


if __name__ == "__main__":
    main()
