"""Do draws know their own error? What `draws.trust` predicts against the truth, over many tasks, and the map between the two.

    python benchmarks/trust.py --out trust --tasks gaussian mixture sir --trainings 3 --datasets 6 --ns 1 2 8 30 100
    python benchmarks/trust.py --out trust --summary        # the figure and the numbers, from what is there

The trainings of a task are one program. A cell is one training, number of observations and data set; its record goes to
records.jsonl as it comes, and the same call goes on where an earlier one stopped. A record holds, for every parameter, the true
shift (in sd of the true posterior) and sd ratio, C2ST, the members' disagreement (T1 and that of the widths), the floor and the
strangeness of the observations, and what `posterior.check` finds if --check simulations are given for it.

The map, error = scale × disagreement, is learnt on some tasks and checked on the others, and the other way round; then it is
learnt on all tasks, as `scorefold.posterior.trust.CALIBRATION` wants it. A cell's error and disagreement are those of its worst
parameter. Both scales begin at the median of error over disagreement, and grow together until, on the tasks learnt from, 95 %
of the cells called good are within 0.5 sd and 1.25 in width, and 95 % of those more than 1 sd off are not called good. What is
measured has the noise of 1,000 draws and 1,000 reference draws in it; rank correlations and the figure add it to what is
predicted.
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from scorefold import methods, tasks
from scorefold.diagnostics.c2st import c2st
from scorefold.diagnostics.moments import mean_shift, sd_ratio
from scorefold.errors import ScorefoldError
from scorefold.methods.fit import fit_many
from scorefold.posterior.draws import AS_THE_METHOD_SAYS
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.trust import SHIFTS, WIDTHS, Disagreement
from scorefold.simulation.calls import repeat
from scorefold.simulation.replicate import replicate
from scorefold.simulation.simulate import simulate
from scorefold.tasks.stored import BENCHMARK_SEEDS, BENCHMARK_SIZES
from scorefold.tasks.task import Task

RECORDS = "records.jsonl"
REFERENCE_DRAWS = 1_000
FAST = -1
"""The data set of `sir` with beta = 1.05, gamma = 0.127: a fast epidemic, two prior sd up."""
FAST_EPIDEMIC = np.array([1.05, 0.127])
TRULY_GOOD = (0.5, 1.25)
FAR_OFF = 1.0
ENOUGH = 0.95
KEY = ("task", "training", "n", "dataset")


class Cell(NamedTuple):
    """One run."""

    task: str
    training: int
    n: int
    dataset: int


def cells(chosen: argparse.Namespace, task: str) -> list[Cell]:
    """All of a task."""
    data = [*range(chosen.datasets), *([FAST] if task == "sir" else [])]
    return [Cell(task, training, n, i) for n in chosen.ns for i in data for training in range(chosen.trainings)]


def read(folder: Path) -> list[dict[str, Any]]:
    """The records that are there; a line that a kill cut short is left out."""
    path, found = folder / RECORDS, []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def run(chosen: argparse.Namespace) -> None:
    """Every cell that has no record yet."""
    for name in chosen.tasks:
        done = {tuple(one[word] for word in KEY) for one in read(chosen.out)}
        left = [cell for cell in cells(chosen, name) if cell not in done]
        if not left:
            continue
        task, started = tasks.get(name), time.perf_counter()
        seeds = sorted({cell.training for cell in left})
        sims = [simulate(task.prior, task.simulator, chosen.budget, set_size=chosen.set_size, seed=seed) for seed in seeds]
        trained = dict(zip(seeds, fit_many(sims, configured(chosen), seeds), strict=True))
        print(f"{name}: {len(seeds)} trainings, {time.perf_counter() - started:.0f} s; {len(left)} cells", flush=True)
        with (chosen.out / RECORDS).open("a") as file:
            for cell in left:
                found = measured(task, trained[cell.training], cell, chosen)
                file.write(json.dumps(found, allow_nan=False) + "\n")
                file.flush()


def configured(chosen: argparse.Namespace) -> Any:
    """The method, with fewer steps if that was asked for."""
    method: Any = methods.get(chosen.method)
    return method if chosen.steps is None else replace(method, training=replace(method.training, steps=chosen.steps))


def observed(task: Task, cell: Cell) -> np.ndarray:
    """The data set; no two cells but those of one training and data set share parameters.

    Up to 30 observations they are the benchmark's, for which Lotka–Volterra comes with reference draws.
    """
    if cell.dataset == FAST:
        return replicate(repeat(FAST_EPIDEMIC[None], cell.n, 77 + cell.training), task.simulator)[0]
    return task.observe(max(cell.n, BENCHMARK_SIZES[-1]), BENCHMARK_SEEDS[6 * cell.training + cell.dataset])[1][: cell.n]


def measured(task: Task, posterior: Posterior, cell: Cell, chosen: argparse.Namespace) -> dict[str, Any]:
    """One record."""
    started = time.perf_counter()
    x_obs = observed(task, cell)
    x, seed = posterior.checked(x_obs), (cell.training, 0)
    record: dict[str, Any] = cell._asdict()
    try:
        drawn = posterior.draw(x, chosen.draws, seed)
    except ScorefoldError as error:
        return {**record, "failed": str(error)[:300]}
    theta, sampled = posterior.prior.from_normal(drawn.u), time.perf_counter()
    doubts = posterior.doubts(x, drawn.u, seed, AS_THE_METHOD_SAYS)
    judged = time.perf_counter()
    reference = task.reference(x_obs, REFERENCE_DRAWS, 0)
    record["c2st"] = round(c2st(theta[:REFERENCE_DRAWS], reference), 4)
    record |= {"shift": listed(mean_shift(theta, reference)), "log_width": listed(np.log(sd_ratio(theta, reference)))}
    record |= {"settled": bool(drawn.info.converged), "sample_s": sampled - started, "trust_s": judged - sampled}
    found = doubts.disagreement
    if isinstance(found, Disagreement):
        t1, width = (np.sqrt((one**2).sum(axis=0) / (len(one) - 1)) for one in (found.shift, found.log_width))
        record |= {"t1": listed(t1), "width_t1": listed(width), "floor": doubts.floor}
    if doubts.strange is not None:
        record |= {"p": doubts.strange.p_value, "far": doubts.strange.far}
    if chosen.check and cell.n in chosen.check_ns:
        record |= checked(task, posterior, x_obs, chosen.check * (cell.n if chosen.times_n else 1), reference, chosen.draws)
    return record


def checked(task: Task, posterior: Any, x_obs: np.ndarray, sims: int, reference: np.ndarray, draws: int) -> dict[str, Any]:
    """What a check by so many simulations finds, and the errors that are left after its correction."""
    found = posterior.check(x_obs, task.simulator, sims=sims)
    record = {
        "t2": listed(found.shift), "t2_error": listed(found.shift_error), "twin": listed(found.log_width),
        "twin_error": listed(found.log_width_error),
    }  # fmt: skip
    try:
        theta = posterior.corrected(found).sample(x_obs, draws).theta
    except ScorefoldError as error:
        return {**record, "after_failed": str(error)[:300]}
    record["after_c2st"] = round(c2st(theta[:REFERENCE_DRAWS], reference), 4)
    after = {"after_shift": mean_shift(theta, reference), "after_log_width": np.log(sd_ratio(theta, reference))}
    return record | {name: listed(values) for name, values in after.items()}


def listed(values: np.ndarray) -> list[float]:
    """As JSON holds them."""
    return np.nan_to_num(np.asarray(values, np.float64), nan=1e3, posinf=1e3, neginf=-1e3).round(5).tolist()


class Table(NamedTuple):
    """Cells as columns: of each the worst parameter."""

    task: np.ndarray
    n: np.ndarray
    shift: np.ndarray
    width: np.ndarray
    """|log sd ratio|"""
    t1: np.ndarray
    """With the floor."""
    width_t1: np.ndarray
    lowered: np.ndarray
    """By how much other reasons lower the verdict."""
    noise: np.ndarray
    """The largest of so many parameters' errors that drawing so many times alone would show, in sd of one."""

    def of(self, rows: np.ndarray) -> "Table":
        """Some of the rows."""
        return Table(*(column[rows] for column in self))


