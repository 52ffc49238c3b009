"""Noise whose spread and correlations change with the parameters: what a straight line leaves, made N(0, I) at every v.

With r = L⁻¹ (x - A v - b) the residual of `line.py`, of unit covariance on average, and h = (1, v),

    s_i = exp(g_iᵀ h) (r_i - m_iᵀ h),   e_i = s_i - Σ_{j<i} (f_ijᵀ h) s_j,        log |det ∂e/∂r| = Σ_i g_iᵀ h.

It is the location-scale model: sds are log-linear in v, and so, to first order, is every covariance that depends smoothly on v.
Sds and correlations have numbers of their own: of a pair with two unknown sds and a constant correlation, only the sds change.
Parameters that rule how far observations scatter, and not where, are known by nothing else.

Each i is a regression of its own, given the s_j before it: g_i, m_i and f_i together minimise the mean of e_i²/2 - g_iᵀ h, by
Fisher scoring. With J the derivative of e_i by all of these numbers, its matrix is the mean of J Jᵀ, with h hᵀ added for g_i.

What does not change must not be taken for changing, since every number that is fitted in vain counts n times. So each slope in
v, of g_i and of f_ij, is shrunk as a block by the positive-part James–Stein factor with a margin: with χ² the squared block in
units of its covariance, k numbers in it,

    slope → max(0, 1 - (k + 3 √(2k)) / χ²) slope,

and the other numbers are fitted again. Chance alone gives χ² = k ± √(2k), and mostly nothing is left of it. The covariance is
the sandwich estimate, which outliers do not deceive. Limiting case: where no slope is left, e = r.

It is kept only where e is then Gaussian (`line.py`): a flow that begins at a wrong model of the noise has to find it and take
it out again.

References: "Estimating regression models with multiplicative heteroscedasticity", Harvey, 1976; "Estimation with quadratic
loss", James and Stein, 1961; "Maximum likelihood estimation of misspecified models", White, 1982.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.density.scales import one_scale
from scorefold.types import QUICKLY, Array, Float, Observation, Theta

FARTHEST_OUT = 8.0
"""Of v: beyond, sds and correlations stay as they are there."""
SCORING_STEPS, SHORTENED = 40, 6
"""Of a regression, and of a step that does not make it better, at most."""
SETTLED = 1e-3
"""A regression ends where a step gains less than so many sd of its numbers, squared."""
LARGEST_STEP = 1.0
"""Of the log sd of any case."""
CASES_EACH = 10
"""For every number that is fitted; where cases are fewer, correlations do not change, or nothing does."""
MARGIN = 3.0
"""Sd of what chance gives."""
LARGEST_MODEL = 200
"""Numbers of one regression."""


class ChangingNoise(eqx.Module):
    """g, m and f, each with h = (1, v) last."""

    log_scale: Float[Array, "x given"]
    mean: Float[Array, "x given"]
    turn: Float[Array, "x x given"]
    """f_ij; only what is below the diagonal of its first two axes counts."""

    def __call__(self, residual: Observation, v: Theta) -> Observation:
        """e."""
        h = _with_one(_near(v))
        s = jnp.exp(self.log_scale @ h) * (residual - self.mean @ _with_one(v))
        return s - jnp.tril(self.turn @ h, -1) @ s

    def log_scales(self, v: Theta) -> Observation:
        """g_iᵀ h."""
        return self.log_scale @ _with_one(_near(v))


def _with_one(v: Theta) -> Float[Array, " given"]:
    return jnp.concatenate([jnp.ones(1), v])


def _near(v: Theta) -> Theta:
    return jnp.clip(v, -FARTHEST_OUT, FARTHEST_OUT)


def blank(features: int, given: int) -> ChangingNoise:
    """One that changes nothing, of this size."""
    return ChangingNoise(*map(jnp.asarray, blank_numbers(features, given)))


def blank_numbers(features: int, given: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """g, m and f of noise that changes nothing."""
    shapes = (features, given + 1), (features, given + 1), (features, features, given + 1)
    g, m, f = (np.zeros(shape, np.float32) for shape in shapes)
    return g, m, f


def values_and_log_scales(noise: ChangingNoise, r: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """e and g_iᵀ h of many whitened residuals (count, x) at v (count, given)."""
    e, log_scales = _values_and_log_scales(noise, jnp.asarray(r, jnp.float32), jnp.asarray(v, jnp.float32))
    return np.asarray(e, np.float64), np.asarray(log_scales, np.float64)


@partial(jax.jit, compiler_options=QUICKLY)
def _values_and_log_scales(
    noise: ChangingNoise, r: Float[Array, "cases x"], v: Float[Array, "cases given"]
) -> tuple[Float[Array, "cases x"], Float[Array, "cases x"]]:
    return jax.vmap(noise)(r, v), jax.vmap(noise.log_scales)(v)


def fit_changing_noise(r: np.ndarray, v: np.ndarray, correlations: bool = True) -> ChangingNoise | None:
    """From whitened residuals (count, x) and their v (count, given), with sds that change alone or also with correlations that
    do; None where nothing changes with v.
    """
    (count, features), given = r.shape, 1 + v.shape[1]
    if count < CASES_EACH * given:
        return None
    one = np.ones((count, 1))
    seen = _Seen(np.concatenate([one, v], axis=1), np.concatenate([one, np.clip(v, -FARTHEST_OUT, FARTHEST_OUT)], axis=1))
    largest = min(LARGEST_MODEL, count // CASES_EACH)
    found, s = blank_numbers(features, v.shape[1]), r.copy()
    for i in range(features):
        joint = correlations and (i + 2) * given <= largest
        own = _regression(r[:, i], s[:, :i] if joint else s[:, :0], seen)
        if own is not None:
            found[0][i], found[1][i], found[2][i, : len(own.turns)] = own
            s[:, i] = own.scaled(r[:, i], seen)
    if not (found[0][:, 1:].any() or found[2][:, :, 1:].any()):
        return None
    return ChangingNoise(*(jnp.asarray(part, jnp.float32) for part in found))


def fit_gaussian_noise(r: np.ndarray, v: np.ndarray) -> ChangingNoise | None:
    """The same; None also where what is left has more scales than one."""
    own = fit_changing_noise(r, v)
    if own is None:
        return None
    e, _ = values_and_log_scales(own, r, v)
    return own if one_scale(np.square(e).sum(axis=1), r.shape[1]) else None


class _Seen(NamedTuple):
    """h of every case: as it is, which means follow, and no farther out than so, which sds and correlations do."""

    whole: np.ndarray
    near: np.ndarray


class _Numbers(NamedTuple):
    """g_i, m_i (given,) and the f_ij (before, given)."""

    log_scale: np.ndarray
    mean: np.ndarray
    turns: np.ndarray

    def scaled(self, y: np.ndarray, seen: _Seen) -> np.ndarray:
        """s_i."""
        scaled: np.ndarray = np.exp(seen.near @ self.log_scale) * (y - seen.whole @ self.mean)
        return scaled


class _Fit(NamedTuple):
    """One regression: y = r_i, the s_j before it, and h."""

    y: np.ndarray
    before: np.ndarray
    seen: _Seen

    def numbers(self, flat: np.ndarray) -> _Numbers:
        """From one row of them all."""
        each = flat.reshape(-1, self.seen.near.shape[1])
        return _Numbers(each[0], each[1], each[2:])

    def values(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """s_i, e_i."""
        own = self.numbers(flat)
        s = own.scaled(self.y, self.seen)
        return s, s - (self.before * (self.seen.near @ own.turns.T)).sum(axis=1)

    def loss(self, flat: np.ndarray) -> float:
        """The mean of e_i²/2 - g_iᵀ h."""
        with np.errstate(over="ignore"):
            return float((np.square(self.values(flat)[1]) / 2 - self.seen.near @ self.numbers(flat).log_scale).mean())

    def slopes(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of the loss at every case (cases, numbers), and the Fisher matrix of their sum."""
        h, (s, e) = self.seen.near, self.values(flat)
        scale = np.exp(h @ self.numbers(flat).log_scale)
        turned = (self.before[:, :, None] * h[:, None, :]).reshape(len(h), -1)
        jacobian = np.concatenate([s[:, None] * h, -scale[:, None] * self.seen.whole, -turned], axis=1)
        slopes, fisher = jacobian * e[:, None], jacobian.T @ jacobian
        given = h.shape[1]
        slopes[:, :given] -= h
        fisher[:given, :given] += h.T @ h
        return slopes, fisher

    def best(self, flat: np.ndarray, free: np.ndarray) -> np.ndarray:
        """With the least loss, from here on; only these numbers change."""
        loss, h = self.loss(flat), self.seen.near
        for _ in range(SCORING_STEPS):
            slopes, fisher = self.slopes(flat)
            down, step = -slopes.sum(axis=0)[free], np.zeros_like(flat)
            step[free] = _solved(fisher[np.ix_(free, free)], down)
            gain = down @ step[free]
            step *= min(1.0, LARGEST_STEP / max(np.abs(h @ step[: h.shape[1]]).max(), 1e-30))
            for halving in range(SHORTENED):
                there = flat + step / 2**halving
                if (value := self.loss(there)) < loss:
                    flat, loss = there, value
                    break
            else:
                return flat
            if gain < SETTLED:
                return flat
        return flat


