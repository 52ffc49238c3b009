"""One run from simulator to draws on a task with a known posterior, and what came of it."""

import warnings
from collections.abc import Callable
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
from scorefold.diagnostics.sliced_wasserstein import sliced_wasserstein
from scorefold.disk.durable import replacing
from scorefold.disk.trouble import told
from scorefold.errors import Diverged, ScorefoldError, UntrustworthyDraws
from scorefold.methods.fit import fit
from scorefold.posterior.draws import Draws
from scorefold.posterior.posterior import Posterior
from scorefold.progress import record_time
from scorefold.report import results_folder
from scorefold.report.infer_page import infer_page
from scorefold.report.words import SETTLED, health
from scorefold.sample import Info
from scorefold.simulation.simulate import simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REFERENCE_SEED = 1
FEWEST_FOR_ROOT = 8
"""Observations from which on draws given √n of them are shown too, between one and all of them."""
FROM_PRIOR = 0.4
"""Share of the budget that is simulated from the prior, if the rest is for refinement."""


class Settings(NamedTuple):
    """What `scorefold infer` is to run: a task, a method with its budget, how many observations and draws, and seeds."""

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
    """Everything that `infer` found out: the posterior, its draws next to the reference, how far they are apart, and the
    seconds of each step.
    """

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
    """Simulate a task, train, draw given observations of known parameters, and compare with the task's true posterior.

    Args:
        settings: What to run.
        console: Where to say what is being done.

    Returns:
        A `Result`, which `table` shows and `write` puts into a folder.

    Raises:
        ScorefoldError: A setting is not what is expected.
    """
    task, seed, draws = tasks.get(settings.task), settings.seed, settings.draws
    console.print(
        f"[bold]{task.title}[/]: {task.prior.dim} parameters, {settings.n} observations, {settings.budget:,} simulator calls"
    )
    seconds: dict[str, float] = {}
    timed = partial(record_time, seconds)
    truth, x_obs = task.observe(settings.n, seed + 1)
    posterior = _trained(settings, x_obs, timed, console)
    sample = partial(posterior.sample, draws=draws, seed=seed, rule=settings.rule, sampler=settings.sampler)
    drawn = timed("draw, with compilation", sample, x_obs)
    drawn = timed("draw again", sample, x_obs)
    reference = task.reference(x_obs, draws, REFERENCE_SEED)
    measures = _measures(drawn.theta, reference)
    fewer = timed("draw given fewer", _fewer, sample, x_obs, settings)
    fewer_references = [task.reference(x_obs[: one.n], draws, REFERENCE_SEED) for one in fewer]
    return Result(settings, posterior, drawn, x_obs, truth, reference, measures, seconds, fewer, fewer_references)


def _trained(settings: Settings, x_obs: np.ndarray, timed: Callable[..., Any], console: Console) -> Posterior:
    """Simulate and train, and refine for these observations if that is asked for."""
    task, seed, shown = tasks.get(settings.task), settings.seed, not console.quiet
    first = int(FROM_PRIOR * settings.budget) if settings.rounds else settings.budget
    sims = timed("simulate", simulate, task.prior, task.simulator, first, settings.set_size, seed, progress=shown)
    posterior = timed("train", fit, sims, settings.method, seed, shown)
    if settings.rounds:
        left = settings.budget - first
        posterior = timed("refine", posterior.refine, x_obs, task.simulator, left, settings.rounds, seed, sims=sims,
                          progress=shown)  # fmt: skip
        console.print("\n".join(f"round {i}: {one}" for i, one in enumerate(posterior.rounds, 1)))
    return posterior


def _measures(theta: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """The draws against draws of the true posterior."""
    shift, ratio = mean_shift(theta, reference), sd_ratio(theta, reference)
    return {
        "squared MMD": squared_mmd(theta, reference),
        "C2ST": c2st(theta, reference),
        "sliced Wasserstein": sliced_wasserstein(theta, reference),
        "mean shift, root mean square": float(np.sqrt((shift**2).mean())),
        "mean shift, largest": float(np.abs(shift).max()),
        "sd ratio, mean": float(ratio.mean()),
        "sd ratio, smallest": float(ratio.min()),
        "sd ratio, largest": float(ratio.max()),
    }


def _fewer(sample: Callable[..., Draws], x_obs: np.ndarray, settings: Settings) -> list[Draws]:
    """Draws given 1 of the observations and, of many, given √n; a refined posterior is for all of them alone."""
    counts = [1] if settings.n < FEWEST_FOR_ROOT else [1, round(settings.n**0.5)]
    if settings.rounds or settings.n == 1:
        counts = []
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyDraws)  # the table says which
        for k in counts:
            with suppress(Diverged):
                found.append(sample(x_obs[:k]))
    return found


def sampler_health(draws: Draws) -> str:
    """How the sampler's run went, in words."""
    return health(bool(draws.info.converged), bool(draws.info.diverged))


def table(result: Result) -> Table:
    """The draws against the reference, for the terminal."""
    m, s = result.measures, result.seconds
    grid = Table("draws against the true posterior", "", "perfect", box=None, pad_edge=False, header_style="bold")
    grid.add_row("C2ST (accuracy of telling them apart)", f"{m['C2ST']:.3f}", "0.5")
    grid.add_row("squared MMD", f"{m['squared MMD']:.4f}", "0")
    grid.add_row("sliced Wasserstein distance, in posterior sd", f"{m['sliced Wasserstein']:.3f}", "near 0")
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
    if (trust := result.draws.trust) is not None:
        grid.add_row("trust, without a look at the true posterior", trust.verdict, "good")
        if trust.shift is not None and trust.width is not None:
            grid.add_row("expected shift of the worst mean, in posterior sd", f"{trust.shift.max():.2f}", "0")
            grid.add_row("expected error of the worst width, as a factor", f"{trust.width.max():.2f}", "1")
    grid.add_row("sampler's own checks", sampler_health(result.draws), SETTLED)
    for one in result.fewer:
        grid.add_row(f"sampler's own checks, given only {one.n}", sampler_health(one), SETTLED)
    for name, value in s.items():
        grid.add_row(f"seconds to {name}", f"{value:.1f}", "")
    return grid


def write(result: Result, out: Path) -> Path:
    """Write what `infer` found into a folder that exists: the page report.html, its figures, the draws and a summary.

    Args:
        result: What `infer` returned.
        out: The folder.

    Returns:
        The page's path.

    Raises:
        StorageError: The folder cannot be written to.
    """
    settings, draws, info = result.settings, result.draws, result.draws.info
    with told(f"write the draws to {out}", "Nothing is half-written."), replacing(out / "draws.npz") as part:
        np.savez(part, theta=draws.theta, names=np.array(draws.names), x_obs=result.x_obs, truth=result.truth,
                 reference=result.reference)  # fmt: skip
    summary = {"settings": settings._asdict(), "measures": result.measures, "seconds": result.seconds,
               "converged": bool(info.converged), "diverged": bool(info.diverged), "sampler": _numbers(info),
               "given fewer": {str(one.n): sampler_health(one) for one in result.fewer}}  # fmt: skip
    if draws.trust is not None:
        summary["trust"] = draws.trust.summary()
    return results_folder.write(out, results_folder.SUMMARY, summary, _figures(result), infer_page)


def _figures(result: Result) -> "dict[str, Figure]":
    """The figures that there is something to show for, by file name."""
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


def _numbers(info: Any) -> dict[str, float]:
    """The single numbers in a sampler's info; composed scores have a figure instead."""
    return {
        name.replace("_", " "): float(value)
        for name, value in ({} if isinstance(info, Info) else info._asdict()).items()
        if isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)
    }
