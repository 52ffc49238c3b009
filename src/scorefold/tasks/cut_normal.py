"""The standard normal distribution cut to an interval (low, high), in logarithms so that no tail underflows.

Φ keeps its digits below 0, so an interval that lies mostly above 0 is mirrored first.
"""

import numpy as np
from scipy.special import log_ndtr, ndtri_exp


def log_mass(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """log(Φ(high) - Φ(low)), the log of the mass of N(0, 1) between these ends, without underflow."""
    low, high, _ = _below(low, high)
    return log_ndtr(high) + np.log1p(-np.exp(log_ndtr(low) - log_ndtr(high)))


def quantile(low: np.ndarray, high: np.ndarray, part: np.ndarray) -> np.ndarray:
    """The quantiles at `part`, between 0 and 1, of N(0, 1) cut to (low, high); uniform parts give draws."""
    low, high, sign = _below(low, high)
    return sign * ndtri_exp(np.logaddexp(log_ndtr(low) + np.log1p(-part), log_ndtr(high) + np.log(part)))


def _below(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The interval mirrored to where most of it is below 0, and the sign that does it."""
    mirrored = low + high > 0
    return np.where(mirrored, -high, low), np.where(mirrored, -low, high), np.where(mirrored, -1.0, 1.0)
