"""Reversal in few steps, with noise: the solver SDE-DPM-Solver++(2M) ("DPM-Solver++: fast solver for guided sampling of
diffusion probabilistic models", Lu, Zhou, Bao, Chen, Li and Zhu, 2022).

With λ = log √(γ/(1-γ)), of which h is the step, and û_0 = (u + (1-γ_t) s)/√γ_t, for the next level γ' below,

    u ← √((1-γ')/(1-γ_t)) e^{-h} u + √γ' (1 - e^{-2h}) D + √((1-γ')(1 - e^{-2h})) ξ,   D = û_0 + (h/2h₋) (û_0 - û_0₋),

where û_0₋ and h₋ are those of the step before: what is linear in u is solved exactly, and û_0 taken to go on in a straight
line. So it is of second order with one evaluation a level. In the first step D = û_0. The last step is that of `last_step.py`.
For scores of a diffused density: one set, or a rule that composes such a score (GAUSS, JAC).
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from scorefold import settings
from scorefold.noise import Level, Score
from scorefold.sample.health import Identities, Info, identities
from scorefold.sample.last_step import finish
from scorefold.types import Cloud, Count, Key, Scalar


@dataclass(frozen=True)
class DPM:
    """The reverse diffusion with noise, in few steps of second order (Lu et al., 2022). This is the default for one set.

    Take it where `Ancestral` would do: for one set, or for several with the rule `Gauss` or `Jac`. It needs a seventh of the
    evaluations, and its noise corrects errors of the steps above as that of `Ancestral` does.

    Args:
        levels: How many noise levels to go through, evenly spaced among those that the network was trained with, with one
            evaluation of the score each; None: all of them.

    Raises:
        ScorefoldError: `levels` is not a whole number, or below 2.

    Example:
        >>> import scorefold as sf
        >>> sf.samplers.DPM()
        DPM(levels=60)
        >>> method = sf.NPSE(rule="jac", sampler=sf.samplers.DPM(levels=100))
    """

    levels: int | None = 60
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

        def reverse(
            state: tuple[Cloud, Cloud, Scalar], at: tuple[Level, Level, Key]
        ) -> tuple[tuple[Cloud, Cloud, Scalar], tuple[Scalar, Identities]]:
            (u, before, step_before), (level, below, key) = state, at
            s = score(u, level, jax.random.fold_in(key, 1))
            clean = (u + level.noise * s) / jnp.sqrt(level.gamma)
            step = (jnp.log(below.gamma / below.noise) - jnp.log(level.gamma / level.noise)) / 2
            forward = clean + jnp.where(step_before > 0, step / (2 * step_before), 0.0) * (clean - before)
            kept, new = jnp.sqrt(below.noise / level.noise) * jnp.exp(-step), -jnp.expm1(-2 * step)
            variance = below.noise * new
            mean = kept * u + jnp.sqrt(below.gamma) * new * forward
            u_below = mean + jnp.sqrt(variance) * jax.random.normal(key, u.shape)
            return (u_below, clean, step), (variance, identities(u, s))

        keys = jax.random.split(key, len(levels.t) + 1)
        above, below = (jax.tree.map(lambda v, part=part: v[part], levels) for part in (slice(None, -1), slice(1, None)))
        (u, _, _), (variance, checks) = jax.lax.scan(reverse, (u, u, jnp.zeros(())), (above, below, keys[:-2]))
        return finish(score, levels, u, (keys[-2], keys[-1]), jnp.append(variance, levels.noise[-1]), checks)
