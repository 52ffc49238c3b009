"""How far the sum of n learned likelihoods is off, by unseen simulations: but for a constant that all likelihoods share.

With g = ∇ log q(x|u) learned, s = ∇ log p(x|u) the truth and δ = g - s, the sum over n observations misses the true score by
Σ_j δ_j. With Σ the covariance of the draws and b(u) = E[δ] = E[g] over x ~ p(x|u), a posterior's mean is off, in squared sd and
per parameter, by

    (n/d) { E[δᵀ Σ δ] + (n-1) E[bᵀ Σ b] }.

The second term is what a mean score is off by, and what `posterior/check.py` sees. The first is there for a likelihood that is
right on average as well: where its score of single observations is noise, the sum over these n is off by chance, and is taken
for information that is not there. Held-out log likelihoods hardly tell, since most of log q(x|u) does not depend on u; nor do
means. But by parts, as in score matching, with ∇ the derivative by u,

    E[δᵀ Σ δ] = E[gᵀ Σ g] + 2 tr Σ E[∇g] - 2 tr Σ ∇b + constant,

which simulations (u, x) estimate, whatever u they are at. b(u) is taken for a straight line.

Reference: "Estimation of non-normalized statistical models by score matching", Hyvärinen, 2005.
"""

from typing import NamedTuple

import numpy as np

from scorefold.posterior.check import Pairs
from scorefold.types import Float


class ScoreError(NamedTuple):
    """The squared error, but for a constant."""

    each: Float[np.ndarray, " pairs"]
    """What every pair says of gᵀΣg + 2 tr Σ∇g, in squared sd."""
    mean: float
    """What the line through all pairs adds: bias, and - 2 tr Σ∇b."""
    information: float
    """E[sᵀ Σ s] as far as g tells, the constant: that of the best linear combination of g."""

    @property
    def value(self) -> float:
        """Less is better."""
        return float(self.each.mean()) + self.mean

    def above(self, other: "ScoreError") -> tuple[float, float]:
        """By how much this one's error is larger than another's at the same pairs, and the standard error of that."""
        return self.value - other.value, _standard_error(self.each, other.each)

    @property
    def chance(self) -> float:
        """The standard error of what the pairs say."""
        return _standard_error(self.each, np.zeros_like(self.each))


def _standard_error(one: np.ndarray, other: np.ndarray) -> float:
    """Of the mean of their difference; 0 where one is infinite."""
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return 0.0
    return float((one - other).std(ddof=1) / np.sqrt(len(one)))


def score_error(pairs: Pairs, u: np.ndarray, covariance: np.ndarray, n: int) -> ScoreError:
    """From scores of single observations at places u (pairs, dim), for n of them and draws of this covariance.

    It is infinite where a score is not finite.
    """
    count, dim = u.shape
    if not (np.isfinite(pairs.score).all() and np.isfinite(pairs.jacobian).all()):
        return ScoreError(np.full(count, np.inf), 0.0, 0.0)
    design = np.concatenate([np.ones((count, 1)), u - u.mean(axis=0)], axis=1)
    line = np.linalg.lstsq(design, pairs.score, rcond=None)[0]
    bias = design @ line
    residual = pairs.score - bias
    free = max(count - dim - 1, 1)
    spread = residual.T @ residual / free
    by_chance = (dim + 1) / count * np.trace(covariance @ spread)
    squared = float(np.einsum("kd,de,ke->", bias, covariance, bias)) / count - by_chance
    own = np.einsum("kd,de,ke->k", pairs.score, covariance, pairs.score)
    bend = np.einsum("de,kde->k", covariance, pairs.jacobian)
    steep = line[1:].T - pairs.jacobian.mean(axis=0)  # E[g sᵀ]
    information = np.trace(covariance @ steep.T @ np.linalg.pinv(spread) @ steep)
    times = n / dim
    return ScoreError(
        each=times * (own + 2 * bend),
        mean=times * float((n - 1) * squared - 2 * np.trace(covariance @ line[1:].T)),
        information=times * float(information),
    )
