"""Annealed Langevin, as in Algorithm 1 of Geffner, Papamakarios and Mnih (2023).

At every level t, L times: u ← u + δ_t/2 s(u, t) + √δ_t η, with δ_t = a (1-α_t)/√α_t. The step does not know how narrow the
composed density is, so for many observations it is first too long (and the run diverges) or, made shorter, too slow.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from scorefold import settings
from scorefold.errors import ScorefoldError
from scorefold.noise import Level, Score
from scorefold.sample.health import MOST_STEPS, Info, conclude, identities
from scorefold.types import Cloud, Count, Key


@dataclass(frozen=True)
class Langevin:
    """The paper's sampler, with its a and L, on all levels unless told otherwise."""

    a: float = 0.3
    steps: int = 5
    levels: int | None = None
    reverses: ClassVar[bool] = False

    def __post_init__(self) -> None:
        settings.check(self, steps=1, levels=2)
        if not 0 < self.a <= 1 or self.steps > MOST_STEPS:
            raise ScorefoldError(f"expected 0 < a ≤ 1 and at most {MOST_STEPS:,} steps a level; got {self}")

    def __call__(self, score: Score, levels: Level, u: Cloud, key: Key, sets: Count) -> tuple[Cloud, Info]:
        """Move the cloud `u` from the noisiest level to the first; `levels` in falling t."""

        def anneal(u: Cloud, at: tuple[Level, Key]) -> tuple[Cloud, tuple]:
            level, key = at
            delta = self.a * (1 - level.alpha) / jnp.sqrt(level.alpha)

            def step(u: Cloud, key: Key) -> tuple[Cloud, tuple]:
                s = score(u, level, jax.random.fold_in(key, 1))
                moved = u + delta / 2 * s + jnp.sqrt(delta) * jax.random.normal(key, u.shape)
                return moved, identities(u, s)

            u, checks = jax.lax.scan(step, u, jax.random.split(key, self.steps))
            return u, (delta, jax.tree.map(lambda v: v[-1], checks))

        u, (delta, checks) = jax.lax.scan(anneal, u, (levels, jax.random.split(key, len(levels.t))))
        return u, conclude(u, levels.gamma, delta, checks)
