"""Expected coverage: does an interval that claims to hold the truth with probability p hold it in a share p of data sets?

For every parameter two kinds of interval, and for all of them together an ellipsoid:

- central: between the (1-p)/2 and the (1+p)/2 quantile of the draws; the truth is inside when its rank is close enough to
  the middle;
- highest density: the region where the density of the draws is highest, which may be in several pieces ("Computing and
  graphing highest density regions", Hyndman, 1996); the density at a draw is k over the distance to its k-th neighbour below
  and above, k = √L;
- ellipsoid: the draws closest to their mean in the metric of their covariance.

Whether θ* is inside the region of level p is whether its rank in such a score is at most p: of its distance from the middle,
its sparseness or its Mahalanobis distance. Each score treats θ* and the draws alike, so the ranks are uniform if the posterior
is right, for any number of draws, and `ranks.py` tests it. Coverage below p is over-confidence ("A crisis in simulation-based
inference? Beware, your posterior approximations can be unfaithful", Hermans, Delaunoy, Rozet, Wehenkel, Begy and Louppe, 2022).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scorefold.diagnostics.moments import centred_with_precision
from scorefold.diagnostics.ranks import Uniformity, checked_draws, pooled_ranks, uniformity
from scorefold.errors import ScorefoldError
from scorefold.types import Float

REGION_KINDS = ("central", "highest density")
ALL_PARAMETERS = "all together"


class Coverage(NamedTuple):
    """How often credible sets hold the truth: the intervals of each parameter, and the ellipsoid for all of them. `coverage`
    computes it; `sf.diagnose` holds two, of central and of highest-density sets.
    """

    names: tuple[str, ...]
    """The parameters, and "all together" where there are several."""
    kind: str
    uniformity: Uniformity
    """`at` the levels p, `seen` the coverage."""

    def at(self, level: float) -> Float[np.ndarray, " quantities"]:
        """Coverage at the level that is nearest to this one among those that were looked at.

        Args:
            level: The share of the posterior in a set, between 0 and 1.

        Returns:
            (quantities,), the share of the data sets in which the set held the truth; right is `level` itself.
        """
        return self.uniformity.seen[:, np.abs(self.uniformity.at - level).argmin()]


def coverage(
    truth: Float[np.ndarray, "datasets dim"],
    draws: Float[np.ndarray, "datasets draws dim"],
    names: Sequence[str],
    kind: str = "central",
    seed: int = 0,
) -> Coverage:
    """How often regions of every probability hold the truth, with a band for all of them together.

    Args:
        truth: the parameters that each of at least 20 data sets was simulated from.
        draws: at least 20 posterior draws given each data set.
        names: of the parameters.
        kind: "central" intervals, or those of "highest density", which may be in several pieces.
        seed: of the order of equal values, and of the test.

    Returns:
        A `Coverage`, for each parameter and, where there are several, for the ellipsoid of "all together".

    Raises:
        ScorefoldError: where the kind is unknown, shapes do not match or values are not finite.

    Example:
        The draws are half as wide as they should be: intervals of 90 % hold the truth less often.

        >>> rng = np.random.default_rng(0)
        >>> truth = rng.normal(size=(200, 1))
        >>> x = truth + rng.normal(size=truth.shape)
        >>> draws = x[:, None] / 2 + 0.5 * np.sqrt(0.5) * rng.normal(size=(200, 100, 1))
        >>> found = coverage(truth, draws, ["theta"])
        >>> bool(found.at(0.9)[0] < 0.75), found.uniformity.p_value < 0.05
        (True, True)
    """
    if kind not in REGION_KINDS:
        raise ScorefoldError(f"expected kind to be one of {', '.join(REGION_KINDS)}; got {kind!r}")
    truth, draws = checked_draws(truth, draws)
    pooled = np.concatenate([truth[:, None], draws], axis=1)
    score = _off_centre(pooled) if kind == "central" else _sparseness(pooled)
    names = tuple(names)
    if truth.shape[1] > 1:
        score = np.concatenate([score, _mahalanobis(pooled)], axis=2)
        names = (*names, ALL_PARAMETERS)
    return Coverage(names, kind, uniformity(pooled_ranks(score[:, 0], score[:, 1:], seed), seed))


Scores = Float[np.ndarray, "datasets pooled quantities"]


def _off_centre(pooled: Scores) -> Scores:
    """How far the rank is from the middle one."""
    ranks = pooled_ranks(pooled[:, 0], pooled[:, 1:])
    return np.abs(ranks - (pooled.shape[1] - 1) / 2)


def _sparseness(pooled: Scores) -> Scores:
    """The distance between the k-th neighbours below and above; at the ends of the range, twice that to the one there is."""
    count = pooled.shape[1]
    k = max(1, round(np.sqrt(count)))
    order = np.argsort(pooled, axis=1)
    sorted_ = np.take_along_axis(pooled, order, axis=1)
    place = np.arange(count)
    below, above = np.maximum(place - k, 0), np.minimum(place + k, count - 1)
    width = (sorted_[:, above] - sorted_[:, below]) * (2 * k / (above - below))[:, None]
    score = np.empty_like(width)
    np.put_along_axis(score, order, width, axis=1)
    return score


def _mahalanobis(pooled: Float[np.ndarray, "datasets pooled dim"]) -> Float[np.ndarray, "datasets pooled 1"]:
    """The squared distance from the mean, in the metric of the covariance."""
    centred, precision = centred_with_precision(pooled)
    return np.einsum("sld,sld->sl", centred @ precision, centred)[..., None]
