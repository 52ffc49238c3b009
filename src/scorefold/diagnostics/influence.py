"""Which observation moves the posterior, and where to.

Leaving x_j out of n observations changes the posterior by the weight w_j(u) ∝ p(u) / p(u|x_j). What that does to the mean is

- by scores: with g_j = ∇ log w_j = s_0 - s_j, the prior's score less that of the single observation, and Σ the covariance of
  the draws, the mean moves by Σ E[g_j] to first order (exactly, if the posterior is Gaussian and log w_j a straight line;
  "Generalizations of Stein's lemma", Landsman and Nešlehová, 2008, for the covariance of a draw with a function of it);
- by terms: where log p(x_j|u) = ℓ_j(u) is known up to a constant, by the same Cov(u, ℓ_j) = Σ E[∇ℓ_j], without derivatives;
- by draws: with draws given the other n - 1 observations, for any posterior. The difference of two means of L draws each has
  an error of √(2 / L) sd, which must be well below the 1 / √n that an observation usually counts.

The distance is √(Δᵀ Σ⁻¹ Δ): how many posterior sd the mean moves. Of n observations that all count alike each moves it by about
√(dim / n).
"""

from typing import NamedTuple

import numpy as np

from scorefold.errors import ScorefoldError
from scorefold.types import Float


class Influence(NamedTuple):
    """How far each observation pulls the posterior, by leaving it out: the shift of the mean and its distance. It shows which
    observation to look at where something is strange.
    """

    shift: Float[np.ndarray, "n dim"]
    """How far the observation pulls the posterior mean: with it less without it, in posterior sd."""
    distance: Float[np.ndarray, " n"]
    """Over all parameters together."""

    @property
    def order(self) -> list[int]:
        """The observations, the most influential first."""
        return np.argsort(-self.distance).tolist()


def influence_by_scores(
    u: Float[np.ndarray, "draws dim"],
    scores: Float[np.ndarray, "n draws dim"],
    prior_score: Float[np.ndarray, "draws dim"],
) -> Influence:
    """How far each observation pulls the posterior mean, from the scores of single observations at posterior draws.

    Args:
        u: posterior draws given all n observations, in the space where the scores were learned; more of them than parameters.
        scores: of the posterior given each single observation, at the draws.
        prior_score: at the draws.

    Returns:
        An `Influence`, with the shift and the distance of each observation.

    Raises:
        ScorefoldError: where shapes do not match or draws are too few.
    """
    u, scores = np.asarray(u, np.float64), np.asarray(scores, np.float64)
    if scores.ndim != 3 or scores.shape[1:] != u.shape or len(u) <= u.shape[1]:
        raise ScorefoldError(f"expected scores (n, draws, dim) at more draws than parameters; got {scores.shape} at {u.shape}")
    pull = (scores - prior_score).mean(axis=1)
    covariance = np.atleast_2d(np.cov(u, rowvar=False))
    return _influence(pull @ covariance, covariance)


def influence_by_terms(u: Float[np.ndarray, "draws dim"], terms: Float[np.ndarray, "draws n"]) -> Influence:
    """How far each observation pulls the posterior mean, from the logarithm of its likelihood at posterior draws.

    Args:
        u: posterior draws given all n observations; more of them than parameters.
        terms: log p(x_j|u) of every observation at the draws, up to a constant for each.

    Returns:
        An `Influence`, with the shift and the distance of each observation.

    Raises:
        ScorefoldError: where shapes do not match or draws are too few.

    Example:
        >>> u = np.random.default_rng(0).normal(size=(1_000, 1))
        >>> found = influence_by_terms(u, u * [0.0, 2.0])  # the second one says more, the larger u is
        >>> found.order, found.distance.round(1)
        ([1, 0], array([0., 2.]))
    """
    u, terms = np.asarray(u, np.float64), np.asarray(terms, np.float64)
    if u.ndim != 2 or terms.ndim != 2 or len(terms) != len(u) or len(u) <= u.shape[1]:
        raise ScorefoldError(
            f"expected terms (draws, n) at more draws than parameters, (draws, dim); got {terms.shape} at {u.shape}"
        )
    moved = (terms - terms.mean(axis=0)).T @ (u - u.mean(axis=0)) / len(u)
    return _influence(moved, np.atleast_2d(np.cov(u, rowvar=False)))


def influence_by_draws(u: Float[np.ndarray, "draws dim"], without: Float[np.ndarray, "n draws dim"]) -> Influence:
    """How far each observation pulls the posterior mean, from draws made without it.

    Args:
        u: posterior draws given all n observations; more of them than parameters.
        without: draws given all but each of the observations.

    Returns:
        An `Influence`, with the shift and the distance of each observation.

    Raises:
        ScorefoldError: where shapes do not match or draws are too few.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> u = rng.normal(size=(1_000, 1))
        >>> found = influence_by_draws(u, np.stack([u, u - 2.0]))  # without the second one, the mean is 2 sd lower
        >>> found.order, found.distance.round(1)
        ([1, 0], array([0., 2.]))
    """
    u, without = np.asarray(u, np.float64), np.asarray(without, np.float64)
    if without.ndim != 3 or without.shape[2] != u.shape[1] or len(u) <= u.shape[1]:
        raise ScorefoldError(
            f"expected draws (n, draws, dim), and more of them than parameters; got {without.shape}, {u.shape}"
        )
    return _influence(u.mean(axis=0) - without.mean(axis=1), np.atleast_2d(np.cov(u, rowvar=False)))


def _influence(moved: Float[np.ndarray, "n dim"], covariance: Float[np.ndarray, "dim dim"]) -> Influence:
    distance = np.sqrt(np.einsum("nd,nd->n", moved @ np.linalg.pinv(covariance), moved))
    return Influence(moved / np.sqrt(np.diag(covariance)), distance)
