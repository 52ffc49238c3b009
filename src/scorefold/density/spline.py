"""A monotone rational-quadratic spline of one number.

On [-B, B] the spline has K bins with knots (p_k, q_k) and slopes d_k there, d_0 = d_K = 1; outside it is the identity. In the
bin of y, with ξ = (y - p_k) / w, w = p_{k+1} - p_k, h = q_{k+1} - q_k and s = h / w,

    z = q_k + h (s ξ² + d_k ξ (1-ξ)) / D,   D = s + (d_k + d_{k+1} - 2s) ξ (1-ξ),
    dz/dy = s² (d_{k+1} ξ² + 2 s ξ (1-ξ) + d_k (1-ξ)²) / D²,

and the inverse solves the quadratic a ξ² + b ξ + c = 0 that the first line is in ξ ("Neural spline flows", Durkan, Bekasov,
Murray and Papamakarios, 2019). Raw parameters of zero give the identity.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from scorefold.types import Array, Float, Scalar

BINS = 8
BOUND = 5.0
NARROWEST, FLATTEST = 1e-3, 1e-3
PARAMETERS = 3 * BINS - 1


class Bin(NamedTuple):
    """Where one number falls: the bin's left knot, its width, height and slopes."""

    p: Scalar
    q: Scalar
    w: Scalar
    h: Scalar
    left: Scalar
    right: Scalar


def _knots(raw: Float[Array, " bins"]) -> Float[Array, " knots"]:
    """From -B to B, no bin narrower than a thousandth of the whole."""
    share = NARROWEST + (1 - NARROWEST * BINS) * jax.nn.softmax(raw)
    return jnp.concatenate([jnp.array([-BOUND]), -BOUND + 2 * BOUND * jnp.cumsum(share[:-1]), jnp.array([BOUND])])


def _bin(raw: Float[Array, " parameters"], value: Scalar, inverse: bool) -> Bin:
    p, q = _knots(raw[:BINS]), _knots(raw[BINS : 2 * BINS])
    inner = FLATTEST + jax.nn.softplus(raw[2 * BINS :] + jnp.log(jnp.expm1(1 - FLATTEST)))
    slopes = jnp.concatenate([jnp.ones(1), inner, jnp.ones(1)])
    # 1 in the bin of the value and 0 in the others: sums over eight are quicker than a search and its gradient.
    beyond = jnp.where(value >= (q if inverse else p)[1:-1], 1.0, 0.0)
    here = jnp.concatenate([jnp.ones(1), beyond]) - jnp.concatenate([beyond, jnp.zeros(1)])
    each = (p[:-1], q[:-1], jnp.diff(p), jnp.diff(q), slopes[:-1], slopes[1:])
    return Bin(*(jnp.sum(here * of_bins) for of_bins in each))


def _log_slope(at: Bin, xi: Scalar) -> Scalar:
    s = at.h / at.w
    below = s + (at.left + at.right - 2 * s) * xi * (1 - xi)
    return 2 * jnp.log(s) + jnp.log(at.right * xi**2 + 2 * s * xi * (1 - xi) + at.left * (1 - xi) ** 2) - 2 * jnp.log(below)


def forward(raw: Float[Array, " parameters"], y: Scalar) -> tuple[Scalar, Scalar]:
    """z, and log dz/dy."""
    inside = jnp.abs(y) < BOUND
    at = _bin(raw, jnp.where(inside, y, 0.0), inverse=False)
    xi = (jnp.where(inside, y, 0.0) - at.p) / at.w
    s = at.h / at.w
    z = at.q + at.h * (s * xi**2 + at.left * xi * (1 - xi)) / (s + (at.left + at.right - 2 * s) * xi * (1 - xi))
    return jnp.where(inside, z, y), jnp.where(inside, _log_slope(at, xi), 0.0)


def inverse(raw: Float[Array, " parameters"], z: Scalar) -> Scalar:
    """y."""
    inside = jnp.abs(z) < BOUND
    safe = jnp.where(inside, z, 0.0)
    at = _bin(raw, safe, inverse=True)
    s, rise = at.h / at.w, safe - at.q
    bent = at.left + at.right - 2 * s
    a, b, c = at.h * (s - at.left) + rise * bent, at.h * at.left - rise * bent, -s * rise
    xi = 2 * c / (-b - jnp.sqrt(jnp.maximum(b**2 - 4 * a * c, 0.0)))
    return jnp.where(inside, at.p + jnp.clip(xi, 0.0, 1.0) * at.w, z)
