"""`scorefold check`: is the answer for this data set right?"""

from pathlib import Path
from typing import Annotated

import typer

from scorefold.app.commands.observation_files import read_observations
from scorefold.app.commands.simulator_source import belongs, source_of
from scorefold.app.commands.usage import at_work, counted, folder, known, new_model


def check(
    model: Annotated[Path, typer.Argument(help="A model that `scorefold fit` or `posterior.save` wrote.")],
    observations: Annotated[Path, typer.Argument(help="A .npy file (n, …), or a .csv file with one observation in each row.")],
    task: Annotated[str, typer.Option(help="Whose simulator to use; see `scorefold tasks`.")] = "gaussian",
    config: Annotated[
        Path | None, typer.Option(help="A TOML file: its simulator, which is Python code, is run instead.")
    ] = None,
    sims: Annotated[int, counted(50, "Simulator calls; 100 for each observation tell a shift to 0.1 posterior sd.")] = 300,
    seed: Annotated[int, counted(0, "Seed of draws and simulations.")] = 0,
    inputs: Annotated[
        Path | None, typer.Option(help="Known inputs, one row for each observation, if OBSERVATIONS has no columns of them.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for a page and check.json.")] = None,
    save: Annotated[Path | None, typer.Option(help="Keep the corrected model in this new folder, for sf.load.")] = None,
) -> None:
    """Simulate at the posterior's own draws, and say in words how far means and widths are off for these observations."""
    from rich.console import Console

    from scorefold import tasks as room
    from scorefold.methods.load import load
    from scorefold.report import results_folder
    from scorefold.report.check_page import COLUMNS, check_page, rows
    from scorefold.report.diagnosis_table import grid
    from scorefold.shown import observations as words

    x_obs = read_observations(observations, "OBSERVATIONS")
    known_inputs = read_observations(inputs, "--inputs") if inputs else None
    source, console = source_of(known("--task", lambda: room.get(task)), config), Console(soft_wrap=True, highlight=False)
    if save is not None:
        new_model(save)
    if out:
        folder(out)
    with at_work():
        posterior = load(model)
        belongs(posterior, source.names, "--config" if config else "--task")
        count = len(posterior.checked(x_obs, known_inputs))
        console.print(f"{source.title}, given {words(count)}: {sims:,} simulator calls\n", markup=False)
        how = {"workers": source.workers, "progress": True, "inputs": known_inputs}
        found = posterior.check(x_obs, source.simulator, sims, seed, **how)
        summary = found.summary()
        console.print(grid(COLUMNS, rows(summary)))
        console.print(f"\n{found.words}", markup=False)
        if found.failed:
            console.print(f"{found.failed:,} simulations failed and are left out.", markup=False)
        if save is not None:
            posterior.corrected(found).save(save)
            console.print(f"The corrected model is in {save}: draw with `scorefold sample {save} …`.", markup=False)
    if out:
        about = {"simulator": source.title, "model": str(model), "observations file": str(observations), "seed": seed}
        page = results_folder.write(out, results_folder.CHECK, {**summary, "about": about}, {}, check_page)
        console.print(f"The page is {page}; check.json is beside it.", markup=False)
