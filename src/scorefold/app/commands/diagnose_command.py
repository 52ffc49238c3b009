"""`scorefold diagnose`: can this posterior be trusted?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scorefold.app.commands.observation_files import read_observations
from scorefold.app.commands.simulator_source import belongs, source_of
from scorefold.app.commands.usage import at_work, counted, folder, known, screen

if TYPE_CHECKING:
    from scorefold.posterior.posterior import Posterior
    from scorefold.tasks.task import Task


def diagnose(
    model: Annotated[Path | None, typer.Argument(help="A saved posterior. Without it, one is trained for the task.")] = None,
    task: Annotated[str, typer.Option(help="Whose simulator to use; see `scorefold tasks`.")] = "gaussian",
    config: Annotated[
        Path | None, typer.Option(help="A TOML file: its simulator, which is Python code, is run instead. Needs a MODEL.")
    ] = None,
    method: Annotated[str, typer.Option(help="What to train where no MODEL is given.")] = "f-npse",
    budget: Annotated[int, counted(100, "Simulator calls for training.")] = 10_000,
    n: Annotated[int, counted(1, "Observations in every data set.", "--n")] = 30,
    sims: Annotated[int, counted(20, "Data sets to simulate; 40 or more if you have observations.")] = 300,
    draws: Annotated[int, counted(20, "Posterior draws for each of them.")] = 100,
    observations: Annotated[
        Path | None, typer.Option(help="Also check your own data set: a .npy or .csv file of n observations.")
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(help="Their known inputs, one row for each, if --observations has no columns of them.")
    ] = None,
    observe: Annotated[int | None, counted(0, "Also check one data set of the task, simulated with this seed.")] = None,
    seed: Annotated[int, counted(0, "Seed of training, data sets and draws.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the page, its figures and the summary.")] = Path("diagnosis"),
) -> None:
    """Check the calibration of a posterior on simulated data sets, and say in words what is wrong with it."""
    from rich.markup import escape

    from scorefold import methods
    from scorefold import tasks as room
    from scorefold.diagnostics.diagnose import diagnose as verb
    from scorefold.methods.load import load
    from scorefold.shown import observations as words

    _check_options(model, config, observations, observe, sims)
    chosen = known("--task", lambda: room.get(task))
    known("--method", lambda: methods.get(method))
    source, console = source_of(chosen, config), screen()
    x_obs = read_observations(observations, "--observations") if observations else None
    known_inputs = read_observations(inputs, "--inputs") if inputs else None
    folder(out)
    with at_work():
        posterior = load(model) if model else _train(chosen, method, budget, n, seed)
        belongs(posterior, source.names, "--config" if config else "--task")
        x_obs = chosen.observe(n, observe)[1] if observe is not None else x_obs
        n = n if x_obs is None else len(posterior.checked(x_obs, known_inputs))
        console.print(f"[bold]{escape(source.title)}[/], given {words(n)}: {sims} data sets, {sims * n:,} simulator calls\n")
        found = verb(
            posterior, source.simulator, n, sims, draws, seed,
            x_obs=x_obs, log_likelihood=source.log_likelihood, workers=source.workers, progress=True, inputs=known_inputs,
        )  # fmt: skip
    named = {"simulator": source.title, "model": model, "observations": observations}
    found.write(out, {word: str(value) for word, value in named.items() if value is not None})
    console.print(found.table())
    console.print(f"\nThe page is {out / 'report.html'}; its figures and a summary are beside it.", soft_wrap=True)


def _check_options(model: Path | None, config: Path | None, observations: Path | None, observe: int | None, sims: int) -> None:
    """Options that do not go together are wrong usage."""
    from scorefold.diagnostics.misspecification import FEWEST_SIMULATED

    if config and (not model or observe is not None):
        raise typer.BadParameter("goes with MODEL, and without --observe", param_hint="--config")
    if observations and observe is not None:
        raise typer.BadParameter("goes without --observe: one data set at a time", param_hint="--observations")
    if (observations or observe is not None) and sims < FEWEST_SIMULATED:
        raise typer.BadParameter(
            f"expected {FEWEST_SIMULATED} or more with an observed data set; got {sims}", param_hint="--sims"
        )


def _train(task: "Task", method: str, budget: int, n: int, seed: int) -> "Posterior":
    from scorefold import methods
    from scorefold.methods.fit import fit
    from scorefold.simulation.simulate import simulate

    set_size = methods.usual_set_size(method, n)
    return fit(simulate(task.prior, task.simulator, budget, set_size, seed, progress=True), method, seed, progress=True)
