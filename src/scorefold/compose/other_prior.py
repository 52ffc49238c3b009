"""A posterior under another prior than the one that was simulated from.

Composition takes the prior p away n - 1 times and leaves it once. To have another one, p', in that place, add its score and
take away the first one's:

    s + γ_t ∇ r(u),      r(u) = log p'(θ(u)) - log p(θ(u))

(`prior/prior_ratio.py`), which is exact as t → 0 and nothing at the noisiest level. It is the same tilt as that of a proposal
(`from_proposal.py`): in between the sum is the score of a density, and Langevin steps are right for it, but not of a diffused
one: reversing the diffusion is not, for one set either.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from scorefold.compose.from_proposal import Tilt
from scorefold.noise import Level, LogDensity, Score
from scorefold.types import Array, Cloud, Float, Key, Scalar, Theta

FALL = 0.1
"""Prior sd over which the density falls off where the other prior has ended."""


class OtherPrior(eqx.Module):
    """What takes a composed score, and its density, from the prior that was simulated from to another prior: the log ratio of
    both, as tables in compiled programs.
    """

    axes: Float[Array, "dim dim"]
    low: Float[Array, " dim"]
    high: Float[Array, " dim"]
    cut: Float[Array, "2 dim"]
    f: Float[Array, "dim knots"]
    f_slope: Float[Array, "dim knots"]
    g: Float[Array, "dim knots"]
    g_slope: Float[Array, "dim knots"]
    precision: Float[Array, "dim dim"]
    pull: Scalar

    def log_ratio(self, u: Theta) -> Scalar:
        """r(u), up to a constant."""
        c = self.axes @ u
        below, above = jnp.minimum(c - self.low, 0.0), jnp.maximum(c - self.high, 0.0)
        fall = jnp.sum(self.cut[0] * below**2 + self.cut[1] * above**2) / (2 * FALL**2)
        f, g = self._at(self.f, self.f_slope, c), self._at(self.g, self.g_slope, c)
        return jnp.sum(f) - g @ self.precision @ g / 2 + self.pull * jnp.sum(u**2) / 2 - fall

    def log_ratio_at(self, w: Theta, tilt: Tilt | None) -> Scalar:
        """r, for w in the space of a proposal, where there is one."""
        return self.log_ratio(w if tilt is None else tilt.mean + tilt.root @ w)

    def exact_log_ratio(self, w: Theta, tilt: Tilt | None) -> Scalar:
        """The same, and -∞ where the other prior has ended: for samplers that can do with edges."""
        u = w if tilt is None else tilt.mean + tilt.root @ w
        c = self.axes @ u
        out = ((c < self.low) & (self.cut[0] > 0)) | ((c > self.high) & (self.cut[1] > 0))
        return jnp.where(jnp.any(out), -jnp.inf, self.log_ratio(u))

    def score(self, composed: Score, tilt: Tilt | None) -> Score:
        """The composed score plus γ ∇r; in the space of a proposal, where there is one."""

        def score(w: Cloud, level: Level, key: Key) -> Cloud:
            return composed(w, level, key) + level.gamma * jax.vmap(jax.grad(lambda w: self.log_ratio_at(w, tilt)))(w)

        return score

    def log_density(self, composed: LogDensity, tilt: Tilt | None) -> LogDensity:
        """The composed log density plus γ r; its gradient is `score`."""

        def log_density(w: Cloud, level: Level) -> Float[Array, " draws"]:
            return composed(w, level) + level.gamma * jax.vmap(lambda w: self.log_ratio_at(w, tilt))(w)

        return log_density

    def _at(self, value: Float[Array, "dim knots"], slope: Float[Array, "dim knots"], c: Theta) -> Theta:
        """Cubic between knots, by values and slopes; straight beyond the last."""
        cells = value.shape[1] - 1
        width = (self.high - self.low) / cells
        place = jnp.clip((c - self.low) / width, 0.0, cells)
        left = jnp.minimum(place.astype(int), cells - 1)
        x = place - left
        row = jnp.arange(len(c))
        v0, v1 = value[row, left], value[row, left + 1]
        d0, d1 = slope[row, left] * width, slope[row, left + 1] * width
        rise = v1 - v0
        inner = v0 + x * (d0 + x * (3 * rise - 2 * d0 - d1 + x * (d0 + d1 - 2 * rise)))
        off = jnp.minimum(c - self.low, 0.0) * slope[:, 0] + jnp.maximum(c - self.high, 0.0) * slope[:, -1]
        return inner + off