def _solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Numbers of very different sizes, each in units of its own; those that follow from others get no part."""
    unit = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    found: np.ndarray = np.linalg.lstsq(matrix / np.outer(unit, unit), right / unit, rcond=1e-12)[0] / unit
    return found


def _regression(y: np.ndarray, before: np.ndarray, seen: _Seen) -> _Numbers | None:
    """None where nothing changes with v."""
    fit, given = _Fit(y, before, seen), seen.near.shape[1]
    size = (2 + before.shape[1]) * given
    start = np.zeros(size)
    start[0] = -np.log(max(float(y.std()), 1e-15))
    flat = fit.best(start, np.arange(size))
    slopes, fisher = fit.slopes(flat)
    covariance = _sandwich(fisher, slopes.T @ slopes)
    blocks = [np.arange(1, given) + k * given for k in range(2 + before.shape[1]) if k != 1]  # m_i is not shrunk
    for block in blocks:
        flat[block] *= _share(flat[block], covariance[np.ix_(block, block)])
    shrunk = np.concatenate(blocks)
    return fit.numbers(fit.best(flat, np.setdiff1d(np.arange(size), shrunk))) if flat[shrunk].any() else None


def _sandwich(bend: np.ndarray, meat: np.ndarray) -> np.ndarray:
    unit = np.sqrt(np.maximum(np.diag(bend), 1e-300))
    inverse = np.linalg.pinv(bend / np.outer(unit, unit), rcond=1e-12) / np.outer(unit, unit)
    covariance: np.ndarray = inverse @ meat @ inverse
    return covariance


def _share(block: np.ndarray, covariance: np.ndarray) -> float:
    """The James–Stein factor with its margin."""
    numbers = len(block)
    chi_squared = float(block @ np.linalg.pinv(covariance) @ block)
    return max(0.0, 1 - (numbers + MARGIN * np.sqrt(2 * numbers)) / max(chi_squared, 1e-30))
