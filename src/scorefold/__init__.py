"""Posteriors over many observations from a simulator, by composing diffusion scores.

    import scorefold as sf
    prior = sf.Prior({"beta": scipy.stats.lognorm(0.5, scale=0.4), ...})
    sims = sf.simulate(prior, simulator, budget=10_000, set_size=6, seed=0)
    posterior = sf.fit(sims, method="pf-npse", seed=0)
    draws = posterior.sample(x_obs, draws=1_000, seed=0)

Names are imported when they are first used, so that `import scorefold` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scorefold.artifact import load
    from scorefold.compose import Damped, Diffused, Gauss, Jac, Tempered
    from scorefold.diagnosis import Diagnosis, diagnose
    from scorefold.errors import Interrupted, ModelError, ScorefoldError
    from scorefold.fitting import fit, fit_many
    from scorefold.methods.abc import ABC
    from scorefold.methods.nle import NLE
    from scorefold.methods.npe import NPE
    from scorefold.methods.npse import NPSE
    from scorefold.methods.nre import NRE
    from scorefold.methods.smc_abc import smc_abc
    from scorefold.networks.embedding import Attention, Convolution
    from scorefold.posterior import Draws, Posterior
    from scorefold.prior import Prior
    from scorefold.sample import DDIM, Ancestral, Flow, Langevin, Metropolis, SelfTuned, Transitions
    from scorefold.simulation.batched import Batched
    from scorefold.simulation.run import simulate
    from scorefold.simulation.store import Store
    from scorefold.train.training import Training

__version__ = "0.1.0"

_HOMES = {
    "ABC": "methods.abc",
    "Ancestral": "sample",
    "Attention": "networks.embedding",
    "Batched": "simulation.batched",
    "Convolution": "networks.embedding",
    "DDIM": "sample",
    "Damped": "compose",
    "Diagnosis": "diagnosis",
    "Diffused": "compose",
    "Draws": "posterior",
    "Flow": "sample",
    "Gauss": "compose",
    "Interrupted": "errors",
    "Jac": "compose",
    "Langevin": "sample",
    "Metropolis": "sample",
    "ModelError": "errors",
    "NLE": "methods.nle",
    "NPE": "methods.npe",
    "NPSE": "methods.npse",
    "NRE": "methods.nre",
    "Posterior": "posterior",
    "Prior": "prior",
    "ScorefoldError": "errors",
    "SelfTuned": "sample",
    "Store": "simulation.store",
    "Tempered": "compose",
    "Training": "train.training",
    "Transitions": "sample",
    "diagnose": "diagnosis",
    "fit": "fitting",
    "fit_many": "fitting",
    "load": "artifact",
    "simulate": "simulation.run",
    "smc_abc": "methods.smc_abc",
}

__all__ = [
    "ABC",
    "DDIM",
    "NLE",
    "NPE",
    "NPSE",
    "NRE",
    "Ancestral",
    "Attention",
    "Batched",
    "Convolution",
    "Damped",
    "Diagnosis",
    "Diffused",
    "Draws",
    "Flow",
    "Gauss",
    "Interrupted",
    "Jac",
    "Langevin",
    "Metropolis",
    "ModelError",
    "Posterior",
    "Prior",
    "ScorefoldError",
    "SelfTuned",
    "Store",
    "Tempered",
    "Training",
    "Transitions",
    "diagnose",
    "fit",
    "fit_many",
    "load",
    "simulate",
    "smc_abc",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'scorefold' has no attribute {name!r}")
    value = getattr(import_module(f"scorefold.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
