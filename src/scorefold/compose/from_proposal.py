"""From a proposal's posterior to the prior's.

Composition divides by the prior anyway, so simulations may come from any proposal p̃ without importance weights:

    p(θ) ∏_j p(X_j|θ) = p(θ) ∏_j [ p̃(θ|X_j) / p̃(θ) ].

With a Gaussian proposal u = m + A w, whose own space w is N(0, I), this is what composition with the "prior" N(0, I) gives for
k sets, Σ_j s̃_j(w, t) + (1-k) (-w), and once more

    γ_t [ ∇_w log p(u(w)) - ∇_w log p̃(w) ] = γ_t [ w - Aᵀ(m + A w) ],

which is exact as t → 0 and nothing at the noisiest level. In between the sum is the score of a density, and Langevin steps
are right for it, but not of a diffused one: reversing the diffusion is not, for one set either.
"""

import equinox as eqx
import jax.numpy as jnp

from scorefold.noise import Level, LogDensity, Score
from scorefold.types import Array, Cloud, Float, Key, Theta


class Tilt(eqx.Module):
    """Takes a score composed in the space of a Gaussian proposal to that of the posterior under the prior.

    Refinement uses it where simulations came from a Gaussian proposal u = m + A w. A truncated proposal needs nothing of the
    kind.

    Args:
        mean: m, the proposal's mean in the N(0, I) space of the prior.
        root: A, a square root of the proposal's covariance there.
    """

    mean: Theta
    root: Float[Array, "dim dim"]

    def score(self, composed: Score) -> Score:
        """The composed score plus γ times the difference between the prior's score and the proposal's."""

        def score(w: Cloud, level: Level, key: Key) -> Cloud:
            return composed(w, level, key) + level.gamma * (w - (self.mean + w @ self.root.T) @ self.root)

        return score

    def log_density(self, composed: LogDensity) -> LogDensity:
        """The composed log density plus γ times the log ratio of prior to proposal; its gradient is `score`."""

        def log_density(w: Cloud, level: Level) -> Float[Array, " draws"]:
            return composed(w, level) + level.gamma * self.log_ratio(w)

        return log_density

    def log_ratio(self, w: Cloud) -> Float[Array, " draws"]:
        """log p(u(w)) - log p̃(w), up to a constant: what takes a likelihood times the proposal to the posterior."""
        u = self.mean + w @ self.root.T
        return (jnp.sum(w**2, axis=1) - jnp.sum(u**2, axis=1)) / 2
