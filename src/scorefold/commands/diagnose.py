"""`scorefold diagnose`: can this posterior be trusted?"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from scorefold.errors import ScorefoldError

SET_SIZE = 6


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(diagnose)


def diagnose(
    model: Annotated[Path | None, typer.Argument(help="A saved posterior; by default one is trained for the task.")] = None,
    task: Annotated[str, typer.Option(help="Whose simulator to use; see `scorefold tasks`.")] = "gaussian",
    method: Annotated[str, typer.Option(help="What to train, when there is no MODEL.")] = "f-npse",
    budget: Annotated[int, typer.Option(min=100, help="Simulator calls for training.")] = 10_000,
    n: Annotated[int, typer.Option("--n", min=1, help="Observations in every data set.")] = 30,
    sims: Annotated[int, typer.Option(min=20, help="Data sets to simulate.")] = 300,
    draws: Annotated[int, typer.Option(min=20, help="Posterior draws for each of them.")] = 100,
    observe: Annotated[
        int | None, typer.Option(min=0, help="Also look at one data set in particular, simulated with this seed.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of training, data sets and draws.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for figures and the summary.")] = Path("diagnosis"),
) -> None:
    """Check a posterior's calibration on simulated data sets, and say in words what is wrong with it."""
    from rich.console import Console

    from scorefold import methods
    from scorefold import tasks as room
    from scorefold.diagnosis import diagnose as verb

    _known("--task", lambda: room.get(task))
    _known("--method", lambda: methods.get(method))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"cannot write there: {error}", param_hint="--out") from None
    chosen, console = room.get(task), Console()
    shown = console.is_terminal
    posterior = _load(model) if model else _train(chosen, method, budget, n, seed, shown)
    console.print(f"[bold]{chosen.title}[/], given {n} observations: {sims} data sets, {sims * n:,} simulator calls\n")
    x_obs = None if observe is None else chosen.observe(n, observe)[1]
    found = verb(
        posterior, chosen.simulator, n, sims, draws, seed, x_obs=x_obs, log_likelihood=chosen.log_likelihood, progress=shown
    )
    found.write(out)
    console.print(found.table())
    console.print(f"\nFigures and summary are in {out}; start with ranks.png.", soft_wrap=True)


def _train(task: Any, method: str, budget: int, n: int, seed: int, shown: bool) -> Any:
    from scorefold.fitting import fit
    from scorefold.simulation.run import simulate

    set_size = {"f-npse": 1, "npse": n}.get(method, SET_SIZE)
    return fit(simulate(task.prior, task.simulator, budget, set_size, seed, shown), method, seed, shown)


def _load(model: Path) -> Any:
    import scorefold

    load: Callable[[Path], Any] | None = getattr(scorefold, "load", None)
    if load is None:
        raise ScorefoldError("expected a version of scorefold that can load models; this one cannot. Leave MODEL out.")
    return load(model)


def _known(option: str, look_up: Callable[[], object]) -> None:
    """An unknown name is wrong usage."""
    try:
        look_up()
    except ScorefoldError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