def table(records: list[dict[str, Any]]) -> Table:
    """Of all records that have both sides."""
    rows = [
        (
            one["task"], one["n"], np.abs(one["shift"]).max(), np.abs(one["log_width"]).max(),
            np.hypot(max(one["t1"]), one["floor"]), max(one["width_t1"]),
            2 if not one["settled"] or one.get("p", 1) < 1e-4 else int(one.get("p", 1) < 1e-2 or one.get("far", 0) > 0.01),
            stats.norm.ppf(1 - 0.5 / (len(one["t1"]) + 1)),
        )
        for one in records
        if "t1" in one
    ]  # fmt: skip
    return Table(*(np.array(column) for column in zip(*rows, strict=True)))


class Map(NamedTuple):
    """Scale and spread of shift and width, as `scorefold.posterior.trust.Calibrated` has them."""

    shift: tuple[float, float]
    width: tuple[float, float]


def learn(found: Table) -> Map:
    """The least scales for which the promises hold on these cells."""
    ratios = found.shift / np.maximum(found.t1, 1e-3), found.width / np.maximum(found.width_t1, 1e-3)
    for factor in np.exp(np.linspace(0, 3, 61)):
        scales = [float(np.median(one)) * factor for one in ratios]
        most = [
            float(np.log(np.quantile(one, 0.9) / scale) / stats.norm.ppf(0.9))
            for one, scale in zip(ratios, scales, strict=True)
        ]
        tried = Map((scales[0], most[0]), (scales[1], most[1]))
        right, caught, _ = promises(found, tried)
        if min(right, caught) >= ENOUGH:
            break
    return tried


