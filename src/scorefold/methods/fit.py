"""Simulations → a posterior."""

import hashlib
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from platform import python_version
from typing import Any

import numpy as np

from scorefold import methods, settings
from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.methods.choice import Auto, choose
from scorefold.methods.load import check_can_be_saved, say_if_it_cannot_be_saved
from scorefold.methods.method import Method
from scorefold.posterior.made import Made
from scorefold.posterior.posterior import Posterior
from scorefold.progress import say
from scorefold.simulation import screening as health
from scorefold.simulation.holes import filled
from scorefold.simulation.likeness import look
from scorefold.simulation.pieces import pieces
from scorefold.simulation.simulations import Simulations
from scorefold.train import training_set
from scorefold.train.checkpoint import Checkpoint, Stopped
from scorefold.types import single_precision


def fit(
    sims: Simulations,
    method: str | Method = "auto",
    seed: int | None = 0,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: int | float = 60,
    best_so_far: bool = False,
) -> Posterior:
    """Train on simulations, and get a posterior for any observations from the same simulator.

    With a folder as `checkpoint` training keeps its state there every so many seconds and when it is stopped by Ctrl-C or
    SIGTERM (then it raises `Interrupted`). The same call goes on where it stood, and ends with the same posterior as if it had
    never been stopped; with `best_so_far=True` it returns the best so far. Without a checkpoint, Ctrl-C raises `Interrupted`
    too, which can still make a posterior of what was learned.

    Args:
        sims: What `sf.simulate` returned, or `sf.Simulations(prior, theta, x)` of your own.
        method: "f-npse", "pf-npse", "npse", "npe", "nle", "nre", "abc", or an object such as `sf.NPSE(width=128)`. Default
            "auto": "nle" where observations are vectors of at most 32 numbers that have a likelihood, else "f-npse", or
            "pf-npse" for simulations in sets. `print(posterior)` names it.
        seed: Of training, a whole number of 0 or more. Default 0; None takes a fresh one, and says which.
        progress: Whether to show progress bars. Default False.
        checkpoint: A folder for the state of training. Default None: none is kept.
        checkpoint_seconds: How often it is written. Default 60.
        best_so_far: Whether to train no further and return the best networks of the checkpoint. Default False.

    Returns:
        A `Posterior`.

    Raises:
        ScorefoldError: The simulations cannot be trained on, or an argument is not what is expected.
        Interrupted: Training was stopped. Without a checkpoint, `posterior()` of the exception makes the posterior of the best
            networks so far.

    Example:
        >>> import scipy.stats, scorefold as sf
        >>> prior = sf.Prior({"rate": scipy.stats.norm(0, 1)})
        >>> sims = sf.simulate(prior, lambda theta, rng: theta + rng.normal(size=2), budget=200)
        >>> posterior = sf.fit(sims, "abc")
        >>> posterior.sample([[0.5, 0.7]], draws=100).n
        1
    """
    if not isinstance(sims, Simulations):
        raise ScorefoldError(
            f"expected the Simulations that sf.simulate returns; got {type(sims).__name__}. Make them of parameters and "
            "observations that you have by sf.Simulations(prior, theta, x)."
        )
    return fit_many([sims], method, [settings.seed(seed)], progress, checkpoint, checkpoint_seconds, best_so_far)[0]


def fit_many(
    sims: Sequence[Simulations],
    method: str | Method = "auto",
    seeds: Sequence[int] = (0,),
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: int | float = 60,
    best_so_far: bool = False,
) -> list[Posterior]:
    """Several trainings of one method as one compiled program, for simulations of one shape: repetitions cost little more.

    Args:
        sims: A list of simulations, each as for `sf.fit`.
        method: As for `sf.fit`.
        seeds: A seed for each of them.
        progress: As for `sf.fit`, and so are the others.
        checkpoint: One folder for all of them.
        checkpoint_seconds: How often it is written.
        best_so_far: Whether to train no further.

    Returns:
        A list with a `Posterior` for each of the simulations.

    Raises:
        ScorefoldError: As `sf.fit`, and where shapes differ or there is not a seed for each.

    Example:
        >>> import scipy.stats, scorefold as sf
        >>> prior = sf.Prior({"rate": scipy.stats.norm(0, 1)})
        >>> sims = [sf.simulate(prior, lambda theta, rng: theta + rng.normal(size=2), 200, seed=seed) for seed in (1, 2)]
        >>> one, other = sf.fit_many(sims, "abc", seeds=[1, 2])
        >>> one.sample([[0.5, 0.7]], draws=100).theta.shape
        (100, 1)
    """
    _check_lists(sims, seeds)
    chosen = _chosen(sims, method, progress)
    _check_alike(sims, seeds, chosen)
    for one in sims:
        health.say(one)
    if sims:
        say_if_it_cannot_be_saved(chosen, sims[0])
    kept = _checkpoint(checkpoint, checkpoint_seconds, best_so_far, sims, chosen, seeds)
    try:
        return _trained(chosen, sims, seeds, progress, kept)
    except Stopped as stopped:
        if kept is None and stopped.so_far is not None:
            so_far = partial(_trained, chosen, sims, seeds, False, stopped.so_far)
            stopped.posterior = so_far if len(sims) > 1 else lambda: so_far()[0]
            stopped.args = (
                f"{stopped}; `posterior()` of this exception makes the posterior of the best networks so far. A checkpoint "
                "(checkpoint=folder) would have let the same call go on.",
            )
        raise


