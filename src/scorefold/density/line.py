"""A straight line with Gaussian noise, x ≈ A u + b + e with e ~ N(0, S), by least squares over single observations.

It is where learned likelihoods and ratios start: log q(x|u) and, with u ~ N(0, I), log q(x|u) / q(x) are known in closed
form, and a network learns only what they leave over. S gets a small ridge, so that collinear or constant features do no harm.
For a likelihood the noise may be Gaussian but for its scale (`scales.py`).
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from scorefold.density import scales
from scorefold.density.scales import Scales, fit_scales
from scorefold.score.least_squares import noisy_line
from scorefold.types import Array, Float, Observation, Scalar, Theta


class Line(eqx.Module):
    """A and b, and what the noise and the marginal covariance A Aᵀ + S are whitened by."""

    slope: Float[Array, "x dim"]
    offset: Float[Array, " x"]
    whiten: Float[Array, "x x"]
    """L⁻¹ for S = L Lᵀ"""
    whiten_marginal: Float[Array, "x x"]
    """The same for A Aᵀ + S"""
    scales: Scales | None = None
    """Of the noise; None for a Gaussian's."""

    def prepare(self, x: Observation) -> Observation:
        """What of an observation does not depend on u: itself."""
        return x

    def residual(self, x: Observation, u: Theta) -> Observation:
        """L⁻¹ (x - A u - b), of unit covariance."""
        return self.whiten @ (x - self.slope @ u - self.offset)

    def log_det(self, x: Observation) -> Scalar:
        """log |L⁻¹|, the same for every x."""
        return jnp.sum(jnp.log(jnp.diag(self.whiten)))

    def log_ratio(self, x: Observation, u: Theta) -> Scalar:
        """log N(x | A u + b, S) / N(x | b, A Aᵀ + S)."""
        own, marginal = self._squares(x, u)
        return self.log_det(x) - jnp.sum(jnp.log(jnp.diag(self.whiten_marginal))) + (marginal - own) / 2

    def distances(self, x: Observation, u: Theta) -> Float[Array, "2"]:
        """How far x is from where u, and where the marginal, has it, in noise sd; logarithms, 0 for a typical one."""
        return jnp.log1p(self._squares(x, u)) - jnp.log1p(float(len(x)))

    def _squares(self, x: Observation, u: Theta) -> Float[Array, "2"]:
        """Squared distances in units of the noise, and of the marginal's sd."""
        marginal = self.whiten_marginal @ (x - self.offset)
        return jnp.stack([jnp.sum(self.residual(x, u) ** 2), jnp.sum(marginal**2)])


def blank(features: int, dim: int, tails: bool = False) -> Line:
    """One of this size, its numbers still to be put in."""
    square = jnp.zeros((features, features))
    return Line(jnp.zeros((features, dim)), jnp.zeros(features), square, square, scales.blank() if tails else None)


def fit_line(x: np.ndarray, u: np.ndarray, tails: bool = False) -> Line:
    """From standardised observations (count, x) and their u (count, dim); with `tails` the noise's scales too."""
    x, u = np.asarray(x, np.float64), np.asarray(u, np.float64)
    fitted, spread = noisy_line(x, u, floor=1e-8), None
    if tails:
        fitted, spread = fit_scales(x, u, fitted)
    slope, offset, noise = fitted
    whitens = [np.linalg.inv(np.linalg.cholesky(covariance)) for covariance in (noise, slope @ slope.T + noise)]
    numbers = [jnp.asarray(part, jnp.float32) for part in (slope, offset, *whitens)]
    return Line(numbers[0], numbers[1], numbers[2], numbers[3], spread)
