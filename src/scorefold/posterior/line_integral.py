"""A log density from scores: integrals along straight lines.

Where a score s is the gradient of h, h(b) - h(a) = ∫₀¹ (b - a)ᵀ s(a + τ (b - a)) dτ, by Gauss–Legendre quadrature, which is
exact where s is a polynomial of degree 2 q - 1 along the line. The composed score is taken at the lowest noise level, which is
where the draws come from. A network's score is the gradient of nothing in particular unless it is conservative: then integrals
along different ways differ, and how far those around triangles are from 0 says by how much.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.compose import Diffused
from scorefold.compose.other_prior import OtherPrior
from scorefold.noise import Level
from scorefold.posterior.asked import Asked
from scorefold.posterior.pilots import PaddedSets
from scorefold.sample.ascent import ascend, curvatures
from scorefold.score.ensemble import ScoreEnsemble, bucket
from scorefold.types import Array, Callable, Cloud, Float

NODES = 4
TOGETHER = 1_024
"""Points at a time."""
FOLLOWED, STEPS_A_LEVEL, LAST_STEPS = 12, 2, 12
"""Levels that a maximum is followed through, at most, and steps uphill at each, and at the lowest."""


@eqx.filter_jit
def _integrals(
    ensemble: ScoreEnsemble, asked: Asked, padded: PaddedSets, level: Level, a: Cloud, b: Cloud, nodes: Array, weights: Array
) -> Float[Array, " points"]:
    with jax.default_matmul_precision("highest"):
        score = asked.score(Diffused().score(ensemble.embed(padded.x, padded.sizes, padded.number)))
        key = jax.random.key(0)  # the rule takes none

        def one(total: Array, at: tuple[Array, Array]) -> tuple[Array, None]:
            node, weight = at
            return total + weight * jnp.sum(score(a + node * (b - a), level, key) * (b - a), axis=1), None

        return jax.lax.scan(one, jnp.zeros(len(a)), (nodes, weights))[0]


@eqx.filter_jit
def _energies(ensemble: ScoreEnsemble, asked: Asked, padded: PaddedSets, level: Level, u: Cloud) -> Float[Array, " points"]:
    with jax.default_matmul_precision("highest"):
        sets = ensemble.embed(padded.x, padded.sizes, padded.number)
        return asked.log_density(Diffused().log_density(sets))(u, level)


def energies(ensemble: ScoreEnsemble, asked: Asked, padded: PaddedSets, level: Level, u: np.ndarray) -> np.ndarray:
    """The composed log density of conservative networks at many points, up to a constant."""
    return _in_parts(lambda some: _energies(ensemble, asked, padded, level, some), u)


def integrals(
    ensemble: ScoreEnsemble, asked: Asked, padded: PaddedSets, level: Level, a: np.ndarray, b: np.ndarray
) -> np.ndarray:
    """h(b) - h(a) for many pairs of points, along the straight lines between them."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    rule = jnp.asarray((nodes + 1) / 2, jnp.float32), jnp.asarray(weights / 2, jnp.float32)
    both = np.concatenate([np.broadcast_to(a, b.shape), b], axis=1)
    dim = b.shape[1]
    return _in_parts(lambda some: _integrals(ensemble, asked, padded, level, some[:, :dim], some[:, dim:], *rule), both)


def _in_parts(of: Callable[[Array], Array], rows: np.ndarray) -> np.ndarray:
    """A function of many rows, in parts of few sizes."""
    found = []
    for start in range(0, len(rows), TOGETHER):
        part = rows[start : start + TOGETHER]
        filled = np.resize(part, (max(16, bucket(len(part))), rows.shape[1]))
        found.append(np.asarray(of(jnp.asarray(filled, jnp.float32)), np.float64)[: len(part)])
    return np.concatenate(found) if found else np.zeros(0)


@eqx.filter_jit
def climbed(
    ensemble: ScoreEnsemble, asked: Asked, volume: OtherPrior | None, padded: PaddedSets, grid: Level, u: Cloud, follow: bool
) -> tuple[Cloud, Float[Array, "draws dim dim"]]:
    """Maxima of the composed density, or of that of θ, from points at the lowest level or through all levels; curvatures."""
    with jax.default_matmul_precision("highest"):
        composed = asked.score(Diffused().score(ensemble.embed(padded.x, padded.sizes, padded.number)))
        if volume is not None:
            composed = volume.score(composed, asked.tilt)
        key = jax.random.key(0)

        def at_level(u: Cloud, level: Level) -> tuple[Cloud, None]:
            return ascend(lambda u: composed(u, level, key), u, STEPS_A_LEVEL), None

        if follow:
            some = jax.tree.map(lambda v: v[:: -(-len(v) // FOLLOWED)], grid)
            u, _ = jax.lax.scan(at_level, u, some)
        lowest = jax.tree.map(lambda v: v[-1], grid)
        u = ascend(lambda u: composed(u, lowest, key), u, LAST_STEPS)
        return u, curvatures(lambda u: composed(u, lowest, key), u)
