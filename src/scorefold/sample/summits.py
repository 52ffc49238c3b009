"""Where a cloud begins: Gaussians at the summits of the posterior, and the prior for what they miss.

    q(u) = ρ N(u | 0, I) + (1-ρ) Σ_k w_k Σ_l r_l N(u | m_k, s² 4^l C_k)

From some prior draws a quasi-Newton method goes uphill on f(u) = log N(u | 0, I) + ℓ(u):

    p = C ∇f(u),   δ = min(1, L/|p|) p,   y = ∇f(u) - ∇f(u + δ),
    C ← (I - δ yᵀ/δᵀy) C (I - y δᵀ/δᵀy) + δ δᵀ/δᵀy   where δᵀy > 0, else C/4 where f(u + δ) is lower,

and u + δ is taken where f is no lower there ("Practical methods of optimization", Fletcher, 1987, for this update of Broyden,
Fletcher, Goldfarb and Shanno). Where a point ends is m_k; C_k, the inverse of the curvature there for what the steps have seen
of it, is nowhere wider than the prior. A half of w is that of Laplace's integrals, e^{f(m_k)} |C_k|^{1/2}, and a half is the
same for all, as a point may have stopped too early. For one Gaussian mode in d dimensions s² = 1 + d^{-1/2} leaves weights of
N(m, s² C) an effective size of about 0.6, in any d.

A narrow peak on a wide hill has next to no part in the powers of the likelihood by which a cloud would come down from the
prior, so that these miss it; uphill it is found. It need not lie uphill on f, though: where hill and peak are of the same
observation, the prior draws the summit of the hill aside. So every other point first goes uphill on log N(u | 0, I) + 64 ℓ(u),
of which the prior is hardly a part, and from there on f. The hill around a peak is met by the wider Gaussians, l = 1, 2, 3,
none wider than the prior. What lies uphill from none of the points has the prior's share of the draws.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from scorefold.sample.by_steps import Look, Loop, at_once, numbers, program
from scorefold.types import Array, Cloud, Float, Int, Key, Scalar, Theta

CLIMBERS, STEPS_UP, LAST_STEPS_UP = 32, 48, 24
"""Prior draws that go uphill, how many steps, and how many more once every other one has gone uphill on the sharpened f."""
SHARPENED = 64.0
"""The power of its likelihood, by which its maximum is nearly that of the likelihood alone."""
LONGEST = 0.5
"""A step, in prior sd."""
SMALLEST_VARIANCE = 1e-14
PRIOR_SHARE = 0.25
"""ρ."""
LADDER = (0.4, 0.2, 0.2, 0.2)
"""r: of a summit's draws, those from its own width, twice, four and eight times that."""


class Mixture(NamedTuple):
    """Gaussians, of which the first is the prior."""

    centres: Float[Array, "parts dim"]
    roots: Float[Array, "parts dim dim"]
    inverses: Float[Array, "parts dim dim"]
    """Of the roots."""
    log_weights: Float[Array, " parts"]
    log_volumes: Float[Array, " parts"]
    """log |det| of the roots."""

    def log_density(self, u: Theta) -> Scalar:
        """log q(u), normalised."""
        z = jnp.einsum("kij,kj->ki", self.inverses, u - self.centres)
        heights = self.log_weights - self.log_volumes - len(u) / 2 * jnp.log(2 * jnp.pi)
        return jax.nn.logsumexp(heights - jnp.sum(z**2, axis=1) / 2)

    def draw(self, key: Key, count: int) -> Cloud:
        """Draws from q."""
        key_part, key_noise = jax.random.split(key)
        return self.at(jax.random.uniform(key_part, (count,)), jax.random.normal(key_noise, (count, self.centres.shape[1])))

    def at(self, uniform: Float[Array, " draws"], normal: Cloud) -> Cloud:
        """The draws that such numbers give."""
        ends = jnp.cumsum(jnp.exp(self.log_weights))
        parts = jnp.minimum(jnp.searchsorted(ends, uniform * ends[-1], side="right"), len(ends) - 1)
        return self.centres[parts] + jnp.einsum("nij,nj->ni", self.roots[parts], normal)


class Climber(NamedTuple):
    """A point on its way uphill on f; or several, with a leading axis."""

    u: Theta
    value: Scalar
    score: Theta
    inverse: Float[Array, "dim dim"]
    """C."""


class _Way(NamedTuple):
    climbers: Climber
    left: Int[Array, ""]
    """Steps."""
    goes_on: Array


def summits(at: Look, dim: int, key: Key, loop: Loop = at_once) -> Mixture:
    """The mixture for a log likelihood and its gradient."""
    ended = climbed_twice(at, climbers(dim, key), loop)
    return around(ended.u, ended.value, ended.inverse)


def climbed_twice(at: Look, begin: Climber, loop: Loop = at_once) -> Climber:
    """Points uphill on f, every other one by way of the sharpened f."""
    powers = jnp.where(jnp.arange(len(begin.u)) % 2 == 1, SHARPENED, 1.0)

    def sharpened(u: Float[Array, "points dim"]) -> tuple[Array, Array]:
        value, slope = at(u)
        return value * powers, slope * powers[:, None]

    first = climbed(sharpened, begin, STEPS_UP + 1, loop)
    return climbed(at, arrived(first.u, _flatter(first.inverse, powers)), LAST_STEPS_UP + 1, loop)


