"""The energy score: how far posterior draws lie from the truth, with credit for saying how uncertain they are.

    ES(P, θ*) = E|X - θ*| - ½ E|X - X'|,   X and X' independent draws of P

("Strictly proper scoring rules, prediction, and estimation", Gneiting and Raftery, 2007). Lower is better. It is strictly
proper: averaged over θ* of a posterior Q, it is lowest for P = Q and for no other P. Draws that are too narrow, too wide,
shifted or wrong in shape all cost something, and so do calibrated draws that ignore the data. In one dimension it is the
continuous ranked probability score.

Both means are taken over the draws, the second over pairs of different ones, so that the estimate is unbiased for any number
of draws ("Fair scores for ensemble forecasts", Ferro, 2014).

Limiting cases. For draws that are all equal, it is their distance to the truth. For P = Q = N(μ, σ²) its mean is σ/√π. Draws r
times as wide as they should be, with the right mean, cost σ (√(2 (1 + r²)) - r)/√π.
"""

import numpy as np
from scipy.spatial.distance import pdist

from scorefold.diagnostics.ranks import checked_draws
from scorefold.types import Float

MOST_IN_PAIRS = 1_000
"""Draws of which all pairs are taken; of more, so many at even distances."""


def energy_score(
    truth: Float[np.ndarray, "datasets dim"], draws: Float[np.ndarray, "datasets draws dim"]
) -> Float[np.ndarray, " datasets"]:
    """The energy score of posterior draws against the true parameters, for each data set; lower is better.

    Take its mean over data sets to compare posteriors. Parameters should be in comparable units, since distances are taken
    over all of them together: divide each by its sd first.

    Args:
        truth: the parameters that each of at least 20 data sets was simulated from.
        draws: at least 20 posterior draws given each data set.

    Returns:
        A score for each data set, in the parameters' units. A single one may fall a little below 0, the mean does not.

    Raises:
        ScorefoldError: where shapes do not match, or values are not finite.

    Example:
        The right posterior of θ ~ N(0, 1) given x ~ N(θ, 1) against the prior.

        >>> rng = np.random.default_rng(0)
        >>> truth = rng.normal(size=(500, 1))
        >>> x = truth + rng.normal(size=truth.shape)
        >>> right = x[:, None] / 2 + np.sqrt(0.5) * rng.normal(size=(500, 100, 1))
        >>> prior = rng.normal(size=(500, 100, 1))
        >>> bool(energy_score(truth, right).mean() < energy_score(truth, prior).mean())
        True
    """
    truth, draws = checked_draws(truth, draws)
    apart = np.linalg.norm(draws - truth[:, None], axis=2).mean(axis=1)
    step = -(-draws.shape[1] // MOST_IN_PAIRS)
    return apart - np.array([pdist(one[::step]).mean() for one in draws]) / 2
