"""One run from simulator to draws on a task with a known posterior, and what came of it."""

import json
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from scorefold import tasks
from scorefold.diagnostics.c2st import c2st
from scorefold.diagnostics.mmd import squared_mmd
from scorefold.diagnostics.moments import mean_shift, sd_ratio
from scorefold.fitting import fit
from scorefold.posterior import Draws, Posterior
from scorefold.progress import record_time
from scorefold.report import figures
from scorefold.sample import Info
from scorefold.simulation.run import simulate

REFERENCE_SEED = 1
FROM_PRIOR = 0.4
"""Share of the budget, if the rest is for refinement."""


class Settings(NamedTuple):
    """What to run."""

    task: str
    method: str
    budget: int
    n: int
    draws: int
    seed: int
    set_size: int
    rule: str | None
    sampler: str | None
    rounds: int = 0
    """Of refinement, for which 60 % of the budget is kept."""


class Result(NamedTuple):
    """Everything `infer` found out."""

    settings: Settings
    posterior: Posterior
    draws: Draws
    x_obs: np.ndarray
    truth: np.ndarray
    reference: np.ndarray
    measures: dict[str, float]
    seconds: dict[str, float]


def infer(settings: Settings, console: Console) -> Result:
    """Simulate, train, draw and compare."""
    task, seed, draws = tasks.get(settings.task), settings.seed, settings.draws
    shown = console.is_terminal
    console.print(
        f"[bold]{task.title}[/]: {task.prior.dim} parameters, {settings.n} observations, {settings.budget:,} simulator calls"
    )
    seconds: dict[str, float] = {}

    timed = partial(record_time, seconds)
    first = int(FROM_PRIOR * settings.budget) if settings.rounds else settings.budget
    sims = timed("simulate", simulate, task.prior, task.simulator, first, settings.set_size, seed, shown)
    posterior = timed("train", fit, sims, settings.method, seed, shown)
    truth, x_obs = task.observe(settings.n, seed + 1)
    if settings.rounds:
        more = {"sims": sims, "progress": shown}
        left = settings.budget - first
        posterior = timed("refine", posterior.refine, x_obs, task.simulator, left, settings.rounds, seed, **more)
        console.print("\n".join(f"round {i}: {one}" for i, one in enumerate(posterior.rounds, 1)))
    how = {word: value for word, value in (("rule", settings.rule), ("sampler", settings.sampler)) if value}
    drawn = timed("draw, with compilation", posterior.sample, x_obs, draws, seed, **how)
    drawn = timed("draw again", posterior.sample, x_obs, draws, seed, **how)
    reference = task.reference(x_obs, draws, REFERENCE_SEED)
    shift, ratio = mean_shift(drawn.theta, reference), sd_ratio(drawn.theta, reference)
    measures = {
        "squared MMD": squared_mmd(drawn.theta, reference),
        "C2ST": c2st(drawn.theta, reference),
        "mean shift, root mean square": float(np.sqrt((shift**2).mean())),
        "mean shift, largest": float(np.abs(shift).max()),
        "sd ratio, mean": float(ratio.mean()),
        "sd ratio, smallest": float(ratio.min()),
        "sd ratio, largest": float(ratio.max()),
    }
    return Result(settings, posterior, drawn, x_obs, truth, reference, measures, seconds)


def table(result: Result) -> Table:
    """Draws against the reference, in words a person can use."""
    m, s = result.measures, result.seconds
    info = result.draws.info
    grid = Table("draws against the true posterior", "", "perfect", box=None, pad_edge=False, header_style="bold")
    grid.add_row("C2ST (accuracy of telling them apart)", f"{m['C2ST']:.3f}", "0.5")
    grid.add_row("squared MMD", f"{m['squared MMD']:.4f}", "0")
    grid.add_row(
        "shift of the means, in posterior sd",
        f"{m['mean shift, root mean square']:.2f} (largest {m['mean shift, largest']:.2f})",
        "0",
    )
    grid.add_row(
        "ratio of the sds",
        f"{m['sd ratio, mean']:.2f} ({m['sd ratio, smallest']:.2f} – {m['sd ratio, largest']:.2f})",
        "1",
    )
    trust = "converged" if info.converged else "diverged" if info.diverged else "not converged"
    grid.add_row("sampler", trust, "converged")
    for name, value in s.items():
        grid.add_row(f"seconds to {name}", f"{value:.1f}", "")
    return grid


def write(result: Result, out: Path) -> None:
    """Figures, draws and a summary into a folder that exists."""
    settings, draws, history = result.settings, result.draws, result.posterior.history
    np.savez(out / "draws.npz", theta=draws.theta, names=np.array(draws.names), x_obs=result.x_obs, truth=result.truth,
             reference=result.reference)  # fmt: skip
    summary = {"settings": settings._asdict(), "measures": result.measures, "seconds": result.seconds,
               "converged": bool(draws.info.converged), "diverged": bool(draws.info.diverged)}  # fmt: skip
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    title = f"{settings.task}, {settings.method}, n = {settings.n}, {settings.budget:,} simulations"
    figures.save(figures.corner(draws.theta, draws.names, result.reference, result.truth, title), out / "corner.png")
    if history is not None:  # ABC has none
        curve = figures.training_curve(history.train, history.validation, history.kept, history.epochs_a_round, title)
        figures.save(curve, out / "training.png")
    if isinstance(draws.info, Info):
        gamma, step, q, stein = (np.asarray(v) for v in (draws.info.gamma, draws.info.step, draws.info.q, draws.info.stein))
        figures.save(figures.sampler_health(gamma, step, q, stein, title), out / "sampler.png")
