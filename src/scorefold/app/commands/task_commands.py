"""`scorefold tasks` and `scorefold tasks show`: the simulators with a known true posterior."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scorefold.app.commands.usage import counted, folder, known

if TYPE_CHECKING:
    from rich.table import Table
    from typer import Context

    from scorefold.tasks.task import Task
else:
    Context = typer.Context.__base__  # the class that typer hands over, when types are checked as it runs

tasks_app = typer.Typer(invoke_without_command=True, help="The tasks with a known true posterior: list them, or show one.")

PRIOR_QUANTILES = {"5 %": -1.645, "median": 0.0, "95 %": 1.645}
"""As normal scores."""


@tasks_app.callback()
def tasks(context: Context) -> None:
    """List the tasks with a known true posterior."""
    if context.invoked_subcommand:
        return
    from rich.console import Console
    from rich.table import Table

    from scorefold import tasks as room

    table = Table("task", "parameters", "prior", "observation", "reference", "what it is", box=None, pad_edge=False)
    table.columns[0].no_wrap = True  # a name must be whole to be typed again
    for name in room.names():
        task = room.get(name)
        prior = task.prior.describe()
        laws = " and ".join(sorted({m["distribution"] for m in prior.get("marginals", [])})) or prior["kind"]
        table.add_row(name, str(task.prior.dim), laws, _numbers(task.features), task.reference_kind, task.description)
    Console().print(table)


@tasks_app.command()
def show(
    name: Annotated[str, typer.Argument(help="A task; see `scorefold tasks`.")],
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("tasks"),
    simulations: Annotated[int, counted(50, "How many to draw from the prior for the picture.")] = 2_000,
    seed: Annotated[int, counted(0, "Seed of the simulations.")] = 0,
) -> None:
    """Describe a task, and draw a picture of what it simulates over its prior."""
    from rich.console import Console

    from scorefold import tasks as room
    from scorefold.report import canvas, task_figures
    from scorefold.simulation.simulate import simulate

    known("NAME", lambda: room.get(name))
    folder(out)
    task, console = room.get(name), Console()
    console.print(f"[bold]{task.title}[/]\n{task.description}\n")
    console.print(_prior_table(task))
    console.print(f"\nAn observation is {_numbers(task.features)}. Reference draws: {task.reference_kind}.")
    sims = simulate(task.prior, task.simulator, simulations, seed=seed)
    title = f"{task.title}: {simulations:,} simulations over the prior"
    path = canvas.save(task_figures.prior_predictive(sims.x[:, 0], task.series, title), out / f"{name}.png")
    console.print(f"Simulations over the prior are in {path}.", soft_wrap=True)


def _prior_table(task: "Task") -> "Table":
    """Each parameter's distribution and quantiles."""
    from rich.table import Table

    table = Table("parameter", "prior", *PRIOR_QUANTILES, box=None, pad_edge=False)
    quantiles = task.prior.from_normal([[u] * task.prior.dim for u in PRIOR_QUANTILES.values()]).T
    laws = task.prior.describe().get("marginals") or [{"distribution": "multivariate normal"}] * task.prior.dim
    for parameter, law, row in zip(task.prior.names, laws, quantiles, strict=True):
        given = ", ".join(f"{k}={v:.3g}" for k, v in law.get("parameters", {}).items())
        table.add_row(parameter, f"{law['distribution']}({given})", *(f"{value:.3g}" for value in row))
    return table


def _numbers(count: int) -> str:
    return "1 number" if count == 1 else f"{count} numbers"
