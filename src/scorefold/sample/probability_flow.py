"""The probability-flow ODE by Heun's method ("Elucidating the design space of diffusion-based generative models", Karras,
Aittala, Aila and Laine, 2022).

In v = u/√γ and σ = √((1-γ)/γ) the flow is dv/dσ = ε(v, σ) = -√(1-γ) s(u, t). From level to level: an Euler step, the slope at
its end, and the mean of both slopes; the last step is that of `denoise.py`. Of second order: for a Gaussian
40 levels leave the sd 0.7% too wide. For scores of a diffused density: one set, or a rule that composes such a score (GAUSS,
JAC).
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from scorefold import settings
from scorefold.noise import Level, Score
from scorefold.sample.health import Identities, Info, identities
from scorefold.sample.last_step import finish
from scorefold.types import Cloud, Count, Key


@dataclass(frozen=True)
class ProbabilityFlow:
    """Second order, two evaluations a level."""

    levels: int | None = 40
    reverses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        settings.check(self, levels=2)

    def __call__(self, score: Score, levels: Level, u: Cloud, key: Key, sets: Count) -> tuple[Cloud, Info]:
        """Move the cloud `u` from the noisiest level to the first; `levels` in falling t."""

        def slope(v: Cloud, level: Level, key: Key) -> tuple[Cloud, Cloud]:
            s = score(jnp.sqrt(level.gamma) * v, level, key)
            return -jnp.sqrt(1 - level.gamma) * s, s

        def sigma(level: Level) -> jax.Array:
            return jnp.sqrt((1 - level.gamma) / level.gamma)

        def heun(v: Cloud, at: tuple[Level, Level, Key]) -> tuple[Cloud, Identities]:
            here, below, key = at
            key_here, key_below = jax.random.split(key)
            first, s = slope(v, here, key_here)
            step = sigma(below) - sigma(here)
            second, _ = slope(v + step * first, below, key_below)
            return v + step * (first + second) / 2, identities(jnp.sqrt(here.gamma) * v, s)

        first = jax.tree.map(lambda a: a[0], levels)
        pairs = (jax.tree.map(lambda a: a[:-1], levels), jax.tree.map(lambda a: a[1:], levels))
        v, checks = jax.lax.scan(heun, u / jnp.sqrt(first.gamma), (*pairs, jax.random.split(key, len(levels.t) - 1)))
        u, keys = jnp.sqrt(levels.gamma[-1]) * v, (key, jax.random.fold_in(key, 1))
        return finish(score, levels, u, keys, jnp.zeros(len(levels.t)), checks)
