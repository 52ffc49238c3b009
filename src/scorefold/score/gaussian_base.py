"""The part of the score that is known in closed form once a straight line is fitted.

For sets of size s, least squares of u on the mean observation x̄ gives u | X ≈ N(μ(X), R_s), μ(X) = W_s x̄ + c_s.
Diffused to level t this is N(√γ μ, γ R + (1-γ) I), whose score -(γ R + (1-γ) I)⁻¹ (u - √γ μ) is exact at every level
and grows linearly outside the training data, where a network with layer normalisation does not. A score network
then learns only what is left.

The ridge of the fit is chosen by generalised cross-validation (`least_squares.py`), so that many or collinear features do no
harm.

Large sets are few, so with sets of up to m > 1 all observations are pooled first: x ≈ A u + b + e, e ~ N(0, S) by least squares
over every single observation gives R_s = (I + s AᵀS⁻¹A)⁻¹ and W_s = s R_s AᵀS⁻¹. Per size, only what this leaves over is then
fitted, on all sets of s or more observations cut to s; where the pooled line is right, the ridge lets it stand.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from scorefold.noise import Level
from scorefold.score.least_squares import gcv_ridge, noisy_line
from scorefold.types import Array, Float, Int, Scalar

SMALLEST_VARIANCE = 1e-9
PENALTIES = np.concatenate([[1e-10], np.logspace(-6, 2, 25)])
LEAST_FREE = 0.2
"""The fit keeps at least this share of the cases as degrees of freedom."""
MOST_POOLED = 300
"""With more features their noise covariance is not estimated, and sizes are not pooled."""


class GaussianBase(eqx.Module):
    """One straight line per set size, and the eigenvectors and eigenvalues of its residual covariance."""

    weight: Float[Array, "sizes dim x"]
    offset: Float[Array, "sizes dim"]
    vectors: Float[Array, "sizes dim dim"]
    variances: Float[Array, "sizes dim"]
    smallest: int = eqx.field(static=True, default=1)
    """The first row's set size: 0 where the prior is learned, as the empty set's posterior."""

    def fault(self) -> str:
        """What is wrong with its numbers, if they come from a file; else nothing."""
        good = bool(jnp.all((self.variances > 0) & (self.variances <= 1)))
        return "" if good else "variances should be above 0 and at most 1"

    def mean(self, x_mean: Float[Array, " x"], size: Int[Array, ""]) -> Float[Array, " dim"]:
        """μ(X)."""
        return self._of(self.weight, size) @ x_mean + self._of(self.offset, size)

    def matrix(self, power: float, level: Level, size: Int[Array, ""]) -> Float[Array, "dim dim"]:
        """(γ R + (1-γ) I)^power."""
        vectors, variances = self._of(self.vectors, size), self._of(self.variances, size)
        return (vectors * (level.gamma * variances + level.noise) ** power) @ vectors.T

    def times(self, v: Float[Array, " dim"], power: float, level: Level, size: Int[Array, ""]) -> Float[Array, " dim"]:
        """(γ R + (1-γ) I)^power v."""
        vectors, variances = self._of(self.vectors, size), self._of(self.variances, size)
        return vectors @ ((v @ vectors) * (level.gamma * variances + level.noise) ** power)

    def log_volume(self, size: Int[Array, ""]) -> Scalar:
        """log √det R."""
        return jnp.sum(jnp.log(self._of(self.variances, size))) / 2

    def _of(self, table: Float[Array, "sizes ..."], size: Int[Array, ""]) -> Float[Array, "..."]:
        # With one size only, no gather: what does not depend on the set is then computed once for all sets.
        return table[0] if table.shape[0] == 1 else table[size - self.smallest]


def _ridge(x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slope, offset and residual covariance of u on x, with the ridge that generalised cross-validation favours."""
    x_mean, u_mean = x.mean(axis=0), u.mean(axis=0)
    fit = gcv_ridge(x - x_mean, u - u_mean, PENALTIES, LEAST_FREE, taken=1, relative=True)
    slope = fit.coefficients.T
    offset = u_mean - slope @ x_mean
    residual = u - x @ slope.T - offset
    return slope, offset, residual.T @ residual / max(fit.free, 1.0)


class _Line(NamedTuple):
    slope: np.ndarray
    offset: np.ndarray
    covariance: np.ndarray
    weight: float
    """Cases that the covariance is worth."""


def _pooled(x: np.ndarray, u: np.ndarray) -> Callable[[int], _Line]:
    """The line for every set size, from single observations (count, x) and their u."""
    slope, offset, noise = noisy_line(x, u, floor=1e-12)
    pull = np.linalg.solve(noise, slope).T  # AᵀS⁻¹

    def line(size: int) -> _Line:
        covariance = np.linalg.inv(np.eye(u.shape[1]) + size * pull @ slope)
        weight = size * covariance @ pull
        return _Line(weight, -weight @ offset, covariance, 2.0 * u.shape[1])

    return line


def _prior(x: int, dim: int) -> _Line:
    return _Line(np.zeros((dim, x)), np.zeros(dim), np.eye(dim), 0.0)


def blank(features: int, dim: int, largest: int, smallest: int = 1) -> GaussianBase:
    """One of this size, its numbers still to be put in."""
    sizes = largest - smallest + 1
    line = jnp.zeros((sizes, dim, features)), jnp.zeros((sizes, dim))
    return GaussianBase(*line, jnp.zeros((sizes, dim, dim)), jnp.zeros((sizes, dim)), smallest)


def fit_gaussian_base(x: np.ndarray, sizes: np.ndarray, u: np.ndarray, smallest: int = 1) -> GaussianBase:
    """Fit a straight line u | X for every set size.

    Args:
        x: (cases, m, x), standardised observations, zeros behind the last of a case.
        sizes: (cases,), how many each case has.
        u: (cases, dim), the parameters.
        smallest: The smallest size: 1, or 0 where the networks learn the prior too.

    Returns:
        The base for sizes `smallest` … m. Lines of single observations and of whole sets are both used, weighed by their cases.
    """
    x, u = np.asarray(x, np.float64), np.asarray(u, np.float64)
    largest, dim = x.shape[1], u.shape[1]
    counts = np.arange(largest) < sizes[:, None]
    pool = largest > 1 and x.shape[2] <= MOST_POOLED and counts.sum() > 2 * (dim + x.shape[2])
    pooled = _pooled(x[counts], np.repeat(u, counts.sum(axis=1), axis=0)) if pool else None
    fits = []
    for size in range(smallest, largest + 1):
        line = pooled(size) if pooled and size else _prior(x.shape[2], dim)
        rows = sizes >= size
        if size and rows.sum() >= max(10, dim + 2):  # else too few cases to learn from
            mean = x[rows, :size].mean(axis=1)
            slope, offset, covariance = _ridge(mean, u[rows] - mean @ line.slope.T - line.offset)
            covariance = (line.weight * line.covariance + rows.sum() * covariance) / (line.weight + rows.sum())
            line = _Line(line.slope + slope, line.offset + offset, covariance, line.weight)
        variances, vectors = np.linalg.eigh(line.covariance)
        fits.append((line.slope, line.offset, vectors, np.clip(variances, SMALLEST_VARIANCE, 1.0)))
    tables = [jnp.asarray(np.stack(part), jnp.float32) for part in zip(*fits, strict=True)]
    return GaussianBase(tables[0], tables[1], tables[2], tables[3], smallest)
