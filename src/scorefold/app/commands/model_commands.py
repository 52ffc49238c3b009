"""`scorefold fit` and `scorefold sample`: simulations on disk → a model on disk → draws on disk."""

import csv
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scorefold.app.commands.observation_files import read_observations
from scorefold.app.commands.usage import at_work, counted, known, model_folder, target
from scorefold.errors import Interrupted

if TYPE_CHECKING:
    from scorefold.posterior.draws import Draws
    from scorefold.simulation.simulations import Simulations

DRAWS_FORMATS = (".npz", ".csv", ".nc")


def fit(
    simulations: Annotated[Path, typer.Argument(help="A store of simulations, or the TOML file that filled it.")],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    method: Annotated[str, typer.Option(help="auto, f-npse, pf-npse, npse, npe, nle, nre or abc.")] = "auto",
    seed: Annotated[int, counted(0, "Seed of the training.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a training that was stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model that is there.")] = False,
) -> None:
    """Train on the simulations of a store, and save the posterior. A training that was stopped goes on with --resume."""
    from scorefold import methods
    from scorefold.methods.fit import fit as train

    chosen = known("--method", lambda: methods.get(method))
    if out.exists() and not overwrite:
        raise typer.BadParameter(f"{out} exists already; --overwrite replaces a model", param_hint="--out")
    model_folder(out)
    checkpoint = out.with_name(out.name + ".checkpoint") if chosen.resumes else None
    so_far = out.with_name(out.name + ".so-far")
    if checkpoint and checkpoint.exists() and not resume:
        raise typer.BadParameter(
            f"a training was stopped and left {checkpoint}: go on with --resume, or delete that folder", param_hint="--resume"
        )
    with at_work():
        sims = _simulations(simulations)
        try:
            posterior = train(sims, method, seed, progress=True, checkpoint=checkpoint)
        except Interrupted:
            typer.echo(f"scorefold: training was stopped; its state is in {checkpoint}. Go on with --resume.", err=True)
            with warnings.catch_warnings(action="ignore"):  # they were shown before
                train(sims, chosen, seed, checkpoint=checkpoint, best_so_far=True).save(so_far, overwrite=True)
            typer.echo(f"scorefold: the best networks so far are saved as the model {so_far}.", err=True)
            raise typer.Exit(1) from None
        posterior.save(out, overwrite=overwrite)
    if checkpoint:
        shutil.rmtree(checkpoint)
        shutil.rmtree(so_far, ignore_errors=True)
    typer.echo(f"Trained on {sims}\nThe model is {out}; draw with `scorefold sample {out} OBSERVATIONS`.")


def sample(
    model: Annotated[Path, typer.Argument(help="A model that `scorefold fit` or `posterior.save` wrote.")],
    observations: Annotated[Path, typer.Argument(help="A .npy file (n, …), or a .csv file with one observation in each row.")],
    draws: Annotated[int, counted(1, "Posterior draws.")] = 1_000,
    seed: Annotated[int, counted(0, "Seed of the draws.")] = 0,
    rule: Annotated[str | None, typer.Option(help="How sets are composed: a name, as for `scorefold infer`.")] = None,
    sampler: Annotated[str | None, typer.Option(help="How draws are made: a name, as for `scorefold infer`.")] = None,
    set_size: Annotated[str | None, typer.Option(help="Observations in a set: a number, or auto.")] = None,
    prior: Annotated[Path | None, typer.Option(help="A TOML file with another prior of the same parameters.")] = None,
    given: Annotated[
        list[str] | None, typer.Option(help="Fix a parameter, as in a=1.0, and draw the others. Several times for several.")
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(help="Known inputs, one row for each observation, if OBSERVATIONS has no columns of them.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the draws go: .npz, .csv, or .nc for ArviZ.")] = Path("draws.npz"),
) -> None:
    """Draw from the posterior given the observations in a file."""
    from scorefold.app import config
    from scorefold.methods.load import load

    x_obs = read_observations(observations, "OBSERVATIONS")
    known_inputs = read_observations(inputs, "--inputs") if inputs else None
    if out.suffix not in DRAWS_FORMATS:
        raise typer.BadParameter(f"expected a name that ends in {', '.join(DRAWS_FORMATS)}; got {out}", param_hint="--out")
    target(out)
    if set_size not in (None, "auto") and not str(set_size).isdecimal():
        raise typer.BadParameter(f"expected a whole number or auto; got {set_size}", param_hint="--set-size")
    size = int(set_size) if set_size and set_size != "auto" else set_size
    other = None if prior is None else known("--prior", lambda: config.read_prior_alone(prior))
    values = None if not given else dict(_value(one) for one in given)
    with at_work():
        drawn = load(model).sample(
            x_obs,
            draws,
            seed,
            rule=rule,
            sampler=sampler,
            set_size=size,
            inputs=known_inputs,
            prior=other,
            given=values,
            progress=True,
        )
    known("--out", lambda: _write(drawn, out))
    typer.echo(drawn.summary())
    typer.echo(f"\n{len(drawn.theta):,} draws are in {out}.")


def evidence(
    model: Annotated[Path, typer.Argument(help="A model that `scorefold fit` or `posterior.save` wrote.")],
    observations: Annotated[Path, typer.Argument(help="A .npy file (n, …), or a .csv file with one observation in each row.")],
    seed: Annotated[int, counted(0, "Seed of the draws.")] = 0,
    prior: Annotated[Path | None, typer.Option(help="A TOML file with another prior of the same parameters.")] = None,
    inputs: Annotated[
        Path | None, typer.Option(help="Known inputs, one row for each observation, if OBSERVATIONS has no columns of them.")
    ] = None,
) -> None:
    """Tell how probable the observations are under the model: log p(x_1 … x_n) by nle, and a part of it by other methods."""
    from scorefold.app import config
    from scorefold.methods.load import load
    from scorefold.posterior.evidence import evidence as find

    x_obs = read_observations(observations, "OBSERVATIONS")
    known_inputs = read_observations(inputs, "--inputs") if inputs else None
    other = None if prior is None else known("--prior", lambda: config.read_prior_alone(prior))
    with at_work():
        typer.echo(find(load(model), x_obs, prior=other, inputs=known_inputs, seed=seed))


def _value(text: str) -> tuple[str, float]:
    """A parameter's name and its value."""
    name, _, value = text.rpartition("=")
    try:
        return name, float(value)
    except ValueError:
        raise typer.BadParameter(f"expected a name and a number, as a=1.0; got {text}", param_hint="--given") from None


def _simulations(path: Path) -> "Simulations":
    from scorefold.app import config
    from scorefold.simulation.store.store import Store

    if path.is_file():
        path = known("SIMULATIONS", lambda: config.read(path).store)
    return Store.open(path).simulations()


def _write(draws: "Draws", out: Path) -> None:
    """The draws in a file, whole or not at all."""
    import numpy as np

    from scorefold.disk.durable import replacing
    from scorefold.disk.trouble import told

    with told(f"write the draws to {out}", "Nothing is half-written."), replacing(out) as part:
        if out.suffix == ".npz":
            trust = "" if draws.trust is None else draws.trust.verdict
            np.savez(part, theta=draws.theta, names=np.array(draws.names), converged=bool(draws.info.converged), trust=trust)
        elif out.suffix == ".csv":
            with part.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerow(draws.names)
                np.savetxt(file, draws.theta, delimiter=",")
        else:
            draws.to_arviz().to_netcdf(str(part))
