"""The peers' side of the board: other packages on the simulations and observations of the preset `many-observations`.

    python benchmarks/board.py run --out benchmarks/results/board --only task=gaussian,n=8   # in an environment of their own
    python benchmarks/board.py write --jobs jobs --out benchmarks/results/board              # for another machine, …
    python benchmarks/peers/with_sbi.py jobs/* --device cuda                                 # … on which this runs
    python benchmarks/board.py read --jobs jobs --out benchmarks/results/board               # and its draws come back

`run` is the three in one: a training after the other is written, run and scored. Cells with a record are not run again, and the
same command goes on where it stopped. The environment is made when it is first needed (--env). How to add a peer is in
docs/benchmark.md.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from rich.console import Console

from scorefold.app.bench.bench_plan import Cell, cells, grouped
from scorefold.app.bench.drive import Groups, Stream, drive, missing
from scorefold.app.bench.exchange import read_job, write_job
from scorefold.app.bench.record import Event
from scorefold.app.bench.watch import Watch

PACKAGES = ("torch==2.13.0", "sbi==0.27.0", "jax==0.10.2", "bayesflow==2.0.12")
SCRIPTS = {"sbi": "with_sbi.py", "bayesflow": "with_bayesflow.py"}
"""By the first word of a method's name."""
LIMIT = 600.0
"""Seconds for a training, and for a cell."""
START = 120.0
"""Seconds until a program has imported its packages."""


def environment(folder: Path) -> Path:
    """The peers' own Python, made if it is not there."""
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        for package in PACKAGES:
            subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True)
        (folder / "ready").touch()
    return python.absolute()


def script(group: Cell) -> Path:
    """The file that runs a method."""
    return Path(__file__).absolute().parent / "peers" / SCRIPTS[group.method.partition("-")[0]]


def ran(python: Path, group: Cell, job: Path, seconds: float) -> str:
    """Run one job, and say how cells without a result ended."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        # In the job's folder, where a package may leave its logs.
        subprocess.run([python, script(group), job.absolute()], timeout=seconds, check=False, cwd=job, env=own)
    except subprocess.TimeoutExpired:
        return "not finished"
    return "failed"


def running(python: Path, limit: float, groups: Groups) -> Stream:
    """One training after the other in the peers' environment, scored here."""
    for group, own in groups.items():
        yield Event("start", group)
        with tempfile.TemporaryDirectory() as folder:
            job = write_job(own, Path(folder) / "job", limit)
            ended = ran(python, group, job, START + limit * (1 + len(own)))
            for record in read_job(own, job, ended):
                yield Event("record", group, record)


def reading(jobs: Path, groups: Groups) -> Stream:
    """What came back from elsewhere; cells without a result get no record."""
    for group, own in groups.items():
        for record in read_job(own, place(jobs, group)):
            yield Event("record", group, record)


def place(jobs: Path, group: Cell) -> Path:
    """The folder of a job."""
    return jobs / f"{group.task}-{group.method}-{group.training}-{group.key[:8]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "write", "read"))
    parser.add_argument("--out", type=Path, required=True, help="the folder of records")
    parser.add_argument("--only", default="", help="a part of the cells, as in `scorefold bench run`")
    parser.add_argument("--jobs", type=Path, default=Path("jobs"), help="the folder of jobs, for another machine")
    parser.add_argument("--env", type=Path, default=Path(".peers"), help="the folder of the peers' environment")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for a training, and for a cell")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    wanted = cells("peers", chosen.only)
    if chosen.what == "write":
        for group, own in grouped(missing(wanted, chosen.out)).items():
            print(write_job(own, place(chosen.jobs, group), chosen.limit), flush=True)
        return
    about = {"preset": "peers", "only": chosen.only, "executor": f"board.py {chosen.what}"}
    with Watch(missing(wanted, chosen.out), Console(file=sys.stdout)) as watch:
        if chosen.what == "read":
            drive(wanted, chosen.out, lambda groups: reading(chosen.jobs, groups), about, watch)
        else:
            python = environment(chosen.env)
            drive(wanted, chosen.out, lambda groups: running(python, chosen.limit, groups), about, watch)


if __name__ == "__main__":
    main()
