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
    """The sum, with the score of the diffused prior."""

    reversible: ClassVar[bool] = False

    def score(self, sets: SetScores) -> Score:
        """The composed score."""

        def score(u: Cloud, level: Level, key: Key) -> Cloud:
            return sets.total(u, level) + (1 - sets.count) * sets.prior(u, level)

        return score

    def log_density(self, sets: SetScores) -> LogDensity:
        """What the composed score is the gradient of."""

        def log_density(u: Cloud, level: Level) -> Float[Array, "draws"]:
            return sets.log_densities(u, level) + (1 - sets.count) * sets.prior_log_density(u, level)

        return log_density

    def reference_sd(self, sets: Count) -> float | Scalar:
        """The sd of the distribution that the composed score has at the last level."""
        return 1.0


@dataclass(frozen=True)
class Tempered:
    """The sum, with the prior's own score phased in; for priors that are N(0, I)."""

    reversible: ClassVar[bool] = False

    def score(self, sets: SetScores) -> Score:
        """The composed score."""

        def score(u: Cloud, level: Level, key: Key) -> Cloud:
            return sets.total(u, level) - (1 - sets.count) * level.remaining * u

        return score

    def log_density(self, sets: SetScores) -> LogDensity:
        """What the composed score is the gradient of."""

        def log_density(u: Cloud, level: Level) -> Float[Array, "draws"]:
            return sets.log_densities(u, level) - (1 - sets.count) * level.remaining * jnp.sum(u**2, axis=1) / 2

        return log_density

    def reference_sd(self, sets: Count) -> float | Scalar:
        """The sd of the distribution that the composed score has at the last level."""
        return sets**-0.5
