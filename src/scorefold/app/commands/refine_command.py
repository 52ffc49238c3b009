"""`scorefold refine`: a saved posterior and one data set → a posterior for that data set, from simulations near it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scorefold.app.commands.observation_files import read_observations
from scorefold.app.commands.simulator_source import belongs
from scorefold.app.commands.usage import at_work, counted, known, model_folder

if TYPE_CHECKING:
    from scorefold.app.config import Config
    from scorefold.posterior.posterior import Posterior
    from scorefold.simulation.simulations import Simulations


def refine(
    model: Annotated[
        Path, typer.Argument(help="A model of nle, f-npse or pf-npse that `scorefold fit` or `posterior.save` wrote.")
    ],
    observations: Annotated[Path, typer.Argument(help="A .npy file (n, …), or a .csv file with one observation in each row.")],
    config: Annotated[Path, typer.Option(help="The TOML file whose simulator it was trained on.")],
    out: Annotated[Path, typer.Option(help="Folder for the refined model.")],
    budget: Annotated[int, counted(200, "Simulator calls to spend.")] = 5_000,
    rounds: Annotated[int, counted(1, "Rounds at most, the last one included.")] = 6,
    seed: Annotated[int, counted(0, "Seed of simulations, training and draws.")] = 0,
    inputs: Annotated[
        Path | None, typer.Option(help="Known inputs, one row for each observation, if OBSERVATIONS has no columns of them.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model that is there.")] = False,
) -> None:
    """Spend more simulations where the posterior of one data set is, and save a posterior for that data set.

    Every round's simulations are kept beside the model, in OUT.rounds: after a kill the same command goes on. The simulations
    of the TOML file's store are used again where they can be. The simulator is Python code of yours, and is run.
    """
    from scorefold.app import config as files
    from scorefold.methods.load import load

    x_obs = read_observations(observations, "OBSERVATIONS")
    known_inputs = read_observations(inputs, "--inputs") if inputs else None
    own = known("--config", lambda: files.read(config))
    prior, simulator = known("--config", own.prior), known("--config", own.simulator)
    if out.exists() and not overwrite:
        raise typer.BadParameter(f"{out} exists already; --overwrite replaces a model", param_hint="--out")
    model_folder(out)
    kept = out.with_name(out.name + ".rounds")
    with at_work():
        start = load(model)
        belongs(start, prior.names, "--config")
        refined = start.refine(
            x_obs, simulator, budget, rounds, seed,
            sims=_trained_on(own, start), store=kept, workers=own.arguments()["workers"], progress=True,
            inputs=known_inputs,
        )  # fmt: skip
        refined.save(out, overwrite=overwrite)
    typer.echo(f"{refined}\nThe model is {out}, for these observations; draw with `scorefold sample {out} {observations}`.")
    typer.echo(f"The simulations of its rounds are in {kept}, and may be deleted.")


def _trained_on(config: "Config", start: "Posterior") -> "Simulations | None":
    """The simulations in the file's store, if they are there and of the model's own prior."""
    from scorefold.errors import ScorefoldError
    from scorefold.simulation.store.store import Store

    if not Store.exists(config.store):
        return None
    try:
        sims = Store.open(config.store).simulations()
    except ScorefoldError as error:
        typer.echo(f"scorefold: the simulations in {config.store} are not used again: {error}", err=True)
        return None
    return sims if sims.prior == start.prior else None
