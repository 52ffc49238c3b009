"""The command line: argv → exit status 0 (done), 1 (failed) or 2 (wrong usage)."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scorefold.app.commands.bench_commands import app as bench_app
from scorefold.app.commands.demo_command import demo
from scorefold.app.commands.diagnose_command import diagnose
from scorefold.app.commands.model_commands import fit, sample
from scorefold.app.commands.report_command import report
from scorefold.app.commands.simulate_commands import simulate, store_app
from scorefold.app.commands.usage import aloud, folder, known
from scorefold.errors import ScorefoldError

if TYPE_CHECKING:
    from rich.console import Console
    from typer import Context
else:
    Context = typer.Context.__base__  # the class that typer hands over, when types are checked as it runs

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Posteriors over many observations from a simulator, by composing diffusion scores.",
)


@app.callback()
def _root() -> None:
    """Keeps the commands' names, also while there are few of them."""


tasks_app = typer.Typer(invoke_without_command=True, help="The tasks with a known true posterior: list them, show one.")
app.add_typer(tasks_app, name="tasks")
app.command()(simulate)
app.command()(fit)
app.command()(sample)
app.command()(diagnose)
app.add_typer(store_app, name="store")
app.add_typer(bench_app, name="bench")
app.command()(report)
app.command()(demo)


@tasks_app.callback()
def tasks(context: Context) -> None:
    """List the tasks with a known true posterior."""
    if context.invoked_subcommand:
        return
    from rich.table import Table

    from scorefold import tasks as room

    table = Table("task", "parameters", "prior", "observation", "reference", "what it is", box=None, pad_edge=False)
    table.columns[0].no_wrap = True  # a name must be whole to be typed again
    for name in room.names():
        task = room.get(name)
        prior = task.prior.describe()
        laws = " and ".join(sorted({m["distribution"] for m in prior.get("marginals", [])})) or prior["kind"]
        table.add_row(name, str(task.prior.dim), laws, _numbers(task.features), task.reference_kind, task.description)
    _console().print(table)


@tasks_app.command()
def show(
    name: Annotated[str, typer.Argument(help="A task; see `scorefold tasks`.")],
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("tasks"),
    simulations: Annotated[int, typer.Option(min=50, help="How many to draw from the prior for the picture.")] = 2_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the simulations.")] = 0,
) -> None:
    """Describe a task, and draw a picture of what it simulates over its prior."""
    from rich.table import Table

    from scorefold import tasks as room
    from scorefold.report import canvas, task_figures
    from scorefold.simulation import simulate as run

    known("NAME", lambda: room.get(name))
    folder(out)
    task, console = room.get(name), _console()
    console.print(f"[bold]{task.title}[/]\n{task.description}\n")
    table = Table("parameter", "prior", "5 %", "median", "95 %", box=None, pad_edge=False)
    quantiles = task.prior.from_normal([[u] * task.prior.dim for u in (-1.645, 0.0, 1.645)]).T
    laws = task.prior.describe().get("marginals") or [{"distribution": "multivariate normal"}] * task.prior.dim
    for parameter, law, row in zip(task.prior.names, laws, quantiles, strict=True):
        given = ", ".join(f"{k}={v:.3g}" for k, v in law.get("parameters", {}).items())
        table.add_row(parameter, f"{law['distribution']}({given})", *(f"{value:.3g}" for value in row))
    console.print(table)
    console.print(f"\nAn observation is {_numbers(task.features)}. Reference draws: {task.reference_kind}.")
    sims = run.simulate(task.prior, task.simulator, simulations, seed=seed)
    title = f"{task.title}: {simulations:,} simulations over the prior"
    path = canvas.save(task_figures.prior_predictive(sims.x[:, 0], task.series, title), out / f"{name}.png")
    console.print(f"Simulations over the prior are in {path}.", soft_wrap=True)


def _fits(method: str, setting: str, value: str | None) -> None:
    """Refuse a setting that the method does not have, or that it refuses itself."""
    from scorefold import methods

    chosen: Any = methods.get(method)
    if value is not None and not hasattr(chosen, setting):
        raise ScorefoldError(f"{method} has no {setting}. Leave it out, or choose another method.")
    if value is not None:
        replace(chosen, **{setting: value})


@app.command()
def infer(
    task: Annotated[str, typer.Option(help="A task with a known posterior; see `scorefold tasks`.")] = "gaussian",
    method: Annotated[str, typer.Option(help="f-npse, pf-npse, npse, npe, nle, nre or abc")] = "f-npse",
    budget: Annotated[int, typer.Option(min=100, help="Simulator calls for training.")] = 10_000,
    n: Annotated[int, typer.Option("--n", min=1, help="Observations to condition on.")] = 30,
    draws: Annotated[int, typer.Option(min=20, help="Posterior draws.")] = 1_000,
    set_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Observations in one set: 1 for f-npse, nle, nre, by default 6 for pf-npse, n for npse, npe, abc."
        ),
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="How sets are composed: diffused, tempered, gauss, gauss-pilots, jac or damped.")
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            help="self-tuned, langevin, transitions, ancestral, ddim, flow or metropolis; for nle and nre nuts or vi; for npe "
            "and abc none."
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=0, help="Of refinement: 60 % of the budget is simulated near this data set's posterior.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of simulations, training, observations and draws.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the page, its figures, the draws and the summary.")] = Path("infer"),
    save: Annotated[Path | None, typer.Option(help="Keep the trained model in this new folder, for sf.load.")] = None,
) -> None:
    """Simulate, train and draw on a task, and compare with its true posterior."""
    from scorefold import methods
    from scorefold import tasks as room
    from scorefold.app import infer as run

    known("--task", lambda: room.get(task))
    known("--method", lambda: methods.get(method))
    known("--rule", lambda: _fits(method, "rule", rule))
    known("--sampler", lambda: _fits(method, "sampler", sampler))
    if save is not None and (save.is_symlink() or save.exists()):
        raise typer.BadParameter(f"{save} is there already; name a new folder", param_hint="--save")
    folder(out)
    console = _console()
    in_a_set = set_size or methods.usual_set_size(method, n)
    settings = run.Settings(task, method, budget, n, draws, seed, in_a_set, rule, sampler, rounds)
    with aloud():
        result = run.infer(settings, console)
    page = run.write(result, out)
    if save is not None:
        result.posterior.save(save)
    console.print(run.table(result))
    console.print(f"\nThe page is {page}; its figures, the draws and a summary are beside it.", soft_wrap=True)
    if save is not None:
        console.print(f"The model is in {save}: sf.load({str(save)!r}).", soft_wrap=True)


def _numbers(count: int) -> str:
    return "1 number" if count == 1 else f"{count} numbers"


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
    except KeyboardInterrupt as stop:
        print(f"scorefold: {stop or 'stopped'}", file=sys.stderr)
        sys.exit(1)
