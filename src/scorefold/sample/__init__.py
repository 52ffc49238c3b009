"""Samplers: from a score function to draws and Info."""

from scorefold.sample.ancestral import Ancestral
from scorefold.sample.info import Info
from scorefold.sample.langevin import Langevin
from scorefold.sample.self_tuned import SelfTuned
from scorefold.sample.transitions import Transitions

SAMPLERS = {"self-tuned": SelfTuned, "langevin": Langevin, "transitions": Transitions, "ancestral": Ancestral}

Sampler = SelfTuned | Langevin | Transitions | Ancestral

__all__ = ["SAMPLERS", "Ancestral", "Info", "Langevin", "Sampler", "SelfTuned", "Transitions"]
