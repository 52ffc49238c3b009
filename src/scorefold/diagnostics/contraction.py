"""What the data taught: how much narrower than the prior the posterior is, and how far from the truth it lies.

    contraction = 1 - posterior variance / prior variance        z = (posterior mean - truth) / posterior sd

for each data set and parameter ("Toward a principled Bayesian workflow in cognitive science", Schad, Betancourt and Vasishth,
2021). Contraction near 1: the data decide; near 0: the parameter is not identified, or the posterior ignores the data. |z|
above about 3 in more than 1 % of data sets: over-confident or biased."""

from typing import NamedTuple

import numpy as np

from scorefold.diagnostics.ranks import checked_draws
from scorefold.errors import ScorefoldError
from scorefold.types import Float


class Contraction(NamedTuple):
    """How much narrower than the prior the posterior is, and how far its mean is from the truth, for each data set and
    parameter. `contraction` computes it.
    """

    contraction: Float[np.ndarray, "datasets dim"]
    z: Float[np.ndarray, "datasets dim"]

    @property
    def typical(self) -> Float[np.ndarray, " dim"]:
        """The median contraction of each parameter."""
        return np.median(self.contraction, axis=0)


def contraction(
    truth: Float[np.ndarray, "datasets dim"],
    draws: Float[np.ndarray, "datasets draws dim"],
    prior_variance: Float[np.ndarray, " dim"],
) -> Contraction:
    """How much the data narrow the prior, and how far the truth lies from the posterior mean.

    Args:
        truth: the parameters that each of at least 20 data sets was simulated from.
        draws: at least 20 posterior draws given each data set.
        prior_variance: of each parameter.

    Returns:
        A `Contraction` with `contraction` and `z` (data sets, dim), and the `typical` contraction of each parameter.

    Raises:
        ScorefoldError: where shapes do not match, values are not finite or a variance is not above 0.

    Example:
        Observations x = θ + noise of the prior's sd halve the variance.

        >>> rng = np.random.default_rng(0)
        >>> truth = rng.normal(size=(200, 1))
        >>> x = truth + rng.normal(size=truth.shape)
        >>> draws = x[:, None] / 2 + np.sqrt(0.5) * rng.normal(size=(200, 500, 1))
        >>> contraction(truth, draws, np.ones(1)).typical.round(1)
        array([0.5])
    """
    truth, draws = checked_draws(truth, draws)
    prior_variance = np.asarray(prior_variance, np.float64)
    if prior_variance.shape != truth.shape[1:] or not (prior_variance > 0).all():
        raise ScorefoldError(f"expected a prior variance > 0 for each of {truth.shape[1]} parameters; got {prior_variance}")
    variance = draws.var(axis=1, ddof=1)
    sd = np.sqrt(np.maximum(variance, 1e-300))
    return Contraction(1 - variance / prior_variance, (draws.mean(axis=1) - truth) / sd)
