"""Noise levels t = 1 … T: how much of θ is left (γ_t) and how much each step takes away (α_t).

The diffusion kernel is p_t(θ_t | θ) = N(√γ_t θ, (1-γ_t) I) with γ_t falling from about 1 at t = 1 to about 0
at t = T; α_1 = γ_1 and α_t = γ_t / γ_{t-1}. Three schedules:

- `linear-beta`: β_t linear in t, γ_t = ∏ (1-β_s) ("Denoising diffusion probabilistic models", Ho, Jain and
  Abbeel, 2020), with β scaled by 1000/T so that γ_T does not depend on T;
- `cosine`: γ_t ∝ cos²(π/2 · (t/T + s)/(1 + s)), s = 0.008 ("Improved denoising diffusion probabilistic
  models", Nichol and Dhariwal, 2021);
- `log-snr`: log γ/(1-γ) falls linearly to -9.2, where the signal has sd 0.01, from where the noise has the sd `least`: 0.01,
  or less where posteriors are narrow (`score/fixed.py`).

At low noise 1-γ and 1-α are lost in single precision if they are computed from γ and α, so a level carries them too.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from scorefold.errors import ScorefoldError, closest
from scorefold.types import Array, Cloud, Float, Key, Scalar

LOG_SNR_MIN = -9.2
LEAST_NOISE = 0.01
"""The sd of the noise at the lowest level of the log-SNR schedule, unless it is said to be less."""
RESOLVED = 1e-5
"""An sd of noise below this is lost in single precision, where u is of order one."""


Value = Scalar | Float[Array, " levels"]
"""Of a level, or of each level in a stack."""


class Level(NamedTuple):
    """One noise level, or a stack of levels to scan over, each field then an array with one entry for each."""

    t: Value
    """The index, 1 … T, as a float."""
    gamma: Value
    noise: Value
    """1-γ, the variance of the noise."""
    alpha: Value
    """γ of this level over γ of the next one below it in the stack (1 below the lowest)."""
    added: Value
    """1-α, the variance of the noise that comes with the step from the level below."""
    remaining: Value
    """(T-t)/T, the tempered prior's exponent."""


CLEAN = Level(*np.array([0, 1, 0, 1, 0, 1], np.float32))
"""No noise at all."""


Score = Callable[[Cloud, Level, Key], Cloud]
"""The score of a cloud of draws at a level: what a rule hands out and a sampler takes. The key is for rules that look at some
of the sets only."""
LogDensity = Callable[[Cloud, Level], Float[Array, " draws"]]
"""What a score is the gradient of, up to a constant."""


def _linear_beta(T: int, least: float) -> np.ndarray:
    beta = np.linspace(1e-4, 2e-2, T) * 1000 / T
    return _logit(np.cumprod(1 - np.minimum(beta, 0.999)))


def _cosine(T: int, least: float) -> np.ndarray:
    f = np.cos(np.pi / 2 * (np.arange(T + 1) / T + 0.008) / 1.008) ** 2
    return _logit(1e-5 + (1 - 2e-5) * f[1:] / f[0])  # kept off 0 and 1


def _log_snr(T: int, least: float) -> np.ndarray:
    return np.linspace(np.log(1 / least**2 - 1), LOG_SNR_MIN, T)


def _logit(gamma: np.ndarray) -> np.ndarray:
    return np.log(gamma / (1 - gamma))


SCHEDULES = {"linear-beta": _linear_beta, "cosine": _cosine, "log-snr": _log_snr}
"""log γ/(1-γ) of all T levels, by the schedule's name."""


def levels(schedule: str = "log-snr", T: int = 400, count: int | None = None, least: float = LEAST_NOISE) -> Level:
    """The noise levels of a schedule, as networks are trained on and samplers go through.

    Args:
        schedule: How γ falls with t: `"log-snr"` (the default), `"linear-beta"` or `"cosine"`.
        T: How many levels the schedule has; 400 by default.
        count: How many of them to take, evenly spaced in t with both ends kept; None, the default: all.
        least: The sd of the noise at the lowest level of `"log-snr"`; the other schedules have their own.

    Returns:
        A stacked `Level` in rising t, that is from little noise to much; samplers take it reversed.

    Raises:
        ScorefoldError: The schedule is unknown, T is below 2, `count` is not between 2 and T, or `least` is lost in single
            precision.

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
    if not RESOLVED <= least < 1:
        raise ScorefoldError(
            f"expected the least noise to have an sd of {RESOLVED:g} or more, which single precision can tell from none, and "
            f"below 1; got {least:.3g}. Rescale the problem: a posterior this narrow asks for a narrower prior."
        )
    t = np.arange(1, T + 1)
    if count is not None:
        t = np.unique(np.round(np.linspace(1, T, count)).astype(int))
    log_snr = SCHEDULES[schedule](T, least)[t - 1]
    gamma, noise = 1 / (1 + np.exp(-log_snr)), 1 / (1 + np.exp(log_snr))
    below = np.concatenate([[0.0], noise[:-1]])
    added = (noise - below) / (1 - below)
    return Level(*(jnp.asarray(v, jnp.float32) for v in (t, gamma, noise, 1 - added, added, (T - t) / T)))
