"""Some parameters given the values of others: a posterior's score along a plane.

The parameters that are given a value fix u to a plane u = u_0 + B v, with u_0 ⟂ B and the columns of B orthonormal; v are the
coordinates that stay free. The density of v given the others is the joint one along the plane, up to a constant; its score is

    Bᵀ s(√γ_t u_0 + B v, t),

exact as t → 0, and that of N(0, I) at the noisiest level. In between it is the score of a density, and Langevin steps are right
for it, but not of a diffused one.
"""

import equinox as eqx
import jax.numpy as jnp

from scorefold.noise import Level, LogDensity, Score
from scorefold.types import Array, Cloud, Float, Key, Theta

Along = Float[Array, "draws free"]
"""Coordinates in a plane."""


class Slice(eqx.Module):
    """The plane on which some parameters have the values that they were given.

    Args:
        origin: u_0, the point of the plane that is nearest to 0.
        free: B, orthonormal columns along the plane.
    """

    origin: Theta
    free: Float[Array, "dim free"]

    def score(self, composed: Score) -> Score:
        """The composed score along the plane."""

        def score(v: Along, level: Level, key: Key) -> Along:
            return composed(self.at(v, level), level, key) @ self.free

        return score

    def log_density(self, composed: LogDensity) -> LogDensity:
        """The composed log density along the plane; its gradient is `score`."""

        def log_density(v: Along, level: Level) -> Float[Array, " draws"]:
            return composed(self.at(v, level), level)

        return log_density

    def at(self, v: Along, level: Level) -> Cloud:
        """The points of the plane with these coordinates, at a level."""
        return jnp.sqrt(level.gamma) * self.origin + v @ self.free.T

    def back(self, v: Along) -> Cloud:
        """The points of the plane with these coordinates, without noise."""
        return self.origin + v @ self.free.T
