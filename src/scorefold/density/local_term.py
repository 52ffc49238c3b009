"""A correction of the terms log q(x|u) around one data set's draws, from simulations there.

It does for a sum of learned likelihoods or ratios what `score/local_mean.py` does for scores, whose b(u) = b₀ + B (u - c) and
weight G it takes over. The mean of the learned score over x ~ p(x|u) should be 0. Where it is b(u), every term loses the
integral of it, and the sum has its maximum at another place p. The curvature of the sum should be the spread of its score, and
where it is not the sum is stretched around p:

    log q(x|u) ← log q(x|v) - φ(v),   φ(v) = b₀ᵀ (v - c) + (v - c)ᵀ B (v - c) / 2,   v = p + C (u - p),

with B made symmetric, and C = A^{1/2} G_w^{1/2} A^{-1/2}, where A is the covariance of the draws and G_w the symmetric part of
G in the space where they are white: curvatures become those of G g ("Bayesian inference from composite likelihoods, with an
application to spatial extremes", Ribatet, Cooley and Davison, 2012). Beyond √dim + 3 sd of the draws φ is what it is there, in
the same direction. With b = 0 and G = I nothing changes.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from scorefold.score.local_mean import BEYOND, LocalMean
from scorefold.types import Array, Float, Scalar, Theta


class LocalTerm(eqx.Module):
    """φ and v."""

    centre: Float[Array, " dim"]
    """c"""
    inverse: Float[Array, "dim dim"]
    """A^{-1/2}"""
    offset: Float[Array, " dim"]
    """b₀"""
    slope: Float[Array, "dim dim"]
    """B, symmetric"""
    summit: Float[Array, " dim"]
    """p"""
    stretch: Float[Array, "dim dim"]
    """C"""

    def moved(self, u: Theta) -> Theta:
        """v."""
        return self.summit + self.stretch @ (u - self.summit)

    def taken(self, v: Theta) -> Scalar:
        """φ(v)."""
        off = v - self.centre
        distance = jnp.sqrt(jnp.sum((self.inverse @ off) ** 2) + 1e-12)
        off = off * jnp.minimum(1.0, (jnp.sqrt(1.0 * len(v)) + BEYOND) / distance)
        return self.offset @ off + off @ self.slope @ off / 2


def local_term(found: LocalMean, n: int) -> LocalTerm:
    """What a correction of scores makes of terms, n of which are added up."""
    root = np.linalg.inv(found.inverse)
    slope = (found.slope + found.slope.T) / 2
    summit = found.centre - np.linalg.solve(found.inverse.T @ found.inverse + n * slope, n * found.offset)
    white = root @ found.weight @ found.inverse
    values, axes = np.linalg.eigh((white + white.T) / 2)
    stretch = root @ (axes * np.sqrt(np.maximum(values, 1e-6))) @ axes.T @ found.inverse
    return LocalTerm(
        *(jnp.asarray(part, jnp.float32) for part in (found.centre, found.inverse, found.offset, slope, summit, stretch))
    )
