"""Noise whose spread and correlations change with the parameters: what a straight line leaves, made N(0, I) at every v.

With r = L⁻¹ (x - A v - b) the residual of `line.py`, of unit covariance on average, and h = (1, v),

    e_i = exp(g_iᵀ h) (r_i - m_iᵀ h - Σ_{j<i} (f_ijᵀ h) r_j),        log |det ∂e/∂r| = Σ_i g_iᵀ h.

It is the location-scale model: sds are log-linear in v, and so, to first order, is every covariance that depends smoothly on v.
Parameters that rule how far observations scatter, and not where, are known by nothing else. Each i is a regression of its own:
m_i and f_i by weighted least squares, g_i by Newton's method on the convex mean of e_i²/2 - g_iᵀ h, in turn.

What does not change must not be taken for changing, since every number that is fitted in vain counts n times. So each slope in
v, of g_i and of f_ij, is shrunk as a block by the positive-part James–Stein factor with a margin: with χ² the squared block in
units of its covariance, k numbers in it,

    slope → max(0, 1 - (k + 3 √(2k)) / χ²) slope.

Chance alone gives χ² = k ± √(2k), and mostly nothing is left of it. The covariance is the sandwich estimate, which outliers do
not deceive. Limiting case: where no slope is left, e = r.

It is kept only where e is then Gaussian (`line.py`). Where sds change by large factors that are not log-linear, say y_2 is at
times a hundred times narrower than y_1, a correlation that is a little wrong puts the noise of y_1 into e_2, and a flow that
begins there has to find it and take it out again.

References: "Estimating regression models with multiplicative heteroscedasticity", Harvey, 1976; "Estimation with quadratic
loss", James and Stein, 1961; "Maximum likelihood estimation of misspecified models", White, 1982.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from scorefold.types import Array, Float, Observation, Theta

FARTHEST_OUT = 4.0
"""Of v: beyond, the noise stays as it is there."""
TURNS, NEWTON_STEPS = 4, 4
"""Regressions of a number, each with so many steps for its sd."""
CASES_EACH = 10
"""For every number that is fitted; where cases are fewer, correlations do not change, or nothing does."""
MARGIN = 3.0
"""Sd of what chance gives."""
LARGEST_MODEL = 400
"""Numbers of one regression."""


class ChangingNoise(eqx.Module):
    """g, m and f, each with h = (1, v) last."""

    log_scale: Float[Array, "x given"]
    mean: Float[Array, "x given"]
    turn: Float[Array, "x x given"]
    """f_ij; only what is below the diagonal of its first two axes counts."""

    def __call__(self, residual: Observation, v: Theta) -> Observation:
        """e."""
        h = _with_one(v)
        return jnp.exp(self.log_scale @ h) * (residual - self.mean @ h - jnp.tril(self.turn @ h, -1) @ residual)

    def log_scales(self, v: Theta) -> Observation:
        """g_iᵀ h."""
        return self.log_scale @ _with_one(v)


def _with_one(v: Theta) -> Float[Array, " given"]:
    return jnp.concatenate([jnp.ones(1), jnp.clip(v, -FARTHEST_OUT, FARTHEST_OUT)])


def blank(features: int, given: int) -> ChangingNoise:
    """One that changes nothing, of this size."""
    each = jnp.zeros((features, given + 1))
    return ChangingNoise(each, each, jnp.zeros((features, features, given + 1)))


def fit_changing_noise(r: np.ndarray, v: np.ndarray) -> ChangingNoise | None:
    """From whitened residuals (count, x) and their v (count, given); None where nothing changes with v."""
    count, features = r.shape
    h = np.concatenate([np.ones((count, 1)), np.clip(v, -FARTHEST_OUT, FARTHEST_OUT)], axis=1)
    given = h.shape[1]
    if count < CASES_EACH * given:
        return None
    largest = min(LARGEST_MODEL, count // CASES_EACH)
    found = np.zeros((features, given)), np.zeros((features, given)), np.zeros((features, features, given))
    for i in range(features):
        joint = (i + 1) * given <= largest
        others = r[:, :i] if joint else r[:, :0]
        log_scale, coefficients = _regression(r[:, i], others, h)
        found[0][i], found[1][i] = log_scale, coefficients[0]
        found[2][i, : others.shape[1]] = coefficients[1:]
    if not (found[0][:, 1:].any() or found[2][:, :, 1:].any()):
        return None
    return ChangingNoise(*(jnp.asarray(part, jnp.float32) for part in found))


def _regression(y: np.ndarray, others: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """g_i (given,), and m_i with the f_ij below it (1 + others, given)."""
    blocks = np.concatenate([np.ones((len(y), 1)), others], axis=1)
    design = (blocks[:, :, None] * h[:, None, :]).reshape(len(y), -1)
    log_scale = np.zeros(h.shape[1])
    for _ in range(TURNS):
        coefficients, left = _least_squares(design, y, np.exp(2 * h @ log_scale))
        log_scale = _newton(log_scale, h, left**2)
    kept = np.ones(h.shape[1])
    kept[1:] = _share_of_scale(log_scale, h, left**2)
    log_scale = _levelled(log_scale * kept, h, left**2)
    slopes = _shrunk_turns(coefficients, design, left, np.exp(2 * h @ log_scale), others.shape[1])
    if not (log_scale[1:].any() or slopes.any()):
        return np.zeros_like(log_scale), np.zeros((1 + others.shape[1], h.shape[1]))
    return _with_the_rest(y, others, h, log_scale, slopes)


def _least_squares(design: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients, and what is left of y."""
    root = np.sqrt(weights)[:, None]
    gram = (design * root).T @ (design * root)
    coefficients = np.linalg.lstsq(gram, (design * weights[:, None]).T @ y, rcond=None)[0]
    return coefficients, y - design @ coefficients


