"""Predictive checks: do data sets simulated from the posterior (or from the prior) look like the one that was observed?

With a statistic t and replicated data sets x_1 … x_R of n observations each, the two-sided p-value

    p = 2 min{ share of t(x_r) ≥ t(x_obs), share of t(x_r) ≤ t(x_obs) }

is small where the model cannot produce what was seen ("Posterior predictive assessment of model fitness via realized
discrepancies", Gelman, Meng and Stern, 1996). Replicates from the prior make it an ordinary test: below 5 % in 5 % of cases for
each statistic, if the model is right. Replicates from the posterior have seen the data once already, and p is then below 5 % in
at most 5 % of cases, often in far fewer: a small p means what it says, a large one little.

All statistics together: the observed data set's largest deviation from the mean over the replicates and itself, in sd, is
ranked among those of all the replicates.

The statistics, for every number of an observation: mean, sd, and the 5 %, 50 % and 95 % quantiles over the n observations (with
one observation, its value).
"""

import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from scorefold.errors import ScorefoldError
from scorefold.simulation.likeness import COLUMN_KINDS, kinds_of
from scorefold.types import Float

FEWEST_REPLICATES = 20

Statistic = Callable[[Float[np.ndarray, "datasets n numbers"]], Float[np.ndarray, "datasets numbers"]]

STATISTICS: dict[str, Statistic] = {
    "mean": lambda x: np.nanmean(x, axis=1),
    "sd": lambda x: np.nanstd(x, axis=1),
    "5 %": lambda x: np.nanquantile(x, 0.05, axis=1),
    "median": lambda x: np.nanmedian(x, axis=1),
    "95 %": lambda x: np.nanquantile(x, 0.95, axis=1),
}


class Predictive(NamedTuple):
    """Observations next to data sets simulated from the posterior: each statistic, observed and replicated. `predictive`
    computes it, and `Diagnosis.figures` shows it.
    """

    names: tuple[str, ...]
    observed: Float[np.ndarray, "statistics numbers"]
    replicated: Float[np.ndarray, "replicates statistics numbers"]
    p_values: Float[np.ndarray, "statistics numbers"]
    """Two-sided, not adjusted for their number."""
    p_value: float
    """For all together: the share of data sets with a deviation as large as the observed one's."""
    x_obs: Float[np.ndarray, "n numbers"]
    x: Float[np.ndarray, "replicates n numbers"]
    """The replicated data sets themselves."""
    x_names: tuple[str, ...] = ()
    """Of the numbers, where they have names."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """What each number is, as far as observed and replicated ones show it: constant, binary, count or continuous."""
        together = np.concatenate([self.x_obs, self.x.reshape(-1, self.x.shape[2])])
        holes = np.isnan(together)
        together = np.where(holes, np.where(holes, np.inf, together).min(axis=0), together)
        return tuple(COLUMN_KINDS[kind] for kind in kinds_of(together))

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the numbers, or their places."""
        return self.x_names or tuple(f"number {i + 1}" for i in range(self.x_obs.shape[1]))


def predictive(
    x_obs: Float[np.ndarray, "n numbers"],
    replicated: Float[np.ndarray, "replicates n numbers"],
    statistics: Mapping[str, Statistic] | None = None,
) -> Predictive:
    """Compare the observed data set with replicated ones, statistic by statistic.

    Args:
        x_obs: n observations, NaN where a number is missing; it is then left out of the replicated ones, too.
        replicated: at least 20 data sets of n observations: simulated from posterior draws for a posterior predictive check,
            from prior draws for a prior predictive one.
        statistics: functions of data sets (datasets, n, numbers) → (datasets, numbers) by name; by default mean, sd and
            quantiles over the observations.

    Returns:
        A `Predictive` with a p-value for each statistic and number, and one for all together.

    Raises:
        ScorefoldError: where shapes do not match or replicates are too few.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> found = predictive(rng.normal(9, 1, size=(5, 1)), rng.normal(size=(100, 5, 1)))
        >>> found.names, found.p_value < 0.05
        (('mean', 'sd', '5 %', 'median', '95 %'), True)
    """
    x_obs, replicated = np.asarray(x_obs, np.float64), np.asarray(replicated, np.float64)
    if x_obs.ndim != 2 or replicated.shape[1:] != x_obs.shape or len(replicated) < FEWEST_REPLICATES:
        raise ScorefoldError(
            f"expected at least {FEWEST_REPLICATES} replicates of shape {x_obs.shape}, like the observations; got "
            f"{replicated.shape}"
        )
    chosen = dict(statistics or STATISTICS)
    if statistics is None and len(x_obs) == 1:
        chosen = {"value": STATISTICS["mean"]}
    replicated = np.where(np.isnan(x_obs), np.nan, replicated)
    both = np.concatenate([x_obs[None], replicated])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a number that is always missing, which is then 0 in all data sets
        values = np.nan_to_num(np.stack([statistic(both) for statistic in chosen.values()], axis=1))
    observed, others = values[0], values[1:]
    # Counting the observed one too keeps the rate right for any number of replicates.
    above, below = (1 + (others >= observed).sum(axis=0)), (1 + (others <= observed).sum(axis=0))
    p_values = np.minimum(1.0, 2 * np.minimum(above, below) / len(both))
    deviation = np.abs(values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-300)
    largest = deviation.max(axis=(1, 2))
    together = float(np.mean(largest >= largest[0]))
    return Predictive(tuple(chosen), observed, others, p_values, together, x_obs, replicated)
