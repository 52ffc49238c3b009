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

which simulations (u, x) estimate, whatever u they are at. b(u) is taken for a straight line, whose slope is shrunk towards 0 by
the positive-part James–Stein factor. Flows have kinks, where a derivative says little: with ε ~ N(0, h² Σ), tr Σ ∇g is the mean
of εᵀ [g(u + ε) - g(u - ε)] / 2h², which no single kink rules.

Reference: "Estimation of non-normalized statistical models by score matching", Hyvärinen, 2005.
"""

from typing import NamedTuple

import numpy as np

from scorefold.posterior.pair_moments import with_ridge
from scorefold.posterior.summed import SummedPosterior
from scorefold.types import Float

STEP = 0.5
"""h"""
PARTS = 10
"""Of the pairs: each is left out once."""


class Scores(NamedTuple):
    """g at pairs of u and an observation."""

    score: Float[np.ndarray, "pairs dim"]
    bend: Float[np.ndarray, " pairs"]
    """What each says of tr Σ∇g."""


class ScoreError(NamedTuple):
    """The squared error, but for a constant."""

    each: Float[np.ndarray, " pairs"]
    """What every pair says of gᵀΣg + 2 tr Σ∇g, in squared sd."""
    mean: float
    """What the line through all pairs adds: bias, and - 2 tr Σ∇b."""
    information: float
    """E[sᵀ Σ s], the constant, as far as g tells: that of its best multiple."""

    @property
    def value(self) -> float:
        """Less is better."""
        return float(self.each.mean()) + self.mean

    @property
    def chance(self) -> float:
        """The standard error of what the pairs say; 0 where that is infinite."""
        return float(self.each.std(ddof=1) / np.sqrt(len(self.each))) if np.isfinite(self.each).all() else 0.0


def steps(count: int, root: Float[np.ndarray, "dim dim"], seed: int) -> Float[np.ndarray, "count dim"]:
    """ε, from a root of Σ: the same for all likelihoods that are compared."""
    drawn: np.ndarray = STEP * np.random.default_rng([seed, 37]).standard_normal((count, len(root))) @ root.T
    return drawn


def scores_at(
    posterior: SummedPosterior, x: np.ndarray, u: np.ndarray, step: np.ndarray, root: np.ndarray | None = None
) -> Scores:
    """Of observations x (pairs, features), each at its own u; by w where u = m + A w, if A and steps of w are given."""
    there = step if root is None else step @ root.T
    here, ahead, behind = (posterior.paired_scores(x, u + off) for off in (0.0, there, -there))
    bend = np.einsum("kd,kd->k", ahead - behind, there) / (2 * STEP**2)
    return Scores(here if root is None else here @ root, bend)


def score_error(scores: Scores, u: np.ndarray, covariance: np.ndarray, n: int) -> ScoreError:
    """From scores of single observations at places u (pairs, dim), for n of them and draws of this covariance.

    It is infinite where a score is not finite.
    """
    count, dim = u.shape
    if not (np.isfinite(scores.score).all() and np.isfinite(scores.bend).all()):
        return ScoreError(np.full(count, np.inf), 0.0, 0.0)
    design = np.concatenate([np.ones((count, 1)), u - u.mean(axis=0)], axis=1)
    line = np.linalg.lstsq(design, scores.score, rcond=None)[0]
    bias = design @ line
    residual = scores.score - bias
    spread = with_ridge(residual.T @ residual / max(count - dim - 1, 1))
    by_chance = (dim + 1) / count * np.trace(covariance @ spread)
    squared = float(np.einsum("kd,de,ke->", bias, covariance, bias)) / count - by_chance
    slope = line[1:].T
    chi_squared = np.trace(np.linalg.solve(spread, slope @ (design[:, 1:].T @ design[:, 1:]) @ slope.T))
    turn = max(0.0, 1 - dim**2 / max(chi_squared, 1e-30)) * float(np.trace(covariance @ slope))
    own = np.einsum("kd,de,ke->k", scores.score, covariance, scores.score)
    with_truth = turn - float(scores.bend.mean())  # E[gᵀ Σ s]
    times = n / dim
    return ScoreError(
        each=times * (own + 2 * scores.bend),
        mean=times * ((n - 1) * squared - 2 * turn),
        information=times * with_truth**2 / max(float(own.mean()), 1e-30),
    )


def difference(one: Scores, other: Scores, u: np.ndarray, covariance: np.ndarray, n: int) -> tuple[float, float]:
    """By how much one's error is larger than another's at the same pairs, and its standard error, by the jackknife."""

    def off(rows: np.ndarray) -> float:
        errors = [score_error(Scores(own.score[rows], own.bend[rows]), u[rows], covariance, n).value for own in (one, other)]
        return errors[0] - errors[1]

    part = np.arange(len(u)) % PARTS
    found = off(part >= 0)
    if not np.isfinite(found):
        return found, 0.0
    without = np.array([off(part != i) for i in range(PARTS)])
    return found, float(np.sqrt((PARTS - 1) * without.var()))
