"""The board on one large machine for a short time: many trainings at once, ours on its accelerator and the peers beside them.

    python benchmarks/fleet.py run --work work --out board --ours 5 --peers 12 --seconds 1000
    python benchmarks/fleet.py score --work work --out board            # what is drawn but not measured, also elsewhere, later

What there is after any time is useful: stages come in an order, the first training of every method on every task with few
observations, then with many, then the second. A program is trained once; it waits for its next stage with what it learned.
Draws are written as they come, and measured together by a program of their own. The file `stop` in the folder of work ends it.
Cells with a record are not run again, and the same command goes on where it stopped.

Seconds are those of a busy machine, and records say so (`device`). A peer that fails for want of a package or of the
accelerator gets no record.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scorefold.app.bench.bench_plan import Cell, cells, grouped
from scorefold.app.bench.drive import missing
from scorefold.app.bench.record import RECORDS, RUNS, Record, appending, done
from scorefold.errors import ScorefoldError

HERE = Path(__file__).absolute()
TASKS = (
    "gaussian",
    "mixture",
    "two_moons",
    "slcp",
    "sir",
    "bernoulli_glm",
    "drift_diffusion",
    "mixture_uniform",
    "lotka_volterra",
)
METHODS = ("sbi-npse", "bayesflow", "sbi-nle", "sbi-nre", "nle", "f-npse")
"""In the order in which they are begun: what takes long first."""
FEW = 30
SLOW = "jac_gauss"
"""A way of composing that has a stage of its own."""
PEER_RANKS = ((0, 1, 2, 3, 5), (4, 6, 7, 8, 9))
"""When a stage has its turn, by training: the first data set with few observations, likewise the slow way, and with many
observations, then the other data sets."""
OUR_RANKS = ((0, 1, 4, 6), (2, 3, 5, 7))
"""Likewise: few and many observations, all data sets together; then refined, one data set and the others."""
PEER_DRAWS = {"sbi-npse": 2, "sbi-nle": 30, "sbi-nre": 30}
"""From so many observations on, a peer that is trained on a processor draws on the accelerator."""
ALIVE = 40
"""Peers that wait or run at once, each with its memory."""
BESIDE = 4
"""Programs that write jobs, measure and draw references."""
TOGETHER = 30
"""Cells measured at once."""
Turn = tuple[int, int, int, int]
NOT_THE_METHOD = (
    "cuda",
    "out of memory",
    "resource_exhausted",
    "modulenotfound",
    "importerror",
    "internal:",
    "cudnn",
    "cublas",
)


def stage(cell: Cell) -> int:
    """Of a program's cells: which come first."""
    first, few = cell.parameters % 6 == 1_000 % 6, cell.n <= FEW
    if cell.setting == "default":
        return 0 if few else 1
    if cell.setting == "refined":
        return 2 if first and few else 3
    if first:
        return (1 if cell.sampler == SLOW else 0) if few else 2
    return 3 if few else 4


def turn(cell: Cell) -> Turn:
    """What comes before what; the method that is trained longest before the others, so that they do not wait for it."""
    ranks = PEER_RANKS if cell.setting == "peer" else OUR_RANKS
    method = METHODS.index(cell.method)
    return ranks[cell.training][stage(cell)], int(method > 0), TASKS.index(cell.task), method


def stages(own: Sequence[Cell]) -> list[list[Cell]]:
    """Cells that share a training, by stage."""
    ordered = sorted(own, key=lambda cell: (stage(cell), -cell.n if cell.setting == "refined" else cell.n))
    return [[cell for cell in ordered if stage(cell) == one] for one in sorted({stage(cell) for cell in own})]


def planned(preset: str, out: Path, only: str) -> list[list[Cell]]:
    """Trainings with cells that have no record, in turn."""
    groups = grouped(missing(some_cells(preset, only), out)).values()
    return sorted(groups, key=lambda own: min(map(turn, own)))


def some_cells(preset: str, only: str) -> list[Cell]:
    """Those of a preset; none where `only` leaves none."""
    try:
        return cells(preset, only)
    except ScorefoldError:
        return []


def write_json(path: Path, content: Any) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content))
    part.replace(path)


def stopped(work: Path) -> bool:
    return (work / "stop").exists()


# Programs beside the one that is started: each is this file with another word.


