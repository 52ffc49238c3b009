"""Is the observed data set like anything the simulator makes? Each observation and the whole set, at a known false-alarm rate.

A network was trained on simulations and can say anything of data unlike all of them ("Detecting model misspecification in
amortized Bayesian inference with neural networks", Schmitt, Bürkner, Köthe and Radev, 2023). Here simulated data sets of n
observations each, kept aside, are cut in two: on the reference half everything is fitted, on the calibration half every
statistic is computed as it is for x_obs. If x_obs comes from the same prior and simulator, it is one more of these, its rank
among C of them is uniform, and

    p = (1 + number of calibration data sets at least as strange) / (C + 1)

is below 5 % in at most 5 % of cases, whatever the simulator ("Algorithmic learning in a random world", Vovk, Gammerman and
Shafer, 2005). How strange a data set is, by four statistics:

- far: the Mahalanobis distance of its summaries (`dataset_summaries.py`);
- alone: the distance of its summaries to the k-th nearest reference data set;
- one number off: the largest deviation of a single summary, in sd;
- one observation off: the largest distance of a single observation to its k-th nearest reference observation.

Their smallest p-value is ranked in the same way once more, so that the rate of the four together is 5 %. An observation's own
p-value is its distance among the largest ones of the calibration data sets: that any of n falls below 5 % happens in at most
5 % of cases.
"""

from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from scorefold.diagnostics.dataset_summaries import Scaling, fit_scaling, summaries
from scorefold.errors import ScorefoldError
from scorefold.report.p_values import FALSE_ALARMS, passes
from scorefold.shown import one_line
from scorefold.types import Float

NEIGHBOUR = 3
"""The k of the k-th nearest."""
MOST_REFERENCES = 5_000
"""Single observations to compare with."""
FEWEST_SIMULATED = 40
"""Data sets: half of them are the reference, and 20 ranks are needed for a p-value of 5 %."""


class Misspecification(NamedTuple):
    """How strange the observations are, as a set and one by one, among data sets simulated from the prior. `misspecification`
    computes it; `words` says it in words.
    """

    p_value: float
    """For the set, all statistics together; below 5 % in at most 5 % of cases if the model is right."""
    p_values: Float[np.ndarray, " statistics"]
    """Of each statistic alone: far, alone, one number off, one observation off."""
    p_observations: Float[np.ndarray, " n"]
    """Of each observation, adjusted for their number."""
    deviations: Float[np.ndarray, " summaries"]
    """Of the summaries, in sd: first the means of every number, then their sds."""

    numbers: int
    """In one observation."""
    x_names: tuple[str, ...] = ()
    """Of the numbers, where they have names."""

    @property
    def outliers(self) -> list[int]:
        """Observations that are like none simulated."""
        return np.flatnonzero(self.p_observations < FALSE_ALARMS).tolist()

    @property
    def words(self) -> str:
        """What to make of it."""
        if passes(self.p_value):
            return "like the simulated data sets"
        worst, numbers = int(np.abs(self.deviations).argmax()), self.numbers
        what = "level" if worst < numbers else "spread"
        name = one_line(self.x_names[worst % numbers]) if self.x_names else f"number {worst % numbers + 1}"
        text = f"UNLIKE the simulated data sets: most of all the {what} of {name}"
        if self.outliers:
            shown = ", ".join(map(str, self.outliers[:5])) + (", …" if len(self.outliers) > 5 else "")
            text += f"; observations like none simulated: {shown}"
        return text


def misspecification(
    x_obs: Float[np.ndarray, "n numbers"], simulated: Float[np.ndarray, "datasets n numbers"], seed: int = 0
) -> Misspecification:
    """Test whether the observed data set could have come from the prior and the simulator.

    Args:
        x_obs: n observations.
        simulated: at least 40 data sets of n observations, simulated over the prior and not trained on.
        seed: of the choice of single observations to compare with.

    Returns:
        A `Misspecification`: its `words` say what is off, its `outliers` which observations are like none simulated.

    Raises:
        ScorefoldError: where shapes do not match or data sets are too few.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> simulated = rng.normal(size=(100, 1, 2)) + rng.normal(size=(100, 5, 2))
        >>> misspecification(simulated[0] + [0.0, 20.0], simulated[1:]).words
        'UNLIKE the simulated data sets: most of all the level of number 2; observations like none simulated: 0, 1, 2, 3, 4'
    """
    x_obs, simulated = np.asarray(x_obs, np.float64), np.asarray(simulated, np.float64)
    if x_obs.ndim != 2 or simulated.shape[1:] != x_obs.shape or len(simulated) < FEWEST_SIMULATED:
        raise ScorefoldError(
            f"expected at least {FEWEST_SIMULATED} simulated data sets of shape {x_obs.shape}, like the observed; got "
            f"{simulated.shape}"
        )
    reference, calibration = simulated[: len(simulated) // 2], simulated[len(simulated) // 2 :]
    scaling = fit_scaling(reference.reshape(-1, reference.shape[2]))
    tests = np.concatenate([calibration, x_obs[None]])
    deviations, distances = _deviations(tests, reference, scaling), _distances(tests, reference, scaling, seed)
    strange = np.stack([*_set_statistics(deviations, reference, scaling), distances.max(axis=1)], axis=1)
    # Every data set is ranked among all of them, itself included: they are all treated alike.
    p_all = np.mean(strange[None] >= strange[:, None], axis=1)
    smallest = p_all.min(axis=1)
    largest = distances[:-1].max(axis=1)
    p_observations = (1 + (largest[:, None] >= distances[-1]).sum(axis=0)) / len(tests)
    p_value = float(np.mean(smallest <= smallest[-1]))
    return Misspecification(p_value, p_all[-1], p_observations, deviations[-1], x_obs.shape[1])


def _deviations(tests: np.ndarray, reference: np.ndarray, scaling: Scaling) -> Float[np.ndarray, "datasets summaries"]:
    """Summaries in sd of the reference data sets'."""
    kept = summaries(reference, scaling)
    return (summaries(tests, scaling) - kept.mean(axis=0)) / np.maximum(kept.std(axis=0), 1e-9)


def _set_statistics(
    deviations: Float[np.ndarray, "datasets summaries"], reference: np.ndarray, scaling: Scaling
) -> list[Float[np.ndarray, " datasets"]]:
    """far, alone, one number off."""
    kept = _deviations(reference, reference, scaling)
    covariance = np.cov(kept, rowvar=False).reshape(2 * [kept.shape[1]])
    few = kept.shape[1] / (kept.shape[1] + len(kept))
    root = np.linalg.cholesky(np.linalg.inv((1 - few) * covariance + (few + 1e-9) * np.eye(kept.shape[1])))
    nearest = cKDTree(kept @ root).query(deviations @ root, k=[min(NEIGHBOUR, len(kept))])[0][:, 0]
    return [np.linalg.norm(deviations @ root, axis=1), nearest, np.abs(deviations).max(axis=1)]


def _distances(tests: np.ndarray, reference: np.ndarray, scaling: Scaling, seed: int) -> Float[np.ndarray, "datasets n"]:
    """The distance of every single observation to its k-th nearest reference observation."""
    singles = scaling(reference.reshape(-1, reference.shape[2]))
    rng = np.random.default_rng([seed, 11])
    singles = singles[rng.permutation(len(singles))[:MOST_REFERENCES]]
    flat = scaling(tests.reshape(-1, tests.shape[2]))
    return cKDTree(singles).query(flat, k=[min(NEIGHBOUR, len(singles))])[0].reshape(tests.shape[:2])
