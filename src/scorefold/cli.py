"""The command line: argv → exit status 0 (done), 1 (failed) or 2 (wrong usage)."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scorefold.errors import ScorefoldError

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Posteriors over many observations from a simulator, by composing diffusion scores.",
)


@app.callback()
def _root() -> None:
    """Keeps the commands' names, also while there are few of them."""


@app.command()
def tasks() -> None:
    """List the tasks with a known true posterior."""
    from rich.table import Table

    from scorefold import tasks as room

    table = Table("task", "parameters", "observation", "reference", "what it is", box=None, pad_edge=False)
    for name in room.names():
        task = room.get(name)
        _, x = task.observe(1, seed=0)
        table.add_row(name, str(task.prior.dim), f"{x.shape[1]} numbers", task.reference_kind, task.description)
    _console().print(table)


@app.command()
def infer(
    task: Annotated[str, typer.Option(help="A task with a known posterior; see `scorefold tasks`.")] = "gaussian",
    method: Annotated[str, typer.Option(help="f-npse")] = "f-npse",
    budget: Annotated[int, typer.Option(min=100, help="Simulator calls for training.")] = 10_000,
    n: Annotated[int, typer.Option("--n", min=1, help="Observations to condition on.")] = 30,
    draws: Annotated[int, typer.Option(min=20, help="Posterior draws.")] = 1_000,
    seed: Annotated[int, typer.Option(min=0, help="Of simulations, training, observations and draws.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for figures, draws and the summary.")] = Path("infer"),
) -> None:
    """Simulate, train and draw on a task, and compare with its true posterior."""
    from scorefold import infer as run
    from scorefold import methods
    from scorefold import tasks as room

    _known("--task", lambda: room.get(task))
    _known("--method", lambda: methods.get(method))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"cannot write there: {error}", param_hint="--out") from None
    console = _console()
    result = run.infer(task, method, budget, n, draws, seed, console)
    run.write(result, out)
    console.print(run.table(result))
    console.print(f"\nFigures, draws and summary are in {out}; start with corner.png.", soft_wrap=True)


def _known(option: str, look_up: Callable[[], object]) -> None:
    """An unknown name is wrong usage."""
    try:
        look_up()
    except ScorefoldError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _console() -> "Console":
    from rich.console import Console

    return Console()


def main() -> None:
    """The entry point: every ScorefoldError is one paragraph on stderr."""
    try:
        app()
    except ScorefoldError as error:
        print(f"scorefold: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("scorefold: stopped", file=sys.stderr)
        sys.exit(1)