def write(work: Path, out: Path, only: str, limit: float) -> None:
    """The jobs of the peers; those with the same simulations share a file."""
    from scorefold.app.bench.exchange import ARRAYS, JOB, write_job

    alike: dict[tuple[str, int], Path] = {}
    for own in planned("peers", out, only):
        group = own[0].group
        folder, same = place(work, group), alike.get((group.task, group.training))
        by_key = {cell.key: cell for cell in own}
        if (folder / JOB).exists():
            continue
        made = folder.with_suffix(".made")
        if same is None:
            write_job(cells("peers", f"task={group.task},training={group.training},method={group.method}"), made, limit)
        else:
            made.mkdir(parents=True, exist_ok=True)
            (made / ARRAYS).unlink(missing_ok=True)
            os.link(same / ARRAYS, made / ARRAYS)
            (made / JOB).write_text((same / JOB).read_text())
        about = json.loads((made / JOB).read_text())
        about["method"] = group.method
        about["cells"] = [
            {"key": key, "n": c.n, "way": c.sampler, "observed": f"x_obs_{c.parameters}_{c.n}", "stage": stage(c)}
            for key, c in by_key.items()
        ]
        write_json(made / JOB, about)
        made.rename(folder)
        alike.setdefault((group.task, group.training), folder)


def place(work: Path, group: Cell) -> Path:
    return work / "jobs" / f"{group.task}-{group.method}-{group.training}"


def references(work: Path, out: Path, only: str, part: int) -> None:
    """Draws of the true posteriors, into the package's cache where they take a while; a file says that they are there."""
    from scorefold.app.bench.bench_cells import reference_of

    wanted = [cell for own in (*planned("peers", out, only), *planned("many-observations", out, only)) for cell in own]
    there = {}
    for cell in sorted(wanted, key=lambda cell: (cell.n > FEW, cell.training, cell.n, TASKS.index(cell.task))):
        there.setdefault(marker(work, cell), cell)
    for mark, cell in there.items():
        if (cell.task == "drift_diffusion") == bool(part) and not mark.exists() and not stopped(work):
            try:
                reference_of(cell)
            except Exception as error:
                print(f"{mark.name}: {error}", flush=True)
                continue
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()


def marker(work: Path, cell: Cell) -> Path:
    return work / "references" / f"{cell.task}-{cell.n}-{cell.parameters}"


def ours(work: Path, out: Path, only: str, load: str) -> None:
    """Our methods: take a training that nobody has, or go on with an own one, whichever has its turn first."""
    import jax

    from scorefold.app.bench.bench_cells import Trained, draw, train

    waiting = planned("many-observations", out, only)
    mine: dict[Cell, tuple[Trained, list[list[Cell]]]] = {}
    (work / "ours").mkdir(parents=True, exist_ok=True)
    while not stopped(work):
        go_on = min(mine, key=lambda group: turn(mine[group][1][0][0]), default=None)
        if waiting and (go_on is None or min(map(turn, waiting[0])) < turn(mine[go_on][1][0][0])):
            own = waiting.pop(0)
            group = own[0].group
            if not claimed(work, group):
                continue
            try:
                mine[group] = train(group), stages(own)
            except Exception as error:
                print(f"{group.task} {group.method} {group.setting}: {error!r}", flush=True)
                continue
            go_on = group
        if go_on is None:
            return
        trained, left = mine[go_on]
        some = left.pop(0)
        if not left:
            del mine[go_on]
        together: dict[Cell, list[Cell]] = {}
        for cell in some:
            alone = cell.setting == "refined"
            together.setdefault(cell if alone else replace(cell, parameters=0), []).append(cell)
        for alike in together.values():
            if stopped(work):
                return
            started = time.perf_counter()
            try:
                found = draw(alike, trained)
            except Exception as error:
                print(f"{alike[0].task} {alike[0].method} n = {alike[0].n}: {error!r}", flush=True)
                continue
            spent = time.perf_counter() - started
            print(f"{alike[0].task} {alike[0].method} {alike[0].setting} n = {alike[0].n}: {spent:.0f} s", flush=True)
            for one in found:
                if one.theta is not None:
                    np.savez(work / "ours" / f"{one.cell.key}.npz", theta=one.theta)
                device = f"{jax.devices()[0].device_kind}{load}"
                write_json(work / "ours" / f"{one.cell.key}.json", one.record | {"device": device})


