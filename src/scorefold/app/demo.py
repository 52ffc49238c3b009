"""The story of one epidemic, on a simulator whose true posterior is known.

An SIR epidemic is simulated, PF-NPSE is trained on it, and the infection and recovery rates are inferred from 1, 8 and 14
observations of one and the same epidemic's parameters, next to the true posterior. The posterior given all of them is then
refined by simulations near it, a calibration check on new epidemics follows, and everything goes on one page.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from scorefold import tasks
from scorefold.app import plots
from scorefold.diagnostics.c2st import c2st
from scorefold.diagnostics.diagnose import Diagnosis, diagnose
from scorefold.diagnostics.moments import mean_shift, sd_ratio
from scorefold.methods.fit import fit
from scorefold.methods.npse import NPSE
from scorefold.progress import record_time
from scorefold.report import results as folder
from scorefold.report.infer_page import infer_page
from scorefold.simulation.simulate import simulate
from scorefold.train.training import Training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASK, METHOD, SET_SIZE = "sir", "pf-npse", 6
TRAINING = Training(steps=1_300, weight_decay=0.1)
"""Shorter than usual, so that nobody waits for long; the weight decay that a trial takes for this task."""
COUNTS = (1, 8, 14)
MORE = 3_000
"""Simulator calls near the answer."""
DRAWS = 1_000
REFERENCE_SEED = 0


def demo(out: Path, console: Console, budget: int = 10_000, sims: int = 40, seed: int = 0) -> Path:
    """Run it, and write the page."""
    task, shown = tasks.get(TASK), console.is_terminal
    console.print(f"[bold]{task.title}[/]: {task.description}\n")
    seconds: dict[str, float] = {}

    def timed(name: str, words: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        value = record_time(seconds, name, function, *args, **kwargs)
        console.print(f"{words} [dim]({seconds[name]:.1f} s)[/]")
        return value

    simulated = timed("simulate", f"{budget:,} epidemics simulated, in sets of 1 to {SET_SIZE}", simulate, task.prior,
                      task.simulator, budget, SET_SIZE, seed, shown)  # fmt: skip
    posterior = timed("train", f"{METHOD} trained on them", fit, simulated, NPSE(training=TRAINING), seed,
                      shown)  # fmt: skip
    truth, x_obs = task.observe(max(COUNTS), seed + 1)
    drawn, references = [], []
    for n in COUNTS:
        drawn.append(timed(f"draw given {n}", f"{DRAWS:,} draws given {n} of the observations", posterior.sample, x_obs[:n],
                           DRAWS, seed))  # fmt: skip
        references.append(task.reference(x_obs[:n], DRAWS, REFERENCE_SEED))
    refined = timed("refine", f"refined by {MORE:,} more epidemics near the answer", posterior.refine, x_obs, task.simulator,
                    MORE, seed=seed, sims=simulated)  # fmt: skip
    drawn.append(refined.sample(x_obs, DRAWS, seed))
    references.append(references[-1])
    labels = [*(f"n = {n}" for n in COUNTS), f"n = {max(COUNTS)}, refined"]
    checked = timed("check", f"{sims} new epidemics for the calibration check", diagnose, posterior, task.simulator, COUNTS[1],
                    sims, 64, seed, log_likelihood=task.log_likelihood, progress=shown)  # fmt: skip
    measures: dict[str, float] = {}
    table = Table("given", "C2ST (0.5 is perfect)", *task.prior.names, box=None, pad_edge=False, header_style="bold")
    for label, draws, reference in zip(labels, drawn, references, strict=True):
        measures[f"C2ST, {label}"] = c2st(draws.theta, reference)
        measures[f"mean shift, {label}"] = float(np.abs(mean_shift(draws.theta, reference)).max())
        measures[f"sd ratio, {label}"] = float(sd_ratio(draws.theta, reference).mean())
        ranges = [f"{draws.theta[:, i].mean():.3f} ± {draws.theta[:, i].std():.3f}" for i in range(task.prior.dim)]
        exact = [f"{reference[:, i].mean():.3f} ± {reference[:, i].std():.3f}" for i in range(task.prior.dim)]
        table.add_row(label, f"{measures[f'C2ST, {label}']:.3f}", *ranges)
        table.add_row("", "[dim]the true posterior[/]", *(f"[dim]{words}[/]" for words in exact))
    console.print(table)
    console.print(f"\nCalibration given {COUNTS[1]} observations: {checked.verdicts.overall.words}")
    converged = all(bool(draws.info.converged) for draws in drawn)
    summary = {
        "settings": {"task": TASK, "method": METHOD, "budget": budget, "n": max(COUNTS), "draws": DRAWS, "seed": seed,
                     "set_size": SET_SIZE},
        "measures": measures, "seconds": seconds, "converged": converged,
        "diverged": any(bool(draws.info.diverged) for draws in drawn), "calibration": checked.summary(),
    }  # fmt: skip
    figures = _figures(posterior, drawn, references, truth, checked)
    return folder.write(out, folder.SUMMARY, summary, figures, partial(infer_page, title="One epidemic, 1 to 14 observations"))


def _figures(posterior: Any, drawn: list, references: list, truth: np.ndarray, checked: Diagnosis) -> "dict[str, Figure]":
    shown = len(COUNTS)
    said = "The posterior as observations are added"
    return {
        "sequence": plots.sequence(drawn[:shown], truth, references[:shown], title=said),
        "corner": plots.pairs(drawn[-1], references[-1], truth, title=f"{max(COUNTS)} observations, refined"),
        "training": plots.training(posterior, "Training"),
        "calibration": checked.figures()["ranks"],
    }