def _trained(
    method: Method, sims: Sequence[Simulations], seeds: Sequence[int], progress: bool, kept: Checkpoint | None
) -> list[Posterior]:
    """The method's posteriors, each with where it comes from, which is not the method's affair."""
    with single_precision():
        trained: Sequence[Any] = method.train(sims, seeds, progress, kept)
    finished = kept is None or not kept.best_so_far
    return [replace(one, made=_made(own, seed, finished)) for one, own, seed in zip(trained, sims, seeds, strict=True)]


def _chosen(sims: Sequence[Simulations], method: str | Method, progress: bool) -> Method:
    """The method that was named, or that the simulations ask for; refused before any work if its posterior cannot be saved."""
    chosen = methods.get(method)
    for one in sims:
        health.check(one)
    if isinstance(chosen, Auto) and sims:
        chosen, why = choose(sims[0])
        say(f"learning {why}", progress)
    check_can_be_saved(chosen)
    if method == "pf-npse" and all(one.set_size == 1 for one in sims):
        warnings.warn(
            "the simulations are in sets of one observation, for which pf-npse is f-npse. For larger sets simulate with "
            "sf.simulate(…, set_size=6).",
            ScorefoldWarning,
            stacklevel=4,
        )
    return chosen


def _check_lists(sims: Any, seeds: Any) -> None:
    """A list of simulations and a list of seeds, or a ScorefoldError."""
    for name, values in (("sims", sims), ("seeds", seeds)):
        if not isinstance(values, list | tuple) or (name == "sims" and isinstance(values, Simulations)):
            raise ScorefoldError(f"expected {name} as a list; got {type(values).__name__}. For one training use sf.fit.")
    for one in sims:
        if not isinstance(one, Simulations):
            raise ScorefoldError(f"expected the Simulations that sf.simulate returns; got {type(one).__name__}")
    for seed in seeds:
        settings.count("seed", seed, 0)


def _check_alike(sims: Sequence[Simulations], seeds: Sequence[int], method: Method) -> None:
    """Simulations that one compiled program can train on by this method, and a seed for each, or a ScorefoldError."""
    shapes = {(one.prior.dim, one.shape, one.set_size, one.prior.has_density, len(one.input_names)) for one in sims}
    if len(shapes) != 1 or len(sims) != len(seeds):
        raise ScorefoldError(
            f"expected simulations of one shape, and a seed each; got {len(sims)} in {len(shapes)} shapes, {len(seeds)} seeds"
        )
    if any(one.missing for one in sims) and not (hasattr(method, "missing") and all(one.missing for one in sims)):
        raise ScorefoldError(
            "expected simulations without missing numbers, or all with them and any method but ABC, which compares complete "
            f"observations; got missing=True for {type(method).__name__}. Use method='f-npse', or simulate without it."
        )


def _checkpoint(
    folder: Any, seconds: Any, best_so_far: Any, sims: Sequence[Simulations], method: Method, seeds: Sequence[int]
) -> Checkpoint | None:
    """Where the training's state is kept, and what it is the state of; None without a folder."""
    if folder is None:
        if best_so_far is not False:
            raise ScorefoldError("expected best_so_far=True only with checkpoint=FOLDER, of which it takes the best so far")
        return None
    path = settings.folder(folder)
    if not method.resumes:
        raise ScorefoldError(f"expected a method that keeps checkpoints; {type(method).__name__} does not. Leave it out.")
    if not settings.fits(seconds, float) or seconds < 0 or not isinstance(best_so_far, bool):
        raise ScorefoldError(
            f"expected checkpoint_seconds ≥ 0, and best_so_far to be True or False; got {seconds!r:.60}, {best_so_far!r:.60}"
        )
    fingerprint = {
        "method": settings.describe(method),
        "seeds": [int(seed) for seed in seeds],
        "simulations": [_hash(one) for one in sims],
        "shape": [[len(one.theta), one.prior.dim, one.set_size, *one.shape] for one in sims],
    }
    if inputs := [list(one.input_names) for one in sims if one.input_names]:
        fingerprint["inputs"] = inputs
    if training_set.is_streamed(sims):
        fingerprint["bytes at once"] = training_set.BYTES_IN_MEMORY
    return Checkpoint(path, fingerprint, float(seconds), best_so_far)


def _hash(sims: Simulations) -> str:
    """SHA-256 of everything that training sees of the simulations."""
    digest = hashlib.sha256(repr(sims.prior.describe()).encode())
    for array in (sims.theta, sims.x, sims.sizes, sims.origin, *(() if sims.calls is None else (sims.calls,))):
        digest.update(f"{array.shape} {array.dtype}".encode())
        for part in pieces(array):
            digest.update(np.ascontiguousarray(array[part]).data)
    return digest.hexdigest()


def _made(sims: Simulations, seed: int, finished: bool) -> Made:
    numbers = (int(seed), int(sims.seed), int(sims.budget), int(sims.failed))
    return Made(*numbers, _packages(), look(filled(sims) if sims.missing else sims), finished)


def _packages() -> dict[str, str]:
    versions = {"python": python_version()}
    for name in ("scorefold", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions
