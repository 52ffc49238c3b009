"""A posterior as a folder on disk: `posterior.save(folder)` wrote it, `load` reads it.

    config.json          format, version, the kind of posterior, its fields (`posterior/saved.py`), size and SHA-256 of
    weights.safetensors  every array by name

Nothing in the folder is executed or trusted. Classes come from the literal lists below, distributions of the prior from
`prior.codec.LAWS`; networks are first rebuilt without their numbers, and only a file that holds exactly the arrays of the
posterior is read. Everything that is wrong is one ModelError.
"""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from scorefold import settings
from scorefold.compose import Damped, Diffused, Gauss, Jac, Tempered
from scorefold.disk import folder as model
from scorefold.disk import strict
from scorefold.errors import ModelError, ScorefoldError, ScorefoldWarning
from scorefold.methods.abc import ABC, AbcPosterior
from scorefold.methods.method import Method
from scorefold.methods.nle import NLE
from scorefold.methods.npe import NPE
from scorefold.methods.npse import NPSE
from scorefold.methods.nre import NRE
from scorefold.methods.refine.refined import RefinedPosterior
from scorefold.posterior.amortised import FlowPosterior
from scorefold.posterior.composed import ComposedPosterior
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.saved import LARGEST_COUNT, About, Source, plan
from scorefold.posterior.summed import SummedPosterior
from scorefold.posterior.versions import FORMAT
from scorefold.prior import codec
from scorefold.sample import DDIM, DPM, Ancestral, Langevin, Metropolis, ProbabilityFlow, SelfTuned, Transitions
from scorefold.score.embedding import Attention, Convolution
from scorefold.simulation.simulations import Simulations
from scorefold.train.training import Training
from scorefold.types import single_precision

POSTERIORS: dict[type[Posterior], tuple[type[Method], ...]] = {
    AbcPosterior: (ABC,),
    ComposedPosterior: (NPSE,),
    FlowPosterior: (NPE,),
    RefinedPosterior: (),
    SummedPosterior: (NLE, NRE),
}
"""Which there are, and the methods that each can be of."""

SETTINGS: dict[str, type] = {
    "ABC": ABC,
    "Ancestral": Ancestral,
    "Attention": Attention,
    "Convolution": Convolution,
    "DPM": DPM,
    "DDIM": DDIM,
    "Damped": Damped,
    "Diffused": Diffused,
    "ProbabilityFlow": ProbabilityFlow,
    "Gauss": Gauss,
    "Jac": Jac,
    "Langevin": Langevin,
    "Metropolis": Metropolis,
    "NLE": NLE,
    "NPE": NPE,
    "NPSE": NPSE,
    "NRE": NRE,
    "SelfTuned": SelfTuned,
    "Tempered": Tempered,
    "Training": Training,
    "Transitions": Transitions,
}


def load(folder: str | os.PathLike[str], embedding: Callable[..., Any] | None = None) -> Posterior:
    """The posterior that was saved in this folder.

    Args:
        folder: What `posterior.save` or `scorefold fit` wrote.
        embedding: An embedding of your own must be given again, as a function: files hold no code. Default None.

    Returns:
        The `Posterior`, which draws as the one that was saved.

    Raises:
        ModelError: The folder is missing, incomplete, changed or of another version; the message says which.

    Example:
        >>> import pathlib, scipy.stats, tempfile, scorefold as sf
        >>> prior = sf.Prior({"rate": scipy.stats.norm(0, 1)})
        >>> posterior = sf.fit(sf.simulate(prior, lambda theta, rng: theta + rng.normal(size=2), budget=200), "abc")
        >>> folder = posterior.save(pathlib.Path(tempfile.mkdtemp()) / "model")
        >>> again, x_obs = sf.load(folder), [[0.5, 0.7]]
        >>> bool((again.sample(x_obs, draws=50).theta == posterior.sample(x_obs, draws=50).theta).all())
        True
    """
    path = settings.folder(folder)
    try:
        with single_precision():
            posterior = _load(path, embedding)
    except ScorefoldError as error:
        raise ModelError(f"{path} cannot be loaded: {error}") from error
    posterior.say_if_unfinished()
    return posterior


def _load(path: Path, embedding: Callable[..., Any] | None) -> Posterior:
    with model.opened(path, FORMAT) as found:
        config = strict.keys(found.config, ("kind", "posterior"), "the configuration")
        kinds = {kind.kind: kind for kind in POSTERIORS}
        kind = kinds[strict.one_of(config["kind"], kinds, "the kind of posterior")]
        source = Source(found.header, lambda kind, description: _restore(description, POSTERIORS[kind], embedding))
        expected, make = plan(kind, config["posterior"], source)
        arrays = found.arrays(expected)
    posterior: Posterior = make(arrays)
    return posterior


def _restore(description: Any, kinds: tuple[type[Method], ...], embedding: Callable[..., Any] | None) -> Method:
    """The settings of one of these methods; the function that a file cannot hold is given."""
    method = settings.restore(description, SETTINGS, {"embedding": embedding}, "the method")
    if not isinstance(method, kinds):
        raise ModelError(f"expected a method, {' or '.join(kind.__name__ for kind in kinds)}; got {method!r:.80}")
    return method


def check_can_be_saved(method: Method) -> None:
    """Refuse, before any training, a method whose posterior could not be saved.

    Args:
        method: The configured method.

    Raises:
        ScorefoldError: One of its settings cannot be written down; the message says which.
    """
    if not isinstance(method, tuple(SETTINGS.values())):
        return
    functions = {"embedding": getattr(method, "embedding", None)}
    for name, value in {**vars(method), "method": method}.items():
        try:
            same = settings.restore(settings.describe(value), SETTINGS, functions, name) == value
        except ScorefoldError:
            same = False
        if not same:
            raise ScorefoldError(
                f"expected settings of scorefold's own classes, which can be saved with what is trained; got {value!r:.80} as "
                f"the {name} of {type(method).__name__}. Use one of scorefold's, without a subclass."
            )


def say_if_it_cannot_be_saved(method: Method, sims: Simulations) -> None:
    """A ScorefoldWarning, before anything is trained, where the posterior could be drawn from but not be saved."""
    why = _unsaveable(method, sims)
    if why:
        warnings.warn(
            f"the posterior will be one to draw from, but not to save: {why}. Stop here if you mean to save it.",
            ScorefoldWarning,
            stacklevel=4,
        )


def _unsaveable(method: Method, sims: Simulations) -> str:
    """Why the posterior that the method makes of these simulations has no place in a file, or nothing."""
    try:
        codec.describe(sims.prior)
    except ScorefoldError as error:
        return str(error).rstrip(".")
    kind: Any = next((one for one, methods in POSTERIORS.items() if isinstance(method, methods)), None)
    if kind is None:
        return ""
    largest = min(getattr(method, "set_size", None) or sims.set_size, sims.set_size)
    counts = {"largest_set": largest, "inputs": len(sims.input_names), "whole": 0, "modes": 0}
    about = About(method, sims.prior.dim, sims.prior.has_density, sims.shape, counts, LARGEST_COUNT)
    with single_precision():
        leaves = jax.tree.leaves(kind.blank(about))
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves) + method.bytes_kept(sims)
    most = model.MOST_BYTES[model.WEIGHTS]
    return f"it would take {size:,} bytes, and a file may have {most:,}. Take smaller or fewer networks" if size > most else ""
