"""The factorized rule: one score for all sets as the sum of theirs.

With k sets, p(u | X_1 … X_k) ∝ p(u)^{1-k} ∏ p(u | X_j). At level t the prior's power is carried along in one of two ways:

- `tempered` (Geffner, Papamakarios and Mnih, 2023, with the exponent 1-k of their factorisation):
  s = Σ_j s_j + (1-k) (T-t)/T ∇ log p(u); at the last level this is N(0, I/k).
- `diffused`: s = Σ_j s_j + (1-k) ∇ log p_t(u), the score of the diffused prior; at the last level this is N(0, I).

In the N(0, I) space ∇ log p = ∇ log p_t = -u. With k = 1 both return the single score. At levels between the ends s is the
score of a density, and Langevin steps are right for it, but not of the *diffused* posterior: reversing the diffusion is not.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from scorefold.compose.sets import SetScores
from scorefold.noise import Level, LogDensity, Score
from scorefold.types import Array, Cloud, Count, Float, Key, Scalar


@dataclass(frozen=True)
class Diffused:
    """The sum of the sets' scores, with the score of the diffused prior. This is the default.

    Take it with a Langevin sampler (`SelfTuned`, `Langevin`, `Metropolis`), for any prior, also one known from draws. The sum
    is not the score of a diffused density, so with several sets it does not go with samplers that reverse a diffusion
    (`Ancestral`, `DDIM`, `ProbabilityFlow`): take `Gauss` or `Jac` for these. Its time grows in proportion to the sets; for a
    thousand or more `Damped` is quicker. It has no settings.

    Example:
        >>> import scorefold as sf
        >>> sf.rules.RULES["diffused"] == sf.rules.Diffused()
        True
        >>> sf.NPSE(rule=sf.rules.Diffused(), sampler=sf.samplers.SelfTuned(levels=50)).rule
        Diffused()
    """

    reversible: ClassVar[bool] = False

    def score(self, sets: SetScores) -> Score:
        """Compose the scores of these sets.

        Args:
            sets: The scores of the sets one by one, and of the prior.

        Returns:
            A function `score(u, level, key)` of a cloud of draws and a noise level, as every sampler takes it.
        """

        def score(u: Cloud, level: Level, key: Key) -> Cloud:
            return sets.total(u, level) + (1 - sets.count) * sets.prior(u, level)

        return score

    def log_density(self, sets: SetScores) -> LogDensity:
        """The log density whose gradient the composed score is.

        Args:
            sets: The sets; their scores have to be gradients themselves, as those of `NPSE(conservative=True)` are.

        Returns:
            A function of a cloud and a noise level: the log density of each draw, up to a constant. The Metropolis sampler
            compares its values.
        """

        def log_density(u: Cloud, level: Level) -> Float[Array, " draws"]:
            return sets.log_densities(u, level) + (1 - sets.count) * sets.prior_log_density(u, level)

        return log_density

    def reference_sd(self, sets: Count) -> float | Scalar:
        """The sd that a cloud starts with at the noisiest level: 1, as the composed score is that of N(0, I) there."""
        return 1.0


@dataclass(frozen=True)
class Tempered:
    """The sum of the sets' scores, with the prior's own score phased in. This is the rule of the paper (Geffner et al., 2023).

    Take it to compare with the paper: with `Langevin` (Algorithm 1) or `Transitions` (Algorithm 2, which is derived for this
    rule and goes with no other). For inference prefer `Diffused`: on levels that are even in the log of the signal-to-noise
    ratio, the default, this one does much worse. It needs a prior with a known density, and for several sets it does not go
    with samplers that reverse a diffusion. It has no settings.

    Example:
        >>> import scorefold as sf
        >>> method = sf.NPSE(rule=sf.rules.Tempered(), sampler=sf.samplers.Langevin(), schedule="linear-beta")
        >>> method.rule, method.sampler
        (Tempered(), Langevin(a=0.3, steps=5, levels=None))
    """

    reversible: ClassVar[bool] = False

    def score(self, sets: SetScores) -> Score:
        """Compose the scores of these sets.

        Args:
            sets: The scores of the sets one by one, and of the prior.

        Returns:
            A function `score(u, level, key)` of a cloud of draws and a noise level, as every sampler takes it.
        """

        def score(u: Cloud, level: Level, key: Key) -> Cloud:
            return sets.total(u, level) - (1 - sets.count) * level.remaining * u

        return score

    def log_density(self, sets: SetScores) -> LogDensity:
        """The log density whose gradient the composed score is.

        Args:
            sets: The sets; their scores have to be gradients themselves, as those of `NPSE(conservative=True)` are.

        Returns:
            A function of a cloud and a noise level: the log density of each draw, up to a constant. The Metropolis sampler
            compares its values.
        """

        def log_density(u: Cloud, level: Level) -> Float[Array, " draws"]:
            return sets.log_densities(u, level) - (1 - sets.count) * level.remaining * jnp.sum(u**2, axis=1) / 2

        return log_density

    def reference_sd(self, sets: Count) -> float | Scalar:
        """The sd that a cloud starts with at the noisiest level: k^{-1/2} for k sets, where the composed score is that of N(0,
        I/k).
        """
        return sets**-0.5
