"""`scorefold infer` and `scorefold demo`: from a simulator to draws, next to the true posterior."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from scorefold.app.commands.usage import at_work, counted, folder, known, new_model
from scorefold.errors import ScorefoldError


def infer(
    task: Annotated[str, typer.Option(help="A task with a known posterior; see `scorefold tasks`.")] = "gaussian",
    method: Annotated[str, typer.Option(help="auto, f-npse, pf-npse, npse, npe, nle, nre or abc.")] = "f-npse",
    budget: Annotated[int, counted(100, "Simulator calls for training.")] = 10_000,
    n: Annotated[int, counted(1, "Observations to condition on.", "--n")] = 30,
    draws: Annotated[int, counted(20, "Posterior draws.")] = 1_000,
    set_size: Annotated[
        int | None,
        counted(
            1,
            "Observations in a set of the training data, at most. By default 1 for f-npse, nle and nre, 6 for pf-npse, "
            "and n for npse, npe and abc.",
        ),
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="How sets are composed: diffused, tempered, gauss, gauss-pilots, jac or damped.")
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            help="How draws are made: self-tuned, langevin, transitions, ancestral, ddim, dpm, probability-flow or metropolis; "
            "for nle and nre smc, nuts or vi. npe and abc have none."
        ),
    ] = None,
    rounds: Annotated[int, counted(0, "Rounds of refinement, which take 60 % of the budget and simulate near the answer.")] = 0,
    seed: Annotated[int, counted(0, "Seed of simulations, training, observations and draws.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the page, its figures, the draws and the summary.")] = Path("infer"),
    save: Annotated[Path | None, typer.Option(help="Keep the trained model in this new folder, for sf.load.")] = None,
) -> None:
    """Simulate, train and draw on a task, and compare with its true posterior."""
    from rich.console import Console

    from scorefold import methods
    from scorefold.app import infer as run

    _check_names(task, method, rule, sampler)
    if save is not None:
        new_model(save)
    folder(out)
    console = Console()
    in_a_set = set_size or methods.usual_set_size(method, n)
    settings = run.Settings(task, method, budget, n, draws, seed, in_a_set, rule, sampler, rounds)
    with at_work():
        result = run.infer(settings, console)
    page = run.write(result, out)
    if save is not None:
        result.posterior.save(save)
    console.print(run.table(result))
    console.print(f"\nThe page is {page}; its figures, the draws and a summary are beside it.", soft_wrap=True)
    if save is not None:
        console.print(f"The model is in {save}: sf.load({str(save)!r}).", soft_wrap=True)


def _check_names(task: str, method: str, rule: str | None, sampler: str | None) -> None:
    """Unknown names, and settings that the method does not have, are wrong usage."""
    from scorefold import methods, tasks

    known("--task", lambda: tasks.get(task))
    known("--method", lambda: methods.get(method))
    known("--rule", lambda: _check_setting(method, "rule", rule))
    known("--sampler", lambda: _check_setting(method, "sampler", sampler))


def _check_setting(method: str, setting: str, value: str | None) -> None:
    """Refuse a setting that the method does not have, or that it refuses itself."""
    from scorefold import methods

    if value is None:
        return
    chosen: Any = methods.get(method)
    if not hasattr(chosen, setting):
        raise ScorefoldError(f"{method} has no {setting}. Leave it out, or choose another method.")
    replace(chosen, **{setting: value})


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page, its figures and the summary.")] = Path("demo"),
    budget: Annotated[int, counted(1_000, "Simulator calls for training.")] = 10_000,
    sims: Annotated[int, counted(20, "Data sets for the calibration check.")] = 40,
    seed: Annotated[int, counted(0, "Seed of everything random.")] = 0,
) -> None:
    """Infer an epidemic from 1, 8 and 14 observations, next to the true posterior, and write a page about it."""
    from rich.console import Console

    from scorefold.app.demo import demo as run

    folder(out)
    console = Console()
    with at_work():
        page = run(out, console, budget, sims, seed)
    console.print(f"\nThe page is {page}; open it in any browser.", soft_wrap=True)
