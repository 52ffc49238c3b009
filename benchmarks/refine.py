"""Amortised against refined, with the same number of simulations in all.

    python benchmarks/refine.py                                            # the whole table; goes on where it stopped
    python benchmarks/refine.py --tasks lotka_volterra --n 8 --seeds 0 --data-sets 10 11
    python benchmarks/refine.py --table refine.csv                         # what such files hold, several at will
    python benchmarks/refine.py --members 2 --steps 600                    # smaller networks for a quick look
    python benchmarks/refine.py --calibration 100 --out ranks.csv          # ranks of the truth on simulated data sets

A cell is a task, a number of observations, a seed (of simulations, training and draws) and a data set, observe(n, 1000 + i).
Amortised: all the budget from the prior. Refined: 40 % of it from the prior, the rest in rounds. Each cell is a line of the CSV
file; cells that are there already are not run again. The table is printed from the file.
"""

import argparse
import csv
import time
import warnings
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
from scipy import stats

from scorefold import tasks
from scorefold.diagnostics.c2st import c2st
from scorefold.diagnostics.moments import mean_shift, sd_ratio
from scorefold.errors import ScorefoldError
from scorefold.methods.fit import fit
from scorefold.methods.npse import NPSE
from scorefold.methods.refine.modes import deepest_valley
from scorefold.posterior.posterior import Posterior
from scorefold.simulation.simulate import simulate

FROM_PRIOR = 0.4
BOUNDS = {
    ("lotka_volterra", 8): 0.65,
    ("lotka_volterra", 30): 0.70,
    ("sir", 1): 0.60,
    ("sir", 8): 0.60,
    ("sir", 30): 0.60,
    ("gaussian", 30): 0.58,
    ("mixture", 30): 0.65,
}


@dataclass(frozen=True)
class Cell:
    """One line of the file."""

    task: str
    n: int
    kind: str
    """amortised, before (the refined one's start), or the proposal's kind"""
    seed: int
    data_set: int
    budget: int
    members: int
    steps: int
    set_size: int
    c2st: float
    shift: float
    sd_ratio: float
    converged: bool
    valley: float
    """Depth of the draws' deepest valley; below 0.5 there are two modes."""
    reference_valley: float
    simulations: int
    rounds: str
    seconds: float

    @property
    def key(self) -> tuple:
        """What makes it the same cell."""
        return tuple(str(getattr(self, f.name)) for f in fields(self)[:9])


def measured(posterior: Posterior, x_obs: np.ndarray, reference: np.ndarray, seed: int) -> dict:
    """C2ST, shift, widths and modes of one cell's draws."""
    try:
        draws = posterior.sample(x_obs, len(reference), seed=seed)
    except ScorefoldError:
        return {"c2st": 1.0, "shift": np.nan, "sd_ratio": np.nan, "converged": False, "valley": np.nan}
    return {
        "c2st": c2st(draws.theta, reference),
        "shift": float(np.sqrt((mean_shift(draws.theta, reference) ** 2).mean())),
        "sd_ratio": float(sd_ratio(draws.theta, reference).mean()),
        "converged": bool(draws.info.converged),
        "valley": deepest_valley(draws.theta).depth,
    }


def read(path: Path) -> list[Cell]:
    if not path.exists():
        return []
    kinds = {"int": int, "float": float, "str": str, "bool": lambda v: v == "True"}
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [
        Cell(**{f.name: kinds[getattr(f.type, "__name__", str(f.type))](row[f.name]) for f in fields(Cell)}) for row in rows
    ]


def append(path: Path, cell: Cell) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Cell)])
        if new:
            writer.writeheader()
        writer.writerow(asdict(cell))


def run_task(name: str, seed: int, chosen: argparse.Namespace, path: Path) -> None:
    """All cells of one task and seed; the trainings are shared."""
    task = tasks.get(name)
    method = NPSE(set_size=chosen.set_size)
    method = replace(method, training=replace(method.training, members=chosen.members, steps=chosen.steps))
    posteriors: dict[str, tuple] = {}

    def trained(kind: str) -> tuple:
        if kind not in posteriors:
            budget = chosen.budget if kind == "amortised" else int(FROM_PRIOR * chosen.budget)
            sims = simulate(task.prior, task.simulator, budget, chosen.set_size, seed=seed)
            posteriors[kind] = (fit(sims, method, seed=seed), sims)
        return posteriors[kind]

    kinds = [*([] if chosen.no_amortised else ["amortised"]), "before", chosen.proposal]
    for n in chosen.n:
        for data_set in chosen.data_sets:
            x_obs = task.observe(n, 1_000 + data_set)[1]
            have = {cell.key for cell in read(path)}
            head = [
                (name, n, kind, seed, data_set, chosen.budget, chosen.members, chosen.steps, chosen.set_size) for kind in kinds
            ]
            missing = [key for key in head if tuple(map(str, key)) not in have]
            if not missing:
                continue
            reference = task.reference(x_obs, 1_000, 0)
            for key in missing:
                start, sims = trained("amortised" if key[2] == "amortised" else "before")
                started, simulations, rounds = time.perf_counter(), sims.budget, ""
                posterior = start
                if key[2] not in ("amortised", "before"):
                    left = chosen.budget - sims.budget
                    posterior = start.refine(x_obs, task.simulator, left, seed=seed, sims=sims, proposal=chosen.proposal)
                    simulations += sum(one.simulations for one in posterior.rounds)
                    rounds = " | ".join(map(str, posterior.rounds))
                found = measured(posterior, x_obs, reference, seed)
                rest = {"reference_valley": deepest_valley(reference).depth, "simulations": simulations, "rounds": rounds}
                cell = Cell(*key, **found, **rest, seconds=time.perf_counter() - started)
                append(path, cell)
                print(
                    f"{' '.join(map(str, key[:5]))}: C2ST {cell.c2st:.3f} shift {cell.shift:.2f} sd {cell.sd_ratio:.2f}",
                    flush=True,
                )


