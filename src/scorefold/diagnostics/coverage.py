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

from scorefold.diagnostics.ranks import Uniformity, checked, pooled_ranks, uniformity
from scorefold.errors import ScorefoldError
from scorefold.types import Float

KINDS = ("central", "highest density")
TOGETHER = "all together"


class Coverage(NamedTuple):
    """Coverage of each parameter's intervals, and of the ellipsoid for all of them."""

    names: tuple[str, ...]
    """The parameters, and "all together" where there are several."""
    kind: str
    uniformity: Uniformity
    """`at` the levels p, `seen` the coverage."""

    def at(self, level: float) -> Float[np.ndarray, "quantities"]:
        """Coverage at the nearest level."""
        return self.uniformity.seen[:, np.abs(self.uniformity.at - level).argmin()]


def coverage(
    truth: Float[np.ndarray, "datasets dim"],
    draws: Float[np.ndarray, "datasets draws dim"],
    names: Sequence[str],
    kind: str = "central",
    seed: int = 0,
) -> Coverage:
    """Coverage at every level, with a band for all levels, parameters and the ellipsoid together."""
    if kind not in KINDS:
        raise ScorefoldError(f"expected kind to be one of {', '.join(KINDS)}; got {kind!r}")
    truth, draws = checked(truth, draws)
    pooled = np.concatenate([truth[:, None], draws], axis=1)
    score = _off_centre(pooled) if kind == "central" else _sparseness(pooled)
    names = tuple(names)
    if truth.shape[1] > 1:
        score = np.concatenate([score, _mahalanobis(pooled)], axis=2)
        names = (*names, TOGETHER)
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
    centred = pooled - pooled.mean(axis=1, keepdims=True)
    covariance = np.einsum("sld,sle->sde", centred, centred) / pooled.shape[1]
    dim = pooled.shape[2]
    covariance += 1e-9 * (np.trace(covariance, axis1=1, axis2=2) / dim)[:, None, None] * np.eye(dim)
    return np.einsum("sld,sld->sl", centred @ np.linalg.inv(covariance), centred)[..., None]
