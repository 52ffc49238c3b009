"""Straight lines by least squares: with a ridge chosen by the data, and with Gaussian noise around them.

The ridge is chosen by generalised cross-validation ("Generalized cross-validation as a method for choosing a good ridge
parameter", Golub, Heath and Wahba, 1979): with y ≈ x β, singular values σ_i of x and the share σ_i²/(σ_i² + λ) of each that a
penalty λ keeps, it minimises (squares left over) / (degrees of freedom left)². Many or collinear features then do no harm.

The noise's correlations r_ij are known to √(1/N) from N cases, and there are many of them. Where the truth has none, that error
is most of what a sum of n log densities is off by. They are shrunk together, by as much as lessens their expected squared
error ("A shrinkage approach to large-scale covariance matrix estimation", Schäfer and Strimmer, 2005),

    r_ij → (1 - λ) r_ij,   λ = min(1, Σ_{i≠j} (1 - r_ij²)² / N / Σ_{i≠j} r_ij²):

λ is near 1 where they are no larger than chance has them, and near 0 where they are.
"""

from typing import NamedTuple

import numpy as np

COLLINEAR = 1e-4
"""Of the mean variance, added to every feature's noise: collinear features do no harm."""


class Ridge(NamedTuple):
    """A fitted ridge regression without an intercept."""

    coefficients: np.ndarray
    """(features, targets)"""
    free: float
    """Degrees of freedom left."""


def gcv_ridge(
    x: np.ndarray, y: np.ndarray, penalties: np.ndarray, least_free: float, taken: int = 0, relative: bool = False
) -> Ridge:
    """Regress y (rows, targets) on x (rows, features) with the penalty that generalised cross-validation favours.

    `taken` degrees of freedom have gone into centring; a fit that leaves less than the share `least_free` of the rows free is
    not considered, since the criterion is 0/0 near interpolation. Where no penalty leaves enough, nothing is fitted. Penalties
    that are `relative` count in rows plus the largest squared singular value.
    """
    count = len(y)
    left, singular, right = np.linalg.svd(x, full_matrices=False)
    projected = left.T @ y
    total, best = (y**2).sum(), (np.inf, np.zeros_like(singular))
    scale = count + singular.max(initial=0.0) ** 2 if relative else 1.0
    for penalty in penalties * scale:
        shrink = singular**2 / (singular**2 + penalty)
        free = count - taken - shrink.sum()
        if free < least_free * count:
            continue
        left_over = total - ((2 * shrink - shrink**2)[:, None] * projected**2).sum()
        if (criterion := left_over / free**2) < best[0] * (1 - 1e-9):
            best = (criterion, shrink)
    shrink = best[1]
    kept = np.divide(shrink, singular, where=singular > 0, out=np.zeros_like(shrink))
    return Ridge(right.T @ (kept[:, None] * projected), float(count - taken - shrink.sum()))


class NoisyLine(NamedTuple):
    """x ≈ A u + b + e with e ~ N(0, S)."""

    slope: np.ndarray
    """A (x, dim)"""
    offset: np.ndarray
    """b (x,)"""
    noise: np.ndarray
    """S (x, x), with a small ridge"""

    def whitened(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """L⁻¹ (x - A u - b) of every case, for S = L Lᵀ."""
        residual = x - u @ self.slope.T - self.offset
        white: np.ndarray = np.linalg.solve(np.linalg.cholesky(self.noise), residual.T).T
        return white


def noisy_line(x: np.ndarray, u: np.ndarray, floor: float) -> NoisyLine:
    """Fit x ≈ A u + b + e by least squares, with the covariance of e shrunk by as much as chance could have made its
    correlations.

    Args:
        x: (rows, x).
        u: (rows, dim).
        floor: The least variance of the noise.

    Returns:
        Slope, offset and covariance.
    """
    design = np.concatenate([np.ones((len(u), 1)), u], axis=1)
    fit = np.linalg.lstsq(design, x, rcond=None)[0]
    residual = x - design @ fit
    noise = residual.T @ residual / len(x)
    noise += (COLLINEAR * np.trace(noise) / len(noise) + floor) * np.eye(len(noise))
    return NoisyLine(fit[1:].T, fit[0], shrunk(noise, len(x)))


def shrunk(noise: np.ndarray, count: int) -> np.ndarray:
    """A covariance (x, x) of so many cases, its correlations shrunk by as much as chance could have made them."""
    by_chance, squares = _correlations(noise, count)
    keep = 1 - min(1.0, by_chance / squares) if squares > 0 else 1.0
    return np.where(np.eye(len(noise), dtype=bool), noise, keep * noise)


def share_left(noise: np.ndarray, count: int) -> float:
    """1 - λ of a covariance that `shrunk` made: so much of its correlations' squared error is left.

    They are (1 - λ) r now, so that the sum of their squares is (1 - λ)²/λ times what chance makes of it.
    """
    by_chance, squares = _correlations(noise, count)
    times = squares / by_chance if by_chance > 0 else 0.0
    return float((np.sqrt(times * (4 + times)) - times) / 2)


def _correlations(noise: np.ndarray, count: int) -> tuple[float, float]:
    """The sum of their squared errors by chance, and that of their squares."""
    sd = np.sqrt(np.diag(noise))
    square = np.square((noise / np.outer(sd, sd))[~np.eye(len(noise), dtype=bool)])
    return float(np.square(1 - square).sum() / count), float(square.sum())
