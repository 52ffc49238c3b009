"""The line of `line.py` where some numbers of an observation may be missing.

x ≈ A u + b + e with e ~ N(0, S), each number from the cases that have it (`score/masked_base.py`). Of the numbers O that are
there the law is that of the line without the others, N(A_O u + b_O, S_OO), whose root is found once for each observation.
Standardised observations come as (z, hole), with z = 0 where hole = 1. With more than 64 numbers S is taken for diagonal.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np

from scorefold.score.masked_base import MOST_JOINT, fit_masked_base
from scorefold.types import Array, Float, Observation, Scalar, Theta


class Seen(NamedTuple):
    """What of an observation does not depend on u."""

    z: Observation
    there: Observation
    """1, or 0 where a number is missing"""
    whiten: Float[Array, "x x"]
    """L⁻¹ for S_OO = L Lᵀ, and 1 on the diagonal for what is missing"""
    whiten_marginal: Float[Array, "x x"]
    """The same for (A Aᵀ + S)_OO"""


class MaskedLine(eqx.Module):
    """A, b and S."""

    slope: Float[Array, "x dim"]
    offset: Float[Array, " x"]
    noise: Float[Array, "x x"]

    @property
    def given(self) -> int:
        """Numbers that it is given, as a line's."""
        return self.slope.shape[1]

    def fault(self) -> str:
        """What is wrong with its numbers, if they come from a file; else nothing."""
        return "" if bool(jnp.all(jnp.diag(self.noise) > 0)) else "variances of the noise should be above 0"

    def prepare(self, x: Float[Array, " seen"]) -> Seen:
        """From (z, hole)."""
        z, there = x[: len(self.offset)], 1 - x[len(self.offset) :]
        return Seen(z, there, _whiten(self.noise, there), _whiten(self.slope @ self.slope.T + self.noise, there))

    def residual(self, x: Seen, u: Theta) -> Observation:
        """L⁻¹ (x - A u - b), of unit covariance; 0 where a number is missing."""
        return x.whiten @ (x.there * (x.z - self.slope @ u - self.offset))

    def log_scales(self, x: Seen, u: Theta) -> Observation:
        """As a line's; the noise is the same everywhere."""
        return jnp.zeros_like(self.offset)

    def log_det(self, x: Seen) -> Scalar:
        """log |L⁻¹|."""
        return jnp.sum(jnp.log(jnp.diag(x.whiten)))

    def log_ratio(self, x: Seen, u: Theta) -> Scalar:
        """log N(x | A u + b, S) / N(x | b, A Aᵀ + S) of the numbers that are there."""
        own, marginal = self._squares(x, u)
        return self.log_det(x) - jnp.sum(jnp.log(jnp.diag(x.whiten_marginal))) + (marginal - own) / 2

    def distances(self, x: Seen, u: Theta) -> Float[Array, "2"]:
        """As a line's, 0 for a typical observation of as many numbers."""
        return jnp.log1p(self._squares(x, u)) - jnp.log1p(jnp.sum(x.there))

    def _squares(self, x: Seen, u: Theta) -> Float[Array, "2"]:
        """Squared distances in units of the noise, and of the marginal's sd."""
        marginal = x.whiten_marginal @ (x.there * (x.z - self.offset))
        return jnp.stack([jnp.sum(self.residual(x, u) ** 2), jnp.sum(marginal**2)])


def blank(features: int, dim: int) -> MaskedLine:
    """One of this size, its numbers still to be put in."""
    return MaskedLine(jnp.zeros((features, dim)), jnp.zeros(features), jnp.zeros((features, features)))


def fit_masked_line(x: Float[np.ndarray, "rows seen"], u: Float[np.ndarray, "rows dim"]) -> MaskedLine:
    """From standardised observations (z, hole) and their u."""
    found = fit_masked_base(x, u)
    return MaskedLine(found.slope, found.offset, found.noise)


def _whiten(covariance: Float[Array, "x x"], there: Observation) -> Float[Array, "x x"]:
    """The inverse root of the part that is there."""
    if len(there) > MOST_JOINT:
        return jnp.diag(jnp.where(there > 0, jnp.diag(covariance), 1.0) ** -0.5)
    root = jnp.linalg.cholesky(covariance * jnp.outer(there, there) + jnp.diag(1 - there))
    return jax.scipy.linalg.solve_triangular(root, jnp.eye(len(there)), lower=True)