def claimed(work: Path, group: Cell) -> bool:
    """Whether this program is the first to take a training."""
    try:
        (work / "claims" / group.key).mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def score(work: Path, out: Path, only: str, load: str, follow: bool) -> None:
    """Draws → records, in batches of clouds of one dimension; `follow`: until it is told to stop, and then what is left."""
    from scorefold import tasks

    every = {cell.key: cell for preset in ("peers", "many-observations") for cell in some_cells(preset, only)}
    load = load or (work / "load").read_text()
    out.mkdir(parents=True, exist_ok=True)
    last = time.monotonic()
    while True:
        ending = stopped(work) or not follow
        there = done(out / RECORDS)
        found = [(every[p.stem], p) for p in results(work) if p.stem in every and p.stem not in there]
        ready = [(cell, path) for cell, path in found if not follow or marker(work, cell).exists()]
        by_dim: dict[int, list[tuple[Cell, Path]]] = {}
        for cell, path in sorted(ready, key=lambda one: turn(one[0])):
            by_dim.setdefault(tasks.get(cell.task).prior.dim, []).append((cell, path))
        batches = [own[:TOGETHER] for own in by_dim.values()]
        full = [batch for batch in batches if len(batch) == TOGETHER]
        waited = time.monotonic() - last > 60
        chosen = full if full else (batches if ending or waited else [])
        before = len(there)
        for batch in chosen:
            with appending(out / RECORDS) as append:
                for record in measured(batch, load):
                    append(record)
            last = time.monotonic()
        after = len(done(out / RECORDS)) if chosen else before
        print(f"{after} records, {len(found) - (after - before)} to be measured", flush=True) if chosen else None
        if ending and after == before:
            return
        if not chosen:
            time.sleep(2)


def results(work: Path) -> Iterator[Path]:
    yield from (work / "ours").glob("*.json")
    yield from (path for path in work.glob("jobs/*-[0-9]*/*.json") if path.name != "job.json")


def measured(batch: Sequence[tuple[Cell, Path]], load: str) -> Iterator[Record]:
    """The records of some cells, but of those that the machine failed."""
    from scorefold.app.bench.bench_cells import Drawn, measure
    from scorefold.app.bench.exchange import result, returned, unmeasured

    drawn = []
    for cell, path in batch:
        if cell.setting == "peer":
            one = returned(cell, result(path), path.parent)
            one = one._replace(record=one.record | {"device": one.record["device"] + load})
            if one.theta is None:
                if any(word in one.record["failed"].lower() for word in NOT_THE_METHOD):
                    print(f"{path.parent.name} {cell.n} {cell.sampler}: {one.record['failed']}", flush=True)
                    path.rename(path.with_suffix(".lost"))
                else:
                    yield unmeasured(one)
                continue
        else:
            arrays = path.with_suffix(".npz")
            theta = np.load(arrays)["theta"] if arrays.exists() else None
            one = Drawn(cell, theta, json.loads(path.read_text()))
        drawn.append(one)
    if drawn:
        for one, record in zip(drawn, measure(drawn, TOGETHER), strict=True):
            yield record | {"device": one.record["device"]}


# The program that is started.


class Peer:
    """One training of a peer, as a process that stops itself between its stages."""

    def __init__(self, folder: Path, own: Sequence[Cell]) -> None:
        self.folder, self.own, self.pid = folder, list(own), 0
        self.state = "new"
        """Then running, waiting or ended."""

    def turn(self) -> Turn:
        """That of its next stage."""
        return min(map(turn, self.left()), default=(99, 0, 0, 0))

    def left(self) -> list[Cell]:
        """Cells without a result."""
        return [cell for cell in self.own if not (self.folder / f"{cell.key}.json").exists()]

    def go(self, script: Callable[[str], list[str]], log: Path) -> None:
        """Start it, or let it go on."""
        if self.state == "waiting":
            os.kill(self.pid, signal.SIGCONT)
        else:
            with open(log / f"{self.folder.name}.log", "ab") as file:
                self.pid = subprocess.Popen([*script(self.own[0].method), str(self.folder)], stdout=file, stderr=file).pid
        self.state = "running"

    def look(self) -> None:
        """Whether it has stopped itself, or ended."""
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if pid:
            self.state = "waiting" if os.WIFSTOPPED(status) else "ended"


