"""One run from simulator to draws on a task with a known posterior, and what came of it."""

import warnings
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from scorefold import tasks
from scorefold.app import plots
from scorefold.diagnostics.c2st import c2st
from scorefold.diagnostics.mmd import squared_mmd
from scorefold.diagnostics.moments import mean_shift, sd_ratio
from scorefold.errors import Diverged, ScorefoldError, UntrustworthyDraws
from scorefold.methods.fit import fit
from scorefold.posterior.draws import Draws
from scorefold.posterior.posterior import Posterior
from scorefold.progress import record_time
from scorefold.report import results as folder
from scorefold.report.infer_page import infer_page
from scorefold.report.summary import health
from scorefold.sample import Info
from scorefold.simulation.simulate import simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REFERENCE_SEED = 1
SEVERAL = 8
"""Observations of which some are shown, between one and all of them."""
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
    fewer: list[Draws]
    """Draws given fewer of the observations, the fewest first."""
    fewer_references: list[np.ndarray]


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
    fewer = timed("draw given fewer", _fewer, posterior, x_obs, settings, how)
    fewer_references = [task.reference(x_obs[: one.n], draws, REFERENCE_SEED) for one in fewer]
    return Result(settings, posterior, drawn, x_obs, truth, reference, measures, seconds, fewer, fewer_references)


def _fewer(posterior: Posterior, x_obs: np.ndarray, settings: Settings, how: dict[str, Any]) -> list[Draws]:
    """Draws given 1 of the observations and, of many, given √n; a refined posterior is for all of them alone."""
    counts = [] if settings.rounds or settings.n == 1 else [1, round(settings.n**0.5)] if settings.n >= SEVERAL else [1]
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyDraws)  # the table says which
        for k in counts:
            with suppress(Diverged):
                found.append(posterior.sample(x_obs[:k], settings.draws, settings.seed, **how))
    return found


def trust(draws: Draws) -> str:
    """Whether the draws can be used, in words."""
    return health(bool(draws.info.converged), bool(draws.info.diverged))


def table(result: Result) -> Table:
    """Draws against the reference, in words a person can use."""
    m, s = result.measures, result.seconds
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
    grid.add_row("sampler", trust(result.draws), "converged")
    for one in result.fewer:
        grid.add_row(f"sampler, given only {one.n}", trust(one), "converged")
    for name, value in s.items():
        grid.add_row(f"seconds to {name}", f"{value:.1f}", "")
    return grid


def write(result: Result, out: Path) -> Path:
    """The page report.html, its figures, the draws and a summary, into a folder that exists."""
    settings, draws, info = result.settings, result.draws, result.draws.info
    np.savez(out / "draws.npz", theta=draws.theta, names=np.array(draws.names), x_obs=result.x_obs, truth=result.truth,
             reference=result.reference)  # fmt: skip
    summary = {"settings": settings._asdict(), "measures": result.measures, "seconds": result.seconds,
               "converged": bool(info.converged), "diverged": bool(info.diverged), "sampler": _said(info),
               "given fewer": {str(one.n): trust(one) for one in result.fewer}}  # fmt: skip
    return folder.write(out, folder.SUMMARY, summary, _figures(result), infer_page)


def _figures(result: Result) -> "dict[str, Figure]":
    """Those that there is something for, by file name."""
    settings, draws, simulator = result.settings, result.draws, tasks.get(result.settings.task).simulator
    title = f"{settings.task}, {settings.method}, n = {settings.n}, {settings.budget:,} simulations"
    found = {"corner": plots.pairs(draws, result.reference, result.truth, title=title)}
    with suppress(ScorefoldError):  # draws that are far off may have no finite simulations
        found["predictive"] = plots.predictive(draws, simulator, settings.seed, "Posterior predictive")
    if result.fewer:
        references = [*result.fewer_references, result.reference]
        found["sequence"] = plots.sequence([*result.fewer, draws], result.truth, references, title=title)
    if result.posterior.history is not None:  # ABC has none
        found["training"] = plots.training(result.posterior, title)
    if isinstance(draws.info, Info):
        found["sampler"] = plots.sampler(draws, title)
    return found


def _said(info: Any) -> dict[str, float]:
    """The single numbers in what a method says of its run; composed scores have a figure instead."""
    return {
        name.replace("_", " "): float(value)
        for name, value in ({} if isinstance(info, Info) else info._asdict()).items()
        if isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)
    }
