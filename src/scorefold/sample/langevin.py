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
    """Annealed Langevin steps of a fixed length, as in Algorithm 1 of the paper (Geffner et al., 2023).

    Take it to compare with the paper, with the `Tempered` rule. For inference prefer `SelfTuned`: this sampler does not know
    how narrow the posterior is, so for few observations the paper's settings take too few steps and leave the draws too wide,
    and for very many the steps are too long and the run diverges. With few observations `a=1.0` or `steps=20` is better.

    Args:
        a: The length of a step, above 0 and at most 1, as a share of the noise that the level adds.
        steps: Langevin steps at each level, L in the paper.
        levels: How many noise levels to go through, evenly spaced among those that the network was trained with; None, the
            default: all of them.

    Raises:
        ScorefoldError: A setting is of the wrong type or out of its range.

    Example:
        >>> import scorefold as sf
        >>> sf.samplers.Langevin()
        Langevin(a=0.3, steps=5, levels=None)
        >>> method = sf.NPSE(rule="tempered", sampler=sf.samplers.Langevin(a=1.0))
        >>> sf.samplers.Langevin(steps=0)
        Traceback (most recent call last):
        scorefold.errors.ScorefoldError: expected steps of Langevin to be at least 1; got 0
    """

    a: float = 0.3
    steps: int = 5
    levels: int | None = None
    reverses: ClassVar[bool] = False

    def __post_init__(self) -> None:
        settings.check(self, steps=1, levels=2)
        if not 0 < self.a <= 1 or self.steps > MOST_STEPS:
            raise ScorefoldError(f"expected 0 < a ≤ 1 and at most {MOST_STEPS:,} steps a level; got {self}")

    def __call__(self, score: Score, levels: Level, u: Cloud, key: Key, sets: Count) -> tuple[Cloud, Info]:
        """Move a cloud of draws from the noisiest level to the lowest.

        Args:
            score: The score to follow, `score(u, level, key)`.
            levels: The noise levels in falling t, stacked.
            u: Where the draws start, a cloud (draws, dim) of the rule's reference distribution.
            key: The random key; the same one gives the same draws.
            sets: How many sets the score was composed of; it makes no difference here.

        Returns:
            The draws (draws, dim) in the N(0, I) space, and the run's `Info`.
        """

        def anneal(u: Cloud, at: tuple[Level, Key]) -> tuple[Cloud, tuple]:
            level, key = at
            delta = self.a * level.added / jnp.sqrt(level.alpha)

            def step(u: Cloud, key: Key) -> tuple[Cloud, tuple]:
                s = score(u, level, jax.random.fold_in(key, 1))
                moved = u + delta / 2 * s + jnp.sqrt(delta) * jax.random.normal(key, u.shape)
                return moved, identities(u, s)

            u, checks = jax.lax.scan(step, u, jax.random.split(key, self.steps))
            return u, (delta, jax.tree.map(lambda v: v[-1], checks))

        u, (delta, checks) = jax.lax.scan(anneal, u, (levels, jax.random.split(key, len(levels.t))))
        return u, conclude(u, levels.gamma, delta, checks)
