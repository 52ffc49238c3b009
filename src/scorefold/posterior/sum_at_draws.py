"""The sum of the terms log p(x_j|u) of n observations, with its gradient, at any number of draws, by one program.

Pairs of a draw and an observation follow each other, a batch at a time, and add to their draw's sum. The number of draws and
of observations are numbers that the program is given, like the observations themselves in a room of few sizes. So one
program, compiled once, serves whatever looks at the sum: points on their way uphill, clouds, some of the observations in place
of all, and the members of an ensemble one by one. Its cost follows the number of pairs.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.compose.from_proposal import Tilt
from scorefold.compose.slice import Along
from scorefold.density.mean_terms import MeanTerms, Terms
from scorefold.density.stacked import each
from scorefold.posterior.asked import Asked
from scorefold.posterior.at_draws import response
from scorefold.posterior.sum_of_terms import counted, mean_of_each
from scorefold.sample.by_steps import program
from scorefold.sample.tempered import Clouds, Tempered, tempered
from scorefold.types import Array, Callable, Cloud, Float, Key, Scalar, Theta

PAIRS, PAIRS_ON_ACCELERATORS = 256, 16_384
"""Of a draw and an observation, at a time: what fits a core's cache."""
ROOM = 256
"""Draws that a compiled sum has room for."""
LEAST_ROOM, MORE_ROOM = 64, 16
"""Observations that it has room for at least, and how many times as many the next one has."""


class Sum(NamedTuple):
    """The observations of a sum, with what does not depend on u computed once."""

    terms: Terms
    x: Any
    """Prepared by the terms."""
    times: Float[Array, " obs"]
    """How often each counts; 0 for what fills up a bucket."""
    heights: Float[Array, " obs"]
    """Taken off the terms: a sum of many is known to more digits near where it vanishes."""
    tilt: Tilt | None


def roomy(x: np.ndarray) -> tuple[Float[Array, "obs x"], Float[Array, " obs"]]:
    """Observations that differ, and how often each is there, in a room of few sizes: what is empty of it costs nothing."""
    different, times = counted(x)
    room = LEAST_ROOM
    while room < len(times):
        room *= MORE_ROOM
    missing = room - len(times)
    return jnp.asarray(np.pad(different, ((0, missing), (0, 0)), mode="edge")), jnp.asarray(np.pad(times, (0, missing)))


@eqx.filter_jit
def prepared(terms: Terms, x: Float[Array, "obs x"], times: Array, tilt: Tilt | None) -> Sum:
    """The sum over these observations, with nothing taken off."""
    return Sum(terms, jax.vmap(terms.prepare)(x), times, jnp.zeros(len(times)), tilt)


def levelled(whole: Sum, u: Theta) -> Sum:
    """The same sum, less its value at u."""
    heights = _term_at(whole, np.asarray(u))
    return whole._replace(heights=jnp.asarray(np.where(np.isfinite(heights), heights, 0.0), jnp.float32))


def level(whole: Sum) -> float:
    """What was taken off the sum."""
    return float(np.asarray(whole.times, np.float64) @ np.asarray(whole.heights, np.float64))


def terms_at(whole: Sum, u: Cloud) -> Float[np.ndarray, "points obs"]:
    """What every observation adds to the sum."""
    each = np.stack([_term_at(whole, one) for one in np.asarray(u)])
    times = np.asarray(whole.times, np.float64)
    with np.errstate(invalid="ignore"):  # 0 times -∞, of padding
        return np.where(times > 0, times * (each - np.asarray(whole.heights, np.float64)), 0.0)


def _term_at(whole: Sum, u: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " obs"]:
    with jax.default_matmul_precision("highest"):
        return np.asarray(_each_at(whole.terms, whole.x, np.asarray(u, np.float32)), np.float64)


@partial(program, quickly=False)
def _each_at(terms: Terms, x: Any, u: Theta) -> Float[Array, " obs"]:
    return mean_of_each(terms, x, u[None])[0]


