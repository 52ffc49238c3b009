"""The factorized rule: one score for all sets as the sum of theirs.

With k sets, p(u | X_1 … X_k) ∝ p(u)^{1-k} ∏ p(u | X_j). At level t the prior's power is carried along in one of two ways:

- `tempered` (Geffner, Papamakarios and Mnih, 2023, with the exponent 1-k of their factorisation):
  s = Σ_j s_j + (1-k) (T-t)/T ∇ log p(u); at the last level this is N(0, I/k).
- `diffused`: s = Σ_j s_j + (1-k) ∇ log p_t(u), the score of the diffused prior; at the last level this is N(0, I).

In the N(0, I) space ∇ log p = ∇ log p_t = -u. With k = 1 both return the single score.
"""

from collections.abc import Callable
from typing import Literal

from scorefold.noise import Level
from scorefold.types import Cloud, Count, Scalar

PriorRule = Literal["tempered", "diffused"]
PRIOR_RULES: tuple[str, ...] = ("tempered", "diffused")

Score = Callable[[Cloud, Level], Cloud]


def factorized(total: Score, sets: Count, prior_rule: PriorRule = "diffused") -> Score:
    """The composed score, from the sum of the sets' scores; `sets` may be traced."""

    def score(u: Cloud, level: Level) -> Cloud:
        power = level.remaining if prior_rule == "tempered" else 1.0
        return total(u, level) - (1 - sets) * power * u

    return score


def reference_sd(sets: Count, prior_rule: PriorRule) -> float | Scalar:
    """The sd of the distribution that the composed score has at the last level."""
    return sets**-0.5 if prior_rule == "tempered" else 1.0
