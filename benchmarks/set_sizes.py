"""How large should the sets be? PF-NPSE with m = 1 (F-NPSE) … 30 at n = 22, budget 10,000: accuracy against m, as a plot.

    python benchmarks/set_sizes.py --out set_sizes.csv         # train and measure (an accelerator helps)
    python benchmarks/set_sizes.py --plot set_sizes.csv        # set_sizes.png from it, or from several such files

Every m has its own simulations (a case costs (m+1)/2 simulator calls on average) and its own networks. Each point is a mean
over trainings × parameter draws, none shared between trainings.
"""

import argparse
import csv
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from accuracy import draw, measure
from scorefold import tasks
from scorefold.methods.fit import fit_many
from scorefold.methods.npse import NPSE
from scorefold.simulation.simulate import simulate

COLUMNS = ["task", "m", "n", "training", "parameters", "c2st", "mmd2", "shift", "sd_ratio", "converged", "auto", "train_s"]


def study(chosen: argparse.Namespace, write: Callable[[list], None]) -> None:
    """All cells; the trainings of one m, for all tasks, are one program."""
    for m in chosen.m:
        started = time.perf_counter()
        jobs = [(tasks.get(name), seed) for name in chosen.tasks for seed in chosen.trainings]
        sims = [simulate(task.prior, task.simulator, chosen.budget, set_size=m, seed=seed) for task, seed in jobs]
        posteriors = fit_many(sims, NPSE(), [seed for _, seed in jobs])
        spent = time.perf_counter() - started
        cells = [
            (job, posterior, n, job[1] * chosen.parameters + i)
            for job, posterior in zip(jobs, posteriors, strict=True)
            for n in chosen.n
            for i in range(chosen.parameters)
        ]
        measures = measure([draw(posterior, task, n, seed) for (task, _), posterior, n, seed in cells])
        rows = []
        for ((task, training), posterior, n, seed), values in zip(cells, measures, strict=True):
            auto, _ = posterior.choose_set_size(n, "auto")
            rows.append([task.name, m, n, training, seed, *values.round(4), auto, round(spent, 1)])
            write(rows[-1])
        for name in chosen.tasks:
            for n in chosen.n:
                own = np.array([r[5:10] for r in rows if r[0] == name and r[2] == n], float)
                c, mmd, shift, ratio, converged = own.mean(axis=0)
                print(
                    f"{name:9s} m = {m:2d}  n = {n:3d}  C2ST {c:.3f} ({own[:, 0].std():.3f})  MMD² {mmd:.4f}  shift {shift:.3f}"
                    f"  sd ratio {ratio:.3f}  converged {converged:.2f}  {len(jobs)} trainings {spent:.0f} s",
                    flush=True,
                )


def plot(paths: list[Path], out: Path) -> None:
    """Accuracy against m, one line a task, with the spread over cells."""
    import matplotlib.pyplot as plt

    rows = [row for path in paths for row in csv.DictReader(path.read_text().splitlines())]
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), constrained_layout=True)
    for axis, column, label in zip(axes, ("c2st", "shift"), ("C2ST", "shift of the means, posterior sd"), strict=True):
        for colour, task in zip(("#0b6e99", "#c8553d", "#6a994e"), dict.fromkeys(r["task"] for r in rows), strict=False):
            sizes = sorted({int(r["m"]) for r in rows if r["task"] == task})
            cells = [np.array([float(r[column]) for r in rows if r["task"] == task and int(r["m"]) == m]) for m in sizes]
            mean, spread = np.array([c.mean() for c in cells]), np.array([c.std() for c in cells])
            axis.plot(sizes, mean, "o-", color=colour, label=task)
            axis.fill_between(sizes, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
        axis.set_xscale("log")
        axis.set_xticks(sizes, [str(m) for m in sizes])
        axis.minorticks_off()
        axis.set_xlabel("m, observations in a set")
        axis.set_ylabel(label)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].axhline(0.5, color="0.6", linewidth=0.8)
    axes[0].legend(frameon=False)
    figure.savefig(out, dpi=160)
    print(f"wrote {out}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["gaussian", "mixture"])
    parser.add_argument("--m", nargs="+", type=int, default=[1, 3, 6, 12, 30])
    parser.add_argument("--n", nargs="+", type=int, default=[22])
    parser.add_argument("--budget", type=int, default=10_000)
    parser.add_argument("--trainings", nargs="+", type=int, default=[0, 1, 2], help="their seeds")
    parser.add_argument("--parameters", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("set_sizes.csv"))
    parser.add_argument("--plot", nargs="+", type=Path, help="only draw the figure of such files")
    chosen = parser.parse_args()
    if chosen.plot:
        return plot(chosen.plot, chosen.out.with_suffix(".png"))
    warnings.simplefilter("ignore")
    print(f"{jax.devices()[0].device_kind}; trainings {chosen.trainings} × {chosen.parameters} parameter draws")
    with chosen.out.open("w", newline="", buffering=1) as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        study(chosen, writer.writerow)
    return None


if __name__ == "__main__":
    main()
