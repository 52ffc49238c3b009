"""Samplers: from a score function to draws and Info, by name."""

from scorefold.sample.ancestral import Ancestral
from scorefold.sample.ddim import DDIM
from scorefold.sample.flow import Flow
from scorefold.sample.info import Info
from scorefold.sample.langevin import Langevin
from scorefold.sample.metropolis import Metropolis
from scorefold.sample.self_tuned import SelfTuned
from scorefold.sample.transitions import Transitions

Sampler = SelfTuned | Langevin | Transitions | Ancestral | DDIM | Flow | Metropolis

SAMPLERS: dict[str, Sampler] = {
    "self-tuned": SelfTuned(),
    "langevin": Langevin(),
    "transitions": Transitions(),
    "ancestral": Ancestral(),
    "ddim": DDIM(),
    "flow": Flow(),
    "metropolis": Metropolis(),
}

__all__ = [
    "DDIM",
    "SAMPLERS",
    "Ancestral",
    "Flow",
    "Info",
    "Langevin",
    "Metropolis",
    "Sampler",
    "SelfTuned",
    "Transitions",
]  # fmt: skip
