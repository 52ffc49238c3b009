"""A correction of the score around one data set's draws, from simulations there.

At every u, whatever the simulator, the score of one set less the prior's, g(u, X) = ∇ log p(u|X) - ∇ log p(u), has mean 0
over X ~ p(X|u), and E[g gᵀ + ∇g] = 0. A trained score misses both. Near the draws its mean is taken for a straight line, b(u)
= b₀ + B (u - c) for each observation of a set, and what is left is weighed by G = K J⁻¹, with J the covariance of g - b over
X and K = -E[∇(g - b)]: the best linear combination of estimating functions, for which J and K are the same again ("An optimum
property of regular maximum likelihood estimation", Godambe, 1960). So

    g ← g + f(γ) [ G (g - s b(u)) - g ]   for a set of s observations.

The line holds near the draws only: beyond √dim + 3 of their sd it goes on as a constant, and at levels where the noise is
larger than the draws' spread v it fades, f = v / (v + σ² - σ₁²), with σ² = (1-γ)/γ and σ₁ that of the level where it was
found. With b = 0 and G = I nothing changes.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from scorefold.noise import Level
from scorefold.types import Array, Cloud, Float, Int

BEYOND = 3.0


class LocalMean(NamedTuple):
    """A correction of the score around one data set's draws: what is subtracted, how the rest is weighed, and where both hold.
    `posterior.check` finds it and `posterior.corrected` puts it into place.
    """

    centre: Float[np.ndarray, " dim"]
    """c, the draws' mean"""
    inverse: Float[np.ndarray, "dim dim"]
    """A^{-1/2}, of their covariance"""
    offset: Float[np.ndarray, " dim"]
    """b₀"""
    slope: Float[np.ndarray, "dim dim"]
    """B"""
    weight: Float[np.ndarray, "dim dim"]
    """G"""
    error: Float[np.ndarray, "dim dim"]
    """The covariance of b₀ as it was estimated."""
    width_error: Float[np.ndarray, " dim"]
    """Standard errors of the parameters' log widths."""
    noise: float
    """1 - γ of the level where it was found."""
    spread: float
    """v"""

    def fault(self) -> str:
        """What is wrong with its numbers, if they come from a file; else nothing."""
        good = 0 <= self.noise < 1 and self.spread > 0 and bool((self.width_error >= 0).all())
        return "" if good else "a correction should be of a level from 0 to 1, and of a spread above 0"

    def corrected(
        self, score: Float[Array, "chunk draws dim"], prior: Cloud, u: Cloud, level: Level, sizes: Int[Array, " chunk"]
    ) -> Float[Array, "chunk draws dim"]:
        """The scores of some sets, of these sizes, at the draws u."""
        off = u - self.centre
        distance = jnp.linalg.norm(off @ self.inverse.T, axis=1, keepdims=True)
        off = off * jnp.minimum(1.0, (jnp.sqrt(u.shape[1]) + BEYOND) / jnp.maximum(distance, 1e-30))
        mean = self.offset + off @ self.slope.T
        more = level.noise / level.gamma - self.noise / (1 - self.noise)
        fade = self.spread / (self.spread + jnp.maximum(more, 0.0))
        own = score - prior
        weighed = (own - sizes[:, None, None] * mean) @ self.weight.T
        return prior + own + fade * (weighed - own)
