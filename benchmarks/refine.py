"""Refined posteriors and their starts on all tasks, with 10,000 simulations in all.

    python benchmarks/refine.py                                   # everything; goes on where it stopped
    python benchmarks/refine.py --workers 15 --minutes 9
    python benchmarks/refine.py --tasks slcp --n 8 --seeds 0 --data-sets 10 11
    python benchmarks/refine.py --table refine.jsonl              # what such files hold, several at will
    python benchmarks/refine.py --members 2 --steps 100           # smaller networks, for a quick look

A cell is a task, a number of observations, a seed (of simulations, training and draws) and a data set, observe(n, 1000 + i).
Its start is NLE (or --method) with its defaults on 4,000 simulations from the prior, and 6,000 more refine it. A pool of
processes with one core each does the cells; the first that needs a start trains it. Every task and n has its first data set
before any has its second. Each record is a JSON line; cells that have one are not run again, unless it is an error. After
--minutes everything stops, and cells that are not done are lost.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from statistics import mean, pstdev

from refine_cell import SHARES, Work

TASKS = [
    "slcp",
    "two_moons",
    "mixture_uniform",
    "mixture",
    "bimodal",
    "drift_diffusion",
    "bernoulli_glm",
    "sir",
    "lotka_volterra",
    "gaussian",
]
SIZES = (1, 8, 30)
BOUNDS = {
    "slcp": (0.68, 0.65, 0.62),
    "two_moons": (0.55, 0.56, 0.58),
    "mixture_uniform": (0.60, 0.60, 0.62),
    "mixture": (0.54, 0.60, 0.60),
    "bimodal": (0.52, 0.54, 0.56),
    "drift_diffusion": (0.53, 0.53, 0.54),
    "bernoulli_glm": (0.54, 0.55, 0.56),
    "sir": (0.54, 0.54, 0.54),
    "lotka_volterra": (0.54, 0.54, 0.54),
}
"""The C2ST to reach, at n = 1, 8 and 30."""
WORSE = 0.03
"""By no more than this may a refined posterior's C2ST be above its start's."""
WEIGHTS = 0.07
"""By no more than this may a mode's weight be off."""
ONE_CORE = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
SETTINGS = ("from_prior", "more", "method", "members", "steps")


