"""A posterior as a folder on disk: `posterior.save(folder)` wrote it, `load` reads it.

    config.json          format, version, kind, prior, method, shape of an observation, how training went, where it comes from,
                         size and SHA-256 of
    weights.safetensors  every array by name

Nothing in the folder is executed or trusted. Classes come from the literal lists below, distributions of the prior from
`prior.described.LAWS`; the network is first rebuilt without its numbers, and only a file that holds exactly its arrays is read.
Everything that is wrong is one ModelError.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from scorefold import settings
from scorefold.compose import Damped, Diffused, Gauss, Jac, Tempered
from scorefold.disk import folder as model
from scorefold.disk import strict
from scorefold.disk.tensors import Spec
from scorefold.errors import ModelError, ScorefoldError
from scorefold.methods.abc import ABC, AbcPosterior
from scorefold.methods.method import Method
from scorefold.methods.nle import NLE
from scorefold.methods.npe import NPE, FlowPosterior
from scorefold.methods.npse import NPSE
from scorefold.methods.nre import NRE
from scorefold.methods.refine.refined import RefinedPosterior
from scorefold.posterior.composed import ComposedPosterior
from scorefold.posterior.posterior import FORMAT, Frame, Made, Posterior
from scorefold.posterior.summed import SummedPosterior
from scorefold.prior import codec as described
from scorefold.sample import DDIM, Ancestral, Langevin, Metropolis, ProbabilityFlow, SelfTuned, Transitions
from scorefold.score.embedding import Attention, Convolution
from scorefold.train.training import Training

POSTERIORS: dict[str, type[Posterior]] = {
    "abc": AbcPosterior,
    "composed": ComposedPosterior,
    "flow": FlowPosterior,
    "refined": RefinedPosterior,
    "summed": SummedPosterior,
}

SETTINGS: dict[str, type] = {
    "ABC": ABC,
    "Ancestral": Ancestral,
    "Attention": Attention,
    "Convolution": Convolution,
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

KEYS = ("kind", "prior", "method", "shape", "made", "trained")
MOST_AXES = 8
MOST_PACKAGES = 50


def load(folder: str | os.PathLike[str], embedding: Callable[..., Any] | None = None) -> Posterior:
    """The posterior that was saved in this folder. An embedding of the user's own must be given again, as a function."""
    path = settings.folder(folder)
    try:
        return _load(path, embedding)
    except ScorefoldError as error:
        raise ModelError(f"{path} cannot be loaded: {error}") from error


def _load(path: Path, embedding: Callable[..., Any] | None) -> Posterior:
    with model.opened(path, FORMAT) as found:
        config = strict.keys(found.config, KEYS, "the configuration")
        kind = POSTERIORS[strict.one_of(config["kind"], POSTERIORS, "the kind of posterior")]
        method = settings.restore(config["method"], SETTINGS, {"embedding": embedding}, "the method")
        if not isinstance(method, Method):
            raise ModelError(f"expected a method; got {method!r:.80}")
        prior = config["prior"]
        if described.check(prior) == "proposal":
            raise ModelError("expected a prior; got a proposal in place of one")
        shape = tuple(strict.whole(n, "an axis", 1, 2**31) for n in strict.listed(config["shape"], "the shape", MOST_AXES))
        if math.prod(shape) > found.header.numbers:  # every kind keeps the scale of each number of an observation
            raise ModelError(f"expected the weights for observations {shape}; the file is too small for them")
        frame = Frame(method, len(prior["names"]), prior["kind"] != "draws", shape, found.header.numbers)
        made = _made(config["made"])
        if not isinstance(config["trained"], dict):
            raise ModelError(f"expected an object that says what was trained; got {config['trained']!r:.60}")
        expected = kind.expected(frame, config["trained"])
        own = _draws(prior) if "prior.draws" in found.header.arrays else {}
        arrays = found.arrays({**expected, **own})
    draws = {name.removeprefix("prior."): arrays.pop(name) for name in own}
    posterior = kind.from_parts(described.restore(prior, draws), frame, config["trained"], arrays)
    object.__setattr__(posterior, "made", made)
    return posterior


def _draws(prior: dict[str, Any]) -> dict[str, Spec]:
    if prior["kind"] != "draws":
        raise ModelError("expected no draws for a prior that is not made from them")
    return {"prior.draws": Spec((prior["count"], len(prior["names"])), np.dtype("<f8"))}


def _made(value: Any) -> Made | None:
    if value is None:
        return None
    about = strict.keys(value, Made._fields, "where the model comes from")
    packages = about.pop("packages")
    if not isinstance(packages, dict) or len(packages) > MOST_PACKAGES:
        raise ModelError(f"expected versions of at most {MOST_PACKAGES} packages; got {packages!r:.60}")
    versions = {strict.word(k, "a package"): strict.word(v, "a version") for k, v in packages.items()}
    return Made(**{k: strict.whole(v, k, 0, 10**38) for k, v in about.items()}, packages=versions)
