"""`scorefold compare`: which of several saved posteriors is best?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scorefold.app.commands.simulator_source import belongs, source_of
from scorefold.app.commands.usage import at_work, counted, folder, known, screen

if TYPE_CHECKING:
    from scorefold.posterior.posterior import Posterior


def compare(
    models: Annotated[
        list[Path], typer.Argument(help="Two or more saved posteriors of one simulator.", metavar="MODEL MODEL …")
    ],
    task: Annotated[str, typer.Option(help="Whose simulator to use; see `scorefold tasks`.")] = "gaussian",
    config: Annotated[
        Path | None, typer.Option(help="A TOML file: its simulator, which is Python code, is run instead.")
    ] = None,
    n: Annotated[int, counted(1, "Observations in every data set.", "--n")] = 30,
    sims: Annotated[int, counted(20, "Data sets to simulate; four times as many halve the errors.")] = 100,
    draws: Annotated[int, counted(20, "Draws of each posterior for each of them.")] = 200,
    seed: Annotated[int, counted(0, "Seed of data sets and draws.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for a page and comparison.json.")] = None,
) -> None:
    """Compare saved posteriors on simulated data sets, and say in words which one to take."""
    from rich.markup import escape

    from scorefold import tasks as room
    from scorefold.diagnostics.compare import compare as verb
    from scorefold.methods.load import load
    from scorefold.shown import observations

    if len(models) < 2:
        raise typer.BadParameter("expected two models or more; for a single one use `scorefold diagnose`", param_hint="MODEL")
    names = _names(models)
    source, console = source_of(known("--task", lambda: room.get(task)), config), screen()
    if out:
        folder(out)
    with at_work():
        posteriors: list[Posterior] = [load(model) for model in models]
        for posterior in posteriors:
            belongs(posterior, source.names, "--config" if config else "--task")
        calls = f"{sims} data sets, {sims * n:,} simulator calls"
        console.print(f"[bold]{escape(source.title)}[/], given {observations(n)}: {calls}\n", soft_wrap=True)
        how = {"names": names, "workers": source.workers, "progress": True}
        found = verb(posteriors, source.simulator, n, sims, draws, seed, **how)
    console.print(found.table())
    if out:
        found.write(out, {"simulator": source.title, **dict(zip(names, map(str, models), strict=True))})
        console.print(f"\nThe page is {out / 'report.html'}; comparison.json is beside it.", soft_wrap=True)


def _names(models: list[Path]) -> list[str]:
    """The names of their folders, or whole paths where those are not all different; a model given twice is wrong usage."""
    short = [model.resolve().name for model in models]
    if len(set(short)) == len(short):
        return short
    if len({model.resolve() for model in models}) < len(models):
        raise typer.BadParameter(f"expected different models; got {', '.join(map(str, models))}", param_hint="MODEL")
    return [str(model) for model in models]
