"""TARP, tests of accuracy with random points: is the truth as close to an arbitrary point as the draws are?

For each data set take a reference point θ_r. If the posterior is right, the share f of draws closer to θ_r than θ* is uniform,
and the expected coverage P(f < p) is p for every level p. With θ_r that may depend on the data in any way this holds for the
right posterior alone ("Sampling-based accuracy testing of posterior estimators for general inference", Lemos, Coogan, Hezaveh
and Perreault-Levasseur, 2023); with θ_r independent of the data the prior passes too. Unlike coverage it looks at all
parameters jointly and needs no density. Distances are Euclidean, each parameter in units of the spread of its true values;
`ranks.py` is the test, with a false-alarm rate of 5 %."""

from typing import NamedTuple

import numpy as np

from scorefold.diagnostics.ranks import Uniformity, checked_draws, pooled_ranks, uniformity
from scorefold.errors import ScorefoldError
from scorefold.types import Float


class TARP(NamedTuple):
    """Expected coverage at every level, of all parameters together, by distances from random reference points, and the test of
    it. `tarp` computes it.
    """

    closer: Float[np.ndarray, " datasets"]
    """The share f of draws that are closer to the reference point than the truth."""
    uniformity: Uniformity
    """`at` the levels p, `seen` the expected coverage."""

    @property
    def p_value(self) -> float:
        """Below 5 % in 5 % of cases if the posterior is right."""
        return self.uniformity.p_value

    @property
    def area(self) -> float:
        """∫ (coverage - p) dp: below 0 the truth lies farther from the points than the draws, above it nearer."""
        at, seen = self.uniformity.at, self.uniformity.seen[0]
        return float(np.trapezoid(np.concatenate([[0], seen - at, [0]]), np.concatenate([[0], at, [1]])))


def tarp(
    truth: Float[np.ndarray, "datasets dim"],
    draws: Float[np.ndarray, "datasets draws dim"],
    references: Float[np.ndarray, "datasets dim"] | None = None,
    seed: int = 0,
) -> TARP:
    """Test whether the truth is as close to a reference point as the draws are, over all parameters jointly.

    Args:
        truth: the parameters that each of at least 20 data sets was simulated from.
        draws: at least 20 posterior draws given each data set.
        references: a point for each data set, any function of its observations. By default uniform over the range of the true
            values, which does not depend on the data: the prior then passes too.
        seed: of these points, of the order of equal distances, and of the test.

    Returns:
        A `TARP` with the expected coverage at every probability and a `p_value`.

    Raises:
        ScorefoldError: where shapes do not match or values are not finite.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> truth = rng.normal(size=(200, 2))
        >>> x = truth + rng.normal(size=truth.shape)
        >>> noise = np.sqrt(0.5) * rng.normal(size=(200, 100, 2))
        >>> tarp(truth, x[:, None] / 2 + noise, x).p_value > 0.05, tarp(truth, x[:, None] / 2 + 0.3 * noise, x).p_value < 0.05
        (True, True)
    """
    truth, draws = checked_draws(truth, draws)
    low, high = truth.min(axis=0), truth.max(axis=0)
    if references is None:
        references = np.random.default_rng([seed, 7]).uniform(low, high, truth.shape)
    references = np.asarray(references, np.float64)
    if references.shape != truth.shape or not np.isfinite(references).all():
        raise ScorefoldError(f"expected finite reference points of shape {truth.shape}; got {references.shape}")
    scale = np.maximum(truth.std(axis=0), 1e-300)
    distance = [np.linalg.norm((points - references[:, None]) / scale, axis=2) for points in (truth[:, None], draws)]
    ranks = pooled_ranks(distance[0], distance[1][..., None], seed)
    return TARP(ranks[:, 0, 0] / draws.shape[1], uniformity(ranks, seed))