def predicted(found: Table, by: Map) -> tuple[np.ndarray, np.ndarray]:
    """Expected shift and |log sd ratio|."""
    return by.shift[0] * found.t1, by.width[0] * found.width_t1


def as_measured(found: Table, by: Map) -> tuple[np.ndarray, np.ndarray]:
    """The same with what the draws and the reference, which are finite, add to what is measured."""
    each = np.sqrt(2 / REFERENCE_DRAWS)
    shift, width = predicted(found, by)
    return np.hypot(shift, each * found.noise), np.hypot(width, each / np.sqrt(2) * found.noise)


def promises(found: Table, by: Map) -> tuple[float, float, float]:
    """Of cells called good, how many are; of cells far off, how many are not called good; and how many are called good."""
    shift, width = predicted(found, by)
    good = (shift < SHIFTS[0]) & (width < np.log(WIDTHS[0])) & (found.lowered == 0)
    truly = (found.shift < TRULY_GOOD[0]) & (found.width < np.log(TRULY_GOOD[1]))
    off = found.shift > FAR_OFF
    return share(truly[good]), share(~good[off]), float(good.mean())


def share(flags: np.ndarray) -> float:
    """Of those that are true; 1 of none."""
    return float(flags.mean()) if len(flags) else 1.0


def summary(folder: Path) -> Iterator[str]:
    """Lines of words, and the figure trust.png."""
    found = table(read(folder))
    names = sorted(set(found.task))
    halves = [np.isin(found.task, names[i::2]) for i in (0, 1)]
    yield f"{len(found.task)} cells of {', '.join(names)}"
    everywhere = np.zeros(len(found.task)), np.zeros(len(found.task))
    for own in halves if len(names) > 1 else []:
        by = learn(found.of(own))
        rest = found.of(~own)
        for whole, part in zip(everywhere, as_measured(rest, by), strict=True):
            whole[~own] = part
        right, caught, called = promises(rest, by)
        yield (
            f"learnt on {', '.join(sorted(set(found.task[own])))}, on the others: {called:.0%} called good, of which "
            f"{right:.1%} are; {caught:.1%} of those {FAR_OFF:.0f} sd off not called good; Spearman {spearman(rest, by)}"
        )
    by = learn(found)
    yield f"learnt on all: {promises(found, by)}; Spearman {spearman(found, by)}"
    shift, width = (", ".join(f"{value:.3g}" for value in one) for one in by)
    yield f"CALIBRATION = Calibration(shift=Calibrated({shift}), width=Calibrated({width}))"
    if len(names) > 1:
        figure(found, everywhere, folder / "trust.png")


def spearman(found: Table, by: Map) -> str:
    """Of predicted and true errors."""
    shift, width = as_measured(found, by)
    pairs = ((shift, found.shift), (width, found.width))
    return " and ".join(f"{stats.spearmanr(*pair).statistic:.2f}" for pair in pairs) + " (shift and width)"


def figure(found: Table, expected: tuple[np.ndarray, np.ndarray], path: Path) -> None:
    """Predicted against true, each task by the map of the others."""
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(10, 5), layout="constrained")
    truths, limits = (found.shift, found.width), (SHIFTS, tuple(np.log(WIDTHS)))
    for ax, x, y, at, what in zip(axes, expected, truths, limits, ("shift, posterior sd", "|log sd ratio|"), strict=True):
        for name in sorted(set(found.task)):
            own = found.task == name
            ax.scatter(np.maximum(x[own], 1e-3), np.maximum(y[own], 1e-3), s=8, label=name)
        for limit in at:
            ax.axvline(limit, color="grey", lw=0.8)
        ax.plot([1e-3, 30], [1e-3, 30], color="black", lw=0.8)
        ax.set(xscale="log", yscale="log", xlabel=f"predicted {what}", ylabel=f"true {what}")
    axes[0].legend(fontsize=7)
    fig.savefig(path, dpi=150)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder for the records and the figure")
    parser.add_argument("--tasks", nargs="+", default=sorted(tasks.TASKS))
    parser.add_argument("--trainings", type=int, default=3)
    parser.add_argument("--datasets", type=int, default=6)
    parser.add_argument("--ns", type=int, nargs="+", default=[1, 2, 8, 30, 100])
    parser.add_argument("--budget", type=int, default=10_000)
    parser.add_argument("--set-size", type=int, default=1)
    parser.add_argument("--method", default="f-npse")
    parser.add_argument("--steps", type=int, help="of training, at most; by default as the method says")
    parser.add_argument("--draws", type=int, default=2_000)
    parser.add_argument("--check", type=int, default=0, help="simulations of posterior.check for every cell")
    parser.add_argument("--check-ns", type=int, nargs="+", default=[30], help="the numbers of observations that are checked")
    parser.add_argument("--times-n", action="store_true", help="so many for every observation")
    parser.add_argument("--summary", action="store_true", help="only say what the records say")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    if not chosen.summary:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(chosen)
    print("\n".join(summary(chosen.out)))


if __name__ == "__main__":
    main()
