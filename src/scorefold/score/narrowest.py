"""How narrow the posterior of a single set is, and how low the noise has to go for it.

Noise of sd σ at the lowest level makes a posterior of sd r wider by √(1 + σ²/r²), whatever the number of sets, so σ should be a
tenth of the smallest r, which the simulations tell. Along a direction v, with μ(X) the Gaussian base's mean:

- what the base leaves over, v·(u - μ), is as wide as the posterior where the base's straight line is right;
- the difference of v·u between cases that are neighbours when sorted by v·μ, over √2, is so too where the line is bent, as it
  is for every prior that is not normal.

Both are mixtures of narrow and wide posteriors. Of a mixture the smallest twentieth of absolute values tells the width of the
narrow part; divided by that of a standard normal variable it is the sd of one Gaussian, and near the harmonic mean of
several. The directions are the parameters' axes and the eigenvectors of the base's covariance.
"""

import numpy as np
from scipy.stats import norm

from scorefold.noise import LEAST_NOISE, RESOLVED
from scorefold.score.gaussian_base import GaussianBase
from scorefold.types import Float

SHARE = 0.1
"""Of a posterior's sd, which the lowest noise may have: 0.5 % of width."""
SMALLEST = 0.05
"""The share of absolute values that tells the width."""
FEWEST_CASES = 50
"""Below them a size's posterior is not looked at."""


def least_noise(base: GaussianBase, x: np.ndarray, sizes: np.ndarray, u: np.ndarray) -> float:
    """The sd of the noise that the lowest level should have, from standardised cases (cases, m, x) of several sizes."""
    narrowest = 1.0
    for size in np.unique(sizes[sizes > 0]):
        rows = sizes == size
        if rows.sum() < FEWEST_CASES:
            continue
        row = 0 if len(base.weight) == 1 else size - base.smallest
        mean = x[rows, :size].mean(axis=1) @ np.asarray(base.weight[row]).T + np.asarray(base.offset[row])
        directions = np.concatenate([np.eye(u.shape[1]), np.asarray(base.vectors[row]).T])
        narrowest = min(narrowest, *(_width(u[rows] @ v, mean @ v) for v in directions))
    return float(np.clip(SHARE * narrowest, RESOLVED, LEAST_NOISE))


def least_noise_around(
    mean: Float[np.ndarray, "cases dim"], u: Float[np.ndarray, "cases dim"], directions: Float[np.ndarray, "some dim"]
) -> float:
    """The same from the base's mean of every case, for a base that differs from set to set; along these directions."""
    narrowest = min(1.0, *(_width(u @ v, mean @ v) for v in directions))
    return float(np.clip(SHARE * narrowest, RESOLVED, LEAST_NOISE))


def _width(u: np.ndarray, mean: np.ndarray) -> float:
    """Along one direction, of the narrow part of what is left of u."""
    steps = np.diff(u[np.argsort(mean, kind="stable")]) / np.sqrt(2)
    normal = norm.ppf((1 + SMALLEST) / 2)
    return min(float(np.quantile(np.abs(v), SMALLEST)) / normal for v in (u - mean, steps))
