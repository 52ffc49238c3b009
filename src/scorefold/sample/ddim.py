"""Deterministic reversal in few steps ("Denoising diffusion implicit models", Song, Meng and Ermon, 2021).

With û_0 = (u + (1-γ_t) s)/√γ_t and ε̂ = -√(1-γ_t) s, u ← √γ' û_0 + √(1-γ') ε̂ for the next level γ' below.
The last step is that of `last_step.py`. First order: for a Gaussian 100 levels leave the sd 2.4% too narrow. For scores of a
diffused density: one set, or a rule that composes such a score (GAUSS, JAC).
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
class DDIM:
    """The reverse diffusion without noise, in few steps of first order (Song, Meng and Ermon, 2021).

    Take it where `Ancestral` would do and evaluations of the score are costly: for one set, or for several with the rule
    `Gauss` or `Jac`. As no noise is added on the way, nothing corrects an error of the rule or of the network.
    `ProbabilityFlow` is of second order, and more exact for the same number of evaluations.

    Args:
        levels: How many noise levels to go through, evenly spaced among those that the network was trained with, with one
            evaluation of the score each; None: all of them. With few the draws come out too narrow.

    Raises:
        ScorefoldError: `levels` is not a whole number, or below 2.

    Example:
        >>> import scorefold as sf
        >>> sf.samplers.DDIM()
        DDIM(levels=100)
        >>> method = sf.NPSE(rule="gauss", sampler=sf.samplers.DDIM(levels=200))
    """

    levels: int | None = 100
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
            s = score(u, level, key)
            below = (level.noise - level.added) / level.alpha  # the variance of the noise one level below
            clean = (u + level.noise * s) / jnp.sqrt(level.gamma)
            noise = -jnp.sqrt(level.noise) * s
            moved = jnp.sqrt(1 - below) * clean + jnp.sqrt(jnp.maximum(below, 0.0)) * noise
            return moved, (jnp.zeros(()), identities(u, s))

        keys = jax.random.split(key, len(levels.t) + 1)
        above = jax.tree.map(lambda v: v[:-1], levels)
        u, (step, checks) = jax.lax.scan(reverse, u, (above, keys[:-2]))
        return finish(score, levels, u, (keys[-2], keys[-1]), jnp.append(step, 0.0), checks)