def peer_command(accelerator: str) -> Callable[[str], list[str]]:
    """How a peer's method is started."""

    def command(method: str) -> list[str]:
        name = method.partition("-")[0]
        how = ["--device", accelerator or "cpu"]
        if method in PEER_DRAWS:
            how = ["--device", "cpu"] + (
                ["--draw-on", accelerator, "--draw-on-from", str(PEER_DRAWS[method])] if accelerator else []
            )
        return [sys.executable, str(HERE.parent / "peers" / f"with_{name}.py"), *how]

    return command


def run(chosen: argparse.Namespace) -> None:
    work, out, only = chosen.work.absolute(), chosen.out.absolute(), chosen.only
    logs = work / "logs"
    for folder in (logs, work / "jobs", work / "ours", out):
        folder.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + chosen.seconds
    programs = chosen.ours + chosen.peers + BESIDE
    load = f", one of up to {programs} programs at once on {os.cpu_count()} cores"
    (work / "load").write_text(load)
    with appending(out / RUNS) as note:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        about = {"preset": "many-observations and peers", "only": only, "executor": f"fleet.py, {programs} programs at once"}
        note({"key": f"{now} {time.time_ns()}", "started": now, **about})
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    os.environ.update(quiet)

    def beside(name: str, what: str, *more: str, cpu: bool = False) -> subprocess.Popen:
        command = [
            sys.executable,
            str(HERE),
            what,
            "--work",
            str(work),
            "--out",
            str(out),
            "--only",
            only,
            "--load",
            load,
            *more,
        ]
        env = quiet | ({"JAX_PLATFORMS": "cpu"} if cpu else {})
        with open(logs / f"{name}.log", "ab") as file:
            return subprocess.Popen(command, stdout=file, stderr=file, env=env)

    helpers = [beside("write", "write", "--limit", str(chosen.limit), cpu=True)]
    helpers += [beside(f"references-{part}", "references", "--part", str(part), cpu=True) for part in (0, 1)]
    helpers += [beside(f"ours-{i}", "ours") for i in range(chosen.ours)]
    scorer = beside("score", "score", "--follow")
    peers = [Peer(place(work, own[0].group), own) for own in planned("peers", out, only)]
    command = peer_command(chosen.accelerator)
    try:
        while time.monotonic() < ends and not stopped(work):
            busy = [peer for peer in peers if peer.state == "running"]
            for peer in busy:
                peer.look()
            free = chosen.peers - sum(peer.state == "running" for peer in busy)
            ready = [p for p in peers if p.state == "waiting" or (p.state == "new" and (p.folder / "job.json").exists())]
            for peer in sorted(ready, key=Peer.turn):
                alive = sum(p.state in ("running", "waiting") for p in peers)
                if free > 0 and (peer.state == "waiting" or alive < ALIVE):
                    peer.go(command, logs)
                    free -= 1
            over = all(peer.state == "ended" for peer in peers)
            if over and all(helper.poll() is not None for helper in helpers):
                break
            time.sleep(0.5)
    finally:
        (work / "stop").touch()
        for pid in [p.pid for p in peers if p.state in ("running", "waiting")] + [h.pid for h in helpers if h.poll() is None]:
            os.kill(pid, signal.SIGKILL)
        scorer.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "score", "write", "references", "ours"))
    parser.add_argument("--work", type=Path, required=True, help="the folder of jobs, draws and logs")
    parser.add_argument("--out", type=Path, required=True, help="the folder of records")
    parser.add_argument("--only", default="", help="a part of the cells, as in `scorefold bench run`")
    parser.add_argument("--ours", type=int, default=5, help="programs with our methods")
    parser.add_argument("--peers", type=int, default=10, help="programs of peers")
    parser.add_argument("--accelerator", default="cuda", help="as PyTorch calls it; empty: none")
    parser.add_argument("--seconds", type=float, default=3_600.0, help="until it ends")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for a training, and for a cell")
    parser.add_argument("--load", default="", help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--follow", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    paths = chosen.work, chosen.out, chosen.only
    match chosen.what:
        case "run":
            run(chosen)
        case "score":
            score(*paths, chosen.load, chosen.follow)
        case "write":
            write(*paths, chosen.limit)
        case "references":
            references(*paths, chosen.part)
        case "ours":
            ours(*paths, chosen.load)


if __name__ == "__main__":
    main()
