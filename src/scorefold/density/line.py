"""A straight line with Gaussian noise, x ≈ A u + b + e with e ~ N(0, S), by least squares over single observations.

It is where learned likelihoods and ratios start: log q(x|u) and, with u ~ N(0, I), log q(x|u) / q(x) are known in closed
form, and a network learns only what they leave over. S gets a small ridge, so that collinear or constant features do no harm.
For a likelihood the noise may be Gaussian but for its scale (`scales.py`), its sds and correlations may change with u
(`changing_noise.py`), and x may be distances from edges that u moves (`edges.py`).
"""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from scorefold.density import changing_noise, edges, scales
from scorefold.density.changing_noise import ChangingNoise, fit_gaussian_noise
from scorefold.density.edges import Edges
from scorefold.density.scales import Scales, fit_scales
from scorefold.score.least_squares import NoisyLine, noisy_line
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
    changing: ChangingNoise | None = None
    """How the noise depends on u; None where it does not."""
    edges: Edges | None = None
    """Beyond which numbers of x cannot be; None where they may be anywhere."""

    @property
    def given(self) -> int:
        """Numbers that it is given: u and, of a likelihood, the inputs."""
        return self.slope.shape[1]

    def prepare(self, x: Observation) -> Observation:
        """What of an observation does not depend on u: itself."""
        return x

    def residual(self, x: Observation, u: Theta) -> Observation:
        """L⁻¹ (x - A u - b), of unit covariance, or what `changing_noise.py` makes of it."""
        x = x if self.edges is None else self.edges(x, u)
        residual = self.whiten @ (x - self.slope @ u - self.offset)
        return residual if self.changing is None else self.changing(residual, u)

    def log_scales(self, x: Observation, u: Theta) -> Observation:
        """What edges and noise at u add to log |de/dx|, number by number."""
        noise = jnp.zeros_like(self.offset) if self.changing is None else self.changing.log_scales(u)
        return noise if self.edges is None else noise + self.edges.log_slopes(x, u)

    def log_det(self, x: Observation) -> Scalar:
        """log |L⁻¹|, the same for every x and u."""
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


def blank(features: int, dim: int, tails: bool = False, changing: bool = False, edged: bool = False) -> Line:
    """One of this size, its numbers still to be put in."""
    square = jnp.zeros((features, features))
    noise = scales.blank() if tails else None, changing_noise.blank(features, dim) if changing else None
    return Line(
        jnp.zeros((features, dim)), jnp.zeros(features), square, square, *noise, edges.blank(features, dim) if edged else None
    )


def fit_line(x: np.ndarray, u: np.ndarray, tails: bool = False, changing: bool = False, ends: Edges | None = None) -> Line:
    """From standardised observations (count, x) and their u (count, dim), with these edges.

    With `tails` it has the noise's scales too. With `changing` the noise depends on u where that leaves nothing but Gaussian
    noise. Else it is as it would have been: a model of the noise that is only partly right is a worse beginning than none, as a
    network has to take out again what it put in.
    """
    if ends is not None:
        x = edges.mapped(ends, x, u)
    x, u = np.asarray(x, np.float64), np.asarray(u, np.float64)
    plain = noisy_line(x, u, floor=1e-8)
    own = fit_gaussian_noise(plain.whitened(x, u), u) if changing else None
    if own is not None:
        return replace(_line(plain, scales.gaussian() if tails else None, own), edges=ends)
    fitted, spread = fit_scales(x, u, plain) if tails else (plain, None)
    return replace(_line(fitted, spread, changing_noise.blank(*fitted.slope.shape) if changing else None), edges=ends)


def _line(fitted: NoisyLine, spread: Scales | None, own: ChangingNoise | None) -> Line:
    slope, offset, noise = fitted
    whitens = [np.linalg.inv(np.linalg.cholesky(covariance)) for covariance in (noise, slope @ slope.T + noise)]
    numbers = [jnp.asarray(part, jnp.float32) for part in (slope, offset, *whitens)]
    return Line(numbers[0], numbers[1], numbers[2], numbers[3], spread, own)
