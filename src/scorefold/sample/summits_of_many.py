"""The summits of a posterior of very many terms, and the sum of the terms around them.

Points go uphill from the prior on a sum of some terms (`summits.py`). They end near summits of the sum of all. Those that are
apart, and not far lower than the highest, are followed there on the sum of all, a few steps more. At each, gradients an sd to
either side tell how the sum bends.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.sample.by_steps import IMPOSSIBLE, Look, numbers, program, step_by_step
from scorefold.sample.summits import STEPS_UP, Climber, ahead_of, arrived, climbed, climbers, stepped
from scorefold.types import Array, Callable, Cloud, Float, Int, Key, Scalar, Theta

TERMS_LOOKED_AT, IN_BETWEEN = 64, 1_024
"""The terms of the sum on which summits are looked for, and of that on which they are followed first."""
CENTRES, FURTHER_STEPS, ARRIVED = 8, 16, 1e-3
"""Summits that are followed on the sum of all terms, at most, by how many steps at most, and how far in log density a point may
be from its summit."""
FAR_LOWER = 60.0
"""A summit of the sum that was looked at which is so much lower than the highest, each term once, is not followed."""


class Many(NamedTuple):
    """A sum of many terms, and how to take some of them; what it is computed from is called its data."""

    number: int
    """Of different terms."""
    look: Callable[[Any, Any], tuple[Any, Any]]
    """From data, the sum and its gradient at some points."""
    values: Callable[[Any, Any], Any]
    """The sum alone."""
    levelled: Callable[[Theta], Any]
    """The data of the sum of all terms, less its value at a point."""
    some: Callable[[Any, int, int, np.ndarray | None], Any]
    """From such data those of so many terms, chosen by a seed in proportion to their sizes, and weighted to stand for all."""
    each: Callable[[Any, Cloud], np.ndarray]
    """From such data every term at some points."""
    level: Callable[[Any], float]
    """What was taken off."""

    def at(self, data: Any) -> Look:
        """The look of a sampler."""
        return lambda u: self.look(data, u)


class Local(NamedTuple):
    """A sum at some points: value, gradient and second derivative."""

    value: Float[Array, " points"]
    slope: Float[Array, "points dim"]
    bend: Float[Array, "points dim dim"]

    def at(self, k: Int[Array, ""], step: Theta) -> Scalar:
        """The polynomial of second order around point k."""
        return self.value[k] + self.slope[k] @ step + step @ self.bend[k] @ step / 2


class Summits(NamedTuple):
    """Maxima of the posterior, the first of them the highest; copies fill up the places."""

    u: Float[Array, "points dim"]
    covariance: Float[Array, "points dim dim"]
    terms: Local
    """Of the sum of all terms there."""
    there: Array
    """Which are no copies."""


def summits_of(many: Many, dim: int, key: Key, seed: int) -> tuple[Any, Summits | None]:
    """The summits, and the data of the sum of all terms, level at the highest that was seen from the prior.

    None where one of them is at an edge: no polynomial is right there, and draws on one side of it would not tell what is
    missing on the other.
    """
    looked_at = many.some(many.levelled(jnp.zeros(dim)), TERMS_LOOKED_AT, seed, None)
    with jax.default_matmul_precision("highest"):
        looked = climbed(many.at(looked_at), climbers(dim, key), STEPS_UP + 1, step_by_step)
        return _followed(many, looked, seed)


def _followed(many: Many, looked: Climber, seed: int) -> tuple[Any, Summits | None]:
    """From the summits of some terms' sum to those of the sum of all.

    Of very many terms, more are looked at in between, where most of what is no summit falls behind.
    """
    at, height, covariance = (np.asarray(part, np.float64) for part in (looked.u, looked.value, looked.inverse))
    kept = apart(at, height, covariance, FAR_LOWER * many.number / TERMS_LOOKED_AT)
    whole = many.levelled(looked.u[kept[0]])
    for number in [IN_BETWEEN] * (many.number >= 4 * IN_BETWEEN) + [many.number]:
        data = whole if number == many.number else many.some(whole, number, seed, None)
        top, around_top, terms = _follow(many.at(data), at[kept], covariance[kept])
        at, covariance = np.asarray(top, np.float64), np.asarray(around_top, np.float64)
        if not (terms.value > IMPOSSIBLE / 2).all():
            return whole, None
        height = np.asarray(terms.value, np.float64) - np.square(at).sum(axis=1) / 2
        height += np.linalg.slogdet(covariance)[1] / 2
        kept = apart(at, height, covariance, FAR_LOWER * many.number / number)
    rows = _filled(np.array(kept))
    local = jax.tree.map(lambda v: jnp.asarray(v[rows]), terms)
    return whole, Summits(
        jnp.asarray(top[rows]), jnp.asarray(around_top[rows]), local, jnp.asarray(np.arange(CENTRES) < len(kept))
    )


def apart(
    u: Float[np.ndarray, "points dim"],
    height: Float[np.ndarray, " points"],
    covariance: Float[np.ndarray, "points dim dim"],
    lowest: float,
) -> list[int]:
    """Which points are maxima of their own, more than an sd away from those that are higher; the highest first.

    At most `CENTRES` of them, and none so much lower than the highest.
    """
    kept: list[int] = []
    for k in np.argsort(-height):
        away = [np.sqrt((u[k] - u[j]) @ np.linalg.pinv(covariance[j]) @ (u[k] - u[j])) for j in kept]
        if not kept or (min(away) > 1 and height[k] > height[kept[0]] - lowest):
            kept.append(int(k))
    return kept[:CENTRES]


def _follow(
    at: Look, u: Float[np.ndarray, "points dim"], inverse: Float[np.ndarray, "points dim dim"]
) -> tuple[np.ndarray, np.ndarray, Local]:
    """Uphill from points to their summits; the covariances of the Gaussians there, and the sum."""
    now, there = arrived(*(jnp.asarray(_filled(part), jnp.float32) for part in (u, inverse))), len(u)
    begin = now.inverse
    for _ in range(FURTHER_STEPS):
        if not _below(now):
            break
        to = ahead_of(now)
        now = stepped(now, to, *map(_filled, at(np.asarray(to)[:there])))
    covariance = _covariances(locals_at(at, now.u, begin, there).bend)
    local = locals_at(at, now.u, covariance, there)
    return jax.tree.map(lambda v: np.asarray(v)[:there], (now.u, _covariances(local.bend), local))


@program
def _below(now: Climber) -> Array:
    """Whether a summit is still to be reached, by how much higher it would be for a parabola."""
    gain = jnp.einsum("ki,kij,kj->k", now.score, now.inverse, now.score) / 2
    return jnp.any(~jnp.isfinite(now.value) | (gain > ARRIVED))


def locals_at(at: Look, u: Float[Array, "points dim"], covariance: Float[Array, "points dim dim"], there: int) -> Local:
    """The sum around the first points, its bend from gradients an sd to either side: terms may have kinks.

    It is impossible where one of these points is.
    """
    places: np.ndarray = np.asarray(_to_either_side(u, covariance))[:there]
    looked = (part.reshape(there, places.shape[1], *part.shape[1:]) for part in at(np.concatenate(places)))
    return _between(covariance, *map(_filled, looked))


def _filled(part: Any) -> np.ndarray:
    """Summits with copies, where there are fewer than places for them, so that few programs serve any number."""
    return np.resize(part, (CENTRES, *part.shape[1:]))


@program
def _to_either_side(u: Cloud, covariance: Float[Array, "points dim dim"]) -> Float[Array, "points places dim"]:
    steps = jnp.swapaxes(jnp.linalg.cholesky(covariance), 1, 2)
    return jnp.concatenate([u[:, None], u[:, None] + steps, u[:, None] - steps], axis=1)


@program
def _between(
    covariance: Float[Array, "points dim dim"], value: Float[Array, "points places"], slope: Float[Array, "points places dim"]
) -> Local:
    def one(covariance: Array, value: Array, slope: Array) -> Local:
        value, slope = numbers(value, slope)
        root, dim = jnp.linalg.cholesky(covariance), slope.shape[1]
        bend = jnp.linalg.solve(root.T, (slope[1 : 1 + dim] - slope[1 + dim :]) / 2)
        return Local(jnp.where(jnp.min(value) > IMPOSSIBLE / 2, value[0], IMPOSSIBLE), slope[0], (bend + bend.T) / 2)

    return jax.vmap(one)(covariance, value, slope)


@program
@jax.vmap
def _covariances(bend: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """The covariance of a Gaussian as curved as the posterior is, nowhere wider than the prior."""
    values, vectors = jnp.linalg.eigh(jnp.eye(len(bend)) - bend)
    return (vectors / jnp.maximum(jnp.abs(values), 1.0)) @ vectors.T
