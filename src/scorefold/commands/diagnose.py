"""`scorefold diagnose`: can this posterior be trusted?"""

from pathlib import Path
from typing import Annotated, Any

import typer

from scorefold.commands.usage import folder, known


def diagnose(
    model: Annotated[Path | None, typer.Argument(help="A saved posterior; by default one is trained for the task.")] = None,
    task: Annotated[str, typer.Option(help="Whose simulator to use; see `scorefold tasks`.")] = "gaussian",
    config: Annotated[Path | None, typer.Option(help="A TOML file whose simulator to use instead, with MODEL.")] = None,
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

    from scorefold import config as files
    from scorefold import methods
    from scorefold import tasks as room
    from scorefold.artifact import load
    from scorefold.diagnosis import diagnose as verb

    if config and (not model or observe is not None):
        raise typer.BadParameter("goes with MODEL, and without --observe", param_hint="--config")
    known("--task", lambda: room.get(task))
    known("--method", lambda: methods.get(method))
    folder(out)
    chosen, console = room.get(task), Console()
    shown = console.is_terminal
    posterior = load(model) if model else _train(chosen, method, budget, n, seed, shown)
    title = chosen.title
    simulator: Any = chosen.simulator
    likelihood: Any = chosen.log_likelihood
    if config:
        known("--config", lambda: files.read(config).simulator())
        title, simulator, likelihood = str(config), files.read(config).simulator(), None
    console.print(f"[bold]{title}[/], given {n} observations: {sims} data sets, {sims * n:,} simulator calls\n")
    x_obs = None if observe is None else chosen.observe(n, observe)[1]
    found = verb(posterior, simulator, n, sims, draws, seed, x_obs=x_obs, log_likelihood=likelihood, progress=shown)
    found.write(out)
    console.print(found.table())
    console.print(f"\nFigures and summary are in {out}; start with ranks.png.", soft_wrap=True)


def _train(task: Any, method: str, budget: int, n: int, seed: int, shown: bool) -> Any:
    from scorefold import methods
    from scorefold.fitting import fit
    from scorefold.simulation.run import simulate

    set_size = methods.usual_set_size(method, n)
    return fit(simulate(task.prior, task.simulator, budget, set_size, seed, shown), method, seed, shown)
