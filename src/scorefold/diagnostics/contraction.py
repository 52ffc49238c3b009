"""What the data taught: how much narrower than the prior the posterior is, and how far from the truth it lies.

    contraction = 1 - posterior variance / prior variance        z = (posterior mean - truth) / posterior sd

for each data set and parameter ("Toward a principled Bayesian workflow in cognitive science", Schad, Betancourt and Vasishth,
2021). Contraction near 1: the data decide; near 0: the parameter is not identified, or the posterior ignores the data. |z|
above about 3 in more than 1 % of data sets: over-confident or biased."""

from typing import NamedTuple

import numpy as np

from scorefold.diagnostics.ranks import checked
from scorefold.errors import ScorefoldError
from scorefold.types import Float


class Contraction(NamedTuple):
    """For each data set and parameter."""

    contraction: Float[np.ndarray, "datasets dim"]
    z: Float[np.ndarray, "datasets dim"]

    @property
    def typical(self) -> Float[np.ndarray, "dim"]:
        """The median contraction of each parameter."""
        return np.median(self.contraction, axis=0)


def contraction(
    truth: Float[np.ndarray, "datasets dim"],
    draws: Float[np.ndarray, "datasets draws dim"],
    prior_variance: Float[np.ndarray, "dim"],
) -> Contraction:
    """Contraction and z-score of every data set's draws (at least 20 of 20 each)."""
    truth, draws = checked(truth, draws)
    prior_variance = np.asarray(prior_variance, np.float64)
    if prior_variance.shape != truth.shape[1:] or not (prior_variance > 0).all():
        raise ScorefoldError(f"expected a prior variance > 0 for each of {truth.shape[1]} parameters; got {prior_variance}")
    variance = draws.var(axis=1, ddof=1)
    sd = np.sqrt(np.maximum(variance, 1e-300))
    return Contraction(1 - variance / prior_variance, (draws.mean(axis=1) - truth) / sd)
