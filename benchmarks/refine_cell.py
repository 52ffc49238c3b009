"""The work of `benchmarks/refine.py`: refine one cell after the other, on one core.

    python benchmarks/refine_cell.py '{…}' 3 < cells.jsonl > records.jsonl        # on core 3

A start is a folder that `sf.load` reads, next to a file with its simulations; it is trained where it is not there. A cell is a
JSON line, and so is its record.
"""

import json
import os
import sys
import time
import traceback
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

SHARES = {"slcp": 4, "bimodal": 2}
"""Modes of equal weight."""
DRAWS = 1_000


@dataclass(frozen=True)
class Work:
    """What all cells have in common."""

    folder: str
    """Of the starts, their simulations, references and compiled programs."""
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    from_prior: int
    more: int
    method: str = "nle"
    members: int | None = None
    """Of every ensemble; None: as the methods say, and so are the steps."""
    steps: int | None = None

    def start(self, task: str, seed: int) -> Path:
        """Where a start lies."""
        how = "" if self.members is None and self.steps is None else f"-{self.members}x{self.steps}"
        return Path(self.folder) / f"{task}-{self.method}-{seed}-{self.from_prior}{how}"

    def simulations(self, task: str, seed: int) -> Path:
        """Where its simulations lie."""
        return self.start(task, seed).with_suffix(".npz")


def training(work: Work, usual: Any) -> Any:
    """The usual one, smaller if asked for."""
    asked = {"members": work.members, "steps": work.steps}
    return replace(usual, **{name: value for name, value in asked.items() if value is not None})


def train_start(work: Work, task: Any, seed: int) -> None:
    """Unless it is there; whoever else needs it waits."""
    import numpy as np
    from filelock import FileLock

    import scorefold as sf
    from scorefold import methods

    where = work.start(task.name, seed)
    with FileLock(f"{where}.lock"):
        if where.exists():
            return
        begun = time.perf_counter()
        sims = sf.simulate(task.prior, task.simulator, work.from_prior, seed=seed)
        method = methods.get(work.method)
        posterior = sf.fit(sims, replace(method, training=training(work, method.training)), seed=seed)
        np.savez(work.simulations(task.name, seed), theta=sims.theta, x=sims.x[:, 0])
        posterior.save(where)
    print(f"start of {task.name}, seed {seed}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)


def reference_of(work: Work, cell: dict) -> tuple[Any, Any]:
    """The observations of a cell and draws from their true posterior, which are kept."""
    import numpy as np

    from scorefold import tasks

    task = tasks.get(cell["task"])
    x_obs = task.observe(cell["n"], 1_000 + cell["data_set"])[1]
    path = Path(work.folder) / f"reference-{cell['task']}-{cell['n']}-{cell['data_set']}.npy"
    if not path.exists():
        draws, part = task.reference(x_obs, DRAWS, 0), path.with_suffix(f".{os.getpid()}")
        with part.open("wb") as file:
            np.save(file, draws)
        part.replace(path)
    return x_obs, np.load(path)


def shares(task: str, theta: Any, reference: Any) -> list[float]:
    """The weights of modes that are equal in truth; none where there is one mode."""
    import numpy as np

    from scorefold.posterior.modes import deepest_valley

    if task == "slcp":
        quadrant = 2 * (theta[:, 2] > 0) + (theta[:, 3] > 0)
        return (np.bincount(quadrant, minlength=4) / len(theta)).tolist()
    valley = deepest_valley(reference)
    if task != "bimodal" or not valley.separate:
        return []
    side = float((theta @ valley.direction > 0).mean())
    return [side, 1 - side]


def measured(posterior: Any, x_obs: Any, reference: Any, cell: dict) -> dict:
    """How far draws are from the truth, and how far they think they are."""
    import numpy as np

    from scorefold.diagnostics.c2st import c2st
    from scorefold.diagnostics.moments import mean_shift, sd_ratio
    from scorefold.errors import ScorefoldError

    begun = time.perf_counter()
    try:
        draws = posterior.sample(x_obs, len(reference), seed=cell["seed"])
    except ScorefoldError as error:
        return {"c2st": 1.0, "shift": None, "sd_ratio": None, "converged": False, "shares": [], "trust": f"{error}"}
    seconds = time.perf_counter() - begun
    off, ratio = mean_shift(draws.theta, reference), sd_ratio(draws.theta, reference)
    trust = draws.trust
    return {
        "c2st": c2st(draws.theta, reference),
        "shift": float(np.sqrt((off**2).mean())),
        "shifts": np.round(off, 3).tolist(),
        "sd_ratio": float(ratio.mean()),
        "sd_ratios": np.round(ratio, 3).tolist(),
        "converged": bool(draws.info.converged),
        "shares": shares(cell["task"], draws.theta, reference),
        "trust": trust.verdict,
        "expected_shift": None if trust.shift is None else np.round(trust.shift, 3).tolist(),
        "expected_width": None if trust.width is None else np.round(trust.width, 3).tolist(),
        "seconds": seconds,
    }


def run_cell(work: Work, cell: dict) -> dict:
    """Refine one start for one data set."""
    import numpy as np

    import scorefold as sf
    from scorefold import tasks

    task, seed = tasks.get(cell["task"]), cell["seed"]
    train_start(work, task, seed)
    x_obs, reference = reference_of(work, cell)
    start = sf.load(work.start(task.name, seed))
    with np.load(work.simulations(task.name, seed)) as kept:
        sims = sf.Simulations(start.prior, kept["theta"], kept["x"])
    small = None if work.members is None and work.steps is None else training(work, start.method.training)
    begun, cpu = time.perf_counter(), time.process_time()
    refined = start.refine(x_obs, task.simulator, work.more, seed=seed, sims=sims, training=small)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    compared = refined.compared
    return {
        "start": measured(start, x_obs, reference, cell),
        "refined": measured(refined, x_obs, reference, cell),
        "engines": [one.engine for one in refined.rounds],
        "kept": compared.kept,
        "judged": [{"name": one.name, "error": one.error, "chance": one.chance} for one in compared.judged],
        "agreed": refined.agreed,
        "modes": [{"weight": one.weight, "error": one.error} for one in refined.rounds[-1].modes],
        "rounds": [f"{one}" for one in refined.rounds],
        "simulations": work.from_prior + sum(one.simulations for one in refined.rounds) + compared.simulations,
        "seconds": seconds,
        "cpu_seconds": cpu,
    }


def run_cells(work: Work) -> None:
    """Cells from standard input, records to standard output; a cell that fails is a record that says so."""
    import jax

    jax.config.update("jax_compilation_cache_dir", str(Path(work.folder) / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    records, sys.stdout = sys.stdout, sys.stderr  # a print in between is no record
    for line in sys.stdin:
        cell = json.loads(line)
        try:
            found = run_cell(work, cell)
        except Exception:
            found = {"error": traceback.format_exc(limit=-4)}
        print(json.dumps({**cell, **found}), file=records, flush=True)


def main() -> None:
    os.sched_setaffinity(0, {int(sys.argv[2])})  # before JAX counts the cores
    given = json.loads(sys.argv[1])
    work = Work(**{**given, "tasks": tuple(given["tasks"]), "seeds": tuple(given["seeds"])})
    warnings.simplefilter("ignore")
    Path(work.folder).mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("SCOREFOLD_CACHE", str(Path(work.folder).resolve()))
    run_cells(work)


if __name__ == "__main__":
    main()