def table(cells: list[Cell]) -> None:
    """Means over seeds and data sets."""
    print("task            n  kind        cells  C2ST (sd)      worst  shift  sd ratio  converged  two modes  bound")
    for name, n, kind in sorted({(cell.task, cell.n, cell.kind) for cell in cells}):
        rows = [cell for cell in cells if (cell.task, cell.n, cell.kind) == (name, n, kind)]
        values = np.array([[c.c2st, c.shift, c.sd_ratio, c.converged] for c in rows], float)
        mean = np.nanmean(values, axis=0)
        bound = BOUNDS.get((name, n), np.nan)
        several = [c.valley < 0.5 for c in rows if c.reference_valley < 0.5]
        modes = f"{sum(several)} of {len(several)}" if several else "–"
        print(
            f"{name:14s} {n:3d}  {kind:10s}  {len(rows):5d}  {mean[0]:.3f} ({values[:, 0].std():.3f})  "
            f"{values[:, 0].max():.3f}  {mean[1]:5.2f}  {mean[2]:8.2f}  {mean[3]:9.2f}  {modes:>9s}  {bound:.2f}"
        )


def append_ranks(path: Path, data_set: int, ranks: np.ndarray) -> None:
    """A line for each data set: its number, and the rank of every parameter."""
    with path.open("a") as file:
        file.write(",".join([str(data_set), *(f"{rank:.4f}" for rank in ranks)]) + "\n")


def coverage(ranks: np.ndarray) -> str:
    """Of central intervals, over data sets and parameters, and how uniform the ranks of each parameter are."""
    inside = np.abs(ranks - 0.5)
    cover = ", ".join(f"{level:.0%}: {(inside < level / 2).mean():.1%}" for level in (0.5, 0.8, 0.95))
    uniform = [stats.kstest(column, "uniform").pvalue for column in ranks.T]
    return (
        f"{len(ranks)} data sets; coverage {cover}; mean rank {ranks.mean():.3f}; smallest p-value of {len(uniform)} "
        f"Kolmogorov–Smirnov tests {min(uniform):.3f}"
    )


def calibration(count: int, chosen: argparse.Namespace) -> None:
    """Ranks of the truth among refined draws, over data sets from the prior; uniform where the posteriors are right."""
    task, n = tasks.get("gaussian"), 30
    method = NPSE(set_size=1)
    method = replace(method, training=replace(method.training, members=chosen.members, steps=chosen.steps))
    sims = simulate(task.prior, task.simulator, int(FROM_PRIOR * chosen.budget), seed=0)
    start, ranks = fit(sims, method, seed=0), []
    for i in range(chosen.first, chosen.first + count):
        truth, x_obs = task.observe(n, 2_000 + i)
        refined = start.refine(x_obs, task.simulator, chosen.budget - sims.budget, seed=i, sims=sims)
        ranks.append((refined.sample(x_obs, 999, seed=i).theta < truth).mean(axis=0))
        append_ranks(chosen.out, i, ranks[-1])
        print(coverage(np.array(ranks)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["lotka_volterra", "sir", "gaussian", "mixture", "bimodal"])
    parser.add_argument("--n", nargs="+", type=int, default=[1, 8, 30])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--data-sets", nargs="+", type=int, default=[10, 11, 12, 13, 14], help="none of those tuned on")
    parser.add_argument("--budget", type=int, default=10_000)
    parser.add_argument("--set-size", type=int, default=1)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--proposal", default="gaussian", choices=["gaussian", "truncated"])
    parser.add_argument("--no-amortised", action="store_true", help="only the refined posterior and its start")
    parser.add_argument("--calibration", type=int, default=0, metavar="DATA_SETS")
    parser.add_argument("--first", type=int, default=0, help="data set of the calibration")
    parser.add_argument("--ranks", nargs="+", type=Path, help="only say what such files of a calibration hold")
    parser.add_argument("--out", type=Path, default=Path("refine.csv"))
    parser.add_argument("--table", nargs="+", type=Path, help="only show what these files hold")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    if chosen.ranks:
        lines = {int(line[0]): line[1:] for path in chosen.ranks for line in np.loadtxt(path, delimiter=",", ndmin=2)}
        print(coverage(np.array(list(lines.values()))))
        return
    if chosen.table:
        table([cell for path in chosen.table for cell in read(path)])
        return
    if chosen.calibration:
        calibration(chosen.calibration, chosen)
        return
    for name in chosen.tasks:
        for seed in chosen.seeds:
            run_task(name, seed, chosen, chosen.out)
    table(read(chosen.out))


if __name__ == "__main__":
    main()