def some_of(whole: Sum, count: int, seed: int, size: Float[np.ndarray, " obs"] | None = None) -> Sum:
    """The sum over so many of the observations, chosen at random, and weighted so that its mean is that of all.

    With a size for each, in proportion to it; those that are as large as all others together have one place for certain. The
    room stays as it is, so that one program serves both sums.
    """
    times = np.asarray(whole.times, np.float64)
    size = times if size is None else np.where(times > 0, size, 0.0)
    there, rng = np.flatnonzero(size), np.random.default_rng(seed)
    certain: np.ndarray = there[:0]
    rest = there[np.argsort(-size[there])]
    while len(certain) < count and size[rest[0]] * (count - len(certain)) > size[rest].sum():
        certain, rest = np.append(certain, rest[0]), rest[1:]
    left = count - len(certain)
    share = size[rest] / size[rest].sum()
    drawn = rest[np.minimum(np.searchsorted(np.cumsum(share), (np.arange(left) + rng.uniform()) / max(left, 1)), len(rest) - 1)]
    weights = times[drawn] * size[rest].sum() / (size[drawn] * max(left, 1))
    empty = (0, len(times) - count)
    rows, often = np.pad(np.concatenate([certain, drawn]), empty), np.pad(np.concatenate([times[certain], weights]), empty)
    chosen, heights = jax.tree.map(lambda v: jnp.asarray(np.asarray(v)[rows]), (whole.x, whole.heights))
    return whole._replace(x=chosen, times=jnp.asarray(often, jnp.float32), heights=heights)


