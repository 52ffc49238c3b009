"""Ancestral sampling, the reverse diffusion ("Denoising diffusion probabilistic models", Ho, Jain and Abbeel, 2020).

u ← (u + (1-α_t) s(u, t)) / √α_t + √((1-α_t)(1-γ_{t-1})/(1-γ_t)) ξ: the reverse of one noising step, exact as the steps shrink.
The last step is that of `denoise.py`. It reverses the diffusion of a density whose score is s at every level: of one set's
posterior, or of several sets' with a rule that composes such a score (GAUSS, JAC). The plain sum of several sets' diffused
scores is not the score of a diffused density. For a Gaussian 400 levels leave the sd 1.2% too narrow.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from scorefold import settings
from scorefold.noise import Level, Score
from scorefold.sample.health import Info, identities
from scorefold.sample.last_step import finish
from scorefold.types import Cloud, Count, Key


@dataclass(frozen=True)
class Ancestral:
    """The standard sampler of diffusion models."""

    levels: int | None = None
    reverses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        settings.check(self, levels=2)

    def __call__(self, score: Score, levels: Level, u: Cloud, key: Key, sets: Count) -> tuple[Cloud, Info]:
        """Move the cloud `u` from the noisiest level to the first; `levels` in falling t."""

        def reverse(u: Cloud, at: tuple[Level, Key]) -> tuple[Cloud, tuple]:
            level, key = at
            s = score(u, level, jax.random.fold_in(key, 1))
            below = level.gamma / level.alpha
            variance = (1 - level.alpha) * jnp.maximum(1 - below, 0.0) / (1 - level.gamma)
            mean = (u + (1 - level.alpha) * s) / jnp.sqrt(level.alpha)
            return mean + jnp.sqrt(variance) * jax.random.normal(key, u.shape), (variance, identities(u, s))

        keys = jax.random.split(key, len(levels.t) + 1)
        above = jax.tree.map(lambda v: v[:-1], levels)
        u, (variance, checks) = jax.lax.scan(reverse, u, (above, keys[:-2]))
        return finish(score, levels, u, (keys[-2], keys[-1]), jnp.append(variance, 1 - levels.gamma[-1]), checks)