def cells(chosen: argparse.Namespace) -> Iterator[dict]:
    """All of them: data sets and seeds both change from turn to turn, and a turn has every task and n."""
    sets, seeds = chosen.data_sets, chosen.seeds
    for turn in range(len(sets) * len(seeds)):
        data_set, seed = sets[turn % len(sets)], seeds[(turn + turn // len(sets)) % len(seeds)]
        for n, task in product(sorted(chosen.n, reverse=True), chosen.tasks):
            yield {"task": task, "n": n, "seed": seed, "data_set": data_set, **settings(chosen)}


def settings(chosen: argparse.Namespace) -> dict:
    return {name: getattr(chosen, name) for name in SETTINGS}


def key(cell: dict) -> tuple:
    """What makes it the same cell."""
    return tuple(cell[name] for name in ("task", "n", "seed", "data_set", *SETTINGS))


def read(paths: list[Path]) -> list[dict]:
    """Records; the last one of a cell counts. A line that a kill has cut is left out."""
    found = {}
    for path in paths:
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            found[key(record)] = record
    return list(found.values())


class Pool:
    """Workers over one queue."""

    def __init__(self, work: Work, queue: list[dict], out: Path, deadline: float) -> None:
        self.work, self.queue, self.out, self.deadline = work, queue, out, deadline
        self.lock, self.processes = threading.Lock(), []

    def next(self) -> dict | None:
        """The next cell; None where there is none left, or no time."""
        with self.lock:
            return self.queue.pop(0) if self.queue and time.monotonic() < self.deadline else None

    def run(self, number: int) -> None:
        """One worker, as long as there are cells; one that died is followed by another."""
        process = None
        while (cell := self.next()) is not None:
            process = process or self.process(number)
            record = self.asked(process, cell)
            if time.monotonic() >= self.deadline:
                return
            if record is None:
                process, record = None, json.dumps({**cell, "error": "the worker died"})
            self.keep(record)

    def process(self, number: int) -> subprocess.Popen:
        """A process of `refine_cell.py` on one of the cores that there are."""
        cores = sorted(os.sched_getaffinity(0))
        command = [sys.executable, str(Path(__file__).with_name("refine_cell.py")), json.dumps(asdict(self.work))]
        process = subprocess.Popen(
            [*command, str(cores[number % len(cores)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_CORE},
            text=True,
        )
        self.processes.append(process)
        return process

    @staticmethod
    def asked(process: subprocess.Popen, cell: dict) -> str | None:
        """A cell's record, or None where the worker died."""
        try:
            process.stdin.write(json.dumps(cell) + "\n")
            process.stdin.flush()
        except OSError:
            return None
        return process.stdout.readline().strip() or None

    def keep(self, line: str) -> None:
        """Append a record, and say what came out."""
        record = json.loads(line)
        with self.lock:
            with self.out.open("a") as file:
                file.write(line + "\n")
            where = f"{record['task']} n = {record['n']} seed {record['seed']} data set {record['data_set']}"
            if "error" in record:
                print(f"{where}: {record['error'].strip().splitlines()[-1]}", flush=True)
                return
            values = [record[which]["c2st"] for which in ("start", "refined")]
            print(f"{where}: {values[0]:.3f} -> {values[1]:.3f}, kept {record['kept']}, {record['seconds']:.0f} s", flush=True)

    def stop(self) -> None:
        """End the processes that are left."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def run(chosen: argparse.Namespace) -> None:
    """Train and refine until all is done, or until time is up."""
    deadline = time.monotonic() + 60 * chosen.minutes
    have = {key(record) for record in read([chosen.out]) if "error" not in record}
    work = Work(str(chosen.folder), tuple(chosen.tasks), tuple(chosen.seeds), **settings(chosen))
    queue = [cell for cell in cells(chosen) if key(cell) not in have]
    print(f"{len(have)} cells are done; {len(queue)} to do", flush=True)
    pool = Pool(work, queue, chosen.out, deadline)
    threads = [threading.Thread(target=pool.run, args=(i,), daemon=True) for i in range(min(chosen.workers, len(queue)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))
    finally:
        pool.deadline = min(pool.deadline, time.monotonic())
        pool.stop()
    done = {key(record) for record in read([chosen.out]) if "error" not in record}
    if left := sum(key(cell) not in done for cell in cells(chosen)):
        print(f"{left} cells are left; the same command goes on", flush=True)


def table(records: list[dict]) -> None:
    """Means over seeds and data sets, next to the goals."""
    print(
        "task               n  cells  start          refined (sd)   goal       worst diff.  shift  sd ratio  trust          "
        "kept                    modes  weights off  seconds"
    )
    good = [one for one in records if "error" not in one]
    for task, n in sorted({(one["task"], one["n"]) for one in good}, key=lambda cell: (TASKS.index(cell[0]), cell[1])):
        print(row(task, n, [one for one in good if (one["task"], one["n"]) == (task, n)]))
    worse = [one for one in good if gain(one) > WORSE]
    print(f"\n{len(good)} cells; {len(worse)} refined ones are more than {WORSE} worse than their start:")
    for one in sorted(worse, key=gain, reverse=True):
        print(
            f"  {one['task']} n = {one['n']} seed {one['seed']} data set {one['data_set']}: {one['start']['c2st']:.3f} -> "
            f"{one['refined']['c2st']:.3f}, kept {one['kept']}"
        )
    print(trusted(good))
    if failed := [one for one in records if "error" in one]:
        print(f"{len(failed)} cells failed, the first with {failed[0]['error'].strip().splitlines()[-1]}")


def gain(record: dict) -> float:
    """By how much the refined C2ST is above that of its start; the better, the more negative."""
    return record["refined"]["c2st"] - record["start"]["c2st"]


def row(task: str, n: int, some: list[dict]) -> str:
    """One line of the table."""
    before, after = ([one[which]["c2st"] for one in some] for which in ("start", "refined"))
    goal = dict(zip(SIZES, BOUNDS.get(task, ()), strict=False)).get(n)
    met = "" if goal is None else f"{goal:.2f} {'met' if mean(after) <= goal else '---'}"
    known = [one["refined"] for one in some if one["refined"]["shift"] is not None]
    shift, ratio = (mean(one[name] for one in known) if known else float("nan") for name in ("shift", "sd_ratio"))
    verdicts = [one["refined"]["trust"] for one in some]
    trust = "/".join(str(verdicts.count(word)) for word in ("good", "usable", "not to be trusted"))
    kept = ", ".join(f"{word} {count}" for word, count in counted(one["kept"] for one in some).items())
    modes, off = weights(task, some)
    return (
        f"{task:15s} {n:4d}  {len(some):5d}  {mean(before):.3f} ({pstdev(before):.3f})  "
        f"{mean(after):.3f} ({pstdev(after):.3f})  {met:9s}  {max(map(gain, some)):+11.3f}  {shift:5.2f}  {ratio:8.2f}  "
        f"{trust:13s}  {kept:22s}  {modes:>5s}  {off:>11s}  "
        f"{mean(one['seconds'] for one in some):7.0f}"
    )


def counted(words: Iterator[str]) -> dict[str, int]:
    """How often each comes."""
    found: dict[str, int] = {}
    for word in words:
        short = word.removeprefix("the ").removeprefix("a ")
        found[short] = found.get(short, 0) + 1
    return found


def weights(task: str, some: list[dict]) -> tuple[str, str]:
    """In how many cells all modes were found, of those whose truth has several, and the weight that is farthest off."""
    found = [one["refined"]["shares"] for one in some if one["refined"]["shares"]]
    if task not in SHARES or not found:
        return "–", "–"
    truth = 1 / SHARES[task]
    whole = sum(min(shares) > truth / 4 for shares in found)
    off = max(abs(share - truth) for shares in found for share in shares)
    return f"{whole}/{len(found)}", f"{off:.3f}{' met' if off <= WEIGHTS else ''}"


def trusted(records: list[dict]) -> str:
    """How right the verdicts on refined draws are."""
    rows = [one["refined"] for one in records if one["refined"]["shift"] is not None]
    good = [one for one in rows if one["trust"] == "good"]
    far = [one for one in rows if max(map(abs, one["shifts"])) > 1]
    within = [
        one for one in good if max(map(abs, one["shifts"])) < 0.5 and all(0.8 < ratio < 1.25 for ratio in one["sd_ratios"])
    ]
    return (
        f"of {len(good)} refined ones called good {len(within)} are within 0.5 sd and a factor 1.25 in every parameter; of "
        f"{len(far)} more than 1 sd off {sum(one['trust'] == 'good' for one in far)} are called good"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--n", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--data-sets", nargs="+", type=int, default=[10, 11, 12, 13, 14], help="none of those tuned on")
    parser.add_argument("--from-prior", type=int, default=4_000, help="simulations of a start")
    parser.add_argument("--more", type=int, default=6_000, help="simulations to refine with")
    parser.add_argument("--method", default="nle", choices=["nle", "f-npse"], help="of the start")
    parser.add_argument("--members", type=int, help="of every ensemble; by default as the methods say")
    parser.add_argument("--steps", type=int, help="of every training, at most; by default as the methods say")
    parser.add_argument("--workers", type=int, default=max(len(os.sched_getaffinity(0)) - 1, 1), help="one core each")
    parser.add_argument("--minutes", type=float, default=1e6, help="after which it stops")
    parser.add_argument("--folder", type=Path, default=Path("refine-starts"), help="of starts, references, compiled programs")
    parser.add_argument("--out", type=Path, default=Path("refine.jsonl"))
    parser.add_argument("--table", nargs="+", type=Path, help="only show what these files hold")
    chosen = parser.parse_args()
    if not chosen.table:
        run(chosen)
    table(read(chosen.table or [chosen.out]))


if __name__ == "__main__":
    main()
