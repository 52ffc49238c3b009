"""Noise levels t = 1 … T: how much of θ is left (γ_t) and how much each step takes away (α_t).

The diffusion kernel is p_t(θ_t | θ) = N(√γ_t θ, (1-γ_t) I) with γ_t falling from about 1 at t = 1 to about 0
at t = T; α_1 = γ_1 and α_t = γ_t / γ_{t-1}. Three schedules:

- `linear-beta`: β_t linear in t, γ_t = ∏ (1-β_s) ("Denoising diffusion probabilistic models", Ho, Jain and
  Abbeel, 2020), with β scaled by 1000/T so that γ_T does not depend on T;
- `cosine`: γ_t ∝ cos²(π/2 · (t/T + s)/(1 + s)), s = 0.008 ("Improved denoising diffusion probabilistic
  models", Nichol and Dhariwal, 2021);
- `log-snr`: log γ/(1-γ) falls linearly from +9.2 to -9.2, that is from noise of sd 0.01 to signal of sd 0.01.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from scorefold.errors import ScorefoldError, closest
from scorefold.types import Array, Cloud, Float, Key, Scalar

LOG_SNR_MAX = 9.2


class Level(NamedTuple):
    """One noise level, or a stack of levels to scan over, each field then an array with one entry for each."""

    t: Scalar | Float[Array, " levels"]
    """The index, 1 … T, as a float."""
    gamma: Scalar | Float[Array, " levels"]
    alpha: Scalar | Float[Array, " levels"]
    """γ of this level over γ of the next one below it in the stack (1 below the lowest)."""
    remaining: Scalar | Float[Array, " levels"]
    """(T-t)/T, the tempered prior's exponent."""


Score = Callable[[Cloud, Level, Key], Cloud]
"""The score of a cloud of draws at a level: what a rule hands out and a sampler takes. The key is for rules that look at some
of the sets only."""
LogDensity = Callable[[Cloud, Level], Float[Array, " draws"]]
"""What a score is the gradient of, up to a constant."""


def _linear_beta(T: int) -> np.ndarray:
    beta = np.linspace(1e-4, 2e-2, T) * 1000 / T
    return np.cumprod(1 - np.minimum(beta, 0.999))


def _cosine(T: int) -> np.ndarray:
    f = np.cos(np.pi / 2 * (np.arange(T + 1) / T + 0.008) / 1.008) ** 2
    return 1e-5 + (1 - 2e-5) * f[1:] / f[0]  # kept off 0 and 1


def _log_snr(T: int) -> np.ndarray:
    return 1 / (1 + np.exp(-np.linspace(LOG_SNR_MAX, -LOG_SNR_MAX, T)))


SCHEDULES = {"linear-beta": _linear_beta, "cosine": _cosine, "log-snr": _log_snr}


def levels(schedule: str = "log-snr", T: int = 400, count: int | None = None) -> Level:
    """The noise levels of a schedule, as networks are trained on and samplers go through.

    Args:
        schedule: How γ falls with t: `"log-snr"` (the default), `"linear-beta"` or `"cosine"`.
        T: How many levels the schedule has; 400 by default.
        count: How many of them to take, evenly spaced in t with both ends kept; None, the default: all.

    Returns:
        A stacked `Level` in rising t, that is from little noise to much; samplers take it reversed.

    Raises:
        ScorefoldError: The schedule is unknown, T is below 2, or `count` is not between 2 and T.

    Example:
        >>> from scorefold.noise import levels
        >>> some = levels(T=400, count=5)
        >>> some.t.tolist()
        [1.0, 101.0, 200.0, 300.0, 400.0]
        >>> bool(some.gamma[0] > 0.999) and bool(some.gamma[-1] < 0.001)
        True
    """
    if schedule not in SCHEDULES:
        raise ScorefoldError(f"unknown schedule {schedule!r}. {closest(schedule, list(SCHEDULES))}")
    if T < 2 or (count is not None and not 2 <= count <= T):
        raise ScorefoldError(f"expected T ≥ 2 levels and 2 ≤ count ≤ T; got T = {T}, count = {count}")
    t = np.arange(1, T + 1)
    if count is not None:
        t = np.unique(np.round(np.linspace(1, T, count)).astype(int))
    gamma = SCHEDULES[schedule](T)[t - 1]
    alpha = gamma / np.concatenate([[1.0], gamma[:-1]])
    return Level(*(jnp.asarray(v, jnp.float32) for v in (t, gamma, alpha, (T - t) / T)))
