"""The Gaussian base where some numbers of an observation may be missing.

A straight line with Gaussian noise is fitted to single observations the other way round, x ≈ A u + b + e with e ~ N(0, S), each
number from the cases that have it. An observation of the numbers O alone then tells A_Oᵀ S_OO⁻¹ A_O about u, so that for a set

    u | X ≈ N(μ, R),   R⁻¹ = I + Σ_i A_Oᵀ S_OO⁻¹ A_O,   R⁻¹ μ = Σ_i A_Oᵀ S_OO⁻¹ (x_i - b)_O,   O = O_i,

whatever is missing where: the base of a set depends on its holes, and one of nothing but holes is the prior. Standardised
observations come as (z, hole), with z = 0 where hole = 1. With more than `MOST_JOINT` numbers S is taken for diagonal.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.noise import Level
from scorefold.types import Array, Float, Int

MOST_JOINT = 64
LEAST_NOISE = 1e-6
"""The least variance of the noise, of standardised numbers."""


class MaskedBase(eqx.Module):
    """A Gaussian base where numbers may be missing: a straight line x | u with noise, x ≈ A u + b + e, of which the rows of
    what was observed are used.
    """

    slope: Float[Array, "x dim"]
    offset: Float[Array, " x"]
    noise: Float[Array, "x x"]

    def fault(self) -> str:
        """What is wrong with its numbers, if they come from a file; else nothing."""
        return "" if bool(jnp.all(jnp.diag(self.noise) > 0)) else "variances of the noise should be above 0"

    def of(
        self, x: Float[Array, "set seen"], size: Int[Array, ""]
    ) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"], Float[Array, " dim"]]:
        """μ, and the eigenvectors and eigenvalues of R, of a set whose first `size` observations count."""
        told, pulled = jax.vmap(self._told)(x)
        counts = jnp.arange(len(x)) < size
        precision = jnp.eye(self.slope.shape[1]) + jnp.sum(jnp.where(counts[:, None, None], told, 0.0), axis=0)
        values, vectors = jnp.linalg.eigh(precision)
        pull = jnp.sum(jnp.where(counts[:, None], pulled, 0.0), axis=0)
        variances = 1 / jnp.maximum(values, 1.0)
        return vectors @ (variances * (vectors.T @ pull)), vectors, variances

    def matrix(self, power: float, level: Level, size: Int[Array, ""]) -> Float[Array, "dim dim"]:
        """(γ R + (1-γ) I)^power of a set without holes."""
        features = len(self.offset)
        told, _ = self._told(jnp.zeros(2 * features))
        values, vectors = jnp.linalg.eigh(jnp.eye(told.shape[0]) + size * told)
        return (vectors * (level.gamma / jnp.maximum(values, 1.0) + level.noise) ** power) @ vectors.T

    def _told(self, x: Float[Array, " seen"]) -> tuple[Float[Array, "dim dim"], Float[Array, " dim"]]:
        """A_Oᵀ S_OO⁻¹ A_O and A_Oᵀ S_OO⁻¹ (z - b)_O of one observation."""
        features = len(self.offset)
        z, there = x[:features], 1 - x[features:]
        seen, off = there[:, None] * self.slope, there * (z - self.offset)
        if features > MOST_JOINT:
            pull = seen / jnp.diag(self.noise)[:, None]
        else:
            pull = jnp.linalg.solve(self.noise * jnp.outer(there, there) + jnp.diag(1 - there), seen)
        return pull.T @ seen, pull.T @ off


def blank(features: int, dim: int) -> MaskedBase:
    """One of this size, its numbers still to be put in."""
    return MaskedBase(jnp.zeros((features, dim)), jnp.zeros(features), jnp.zeros((features, features)))


def fit_masked_base_to_sets(
    x: Float[np.ndarray, "sets set seen"], sizes: Int[np.ndarray, " sets"], u: Float[np.ndarray, "sets dim"]
) -> MaskedBase:
    """Fit the line to single observations out of sets.

    Args:
        x: (sets, set, seen), standardised observations, each with marks for what is missing.
        sizes: (sets,), how many of each set count.
        u: (sets, dim), their parameters.

    Returns:
        The base.
    """
    counts = np.arange(x.shape[1]) < sizes[:, None]
    return fit_masked_base(x[counts], np.repeat(u, sizes, axis=0))


def fit_masked_base(x: Float[np.ndarray, "rows seen"], u: Float[np.ndarray, "rows dim"]) -> MaskedBase:
    """The base, from standardised single observations (z, hole) and their u."""
    features, dim = x.shape[1] // 2, u.shape[1]
    z, there = np.asarray(x[:, :features], np.float64), x[:, features:] == 0
    design = np.concatenate([np.ones((len(u), 1)), u], axis=1)
    slope, offset, residual = np.zeros((features, dim)), np.zeros(features), np.zeros(z.shape)
    for k in range(features):
        rows = there[:, k]
        if rows.sum() < 2 * (dim + 2):  # nothing is known of it: all noise
            residual[rows, k] = z[rows, k]
            continue
        fit = np.linalg.lstsq(design[rows], z[rows, k], rcond=None)[0]
        offset[k], slope[k] = fit[0], fit[1:]
        residual[rows, k] = z[rows, k] - design[rows] @ fit
    both = there.T.astype(np.float64) @ there
    noise = residual.T @ residual / np.maximum(both, 1)
    noise[np.diag_indices(features)] = np.where(both.diagonal() > 0, noise.diagonal(), 1.0)
    values, vectors = np.linalg.eigh(noise)
    noise = (vectors * np.maximum(values, LEAST_NOISE + 1e-6 * values[-1])) @ vectors.T
    return MaskedBase(*(jnp.asarray(part, jnp.float32) for part in (slope, offset, noise)))
