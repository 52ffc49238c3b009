"""What the simulations say about the trained score as a whole: how much of it to keep, and its mean.

Gate. The residual r that a network adds to the base is kept at the fraction g_t that minimises the denoising loss on cases the
network has not seen, g = ⟨target - base, r⟩ / ⟨r, r⟩ clipped to [0, 1]; a network that learned nothing is switched off.

Mean. At every level, whatever the simulator, E[∇ log p_t(u_t | X) | u_t] = ∇ log p_t(u_t), which is -u_t (or the learned score
of a prior known through draws; the gate then stays open). Where simulations failed, p is not the prior but what the cases
follow, the prior given that they do not fail. It is not known, but only its best straight line is needed, and E[∇ log p_t] = 0
and E[∇ log p_t u_tᵀ] = -I hold for any density: the line is the score of a Gaussian with the cases' mean and covariance. A
score that misses this by b(u) misses the sum over n observations by n b(u), while the posterior narrows like 1/√n: it is the
error that ruins many observations. So b is estimated as a linear function of u_t, by least squares on cases the network has not
seen, and subtracted. (The cross-fitting is that of "Double/debiased machine learning", Chernozhukov et al., 2018.)
"""

import equinox as eqx
import jax.numpy as jnp

from scorefold.types import Array, Cloud, Float, Scalar


class Correction(eqx.Module):
    """Gate and mean at a few levels, linear in t between them."""

    t: Float[Array, " knots"]
    gate: Float[Array, " knots"]
    offset: Float[Array, "knots dim"]
    slope: Float[Array, "knots dim dim"]

    def fault(self) -> str:
        """What is wrong with its numbers, if they come from a file; else nothing."""
        return "" if bool(jnp.all(jnp.diff(self.t) > 0)) else "levels should rise"

    def symmetric(self) -> "Correction":
        """With a mean that is a gradient."""
        return Correction(self.t, self.gate, self.offset, (self.slope + jnp.swapaxes(self.slope, 1, 2)) / 2)

    def _at(self, table: Float[Array, "knots ..."], t: Scalar) -> Float[Array, "..."]:
        right = jnp.clip(jnp.searchsorted(self.t, t), 1, len(self.t) - 1)
        part = jnp.clip((t - self.t[right - 1]) / (self.t[right] - self.t[right - 1]), 0.0, 1.0)
        return (1 - part) * table[right - 1] + part * table[right]

    def gate_at(self, t: Scalar) -> Scalar:
        """The fraction of the residual to keep."""
        return self._at(self.gate, t)

    def potential_at(self, u: Cloud, t: Scalar) -> Float[Array, " draws"]:
        """What b(u) is the gradient of, where the slope is symmetric."""
        return u @ self._at(self.offset, t) + jnp.einsum("nd,de,ne->n", u, self._at(self.slope, t), u) / 2

    def mean_at(self, u: Cloud, t: Scalar) -> Cloud:
        """b(u), by which one set's score misses the identity."""
        return self._at(self.offset, t) + u @ self._at(self.slope, t).T
