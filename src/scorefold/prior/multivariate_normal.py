"""One multivariate normal N(μ, Σ) with Σ = L Lᵀ: u = L⁻¹(θ - μ) and θ = μ + L u."""

from typing import Any

import numpy as np
from scipy import linalg, stats

from scorefold.errors import ScorefoldError
from scorefold.prior.normal_space import U_MAX, Values
from scorefold.shown import listed

MULTIVARIATE_NORMAL = type(stats.multivariate_normal())


class Gaussian:
    """The law of parameters that are one multivariate normal, and its map to the N(0, I) space, by the Cholesky factor."""

    def __init__(self, mean: np.ndarray, cov: np.ndarray):
        self.mean, self.cov, self.L = mean, cov, cholesky(cov)
        self.bounds = np.tile([-np.inf, np.inf], (len(mean), 1))
        self.reach = np.tile([-U_MAX, U_MAX], (len(mean), 1))

    def to_normal(self, theta: Values) -> Values:
        """Map θ to u in the N(0, I) space, row by row; θ is within its bounds, and far values are clipped by `Prior`."""
        rows = (theta - self.mean).reshape(-1, len(self.mean))
        return linalg.solve_triangular(self.L, rows.T, lower=True, check_finite=False).T.reshape(theta.shape)

    def from_normal(self, u: Values) -> Values:
        """Map u in the N(0, I) space back to θ, row by row; the inverse of `to_normal`.

        A row of θ is the same however many rows there are.
        """
        # u @ Lᵀ would round differently for different numbers of rows, so that runs would not share a start.
        return self.mean + sum(u[..., j, None] * self.L[:, j] for j in range(len(self.mean)))

    def log_prob(self, theta: Values) -> np.ndarray | np.float64:
        """log p(θ), the log density of the multivariate normal at each row of θ."""
        log_norm = np.log(np.diag(self.L)).sum() + len(self.mean) / 2 * np.log(2 * np.pi)
        return -np.square(self.to_normal(theta)).sum(axis=-1) / 2 - log_norm

    def describe(self) -> dict[str, Any]:
        """The law's kind and parameters as strict JSON can hold them.

        `codec.restore` makes a prior of it, and priors whose descriptions are equal count as equal.
        """
        return {"kind": "multivariate normal", "mean": self.mean.tolist(), "cov": self.cov.tolist()}

    def text(self, names: tuple[str, ...]) -> str:
        """The law in words, with the parameters' names, for the representation of a `Prior`."""
        with np.printoptions(threshold=25, formatter={"float": "{:.6g}".format}):
            mean, cov = (" ".join(np.array2string(a, separator=", ").split()) for a in (self.mean, self.cov))
        return f"{listed(names)} ~ multivariate_normal(mean={mean}, cov={cov})"


def mean_and_cov(distribution: Any) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the covariance of a multivariate normal of SciPy or NumPyro, once they are finite, symmetric and of one
    size; anything else is a ScorefoldError.
    """
    numpyro = type(distribution).__module__.startswith("numpyro.")
    if isinstance(distribution, MULTIVARIATE_NORMAL):
        mean, cov = distribution.mean, distribution.cov
    elif numpyro and type(distribution).__name__ == "MultivariateNormal" and not distribution.batch_shape:
        mean, cov = distribution.loc, distribution.covariance_matrix
    else:
        raise ScorefoldError(
            "expected named marginals, as in Prior({'beta': scipy.stats.norm(0, 1)}), or one multivariate "
            f"normal, SciPy's (called) or NumPyro's (not a batch); got {distribution!r:.60}. Give every "
            "marginal its name."
        )
    mean, cov = np.asarray(mean, np.float64), np.asarray(cov, np.float64)
    if not np.isfinite(mean).all() or not np.isfinite(cov).all() or not np.allclose(cov, cov.T, rtol=1e-6):
        raise ScorefoldError(
            f"expected a finite mean and a symmetric covariance; got mean {mean.tolist()!s:.100} and "
            f"covariance {cov.tolist()!s:.200}. Check them for NaN and for entries i, j unlike j, i."
        )
    if mean.shape not in ((), (1,), (len(cov),)):
        raise ScorefoldError(f"expected a mean as long as the covariance is wide, {len(cov)}; got the shape {mean.shape}")
    return np.broadcast_to(mean, len(cov)), (cov + cov.T) / 2


def cholesky(cov: np.ndarray) -> np.ndarray:
    """The lower triangular L with L Lᵀ the covariance; a covariance that float64 cannot invert, judged by its correlations, is
    a ScorefoldError.
    """
    scale = np.sqrt(np.maximum(np.diag(cov), np.finfo(float).tiny))
    least = np.linalg.eigvalsh(cov / np.outer(scale, scale))[0]
    if least < 1e-12:
        raise ScorefoldError(
            "expected a positive definite covariance; got one whose correlations have the eigenvalue "
            f"{least:.3g}. Drop parameters that are combinations of others, or add a little to the diagonal."
        )
    return np.linalg.cholesky(cov)
