"""Cells ↔ files: a training for a program that shares no code with this package, and what it gives back.

A job is a folder with what one training needs. There is no pickle in it.

    job.json    what to run: method, seed, draws, the seconds that a training or a cell may take, and the cells: for each its
                key, n, the way of composing, and the name of its observations
    job.npz     theta (cases, dim) in the N(0, I) space of the prior, x (cases, features), and all observations

For every cell the other program writes, draws first:

    KEY.npz     u (draws, dim), draws in the same space
    KEY.json    status (done, failed or not finished), why, seconds, memory, device, and the peer's versions and settings

Simulations and observations are those that our own methods get. Draws are compared with the same reference by the same
measures. A cell that failed or was not finished is a record with that word and without measures.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scorefold import tasks
from scorefold.app.bench.bench_cells import Drawn, measure, observed
from scorefold.app.bench.bench_plan import Cell
from scorefold.app.bench.record import Record, described
from scorefold.disk import durable
from scorefold.errors import ScorefoldError
from scorefold.simulation.simulate import simulate

JOB, ARRAYS = "job.json", "job.npz"
LOGARITHMIC = ("lotka_volterra",)
"""Tasks whose positive counts the peers see as logarithms; our own methods find that out."""
STATUSES = ("done", "failed", "not finished")
UNMEASURED: dict[str, float | None] = dict.fromkeys(("c2st", "mmd2", "shift", "sd_ratio", "sliced_wasserstein"))


def write_job(cells: Sequence[Cell], folder: Path, limit: float) -> Path:
    """The files of cells that share a training; `job.json` comes last, so that a folder with one is whole."""
    group = cells[0].group
    if any(cell.group != group for cell in cells):
        raise ScorefoldError("expected cells that share a training; got several configurations")
    task = tasks.get(group.task)
    sims = simulate(task.prior, task.simulator, group.budget, group.m, group.training)
    arrays = {"theta": task.prior.to_normal(sims.theta), "x": as_seen(group.task, sims.x[:, 0])}
    for cell in cells:
        arrays[observed_name(cell)] = as_seen(group.task, observed(cell)[1])
    about = {
        "task": group.task,
        "method": group.method,
        "seed": group.training,
        "draws": cells[0].draws,
        "limit": limit,
        "cells": [{"key": c.key, "n": c.n, "way": c.sampler, "observed": observed_name(c)} for c in cells],
    }
    folder.mkdir(parents=True, exist_ok=True)
    single: dict[str, Any] = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    np.savez(folder / ARRAYS, **single)
    durable.replace(folder / JOB, (json.dumps(about, indent=1) + "\n").encode())
    return folder


def observed_name(cell: Cell) -> str:
    """The name of the file with a cell's observations."""
    return f"x_obs_{cell.parameters}_{cell.n}"


def as_seen(task: str, x: np.ndarray) -> np.ndarray:
    """Observations as the peers get them."""
    return np.log(x) if task in LOGARITHMIC else x


def read_job(cells: Iterable[Cell], folder: Path, ended: str = "") -> Iterator[Record]:
    """The records of the cells that have a result; with a word for how it `ended`, of those without one too."""
    for cell in cells:
        path = folder / f"{cell.key}.json"
        if path.exists():
            yield scored(cell, result(path), folder)
        elif ended:
            yield scored(cell, {"status": ended, "why": "the program ended without a result"}, folder)


def result(path: Path) -> dict[str, Any]:
    """What the other program says of a cell, checked."""
    try:
        found = json.loads(path.read_text())
        seconds = {name: float(value) for name, value in found["seconds"].items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ScorefoldError(f"expected an object with status and seconds in {path}; it cannot be read ({error})") from None
    if found.get("status") not in STATUSES:
        raise ScorefoldError(f"expected the status {', '.join(STATUSES)} in {path}; got {found.get('status')!r:.60}")
    return found | {"seconds": seconds}


def scored(cell: Cell, found: dict[str, Any], folder: Path) -> Record:
    """A record of what came back, its draws measured as ours are."""
    one = returned(cell, found, folder)
    return unmeasured(one) if one.theta is None else next(iter(measure([one], 1))) | {"device": one.record["device"]}


def unmeasured(one: Drawn) -> Record:
    """The record of a cell without draws."""
    return one.record | {"measures": dict(UNMEASURED)}


def returned(cell: Cell, found: dict[str, Any], folder: Path) -> Drawn:
    """What came back, before it is measured; no draws where it failed or was not finished."""
    prior, (truth, _) = tasks.get(cell.task).prior, observed(cell)
    record = described(cell) | {"truth": [float(value) for value in truth], "converged": False, "diverged": False}
    for name in ("seconds", "memory", "peer"):
        record[name] = found.get(name, {})  # type: ignore[literal-required]
    record["device"] = str(found.get("device", "unknown"))
    status, why = found["status"], str(found.get("why", ""))
    theta = None
    if status == "done":
        theta, why = draws_of(folder / f"{cell.key}.npz", cell, prior.dim)
        status = "done" if theta is not None else "failed"
    if theta is None:
        return Drawn(cell, None, record | {"failed": f"{status}: {why}" if why else status})
    return Drawn(cell, prior.from_normal(theta), record | {"converged": True})


def draws_of(path: Path, cell: Cell, dim: int) -> tuple[np.ndarray | None, str]:
    """Draws in the N(0, I) space, or what is wrong with them."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            u = np.asarray(arrays["u"], np.float64)
    except (OSError, ValueError, KeyError) as error:
        return None, f"no draws could be read ({type(error).__name__})"
    if u.shape != (cell.draws, dim):
        return None, f"expected draws of shape {(cell.draws, dim)}; got {u.shape}"
    return (u, "") if np.isfinite(u).all() else (None, "draws are not finite")
