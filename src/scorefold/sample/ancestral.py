"""Ancestral sampling, the reverse diffusion ("Denoising diffusion probabilistic models", Ho, Jain and Abbeel, 2020).

u ← (u + (1-α_t) s(u, t)) / √α_t + √((1-α_t)(1-γ_{t-1})/(1-γ_t)) ξ: the reverse of one noising step, exact as the steps shrink.
The last step is that of `last_step.py`. It reverses the diffusion of a density whose score is s at every level: of one set's
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
    """The reverse diffusion step by step, with noise (DDPM, Ho et al., 2020).

    Take it for one set, where it is exact up to the steps' length, or for several sets with the rule `Gauss` or `Jac`, which
    compose the score of a diffused density. It costs one evaluation of the score a level and has nothing to tune. `DPM` is as
    exact with a seventh of the levels. With a rule that adds scores (`Diffused`, `Tempered`, `Damped`) and several sets it
    would be wrong, and is refused: take `SelfTuned`.

    Args:
        levels: How many noise levels to go through, evenly spaced among those that the network was trained with; None, the
            default: all of them. With few levels the draws come out too narrow: for these take `DDIM` or `ProbabilityFlow`.

    Raises:
        ScorefoldError: `levels` is not a whole number, or below 2.

    Example:
        >>> import scorefold as sf
        >>> sf.samplers.Ancestral()
        Ancestral(levels=None)
        >>> method = sf.NPSE(rule="jac", sampler=sf.samplers.Ancestral(levels=200))
    """

    levels: int | None = None
    reverses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        settings.check(self, levels=2)

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

        def reverse(u: Cloud, at: tuple[Level, Key]) -> tuple[Cloud, tuple]:
            level, key = at
            s = score(u, level, jax.random.fold_in(key, 1))
            below = (level.noise - level.added) / level.alpha  # the variance of the noise one level below
            variance = level.added * jnp.maximum(below, 0.0) / level.noise
            mean = (u + level.added * s) / jnp.sqrt(level.alpha)
            return mean + jnp.sqrt(variance) * jax.random.normal(key, u.shape), (variance, identities(u, s))

        keys = jax.random.split(key, len(levels.t) + 1)
        above = jax.tree.map(lambda v: v[:-1], levels)
        u, (variance, checks) = jax.lax.scan(reverse, u, (above, keys[:-2]))
        return finish(score, levels, u, (keys[-2], keys[-1]), jnp.append(variance, levels.noise[-1]), checks)