@program
def _flatter(inverse: Float[Array, "points dim dim"], powers: Float[Array, " points"]) -> Float[Array, "points dim dim"]:
    """C, of what was that many times as steep, and nowhere wider than the prior's."""
    variances, vectors = jnp.linalg.eigh(inverse)
    return jnp.einsum("kij,kj,klj->kil", vectors, jnp.clip(powers[:, None] * variances, 0.0, 1.0), vectors)


@partial(program, static_argnums=0)
def climbers(dim: int, key: Key) -> Climber:
    """Prior draws, which have not looked around yet."""
    return arrived(jax.random.normal(key, (CLIMBERS, dim)), jnp.broadcast_to(jnp.eye(dim), (CLIMBERS, dim, dim)))


def arrived(u: Float[Array, "points dim"], inverse: Float[Array, "points dim dim"]) -> Climber:
    """Points that have not looked around yet: the first step of each is none, but evaluates f."""
    return Climber(u, jnp.full(len(u), -jnp.inf), jnp.zeros_like(u), inverse)


def climbed(at: Look, begin: Climber, steps: int, loop: Loop = at_once) -> Climber:
    """After so many steps on f."""

    def on(way: _Way) -> _Way:
        to = ahead_of(way.climbers)
        return _Way(stepped(way.climbers, to, *at(to)), *_counted(way.left))

    return loop(lambda way: way.goes_on, on, _Way(begin, jnp.full((), steps, int), jnp.full((), steps > 0, bool))).climbers


@program
def _counted(left: Int[Array, ""]) -> tuple[Int[Array, ""], Array]:
    return left - 1, left > 1


@program
def ahead_of(climbers: Climber) -> Float[Array, "points dim"]:
    """u + δ."""
    return climbers.u + jax.vmap(_length)(climbers)


@program
def stepped(climbers: Climber, to: Float[Array, "points dim"], value: Float[Array, " points"], slope: Cloud) -> Climber:
    """The points after a look at where their steps lead."""
    value, slope = numbers(value, slope)
    return jax.vmap(_stepped)(climbers, to, value - jnp.sum(to**2, axis=1) / 2, slope - to)


@program
def around(u: Float[Array, "points dim"], value: Float[Array, " points"], inverse: Float[Array, "points dim dim"]) -> Mixture:
    """q for summits m_k = u with f and C there; those of value -∞ are left out."""
    dim = u.shape[1]
    variances, vectors = jnp.linalg.eigh(inverse)
    variances = jnp.clip(variances, SMALLEST_VARIANCE, 1.0)
    there = jnp.isfinite(value)
    shares = jax.nn.softmax(value + jnp.sum(jnp.log(variances), axis=1) / 2) / 2 + there / (2 * jnp.sum(there))
    wider = (1 + dim**-0.5) * 4.0 ** jnp.arange(len(LADDER))
    ladder = jnp.minimum(wider[:, None, None] * variances, jnp.maximum(1.0, wider[0] * variances))

    def symmetric(power: float) -> Float[Array, "parts dim dim"]:
        return jnp.einsum("kij,lkj,kmj->lkim", vectors, ladder**power, vectors).reshape(-1, dim, dim)

    parts = (jnp.asarray(LADDER)[:, None] * shares).reshape(-1)
    return Mixture(
        jnp.concatenate([jnp.zeros((1, dim)), jnp.tile(u, (len(LADDER), 1))]),
        jnp.concatenate([jnp.eye(dim)[None], symmetric(0.5)]),
        jnp.concatenate([jnp.eye(dim)[None], symmetric(-0.5)]),
        jnp.log(jnp.concatenate([jnp.array([PRIOR_SHARE]), (1 - PRIOR_SHARE) * parts])),
        jnp.concatenate([jnp.zeros(1), jnp.sum(jnp.log(ladder), axis=2).reshape(-1) / 2]),
    )


def _length(climber: Climber) -> Theta:
    """δ."""
    step = climber.inverse @ climber.score
    return step * jnp.minimum(1.0, LONGEST / jnp.maximum(jnp.linalg.norm(step), 1e-30))


def _stepped(climber: Climber, to: Theta, value: Scalar, score: Theta) -> Climber:
    """The point after a look at where its step leads."""
    delta, y = to - climber.u, climber.score - score
    bent = jnp.dot(delta, y)
    off = jnp.eye(len(to)) - jnp.outer(delta, y) / bent
    seen = off @ climber.inverse @ off.T + jnp.outer(delta, delta) / bent
    known = (bent > 0) & jnp.isfinite(seen).all() & jnp.isfinite(climber.value)
    higher = value >= climber.value
    inverse = jnp.where(known, seen, jnp.where(higher, 1.0, 0.25) * climber.inverse)
    u, value, score = (jnp.where(higher, new, old) for new, old in zip((to, value, score), climber[:3], strict=True))
    return Climber(u, value, score, inverse)
