"""Samplers: from a score function to draws and `Info`, by name.

A sampler is given to a method, `sf.NPSE(sampler=...)`, or to `posterior.sample(x_obs, sampler=...)`, as an object of these
classes or by its name in `SAMPLERS`. Left out, it is `DPM` for one set and `SelfTuned` for several. `draws.info` holds
what a sampler said about its run.
"""

from scorefold.sample.ancestral import Ancestral
from scorefold.sample.ddim import DDIM
from scorefold.sample.dpm import DPM
from scorefold.sample.health import Info
from scorefold.sample.langevin import Langevin
from scorefold.sample.metropolis import Metropolis
from scorefold.sample.probability_flow import ProbabilityFlow
from scorefold.sample.self_tuned import SelfTuned
from scorefold.sample.transitions import Transitions

Sampler = SelfTuned | Langevin | Transitions | Ancestral | DDIM | DPM | ProbabilityFlow | Metropolis

SAMPLERS: dict[str, Sampler] = {
    "self-tuned": SelfTuned(),
    "langevin": Langevin(),
    "transitions": Transitions(),
    "ancestral": Ancestral(),
    "ddim": DDIM(),
    "dpm": DPM(),
    "probability-flow": ProbabilityFlow(),
    "metropolis": Metropolis(),
}

__all__ = [
    "DDIM",
    "DPM",
    "SAMPLERS",
    "Ancestral",
    "Info",
    "Langevin",
    "Metropolis",
    "ProbabilityFlow",
    "Sampler",
    "SelfTuned",
    "Transitions",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
