"""A log density from scores: integrals along straight lines.

Where a score s is the gradient of h, h(b) - h(a) = ∫₀¹ f(τ) dτ with f(τ) = (b - a)ᵀ s(a + τ (b - a)). For any a and b that is
by Gauss–Legendre quadrature with q = 4 nodes, exact where f is a polynomial of degree 2 q - 1. Lines from one summit a share
f(0) = (b - a)ᵀ s(a) and f'(0) = (b - a)ᵀ J(a) (b - a), with J known from the way up. With them

    ∫₀¹ f(τ) dτ ≈ A f(0) + B f'(0) + Σ_i w_i f(τ_i),      w_i = W_i / τ_i²,  A = 1 - Σ_i w_i,  B = ½ - Σ_i w_i τ_i,

is exact to degree 2 q + 1, which with q = 2 is 5, where τ_i and W_i are those of Gauss–Jacobi quadrature for the weight τ².

The composed score is taken at the lowest noise level, which is where the draws come from. A network's score is the gradient of
nothing in particular unless it is conservative: then integrals along different ways differ, and how far those around triangles
are from 0 says by how much.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import roots_jacobi

from scorefold.compose import Diffused
from scorefold.compose.other_prior import OtherPrior
from scorefold.compose.sets import SetScores
from scorefold.noise import Level, LogDensity, Score
from scorefold.posterior.asked import Asked
from scorefold.posterior.pilots import PaddedSets
from scorefold.sample.ascent import ascend, curvatures
from scorefold.score.ensemble import ScoreEnsemble
from scorefold.train.rows import bucket
from scorefold.types import Array, Callable, Cloud, Float

NODES, NODES_FROM_SUMMIT = 4, 2
POINTS_TOGETHER = 1_024
"""Points at a time."""
FOLLOWED, STEPS_A_LEVEL, LAST_STEPS = 12, 2, 12
"""Levels that a maximum is followed through, at most, and steps uphill at each, and at the lowest."""


class Composed(NamedTuple):
    """A composed score at one level, for compiled programs."""

    scores: ScoreEnsemble
    asked: Asked
    padded: PaddedSets
    level: Level

    def score(self) -> Score:
        """What is integrated."""
        return self.asked.score(Diffused().score(self._sets()))

    def log_density(self) -> LogDensity:
        """What it is the gradient of, where networks are conservative."""
        return self.asked.log_density(Diffused().log_density(self._sets()))

    def _sets(self) -> SetScores:
        return self.scores.embed(self.padded.x, self.padded.sizes, self.padded.number)


class Rule(NamedTuple):
    """A quadrature on (0, 1)."""

    nodes: Float[np.ndarray, " nodes"]
    weights: Float[np.ndarray, " nodes"]


def gauss_legendre() -> Rule:
    """Between any two points."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    return Rule((nodes + 1) / 2, weights / 2)


def beside_a_summit() -> Rule:
    """Where value and slope at 0 are known: τ_i and w_i."""
    nodes, weights = roots_jacobi(NODES_FROM_SUMMIT, 0, 2)
    nodes = (nodes + 1) / 2
    return Rule(nodes, weights / 8 / nodes**2)


@eqx.filter_jit
def _integrals(composed: Composed, a: Cloud, b: Cloud, nodes: Array, weights: Array) -> Float[Array, " points"]:
    with jax.default_matmul_precision("highest"):
        score, key = composed.score(), jax.random.key(0)  # the rule takes no key

        def one(total: Array, at: tuple[Array, Array]) -> tuple[Array, None]:
            node, weight = at
            return total + weight * jnp.sum(score(a + node * (b - a), composed.level, key) * (b - a), axis=1), None

        return jax.lax.scan(one, jnp.zeros(len(a)), (nodes, weights))[0]


@eqx.filter_jit
def _score(composed: Composed, u: Cloud) -> Cloud:
    with jax.default_matmul_precision("highest"):
        return composed.score()(u, composed.level, jax.random.key(0))


@eqx.filter_jit
def _energies(composed: Composed, u: Cloud) -> Float[Array, " points"]:
    with jax.default_matmul_precision("highest"):
        return composed.log_density()(u, composed.level)


def energies(composed: Composed, u: np.ndarray) -> np.ndarray:
    """The composed log density of conservative networks at many points, up to a constant."""
    return _in_parts(lambda some: _energies(composed, some), u)


def integrals(composed: Composed, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """h(b) - h(a) for many pairs of points, along the straight lines between them."""
    return _along(composed, gauss_legendre(), a, b)


def from_summit(composed: Composed, a: np.ndarray, curvature: np.ndarray, b: np.ndarray) -> np.ndarray:
    """h(b) - h(a) for many points b and one point a, with the curvature of h there, by the formula above."""
    rule, way = beside_a_summit(), b - a
    score = np.asarray(_score(composed, jnp.asarray(a[None], jnp.float32)), np.float64)[0]
    known = (1 - rule.weights.sum()) * way @ score
    known -= (0.5 - rule.weights @ rule.nodes) * np.einsum("pi,ij,pj->p", way, curvature, way)
    return known + _along(composed, rule, np.broadcast_to(a, b.shape), b)


def _along(composed: Composed, rule: Rule, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    nodes, weights = (jnp.asarray(part, jnp.float32) for part in rule)
    both, dim = np.concatenate([a, b], axis=1), b.shape[1]
    return _in_parts(lambda some: _integrals(composed, some[:, :dim], some[:, dim:], nodes, weights), both)


def _in_parts(of: Callable[[Array], Array], rows: np.ndarray) -> np.ndarray:
    """A function of many rows, in parts of few sizes."""
    found = []
    for start in range(0, len(rows), POINTS_TOGETHER):
        part = rows[start : start + POINTS_TOGETHER]
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
