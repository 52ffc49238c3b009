"""Are the ranks uniform? The test under SBC, coverage and TARP, exact for any number of dependent quantities.

Draw θ* from the prior, a data set x from θ*, and L draws from the posterior given x. If the posterior is right, θ* and the
draws are L + 1 independent draws from one distribution, whatever it is. So the rank of a quantity T(θ*, x) among T(θ_1, x) …
T(θ_L, x) is uniform on 0 … L. Over S data sets, the number of ranks below c is binomial with S trials of probability c / (L +
1), and

    γ = min over c of 2 min{ F(k_c), 1 - F(k_c - 1) },   F the binomial's distribution function, k_c the number seen,

is how unusual the empirical distribution is at its most unusual place. The values of k_c that keep γ above its 5 % quantile are
a band that holds the whole empirical distribution with probability 95 % ("Graphical test for discrete uniformity and its
applications in goodness-of-fit evaluation and multiple sample comparison", Säilynoja, Bürkner and Vehtari, 2022).

Several quantities have ranks that depend on each other in ways nobody knows. Their joint distribution under a right posterior
is nevertheless at hand: θ* could be exchanged with any of the draws. Taking a random one of the L + 1 in the place of θ* in
every data set gives one more set of ranks, and many of them the null distribution of the smallest γ of all quantities. A
quantity's p-value is the share of these that are as small as its own γ ("Resampling-based multiple testing", Westfall and
Young, 1993): the probability that any of them falls below 5 % is 5 %, in total.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import stats

from scorefold.errors import ScorefoldError
from scorefold.report.p_values import FALSE_ALARMS
from scorefold.types import Float, Int

MOST_CUTS = 50
"""At how many places at most the empirical distribution is looked at."""
EXCHANGES = 1_000
"""Exchanges of θ*; p-values are multiples of 1 / (this + 1)."""
FEWEST_RANKED = 20
"""Data sets, and draws for each of them: with fewer, nothing can be said."""

Pooled = Int[np.ndarray, "datasets pooled quantities"]
"""In every data set the ranks of θ* (first) and of all the draws among each other."""


class Uniformity(NamedTuple):
    """How uniform ranks are, quantity by quantity and in total: where their distribution was looked at, what was seen there,
    and p-values. All calibration tests rest on it.
    """

    at: Float[np.ndarray, " cuts"]
    """Where the empirical distribution is looked at, between 0 and 1."""
    seen: Float[np.ndarray, "quantities cuts"]
    """The share of ranks below."""
    low: Float[np.ndarray, " cuts"]
    high: Float[np.ndarray, " cuts"]
    """The band: all lines stay within it with probability 95 % if the posterior is right."""
    gamma: Float[np.ndarray, " quantities"]
    p_values: Float[np.ndarray, " quantities"]
    """Adjusted for their number: the smallest is below 5 % in 5 % of cases if the posterior is right."""

    @property
    def p_value(self) -> float:
        """The p-value of all quantities together."""
        return float(self.p_values.min())


def pooled_ranks(
    truth: Float[np.ndarray, "datasets quantities"], draws: Float[np.ndarray, "datasets draws quantities"], seed: int = 0
) -> Pooled:
    """Ranks within each data set of the true value (first) and all draws, from 0; equal values in random order.

    `truth` and `draws` are of at least 20 data sets with 20 draws each.

    >>> truth, draws = np.zeros((20, 1)), np.broadcast_to(np.linspace(-1, 1, 20)[:, None], (20, 20, 1))
    >>> pooled_ranks(truth, draws)[0, 0]  # ten of the 20 draws are below 0
    array([10])
    """
    truth, draws = checked_draws(truth, draws)
    values = np.concatenate([truth[:, None], draws], axis=1)
    datasets, pooled, quantities = values.shape
    ties = np.random.default_rng([seed, 5]).permuted(np.broadcast_to(np.arange(pooled), (datasets, quantities, pooled)), axis=2)
    order = np.lexsort((ties, np.moveaxis(values, 1, 2)), axis=2)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.broadcast_to(np.arange(pooled), order.shape), axis=2)
    return np.moveaxis(ranks, 2, 1)


def uniformity(ranks: Pooled, seed: int = 0, replicates: int = EXCHANGES) -> Uniformity:
    """Test whether the ranks of the true values are uniform, for all quantities together.

    Args:
        ranks: what `pooled_ranks` returns.
        seed: of the exchanges of the true values with draws.
        replicates: how many exchanges; p-values are multiples of 1 / (replicates + 1).

    Returns:
        A `Uniformity`, with the band that all lines stay within, and p-values adjusted for their number.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> right = pooled_ranks(rng.normal(size=(100, 1)), rng.normal(size=(100, 50, 1)))
        >>> narrow = pooled_ranks(rng.normal(size=(100, 1)), 0.5 * rng.normal(size=(100, 50, 1)))
        >>> uniformity(right).p_value > 0.05, uniformity(narrow).p_value < 0.05
        (True, True)
    """
    datasets, pooled = ranks.shape[:2]
    cuts = _cuts(pooled)
    tails = _tails(datasets, pooled)
    counts = _counts(ranks[:, 0].T, cuts)
    gamma = _gamma(counts, tails)
    rng = np.random.default_rng([seed, 6])
    null = np.empty(replicates)
    row = np.arange(datasets)
    for b in range(replicates):
        exchanged = ranks[row, rng.integers(pooled, size=datasets)]
        null[b] = _gamma(_counts(exchanged.T, cuts), tails).min()
    p_values = (1 + np.sum(null <= gamma[:, None] * (1 + 1e-12), axis=1)) / (replicates + 1)
    inside = tails >= np.quantile(null, FALSE_ALARMS)
    # The band is where γ would pass; both ends belong to it.
    low = inside.argmax(axis=1) / datasets
    high = (datasets - inside[:, ::-1].argmax(axis=1)) / datasets
    return Uniformity(cuts / pooled, counts / datasets, low, high, gamma, p_values)


def checked_draws(
    truth: Float[np.ndarray, "datasets quantities"], draws: Float[np.ndarray, "datasets draws quantities"]
) -> tuple[Float[np.ndarray, "datasets quantities"], Float[np.ndarray, "datasets draws quantities"]]:
    """True values and draws for calibration, checked.

    Args:
        truth: (data sets, quantities).
        draws: (data sets, draws, quantities).

    Returns:
        Both as float64.

    Raises:
        ScorefoldError: Shapes do not match, a number is not finite, or there are too few data sets or draws.
    """
    truth, draws = np.asarray(truth, np.float64), np.asarray(draws, np.float64)
    if truth.ndim != 2 or draws.ndim != 3 or truth.shape != (draws.shape[0], draws.shape[2]):
        raise ScorefoldError(
            f"expected true values (data sets, quantities) and draws (data sets, draws, quantities); got {truth.shape} and "
            f"{draws.shape}"
        )
    if min(draws.shape[:2]) < FEWEST_RANKED or truth.shape[1] == 0:
        raise ScorefoldError(
            f"expected at least {FEWEST_RANKED} data sets with {FEWEST_RANKED} draws each; got {draws.shape[0]} with "
            f"{draws.shape[1]}. 300 and 100 are a good start."
        )
    bad = ~(np.isfinite(truth).all(axis=1) & np.isfinite(draws).all(axis=(1, 2)))
    if bad.any():
        raise ScorefoldError(
            f"expected finite values; {bad.sum()} of {len(bad)} data sets hold NaN or infinity (first: {bad.argmax()}). "
            "Leave these data sets out, and count them: the diagnosis says nothing about them."
        )
    return truth, draws


def _cuts(pooled: int) -> Int[np.ndarray, " cuts"]:
    """Ranks below which to count: all of them, or evenly spaced ones."""
    return np.unique(np.round(np.linspace(0, pooled, min(MOST_CUTS, pooled - 1) + 2)[1:-1]).astype(int))


@lru_cache(maxsize=16)
def _tails(datasets: int, pooled: int) -> Float[np.ndarray, "cuts counts"]:
    """2 min{F(k), 1 - F(k-1)} for every cut and every count."""
    binomial = stats.binom(datasets, _cuts(pooled)[:, None] / pooled)
    k = np.arange(datasets + 1)
    return 2 * np.minimum(binomial.cdf(k), binomial.sf(k - 1))


def _counts(
    ranks: Int[np.ndarray, "quantities datasets"], cuts: Int[np.ndarray, " cuts"]
) -> Int[np.ndarray, "quantities cuts"]:
    """How many ranks are below each cut."""
    quantities = len(ranks)
    place = np.searchsorted(cuts, ranks, side="right") + (len(cuts) + 1) * np.arange(quantities)[:, None]
    histogram = np.bincount(place.ravel(), minlength=quantities * (len(cuts) + 1)).reshape(quantities, -1)
    return histogram.cumsum(axis=1)[:, :-1]


def _gamma(
    counts: Int[np.ndarray, "quantities cuts"], tails: Float[np.ndarray, "cuts counts"]
) -> Float[np.ndarray, " quantities"]:
    """How unusual each quantity is at its most unusual place."""
    return tails[np.arange(tails.shape[0]), counts].min(axis=1)
