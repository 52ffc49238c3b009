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
    """One Gaussian step a level, as in Algorithm 2 of the paper (Geffner et al., 2023).

    Take it to compare with the paper. It is quick, with one evaluation of the score a level and nothing to tune, but for
    several sets its draws are about a quarter too narrow even with exact scores: do not use it for inference. It needs the
    `Tempered` rule, for which it was derived; with one set it is `Ancestral` without the last step.

    Args:
        levels: How many noise levels to go through, evenly spaced among those that the network was trained with; None, the
            default: all of them.

    Raises:
        ScorefoldError: `levels` is not a whole number, or below 2.

    Example:
        >>> import scorefold as sf
        >>> method = sf.NPSE(rule="tempered", sampler=sf.samplers.Transitions())
        >>> method.sampler
        Transitions(levels=None)
    """

    levels: int | None = None
    reverses: ClassVar[bool] = False

    def __post_init__(self) -> None:
        settings.check(self, levels=2)

    def __call__(self, score: Score, levels: Level, u: Cloud, key: Key, sets: Count) -> tuple[Cloud, Info]:
        """Move a cloud of draws from the noisiest level to the lowest.

        Args:
            score: The score to follow, `score(u, level, key)`.
            levels: The noise levels in falling t, stacked.
            u: Where the draws start, a cloud (draws, dim) of the rule's reference distribution.
            key: The random key; the same one gives the same draws.
            sets: How many sets the score was composed of; every step depends on it.

        Returns:
            The draws (draws, dim) in the N(0, I) space, and the run's `Info`.
        """

        def transition(u: Cloud, at: tuple[Level, Key]) -> tuple[Cloud, tuple]:
            level, key = at
            s = score(u, level, jax.random.fold_in(key, 1))
            prior = -(1 - sets) * level.remaining * u
            alpha, v = level.alpha, sets - level.alpha * (sets - 1)
            variance = level.added / v
            mean = (sets * u + level.added * (s - prior)) / jnp.sqrt(alpha) - (sets - 1) * jnp.sqrt(alpha) * u
            moved = mean / v + variance * prior + jnp.sqrt(variance) * jax.random.normal(key, u.shape)
            return moved, (variance, identities(u, s))

        u, (variance, checks) = jax.lax.scan(transition, u, (levels, jax.random.split(key, len(levels.t))))
        return u, conclude(u, levels.gamma, variance, checks)
