"""The coordinates v of the parameters in which likelihoods and ratios are learned: every parameter as u, as θ or as log θ.

Draws are made in u, where the prior is N(0, I). A simulator is written in θ. Where the prior is uniform and x = θ + noise, x is
a straight line in θ and a bent one in u, and what a network leaves of the bend counts once for every observation. Scales and
rates multiply: where they are half-normal, exponential or uniform, only log θ makes a straight line. So

    v_i = u_i   or   v_i = (θ_i(u_i) - mean) / sd   or   v_i = (log θ_i(u_i) - mean) / sd,

whichever `straighten.py` finds the best one. A parameter whose θ has heavy tails is not taken as θ, and one that may be
negative not as log θ.

Each is a table of values and slopes over u, joined by cubic Hermite polynomials: between knots 1/8 apart, a uniform prior's θ
is right to 2e-6 sd. Beyond the last knots it goes on as a straight line. Limiting cases: of a Gaussian prior u and θ are the
same, of a log-normal one u and log θ.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.prior import Prior
from scorefold.types import Array, Bool, Float, Int, Theta

REACH, STEP = 6.0, 1 / 8
KNOTS = np.arange(-REACH, REACH + STEP / 2, STEP)
HEAVY = 15.0
"""How far θ may be from its median at u = ±4, in units of what it is at ±1: beyond that its tails are heavy."""
SAME = 1e-3
"""Where θ and u differ by less at |u| ≤ 3, there is nothing to choose."""


class Coordinates(eqx.Module):
    """v and its slope at the knots, for every parameter."""

    values: Float[Array, "dim knots"]
    slopes: Float[Array, "dim knots"]
    """Times the distance of knots."""

    def __call__(self, u: Theta) -> Theta:
        """v."""
        place = (u + REACH) / STEP
        left = jnp.clip(jnp.floor(place), 0, len(KNOTS) - 2).astype(jnp.int32)
        s, row = place - left, jnp.arange(len(u))
        p, q = self.values[row, left], self.values[row, left + 1]
        m, n = self.slopes[row, left], self.slopes[row, left + 1]
        t = jnp.where(s < 0, 0.0, jnp.where(s > 1, 1.0, s))  # jnp.clip would halve the slope at a knot
        inner = p + t * (m + t * (3 * (q - p) - 2 * m - n + t * (2 * (p - q) + m + n)))
        return inner + jnp.where(s < 0, s * m, jnp.where(s > 1, (s - 1) * n, 0.0))

    def fault(self) -> str:
        """What is wrong with its numbers, if they come from a file; else nothing."""
        return "" if bool(jnp.all(jnp.diff(self.values) >= 0)) else "coordinates should rise with the parameters"


U, THETA, LOG = range(3)
"""What a parameter may be seen as."""


class Choices(NamedTuple):
    """What each parameter may be."""

    tables: Float[np.ndarray, "kinds dim knots"]
    """u, θ and log θ at the knots, standardised; u where one may not be taken."""
    free: Bool[np.ndarray, "kinds dim"]
    """Whether it may be taken; u always."""
    bounded: Bool[np.ndarray, " dim"]
    """Whether θ may be taken, and has two bounds, which u takes to infinity."""

    def coordinates(self, kinds: Int[np.ndarray, " dim"]) -> Coordinates:
        """With every parameter as this."""
        return _through(self.tables[kinds, np.arange(len(kinds))])


def choices(prior: Prior) -> Choices:
    """Only u where θ_i depends on more than u_i; θ where it is another coordinate without heavy tails, log θ where θ > 0."""
    if not prior.independent:
        return no_choice(prior.dim)
    theta = prior.from_normal(np.tile(KNOTS[:, None], prior.dim)).T
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        (v, as_theta), (w, as_log) = _another(theta), _another(np.log(theta))
        out, middle, inner = (theta[:, np.abs(np.abs(KNOTS) - at) < STEP / 2] for at in (4, 0, 1))
        near = np.abs(out - middle).max(axis=1) < HEAVY * (inner[:, 1] - inner[:, 0]) / 2
    free = np.stack([np.ones(prior.dim, bool), as_theta & near, as_log])
    tables = np.where(free[:, :, None], np.stack([np.tile(KNOTS, (prior.dim, 1)), v, w]), KNOTS)
    return Choices(tables, free, free[THETA] & np.isfinite(prior.bounds).all(axis=1))


def _another(values: Float[np.ndarray, "dim knots"]) -> tuple[Float[np.ndarray, "dim knots"], Bool[np.ndarray, " dim"]]:
    """Standardised, and whether that is a coordinate, and not u."""
    weights = np.exp(-(KNOTS**2) / 2)
    weights /= weights.sum()
    off = values - (values @ weights)[:, None]
    v = off / np.sqrt(np.maximum(np.square(off) @ weights, 1e-300))[:, None]
    differs = np.abs(v - KNOTS)[:, np.abs(KNOTS) <= 3].max(axis=1) > SAME
    return v, differs & np.isfinite(v).all(axis=1)


def no_choice(dim: int) -> Choices:
    """All as they are."""
    free = np.zeros((3, dim), bool)
    free[U] = True
    return Choices(np.tile(KNOTS, (3, dim, 1)), free, free[THETA])


def blank(dim: int) -> Coordinates:
    """One of this size, its numbers still to be put in."""
    return Coordinates(*(jnp.zeros((dim, len(KNOTS))),) * 2)


def identity(dim: int) -> Coordinates:
    """u as it is."""
    return _through(np.tile(KNOTS, (dim, 1)))


@jax.jit
def at(coordinates: Callable[[Theta], Array] | None, u: Float[Array, "cases dim"]) -> Float[Array, "cases v"]:
    """v of many cases; u itself without coordinates."""
    return u if coordinates is None else jax.vmap(coordinates)(u)


def _through(values: np.ndarray) -> Coordinates:
    """These values at the knots, with slopes of fourth order, of second at the ends."""
    slopes = np.gradient(values, axis=1, edge_order=2)
    slopes[:, 2:-2] = (8 * (values[:, 3:-1] - values[:, 1:-3]) - (values[:, 4:] - values[:, :-4])) / 12
    return Coordinates(jnp.asarray(values, jnp.float32), jnp.asarray(slopes, jnp.float32))
