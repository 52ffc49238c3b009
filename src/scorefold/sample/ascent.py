"""Newton's method uphill: from a few points to the maxima of a log density that is known by its score.

    u ← u + |H|⁻¹ s(u),   H = -(J + Jᵀ)/2,   J = ∂s/∂u,

with |H| made of the absolute eigenvalues of H, so that every step goes uphill, also where the density is not concave; none of
them is taken for smaller than `LEAST_CURVATURE`, and no step is longer than `LONGEST` prior sd. A Gaussian's maximum is reached
at once. There sᵀ|H|⁻¹s, twice what a step gains in nat, is 0, and the points stay where it is small for all of them.
"""

import jax
import jax.numpy as jnp

from scorefold.types import Array, Callable, Cloud, Float, Scalar, Theta

LEAST_CURVATURE = 1e-2
"""Curvature, where the prior's is 1."""
LONGEST = 0.5
THERE = 1e-7
"""sᵀ|H|⁻¹s of a point that has arrived, a few 1e-4 sd from the maximum."""
COLUMNS_TOGETHER = 16
"""Derivatives at a time."""


def ascend(score: Callable[[Cloud], Cloud], u: Cloud, steps: int) -> Cloud:
    """Take so many steps from each of the points, or fewer if all of them have arrived.

    Args:
        score: The gradient of the log density, at every point by itself.
        u: Where to start (points, dim).
        steps: How many steps at most.

    Returns:
        Where the points end.
    """

    def goes_on(state: tuple[Array, Cloud, Scalar]) -> Array:
        return (state[0] < steps) & (state[2] > THERE)

    def step(state: tuple[Array, Cloud, Scalar]) -> tuple[Array, Cloud, Scalar]:
        by, gain = jax.vmap(_step)(score(state[1]), curvatures(score, state[1]))
        return state[0] + 1, state[1] + by, jnp.max(jnp.nan_to_num(gain))

    return jax.lax.while_loop(goes_on, step, (jnp.zeros((), int), u, jnp.asarray(jnp.inf, u.dtype)))[1]


def curvatures(score: Callable[[Cloud], Cloud], u: Cloud) -> Float[Array, "draws dim dim"]:
    """H at each of the points, for a Gaussian its inverse covariance."""

    def column(axis: Float[Array, " dim"]) -> Cloud:
        return jax.jvp(score, (u,), (jnp.broadcast_to(axis, u.shape),))[1]

    # Together, as the score itself is then computed once; not too many, as each takes as much memory as a cloud.
    columns = jax.lax.map(column, jnp.eye(u.shape[1], dtype=u.dtype), batch_size=COLUMNS_TOGETHER)
    jacobian = jnp.moveaxis(columns, 0, -1)
    return -(jacobian + jnp.swapaxes(jacobian, 1, 2)) / 2


def _step(s: Theta, curvature: Float[Array, "dim dim"]) -> tuple[Theta, Scalar]:
    """How far to go, and sᵀ|H|⁻¹s."""
    values, vectors = jnp.linalg.eigh(curvature)
    along, steepness = vectors.T @ s, jnp.maximum(jnp.abs(values), LEAST_CURVATURE)
    step = vectors @ (along / steepness)
    length: Scalar = jnp.linalg.norm(step)
    return jnp.nan_to_num(step * jnp.minimum(1.0, LONGEST / jnp.maximum(length, 1e-30))), jnp.sum(along**2 / steepness)
