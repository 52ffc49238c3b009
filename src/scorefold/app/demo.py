"""The story of one epidemic, on a simulator whose true posterior is known.

An SIR epidemic is simulated, `sf.fit` learns from it as it does by default, and the infection and recovery rates are inferred
from 1, 8 and 14 observations of one and the same epidemic's parameters, next to the true posterior. A calibration check on new
epidemics follows, and everything goes on one page.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from scorefold import tasks
from scorefold.app import plots
from scorefold.diagnostics.c2st import c2st
from scorefold.diagnostics.diagnose import diagnose
from scorefold.diagnostics.diagnosis import Diagnosis
from scorefold.diagnostics.moments import mean_shift, sd_ratio
from scorefold.methods.choice import choose
from scorefold.methods.fit import fit
from scorefold.posterior.draws import Draws
from scorefold.posterior.posterior import Posterior
from scorefold.progress import record_time
from scorefold.report import results_folder
from scorefold.report.demo_page import demo_page
from scorefold.simulation.simulate import simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASK = "sir"
COUNTS = (1, 8, 14)
"""Observations given, one after the other."""
DEMO_DRAWS, CHECK_DRAWS = 1_000, 64
REFERENCE_SEED = 0
WORDS = {"c2st": "C2ST", "shift": "mean shift", "width": "sd ratio"}


class Chapter(NamedTuple):
    """One posterior of the story, next to the true one."""

    label: str
    draws: Draws
    reference: np.ndarray


def demo(out: Path, console: Console, budget: int = 10_000, sims: int = 40, seed: int = 0) -> Path:
    """Run it, write the page into a folder that exists, and return the page's path."""
    task, shown = tasks.get(TASK), not console.quiet
    console.print(f"[bold]{task.title}[/]: {task.description}\n")
    seconds: dict[str, float] = {}

    def timed(name: str, words: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        value = record_time(seconds, name, function, *args, **kwargs)
        console.print(f"{words} [dim]({seconds[name]:.1f} s)[/]")
        return value

    simulated = timed("simulate", f"{budget:,} epidemics simulated", simulate, task.prior, task.simulator, budget, seed=seed,
                      progress=shown)  # fmt: skip
    chosen = choose(simulated)
    posterior = timed("train", f"learned from them: {chosen.why}", fit, simulated, seed=seed, progress=shown)
    truth, x_obs = task.observe(max(COUNTS), seed + 1)
    story = []
    for n in COUNTS:
        draws = timed(f"draw given {n}", f"{DEMO_DRAWS:,} draws given {n} of the observations", posterior.sample, x_obs[:n],
                      DEMO_DRAWS, seed)  # fmt: skip
        story.append(Chapter(f"n = {n}", draws, task.reference(x_obs[:n], DEMO_DRAWS, REFERENCE_SEED)))
    checked = timed("check", f"{sims} new epidemics for the calibration check", diagnose, posterior, task.simulator, COUNTS[1],
                    sims, CHECK_DRAWS, seed, log_likelihood=task.log_likelihood, progress=shown)  # fmt: skip
    measures = _measures(story)
    console.print(_table(story, measures))
    console.print(f"\nCalibration given {COUNTS[1]} observations: {checked.verdicts.overall.words}")
    summary = {
        "settings": {"task": TASK, "method": type(chosen.method).__name__, "why": chosen.why, "budget": budget,
                     "n": max(COUNTS), "draws": DEMO_DRAWS, "seed": seed},
        "measures": measures, "seconds": seconds, "chapters": [_told(chapter, measures) for chapter in story],
        "converged": all(bool(chapter.draws.info.converged) for chapter in story),
        "diverged": any(bool(chapter.draws.info.diverged) for chapter in story), "calibration": checked.summary(),
        "calibration words": f"Given {COUNTS[1]} observations, over {sims} new epidemics: {checked.verdicts.overall.words}",
    }  # fmt: skip
    return results_folder.write(out, results_folder.SUMMARY, summary, _figures(posterior, story, truth, checked), demo_page)


def _told(chapter: Chapter, measures: dict[str, float]) -> dict[str, Any]:
    """A chapter in a few numbers and a word."""
    label, draws, _ = chapter
    found = {name: measures[f"{words}, {label}"] for name, words in WORDS.items()}
    trust = "not known" if draws.trust is None else draws.trust.verdict
    sd = float(np.exp(np.log(draws.theta.std(axis=0)).mean()))
    return {"label": label, "n": draws.n, "sd": sd, "trust": trust, **found}


def _measures(story: list[Chapter]) -> dict[str, float]:
    """Each posterior against the true one, in numbers."""
    measures: dict[str, float] = {}
    for label, draws, reference in story:
        measures[f"C2ST, {label}"] = c2st(draws.theta, reference)
        measures[f"mean shift, {label}"] = float(np.abs(mean_shift(draws.theta, reference)).max())
        measures[f"sd ratio, {label}"] = float(sd_ratio(draws.theta, reference).mean())
    return measures


def _table(story: list[Chapter], measures: dict[str, float]) -> Table:
    """Mean and sd of each parameter, and below them those of the true posterior."""
    names = story[0].draws.names
    table = Table("given", "C2ST (0.5 is perfect)", *names, box=None, pad_edge=False, header_style="bold")
    for label, draws, reference in story:
        found, exact = (
            [f"{mean:.3f} ± {sd:.3f}" for mean, sd in zip(theta.mean(axis=0), theta.std(axis=0), strict=True)]
            for theta in (draws.theta, reference)
        )
        table.add_row(label, f"{measures[f'C2ST, {label}']:.3f}", *found)
        table.add_row("", "[dim]the true posterior[/]", *(f"[dim]{words}[/]" for words in exact))
    return table


def _figures(posterior: Posterior, story: list[Chapter], truth: np.ndarray, checked: Diagnosis) -> "dict[str, Figure]":
    draws, references = [chapter.draws for chapter in story], [chapter.reference for chapter in story]
    return {
        "sequence": plots.sequence(draws, truth, references, title="The posterior as observations are added"),
        "corner": plots.pairs(draws[-1], references[-1], truth, title=f"{max(COUNTS)} observations"),
        "training": plots.training(posterior, "Training"),
        "calibration": checked.figures()["ranks"],
    }
