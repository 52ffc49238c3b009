"""Posteriors over many observations from a simulator, by composing diffusion scores.

    import scorefold as sf
    prior = sf.Prior({"beta": scipy.stats.lognorm(0.5, scale=0.4), ...})
    sims = sf.simulate(prior, simulator, budget=10_000, set_size=6, seed=0)
    posterior = sf.fit(sims, method="pf-npse", seed=0)
    draws = posterior.sample(x_obs, draws=1_000, seed=0)

Composition rules are in `sf.rules` (`sf.rules.Gauss`), samplers in `sf.samplers` (`sf.samplers.Langevin`), embeddings of series
and images in `sf.embeddings`, figures in `sf.plots`, errors and warnings in `sf.errors`. Names are imported when they are first
used, so that `import scorefold` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scorefold.app import supported

if TYPE_CHECKING:
    from scorefold import compose as rules
    from scorefold import errors
    from scorefold import sample as samplers
    from scorefold.app import plots
    from scorefold.diagnostics.compare import compare
    from scorefold.diagnostics.diagnose import diagnose
    from scorefold.disk.program_cache import cache
    from scorefold.methods.abc import ABC
    from scorefold.methods.fit import fit, fit_many
    from scorefold.methods.load import load
    from scorefold.methods.nle import NLE
    from scorefold.methods.npe import NPE
    from scorefold.methods.npse import NPSE
    from scorefold.methods.nre import NRE
    from scorefold.methods.smc_abc import smc_abc
    from scorefold.posterior.draws import Draws
    from scorefold.posterior.evidence import evidence
    from scorefold.posterior.posterior import Posterior
    from scorefold.prior import Prior
    from scorefold.score import embedding as embeddings
    from scorefold.simulation.batched import Batched
    from scorefold.simulation.simulate import simulate
    from scorefold.simulation.simulations import Simulations
    from scorefold.simulation.store.store import Store
    from scorefold.simulation.workers import Workers
    from scorefold.train.training import Training

__version__ = "0.2.0.dev0"

supported.check()

_HOMES = {
    "ABC": "methods.abc",
    "Batched": "simulation.batched",
    "Draws": "posterior.draws",
    "NLE": "methods.nle",
    "NPE": "methods.npe",
    "NPSE": "methods.npse",
    "NRE": "methods.nre",
    "Posterior": "posterior.posterior",
    "Prior": "prior",
    "Simulations": "simulation.simulations",
    "Store": "simulation.store.store",
    "Training": "train.training",
    "Workers": "simulation.workers",
    "cache": "disk.program_cache",
    "compare": "diagnostics.compare",
    "diagnose": "diagnostics.diagnose",
    "evidence": "posterior.evidence",
    "fit": "methods.fit",
    "fit_many": "methods.fit",
    "load": "methods.load",
    "simulate": "simulation.simulate",
    "smc_abc": "methods.smc_abc",
}
_ROOMS = {"embeddings": "score.embedding", "errors": "errors", "plots": "app.plots", "rules": "compose", "samplers": "sample"}

__all__ = [
    "ABC",
    "NLE",
    "NPE",
    "NPSE",
    "NRE",
    "Batched",
    "Draws",
    "Posterior",
    "Prior",
    "Simulations",
    "Store",
    "Training",
    "Workers",
    "cache",
    "compare",
    "diagnose",
    "embeddings",
    "errors",
    "evidence",
    "fit",
    "fit_many",
    "load",
    "plots",
    "rules",
    "samplers",
    "simulate",
    "smc_abc",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        value: Any = import_module(f"scorefold.{_ROOMS[name]}")
    elif name in _HOMES:
        value = getattr(import_module(f"scorefold.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module 'scorefold' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
