"""Numbers of an observation that cannot lie beyond a place which moves with the parameters.

A reaction time is at least the non-decision time, a waiting time at least the dead time of its detector. Where parameters move
such an edge they move it as a whole, and what lies beyond it is all that depends on the rest. So the number z is seen by the
logarithm of its distance from the edge,

    y = ± log d,   d = ± (z - c - aᵀv) + m,

with + for an edge below and - for one above, v the coordinates of the parameters and the known inputs, and m a margin, as the
edge is known from simulations only. Within m/2 the logarithm goes on along its tangent, so that what is nearly impossible has a
small density and a slope that leads away. y is then centred and scaled. The straight line is fitted to y in place of z, and
log |dy/dz| depends on v.

The edge is the closest straight line that all cases lie beyond: c and a maximise the mean of c + aᵀv where c + aᵀv_i ≤ z_i, a
linear program ("On estimating the industry production function", Aigner and Chu, 1968). Its margin, and whether it is better
than no edge at all, the likelihood decides (`straighten.py`), of which half the cases had no part in the program. From there it
moves to where the likelihood is highest: few cases come close to an edge near which hardly any can be.

Limiting case: a number without an edge stays as it is.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog

from scorefold.score.standardize import KNEE, centre_and_scale
from scorefold.types import Array, Float, Int, Observation

MARGINS = (0.001, 0.01, 0.03, 0.1)
"""Of the median distance."""
BEGINNING, ADDED, CUTS = 200, 50, 40
"""Cases that the linear program begins with, those that break it most and are added, and how often at most."""
STEEPEST = 1e3
"""Slopes of an edge, in units of the number's spread: no bound in practice, but the program has to have one."""
BROKEN = 1e-9
CLOSEST = 0.001
"""The share of the cases that may lie where the logarithm goes on along its tangent."""
PARTS, NEAREST, NEAR = 5, 0.02, 0.5
"""The share of the cases of a part that is near the edge, and what their distance is at most, of the median."""
FAR_ENOUGH = 0.25
"""Of the median distance, by which an edge moves at least."""


class Edges(eqx.Module):
    """The edges of all numbers."""

    side: Float[Array, " x"]
    """1 for an edge below, -1 above, 0 for none."""
    slope: Float[Array, "x given"]
    """a"""
    offset: Float[Array, " x"]
    """c - m, or c + m for an edge above"""
    shortest: Float[Array, " x"]
    """m/2"""
    centre: Float[Array, " x"]
    scale: Float[Array, " x"]

    def __call__(self, z: Observation, v: Float[Array, " given"]) -> Observation:
        """y of standardised numbers; z itself where there is no edge."""
        d = self._distance(z, v)
        log = jnp.log(jnp.maximum(d, self.shortest)) + jnp.minimum(d - self.shortest, 0.0) / self.shortest
        return jnp.where(self.side == 0, z, (self.side * log - self.centre) / self.scale)

    def log_slopes(self, z: Observation, v: Float[Array, " given"]) -> Observation:
        """log |dy/dz|, number by number."""
        slope = jnp.maximum(jnp.abs(z) - KNEE, 0.0) - jnp.log(jnp.maximum(self._distance(z, v), self.shortest))
        return jnp.where(self.side == 0, 0.0, slope - jnp.log(self.scale))

    def fault(self) -> str:
        """What is wrong with its numbers, if they come from a file; else nothing."""
        right = jnp.all((self.shortest > 0) & (self.scale > 0) & (jnp.abs(self.side) <= 1))
        return "" if bool(right) else "edges should have a side, and margins and scales above 0"

    def in_order(self, order: Int[np.ndarray, " x"]) -> "Edges":
        """Of the numbers in another order."""
        return jax.tree.map(lambda own: own[order], self)

    def _distance(self, z: Observation, v: Float[Array, " given"]) -> Observation:
        return jnp.where(self.side == 0, 1.0, self.side * (_unfolded(z) - self.slope @ v - self.offset))


def _unfolded(z: Observation) -> Observation:
    """z as it was before outliers were drawn in (`score/standardize.py`)."""
    beyond = jnp.maximum(jnp.abs(z) - KNEE, 0.0)
    return jnp.sign(z) * (jnp.minimum(jnp.abs(z), KNEE) + jnp.expm1(beyond))


