"""Gaussian transitions, as in Algorithm 2 of Geffner, Papamakarios and Mnih (2023), with their misprint mended.

For k sets with plain sum S = Σ_j s_j and prior score -u, at every level t, with v = k - α_t (k-1):

    σ_t² = (1-α_t)/v,
    μ_t = [ k u/√α_t + (1-α_t)/√α_t S - (k-1) √α_t u ] / v - σ_t² (1-k) (T-t)/T u,   u ← N(μ_t, σ_t² I).

One evaluation a level and nothing to tune, but the product of the transitions is not the transition of the product: even
with exact scores the draws are about a quarter too narrow for k > 1. With k = 1 this is the ancestral sampler.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from scorefold import settings
from scorefold.noise import Level, Score
from scorefold.sample.health import Info, conclude, identities
from scorefold.types import Cloud, Count, Key


@dataclass(frozen=True)
class Transitions:
    """Algorithm 2; wants the tempered prior rule."""

    levels: int | None = None
    reverses: ClassVar[bool] = False

    def __post_init__(self) -> None:
        settings.check(self, levels=2)

    def __call__(self, score: Score, levels: Level, u: Cloud, key: Key, sets: Count) -> tuple[Cloud, Info]:
        """Move the cloud `u` from the noisiest level to the first; `levels` in falling t."""

        def transition(u: Cloud, at: tuple[Level, Key]) -> tuple[Cloud, tuple]:
            level, key = at
            s = score(u, level, jax.random.fold_in(key, 1))
            prior = -(1 - sets) * level.remaining * u
            alpha, v = level.alpha, sets - level.alpha * (sets - 1)
            variance = (1 - alpha) / v
            mean = (sets * u + (1 - alpha) * (s - prior)) / jnp.sqrt(alpha) - (sets - 1) * jnp.sqrt(alpha) * u
            moved = mean / v + variance * prior + jnp.sqrt(variance) * jax.random.normal(key, u.shape)
            return moved, (variance, identities(u, s))

        u, (variance, checks) = jax.lax.scan(transition, u, (levels, jax.random.split(key, len(levels.t))))
        return u, conclude(u, levels.gamma, variance, checks)
