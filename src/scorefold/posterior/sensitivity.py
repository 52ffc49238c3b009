"""What moves a posterior's means: each observation, and the prior.

Taking a power α of one factor of the posterior to 0, as leaving it out does, or a little off 1, moves the mean of θ. To first
order in α, for the factor e^{ℓ(u)},

    d E[θ] / dα = Cov(θ, ℓ(u)),      which for a Gaussian posterior is C E[∇ℓ(u)],  C = Cov(θ, u).

For an observation ℓ_j = log p(x_j|u): its learned term (NLE, NRE), or for composed scores by its gradient, the single score
less the prior's. Times -1 it is what leaving x_j out does; for n observations that count alike about √(1/n) posterior sd. For
the prior ℓ = log p(θ) ("Detecting and diagnosing prior and likelihood sensitivity with power-scaling", Kallioinen, Paananen,
Bürkner and Vehtari, 2023): near 0 the data decide, and near the size of a posterior sd the prior does.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from scorefold.errors import ScorefoldError
from scorefold.prior import Prior
from scorefold.shown import text_table
from scorefold.types import Float

MOST_SHOWN = 10
"""Observations in the table."""


@runtime_checkable
class HasTerms(Protocol):
    """Learned terms log p(x_j|u)."""

    def each_term(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """(points, n), up to what does not depend on u."""


@runtime_checkable
class HasSingleScores(Protocol):
    """Scores of single observations."""

    def single_scores(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The score of every observation alone (n, draws, dim), and the prior's (draws, dim)."""


@dataclass(frozen=True)
class Sensitivity:
    """What `posterior.sensitivity` returns: what each mean owes to each observation, and to the prior. Print it, the most
    influential observations first.

    All numbers are in posterior sd, to first order. One far larger than the others deserves a look: is the observation right?
    """

    names: tuple[str, ...]
    observations: Float[np.ndarray, "n dim"]
    """How far each observation pulls the means: with it less without it."""
    prior: Float[np.ndarray, " dim"]
    """How far the means move when the power of the prior rises by 1; 0 where the prior is flat."""

    @property
    def order(self) -> list[int]:
        """The observations, the most influential first."""
        return np.argsort(-np.abs(self.observations).max(axis=1), kind="stable").tolist()

    def __str__(self) -> str:
        rows = [("the prior", *(f"{value:+.2f}" for value in self.prior))]
        rows += [(f"observation {j}", *(f"{value:+.2f}" for value in self.observations[j])) for j in self.order[:MOST_SHOWN]]
        return text_table(("pulls the mean of", *self.names), rows)


def refuse_without_terms(posterior: Any, prior: Prior) -> None:
    """A ScorefoldError for a posterior whose single observations' part is not known, or its prior's."""
    if not isinstance(posterior, HasTerms | HasSingleScores):
        raise ScorefoldError(
            f"expected a posterior with a score or a likelihood of single observations; {type(posterior.method).__name__} has "
            "none. Use method='f-npse', 'pf-npse', 'nle' or 'nre'."
        )
    if not prior.has_density:
        raise ScorefoldError("expected a prior whose density is known; got one from draws. Write it down as a distribution.")


def sensitivity(posterior: Any, prior: Prior, x: np.ndarray, u: np.ndarray, theta: np.ndarray) -> Sensitivity:
    """Of draws u with parameters θ, given observations x (n, features)."""
    centred, sd = theta - theta.mean(axis=0), theta.std(axis=0)
    if isinstance(posterior, HasTerms):
        each = posterior.each_term(x, u)
        pull = (each - each.mean(axis=0)).T @ centred / len(u)
    else:
        scores, prior_score = posterior.single_scores(x, u)
        pull = (scores - prior_score).mean(axis=1) @ ((u - u.mean(axis=0)).T @ centred / len(u))
    height = prior.log_prob(theta)
    by_prior = (height - height.mean()) @ centred / len(u)
    return Sensitivity(prior.names, pull / sd, by_prior / sd)
