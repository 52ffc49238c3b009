"""What training does not change: standardisation, Gaussian base and noise levels, which go as low as posteriors are narrow.

Noise of sd σ at the lowest level makes a posterior of sd r wider by √(1 + σ²/r²), whatever the number of sets, so σ should be a
tenth of the smallest r, which the simulations tell. Along a direction v, with μ(X) the Gaussian base's mean:

- what the base leaves over, v·(u - μ), is as wide as the posterior where the base's straight line is right;
- the difference of v·u between cases that are neighbours when sorted by v·μ, over √2, is so too where the line is bent, as it
  is for every prior that is not normal.

Both are mixtures of narrow and wide posteriors. Of a mixture the smallest twentieth of absolute values tells the width of the
narrow part; divided by that of a standard normal variable it is the sd of one Gaussian, and near the harmonic mean of
several. The directions are the parameters' axes and the eigenvectors of the base's covariance.

Where numbers of an observation may be missing, the base is fitted to single observations, by what there is of each
(`masked_base.py`), and the mean μ(X) of every case is its own.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

from scorefold.noise import CLEAN, LEAST_NOISE, RESOLVED, Level, levels
from scorefold.score.gaussian_base import GaussianBase, fit_gaussian_base
from scorefold.score.masked_base import MaskedBase, fit_masked_base_to_sets
from scorefold.score.standardize import Standardize, fit_standardize, standardized
from scorefold.train.training_set import TrainingSet
from scorefold.types import Float

NOISE_SHARE = 0.1
"""Of a posterior's sd, which the lowest noise may have: 0.5 % of width."""
NARROW_PART = 0.05
"""The share of absolute values that tells the width."""
FEWEST_OF_A_SIZE = 50
"""Below them a size's posterior is not looked at."""
MOST_WITH_HOLES = 20_000
"""Cases with missing numbers by which the lowest noise is found."""


class Fixed(NamedTuple):
    """What training does not change; `fit_fixed` makes it of the training set."""

    levels: Level
    standardize: Standardize
    base: GaussianBase | MaskedBase | None


def fit_fixed(cases: TrainingSet, schedule: str, T: int, base: bool, smallest: int, missing: bool) -> Fixed:
    """Fit what training does not change to its cases.

    Args:
        cases: The training set.
        schedule: The name of the noise schedule, as in `noise.levels`.
        T: How many noise levels there are.
        base: Whether there is a Gaussian base; without one the lowest noise is the schedule's.
        smallest: The smallest set that the base is fitted to: 1, or 0 where the prior is learned too.
        missing: Whether numbers of an observation may be missing (NaN).

    Returns:
        Standardisation, base and noise levels.
    """
    standardize = fit_standardize(cases.observations, missing)
    if not base:
        return Fixed(levels(schedule, T), standardize, None)
    if missing:
        return _fit_with_missing(cases, schedule, T, standardize)
    x = standardized(standardize, cases.x)
    line = fit_gaussian_base(x, cases.sizes, cases.u, smallest=smallest)
    return Fixed(levels(schedule, T, least=least_noise(line, x, cases.sizes, cases.u)), standardize, line)


def _fit_with_missing(cases: TrainingSet, schedule: str, T: int, standardize: Standardize) -> Fixed:
    x = standardized(standardize, cases.x)
    base = fit_masked_base_to_sets(x, cases.sizes, cases.u)
    some = np.unique(cases.u[:, 0], return_index=True)[1][:MOST_WITH_HOLES]  # copies of a case share u
    mean = np.asarray(jax.lax.map(lambda case: base.of(*case)[0], (jnp.asarray(x[some]), jnp.asarray(cases.sizes[some]))))
    axes = np.linalg.eigh(np.asarray(base.matrix(1.0, CLEAN, jnp.ones((), jnp.int32))))[1].T
    least = _least_noise_around(mean, cases.u[some], np.concatenate([np.eye(cases.u.shape[1]), axes]))
    return Fixed(levels(schedule, T, least=least), standardize, base)


def least_noise(base: GaussianBase, x: np.ndarray, sizes: np.ndarray, u: np.ndarray) -> float:
    """How low the noise has to go for the narrowest posterior of a single set.

    Args:
        base: The Gaussian base that was fitted to the cases.
        x: (cases, m, x), standardised observations.
        sizes: (cases,), how many each case has.
        u: (cases, dim), the parameters.

    Returns:
        The sd of the noise at the lowest level: a tenth of the smallest posterior sd, within the limits of `noise.py`.
    """
    narrowest = 1.0
    for size in np.unique(sizes[sizes > 0]):
        rows = sizes == size
        if rows.sum() < FEWEST_OF_A_SIZE:
            continue
        row = 0 if len(base.weight) == 1 else size - base.smallest
        mean = x[rows, :size].mean(axis=1) @ np.asarray(base.weight[row]).T + np.asarray(base.offset[row])
        directions = np.concatenate([np.eye(u.shape[1]), np.asarray(base.vectors[row]).T])
        narrowest = min(narrowest, *(_width(u[rows] @ v, mean @ v) for v in directions))
    return float(np.clip(NOISE_SHARE * narrowest, RESOLVED, LEAST_NOISE))


def _least_noise_around(
    mean: Float[np.ndarray, "cases dim"], u: Float[np.ndarray, "cases dim"], directions: Float[np.ndarray, "some dim"]
) -> float:
    """`least_noise` from the base's mean of every case, for a base that differs from set to set; along these directions."""
    narrowest = min(1.0, *(_width(u @ v, mean @ v) for v in directions))
    return float(np.clip(NOISE_SHARE * narrowest, RESOLVED, LEAST_NOISE))


def _width(u: np.ndarray, mean: np.ndarray) -> float:
    """Along one direction, of the narrow part of what is left of u."""
    steps = np.diff(u[np.argsort(mean, kind="stable")]) / np.sqrt(2)
    normal = norm.ppf((1 + NARROW_PART) / 2)
    return min(float(np.quantile(np.abs(v), NARROW_PART)) / normal for v in (u - mean, steps))
