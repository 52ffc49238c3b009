"""The story of one epidemic, on a simulator whose true posterior is known.

An SIR epidemic is simulated, F-NPSE is trained on it, and the infection and recovery rates are inferred from 1, 8 and 14
observations of one and the same epidemic's parameters, next to the true posterior. The posterior given all of them is then
refined by simulations near it, a calibration check on new epidemics follows, and everything goes on one page.
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
from scorefold.methods.fit import fit
from scorefold.methods.npse import NPSE
from scorefold.posterior.draws import Draws
from scorefold.posterior.posterior import Posterior
from scorefold.progress import record_time
from scorefold.report import results_folder
from scorefold.report.demo_page import demo_page
from scorefold.simulation.simulate import simulate
from scorefold.train.training import Training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASK, METHOD = "sir", "f-npse"
TRAINING = Training(steps=5_000, members=3)
"""Shorter and smaller than usual, so that nobody waits for long."""
COUNTS = (1, 8, 14)
"""Observations given, one after the other."""
REFINE_BUDGET = 3_000
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
    posterior = timed("train", f"{METHOD} trained on them", fit, simulated, NPSE(training=TRAINING), seed,
                      shown)  # fmt: skip
    truth, x_obs = task.observe(max(COUNTS), seed + 1)
    story = []
    for n in COUNTS:
        draws = timed(f"draw given {n}", f"{DEMO_DRAWS:,} draws given {n} of the observations", posterior.sample, x_obs[:n],
                      DEMO_DRAWS, seed)  # fmt: skip
        story.append(Chapter(f"n = {n}", draws, task.reference(x_obs[:n], DEMO_DRAWS, REFERENCE_SEED)))
    refined = timed("refine", f"refined by {REFINE_BUDGET:,} more epidemics near the answer", posterior.refine, x_obs,
                    task.simulator, REFINE_BUDGET, seed=seed, sims=simulated)  # fmt: skip
    story.append(Chapter(f"n = {max(COUNTS)}, refined", refined.sample(x_obs, DEMO_DRAWS, seed), story[-1].reference))
    checked = timed("check", f"{sims} new epidemics for the calibration check", diagnose, posterior, task.simulator, COUNTS[1],
                    sims, CHECK_DRAWS, seed, log_likelihood=task.log_likelihood, progress=shown)  # fmt: skip
    measures = _measures(story)
    console.print(_table(story, measures))
    console.print(f"\nCalibration given {COUNTS[1]} observations: {checked.verdicts.overall.words}")
    summary = {
        "settings": {"task": TASK, "method": METHOD, "budget": budget, "n": max(COUNTS), "draws": DEMO_DRAWS, "seed": seed,
                     "refine_budget": REFINE_BUDGET},
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
    *amortised, refined = story
    draws, references = [chapter.draws for chapter in amortised], [chapter.reference for chapter in amortised]
    title = f"{max(COUNTS)} observations, refined"
    return {
        "sequence": plots.sequence(draws, truth, references, title="The posterior as observations are added"),
        "corner": plots.pairs(refined.draws, refined.reference, truth, title=title),
        "training": plots.training(posterior, "Training"),
        "calibration": checked.figures()["ranks"],
    }