def _levelled(start: np.ndarray, h: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """The log scale with the constant that makes squares exp(2 gᵀ h) one on average."""
    found = start.copy()
    found[0] = -np.log(np.maximum(np.mean(squares * np.exp(2 * h[:, 1:] @ start[1:])), 1e-30)) / 2
    return found


def _newton(start: np.ndarray, h: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """The log scale that makes squares exp(2 gᵀ h) one on average, and unrelated to h."""
    found = _levelled(start, h, squares)
    for _ in range(NEWTON_STEPS):
        each = squares * np.exp(2 * h @ found)
        slope = h.T @ (each - 1) / len(h)
        bend = 2 * (h * each[:, None]).T @ h / len(h) + 1e-6 * np.eye(h.shape[1])
        step = np.linalg.solve(bend, slope)
        found -= step / max(1.0, float(np.abs(h @ step).max()))  # by no more than a factor e anywhere
    return found


def _share_of_scale(log_scale: np.ndarray, h: np.ndarray, squares: np.ndarray) -> float:
    """How much of the slopes of g_i is kept."""
    each = squares * np.exp(2 * h @ log_scale)
    bend = 2 * (h * each[:, None]).T @ h
    meat = (h * np.square(each - 1)[:, None]).T @ h
    return _share(log_scale[1:], _sandwich(bend, meat)[1:, 1:])


def _shrunk_turns(
    coefficients: np.ndarray, design: np.ndarray, left: np.ndarray, weights: np.ndarray, others: int
) -> np.ndarray:
    """Slopes of the f_ij in v (others, given - 1)."""
    each = coefficients.reshape(1 + others, -1)[1:, 1:]
    if not others:
        return each
    bend = (design * weights[:, None]).T @ design
    meat = (design * np.square(weights * left)[:, None]).T @ design
    given = design.shape[1] // (1 + others)
    covariance = _sandwich(bend, meat).reshape(1 + others, given, 1 + others, given)
    shares = [_share(each[j], covariance[j + 1, 1:, j + 1, 1:]) for j in range(others)]
    return each * np.array(shares)[:, None]


def _sandwich(bend: np.ndarray, meat: np.ndarray) -> np.ndarray:
    inverse = np.linalg.pinv(bend)
    covariance: np.ndarray = inverse @ meat @ inverse
    return covariance


def _share(block: np.ndarray, covariance: np.ndarray) -> float:
    """The James–Stein factor with its margin."""
    numbers = len(block)
    chi_squared = float(block @ np.linalg.pinv(covariance) @ block)
    return max(0.0, 1 - (numbers + MARGIN * np.sqrt(2 * numbers)) / max(chi_squared, 1e-30))


def _with_the_rest(
    y: np.ndarray, others: np.ndarray, h: np.ndarray, log_scale: np.ndarray, slopes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The numbers that are not shrunk, fitted again beside the slopes that are."""
    fixed = (others * (h[:, 1:] @ slopes.T)).sum(axis=1)
    design = np.concatenate([h, others], axis=1)
    coefficients, left = _least_squares(design, y - fixed, np.exp(2 * h @ log_scale))
    log_scale = _levelled(log_scale, h, left**2)
    below = np.concatenate([coefficients[h.shape[1] :, None], slopes], axis=1)
    return log_scale, np.concatenate([coefficients[None, : h.shape[1]], below])
