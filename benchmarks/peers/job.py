"""What the scripts of all peers share: the command line, the limit on time, and files (see `scorefold/app/bench/exchange.py`).

    python benchmarks/peers/with_sbi.py JOB [JOB …] [--device cuda] [--draw-on cuda] [--path FOLDER]

A JOB is a folder that `python benchmarks/board.py write` made. A peer is one file with two functions: `train(job)` gives what
it trained, and `draw(trained, job, cell)` gives draws (draws, dim) in the N(0, I) space. It runs in an environment that need
not have scorefold. Cells that have a result are not run again, and neither is one with more observations than another that was
not finished. Packages that are not installed are looked for in the folders of --path, or of the variable PEERS_PATH. Where
cells have a stage, the program stops itself before each later one (SIGSTOP), until it is told to go on (SIGCONT).
"""

import argparse
import json
import os
import platform
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Job(NamedTuple):
    """One training and its cells."""

    folder: Path
    about: dict[str, Any]
    theta: np.ndarray
    x: np.ndarray
    observed: dict[str, np.ndarray]
    device: str
    draw_on: str = ""
    """Where draws are made, if not where it was trained."""
    draw_on_from: int = 1
    """With so many observations or more."""

    @property
    def method(self) -> str:
        """As the board names it."""
        return self.about["method"]

    @property
    def seed(self) -> int:
        """Of training and draws."""
        return self.about["seed"]

    @property
    def draws(self) -> int:
        """How many a cell wants."""
        return self.about["draws"]


class NotFinished(BaseException):
    """The time is up; not an Exception, so that no package takes it for a failure of its own."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `NotFinished` in the body after so many seconds."""

    def stop(*_: object) -> None:
        raise NotFinished

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def read(folder: Path, device: str) -> Job:
    about = json.loads((folder / "job.json").read_text())
    with np.load(folder / "job.npz", allow_pickle=False) as arrays:
        observed = {name: arrays[name] for name in arrays.files if name.startswith("x_obs_")}
        return Job(folder, about, arrays["theta"], arrays["x"], observed, device)


def attempt(limit: float, work: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    """What the work gives, and how it ended."""
    started = time.perf_counter()
    found, status, why = None, "done", ""
    try:
        with limited(limit):
            found = work()
    except NotFinished:
        status, why = "not finished", f"over {limit:.0f} s"
    except Exception as error:
        traceback.print_exc()
        status, why = "failed", " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return found, {"status": status, "why": why, "seconds": time.perf_counter() - started}


def run(job: Job, train: Callable, draw: Callable, packages: tuple[str, ...], settings: Callable[[str], dict]) -> None:
    """Train once, and draw for every cell without a result, those of early stages and with few observations first."""
    left = [cell for cell in job.about["cells"] if not (job.folder / f"{cell['key']}.json").exists()]
    if not left:
        return
    limit = job.about["limit"]
    trained, training = attempt(limit, lambda: train(job))
    print(f"{job.about['task']} {job.method}: trained, {training['status']}, {training['seconds']:.0f} s", flush=True)
    about = {"versions": versions(packages), "settings": settings(job.method)}
    too_long: dict[str, int] = {}
    order = sorted(left, key=lambda cell: (cell.get("stage", 0), cell["n"]))
    for before, cell in zip([order[0], *order], order, strict=False):
        if training["status"] == "done" and cell.get("stage", 0) > before.get("stage", 0):
            os.kill(os.getpid(), signal.SIGSTOP)
        seconds = {"train": round(training["seconds"], 3)}
        outcome = {"status": training["status"], "why": f"training: {training['why']}"}
        if training["status"] == "done" and cell["n"] >= too_long.get(cell["way"], sys.maxsize):
            outcome = {"status": "not finished", "why": f"n = {too_long[cell['way']]} was not"}
        elif training["status"] == "done":
            u, outcome = attempt(limit, lambda cell=cell: np.asarray(draw(trained, job, cell), np.float32))
            seconds["draw"] = round(outcome["seconds"], 3)
            if outcome["status"] == "done":
                np.savez(job.folder / f"{cell['key']}.npz", u=u)
            elif outcome["status"] == "not finished":
                too_long[cell["way"]] = cell["n"]
        print(f"  n = {cell['n']} {cell['way']}: {outcome['status']} {outcome['why']} {seconds.get('draw', '')}", flush=True)
        result = {"status": outcome["status"], "why": outcome["why"], "seconds": seconds, "memory": memory(), "peer": about}
        result["device"] = hardware(job, cell["n"])
        part = job.folder / f"{cell['key']}.part"
        part.write_text(json.dumps(result))
        part.replace(part.with_suffix(".json"))


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found


def memory() -> dict[str, int]:
    """MB, the most that this process has had so far."""
    return {"process": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)}


def place(job: Job, n: int) -> str:
    """The device that draws are made on; a package that cannot, as it said before, stays where it was trained."""
    return job.draw_on if job.draw_on and n >= job.draw_on_from and not job.about.get("stays") else job.device


def hardware(job: Job, n: int) -> str:
    """What it ran on, in a word."""
    trained, drawn = (named(device) for device in (job.device, place(job, n)))
    return trained if trained == drawn else f"trained on {trained}, drawn on {drawn}"


def named(device: str) -> str:
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if jax and not torch:
        return jax.devices()[0].device_kind
    if device == "cuda" and torch and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{device}, {torch.get_num_threads()} threads of torch" if torch and device == "cpu" else device


def arguments(doc: str | None) -> argparse.Namespace:
    """The command line; packages elsewhere can be imported from then on."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="+", type=Path, help="folders of jobs; those of other methods are left out")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--draw-on", default="", help="another device for draws")
    parser.add_argument("--draw-on-from", type=int, default=1, help="for cells with so many observations")
    parser.add_argument("--path", action="append", default=[], help="a folder with packages that are not installed")
    chosen = parser.parse_args()
    sys.path.extend([*chosen.path, *filter(None, os.environ.get("PEERS_PATH", "").split(os.pathsep))])
    return chosen


def main(doc: str | None, prefix: str, train: Callable, draw: Callable, packages: tuple[str, ...], settings: Callable) -> None:
    """Run the jobs whose method begins with the peer's name, one after the other."""
    chosen = arguments(doc)
    for folder in chosen.jobs:
        job = read(folder, chosen.device)._replace(draw_on=chosen.draw_on, draw_on_from=chosen.draw_on_from)
        if job.method.startswith(prefix):
            run(job, train, draw, packages, settings)
