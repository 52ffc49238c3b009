"""The part of the score that is known in closed form once a straight line is fitted.

For sets of size s, least squares of u on the mean observation x̄ gives u | X ≈ N(μ(X), R_s), μ(X) = W_s x̄ + c_s.
Diffused to level t this is N(√γ μ, γ R + (1-γ) I), whose score -(γ R + (1-γ) I)⁻¹ (u - √γ μ) is exact at every level
and grows linearly outside the training data, where a network with layer normalisation does not. A score network
then learns only what is left.

The ridge of the fit is chosen by generalised cross-validation ("Generalized cross-validation as a method for choosing a
good ridge parameter", Golub, Heath and Wahba, 1979), so that many or collinear features do no harm.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from scorefold.types import Array, Float, Int, Scalar

SMALLEST_VARIANCE = 1e-6
MOST_FLEXIBLE = 0.2
"""The fit keeps at least this share of the cases as degrees of freedom."""


class GaussianBase(eqx.Module):
    """One straight line per set size, and the eigenvectors and eigenvalues of its residual covariance."""

    weight: Float[Array, "sizes dim x"]
    offset: Float[Array, "sizes dim"]
    vectors: Float[Array, "sizes dim dim"]
    variances: Float[Array, "sizes dim"]

    def mean(self, x_mean: Float[Array, "x"], size: Int[Array, ""]) -> Float[Array, "dim"]:
        """μ(X)."""
        return self._of(self.weight, size) @ x_mean + self._of(self.offset, size)

    def times(self, v: Float[Array, "dim"], power: float, gamma: Scalar, size: Int[Array, ""]) -> Float[Array, "dim"]:
        """(γ R + (1-γ) I)^power v."""
        vectors, variances = self._of(self.vectors, size), self._of(self.variances, size)
        return vectors @ ((v @ vectors) * (gamma * variances + 1 - gamma) ** power)

    def _of(self, table: Float[Array, "sizes ..."], size: Int[Array, ""]) -> Float[Array, "..."]:
        # With one size only, no gather: what does not depend on the set is then computed once for all sets.
        return table[0] if table.shape[0] == 1 else table[size - 1]


def _ridge(x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slope, offset and residual covariance of u on x, with the ridge that minimises generalised cross-validation."""
    count, dim = u.shape
    if count < max(10, dim + 2):  # too few cases to learn from: the prior
        return np.zeros((dim, x.shape[1])), np.zeros(dim), np.eye(dim)
    x_mean, u_mean = x.mean(axis=0), u.mean(axis=0)
    left, singular, right = np.linalg.svd(x - x_mean, full_matrices=False)
    projected = left.T @ (u - u_mean)
    total = ((u - u_mean) ** 2).sum()
    best = (np.inf, np.zeros_like(singular))
    for ridge in np.concatenate([[1e-10], np.logspace(-6, 2, 25)]) * (count + singular.max(initial=0.0) ** 2):
        shrink = singular**2 / (singular**2 + ridge)
        left_over = total - ((2 * shrink - shrink**2)[:, None] * projected**2).sum()
        free = count - 1 - shrink.sum()
        if free < MOST_FLEXIBLE * count:  # near interpolation the criterion is 0/0
            continue
        criterion = left_over / free**2
        if criterion < best[0] * (1 - 1e-9):
            best = (criterion, shrink)
    shrink = best[1]
    slope = (right.T @ (np.divide(shrink, singular, where=singular > 0, out=np.zeros_like(shrink))[:, None] * projected)).T
    offset = u_mean - slope @ x_mean
    residual = u - x @ slope.T - offset
    return slope, offset, residual.T @ residual / max(count - 1 - shrink.sum(), 1.0)


def fit_gaussian_base(x_mean: np.ndarray, sizes: np.ndarray, u: np.ndarray, largest: int) -> GaussianBase:
    """Least squares for every set size 1 … `largest`, from the cases' mean observations (cases, x)."""
    fits = []
    for size in range(1, largest + 1):
        slope, offset, covariance = _ridge(
            np.asarray(x_mean[sizes == size], np.float64), np.asarray(u[sizes == size], np.float64)
        )
        variances, vectors = np.linalg.eigh(covariance)
        fits.append((slope, offset, vectors, np.clip(variances, SMALLEST_VARIANCE, 1.0)))
    return GaussianBase(*(jnp.asarray(np.stack(part), jnp.float32) for part in zip(*fits, strict=True)))