def sums_of_members(
    u: Cloud, data: Sum, count: Array | None = None, slopes: bool = True
) -> tuple[Float[Array, "members draws"], Float[Array, "members draws dim"]]:
    """Σ_j of every member's terms, and its gradient if asked for, at the first so many draws, or at all; without the tilt."""
    terms, x, times, heights, _ = data
    together = PAIRS if jax.default_backend() == "cpu" else PAIRS_ON_ACCELERATORS
    number = jnp.sum(times > 0)
    pairs = (len(u) if count is None else count) * number

    def added(term: Callable[[Theta, Any], Scalar], x: Any) -> tuple[Float[Array, " draws"], Cloud]:
        def add(i: Array, total: tuple[Array, Cloud]) -> tuple[Array, Cloud]:
            place = i * together + jnp.arange(together)
            draw, obs, there = jnp.minimum(place // number, len(u) - 1), place % number, place < pairs
            pair, often = (u[draw], jax.tree.map(lambda v: v[obs], x)), times[obs]
            if slopes:
                value, slope = jax.vmap(jax.value_and_grad(term))(*pair)
                slope = jnp.where(there[:, None], often[:, None] * slope, 0.0)
                total = total[0], total[1].at[draw].add(slope, indices_are_sorted=True)
            else:
                value = jax.vmap(term)(*pair)
            value = jnp.where(there, often * (value - heights[obs]), 0.0)
            return total[0].at[draw].add(value, indices_are_sorted=True), total[1]

        return jax.lax.fori_loop(0, (pairs + together - 1) // together, add, (jnp.zeros(len(u)), jnp.zeros_like(u)))

    if not isinstance(terms, MeanTerms):
        return jax.tree.map(lambda v: v[None], added(terms.term, x))
    members = terms.network, jax.tree.map(lambda v: jnp.moveaxis(v, 1, 0), x)
    found: tuple[Array, Array] = each(lambda one: added(lambda u, x: terms.of_member(u, one[0], x), one[1]), members)
    return found


def likelihoods(u: Cloud, data: Sum) -> tuple[Float[Array, " draws"], Cloud]:
    """Σ_j of the members' mean term, and its gradient, for every draw.

    A tilt from N(0, I) to the prior counts like one more observation.
    """
    value, slope = (jnp.mean(part, axis=0) for part in sums_of_members(u, data))
    return _tilted(u, value, slope, Asked(data.tilt))


class At(NamedTuple):
    """A sum at some draws, under another prior or along a plane where that is asked for."""

    value: Float[np.ndarray, " draws"]
    slope: Float[np.ndarray, "draws free"]
    of_members: Float[np.ndarray, "members draws dim"]
    """The gradient of every member's own sum, with nothing else."""


@partial(program, quickly=False, static_argnums=3)
def _compiled(v: Along, count: Array, data: tuple[Sum, Asked], slopes: bool) -> tuple[Array, Along, Array]:
    own, asked = data
    u = asked.back(v)
    values, of_members = sums_of_members(u, own, count, slopes)
    value, slope = _tilted(u, jnp.mean(values, axis=0), jnp.mean(of_members, axis=0), asked)
    return value, slope if asked.plane is None else slope @ asked.plane.free, of_members


def _tilted(u: Cloud, value: Float[Array, " draws"], slope: Cloud, asked: Asked) -> tuple[Float[Array, " draws"], Cloud]:
    """With what a tilt and another prior add."""
    tilt, other = asked.tilt, asked.other
    if tilt is not None:
        more, pull = jax.vmap(jax.value_and_grad(lambda u: tilt.log_ratio(u[None])[0]))(u)
        value, slope = value + more, slope + pull
    if other is not None:
        more, pull = jax.vmap(jax.value_and_grad(lambda w: other.exact_log_ratio(w, tilt)))(u)
        value, slope = value + more, slope + jnp.where(jnp.isfinite(more)[:, None], pull, 0.0)
    return value, slope


def at_draws(v: Along | Float[np.ndarray, "draws free"], data: tuple[Sum, Asked], slopes: bool = True) -> At:
    """The sum at any number of draws, by one program."""
    parts = []
    for start in range(0, len(v), ROOM):
        some = np.asarray(v[start : start + ROOM], np.float32)
        room = np.concatenate([some, np.zeros((ROOM - len(some), v.shape[1]), np.float32)])
        with jax.default_matmul_precision("highest"):
            value, slope, of_members = _compiled(room, np.int32(len(some)), data, slopes)
        kept = slice(len(some))
        parts.append(At(np.asarray(value)[kept], np.asarray(slope)[kept], np.asarray(of_members)[:, kept]))
    if len(parts) == 1:
        return parts[0]
    return At(*(np.concatenate(part, axis=axis) for part, axis in zip(zip(*parts, strict=True), (0, 0, 1), strict=True)))


@eqx.filter_jit
def clouds_of_many(
    data: tuple[Terms, Float[Array, "sets obs x"], Array, Tilt | None], dim: int, clouds: Clouds, keys: Array
) -> Tempered:
    """Those of each data set, with the keys that they would have alone."""
    terms, x, times, tilt = data
    number, size = clouds

    def one(x: Array, key: Key) -> Tempered:
        own = prepared(terms, x, times, tilt)
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(number))
        return jax.vmap(lambda key: tempered(lambda u: likelihoods(u, own), dim, size, key))(keys)

    return jax.vmap(one)(x, keys)


@program
def _scores(u: Cloud, of_members: Float[Array, "members draws dim"], tilt: Tilt | None) -> Float[Array, "members draws dim"]:
    nothing = jnp.zeros(len(u)), -u
    return of_members + _tilted(u, *nothing, Asked(tilt))[1]


_response = program(response)


def by_member(
    data: tuple[Sum, Asked], u: Float[np.ndarray, "draws dim"]
) -> tuple[Float[np.ndarray, "members draws dim"], Float[np.ndarray, "dim dim"]]:
    """The gradient of every member's own log density, and how far the draws give way to it."""
    scores = _scores(u, at_draws(u, data).of_members, data[0].tilt)
    return np.asarray(scores, np.float64), np.asarray(_response(u, scores), np.float64)