class Edge(NamedTuple):
    """That of one number."""

    side: float
    slope: Float[np.ndarray, " given"]
    offset: float
    margin: float

    def distances(self, z: Float[np.ndarray, " cases"], given: Float[np.ndarray, "cases given"]) -> np.ndarray:
        """d of every case; z not drawn in."""
        d: np.ndarray = self.side * (z - given @ self.slope - self.offset)
        return d

    def mapped(self, z: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, float]:
        """y of every case, neither centred nor scaled, and the mean of log |dy/dz|."""
        d, shortest = self.distances(z, given), self.margin / 2
        log = np.log(np.maximum(d, shortest)) + np.minimum(d - shortest, 0.0) / shortest
        return self.side * log, float(-np.log(np.maximum(d, shortest)).mean())

    def typical_distance(self, z: np.ndarray, given: np.ndarray) -> float:
        """The median of how far cases lie from it."""
        return float(np.median(np.abs(self.distances(z, given))))

    def is_one(self, z: np.ndarray, given: np.ndarray) -> bool:
        """Whether it moves far enough to matter, and there are cases near it wherever it lies: in every fifth of them, from
        where it is low to where it is high.
        """
        place, typical, distance = given @ self.slope, self.typical_distance(z, given), self.distances(z, given)
        parts = np.array_split(np.argsort(place, kind="stable"), PARTS)
        near = all(np.quantile(distance[part], NEAREST) < NEAR * min(np.median(distance[part]), typical) for part in parts)
        return near and bool(place.std() > FAR_ENOUGH * typical)

    def with_margin(self, margin: float) -> "Edge":
        """So much farther out."""
        return self._replace(offset=self.offset - self.side * (margin - self.margin), margin=margin)

    def with_tangent(self, z: np.ndarray, given: np.ndarray) -> "Edge":
        """With the logarithm as it is for all cases but the closest in a thousand."""
        closest = float(np.quantile(self.distances(z, given), CLOSEST))
        return self._replace(margin=max(closest, MARGINS[0] * self.typical_distance(z, given)))


def closest_edge(z: np.ndarray, given: np.ndarray, side: float, free: np.ndarray) -> Edge | None:
    """The edge of numbers z (cases,) on a side, whose place only the `free` of what is given may move; with no margin.

    None where no straight line does it.
    """
    y, seen = side * z, given[:, free]
    found = _frontier(y, np.concatenate([np.ones((len(z), 1)), seen], axis=1))
    if found is None:
        return None
    slope = np.zeros(given.shape[1])
    slope[free] = side * found[1:]
    return Edge(side, slope, float(side * found[0]), 0.0)


def _frontier(y: np.ndarray, h: np.ndarray) -> np.ndarray | None:
    """The b with the largest mean of h b that is nowhere above y, by the cases that matter: those broken most are added."""
    left = y - h @ np.linalg.lstsq(h, y, rcond=None)[0]
    picked = np.unique(np.concatenate([np.argsort(left)[:BEGINNING], np.linspace(0, len(y) - 1, BEGINNING).astype(int)]))
    bounds = [(None, None)] + [(-STEEPEST, STEEPEST)] * (h.shape[1] - 1)
    for _ in range(CUTS):
        solved = linprog(-h.mean(axis=0), A_ub=h[picked], b_ub=y[picked], bounds=bounds, method="highs")
        if solved.status != 0:
            return None
        above = h @ solved.x - y
        if above.max() <= BROKEN:
            break
        picked = np.union1d(picked, np.argsort(above)[-ADDED:])
    found: np.ndarray = solved.x
    found[0] -= max(float((h @ found - y).max()), 0.0)
    return found


def edges_of(own: dict[int, Edge], z: np.ndarray, given: np.ndarray) -> Edges:
    """Those of some of the numbers z (cases, x), not drawn in."""
    found = jax.tree.map(np.array, blank(z.shape[1], given.shape[1]))
    for i, edge in own.items():
        y, _ = edge.mapped(z[:, i], given)
        found.side[i], found.slope[i], found.offset[i], found.shortest[i] = edge.side, edge.slope, edge.offset, edge.margin / 2
        found.centre[i], found.scale[i] = (float(part[0]) for part in centre_and_scale(y[:, None]))
    return jax.tree.map(lambda part: jnp.asarray(part, jnp.float32), found)


@jax.jit
def _mapped(edges: Edges, z: Float[Array, "cases x"], v: Float[Array, "cases given"]) -> Float[Array, "cases x"]:
    return jax.vmap(edges)(z, v)


def mapped(edges: Edges, z: np.ndarray, v: np.ndarray) -> np.ndarray:
    """y of standardised numbers z (cases, x) at v (cases, given)."""
    return np.asarray(_mapped(edges, jnp.asarray(z, jnp.float32), jnp.asarray(v, jnp.float32)))


def blank(features: int, given: int) -> Edges:
    """None for any of so many numbers."""
    zero, one = jnp.zeros(features), jnp.ones(features)
    return Edges(zero, jnp.zeros((features, given)), zero, one, zero, one)
