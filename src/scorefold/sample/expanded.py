"""Draws from a posterior of very many terms: a few of them at every draw, and Taylor polynomials of what is left.

A draw given n observations would cost the sum of n terms, ℓ(u) = Σ_j ℓ_j(u), at every step. Given many, a posterior is narrow,
and around a summit m_k the sum is nearly a polynomial P_k of second order, by all n terms. What is missing is taken from B of
the terms, with weights w_j that make them stand for all:

    ℓ(u) ≈ P_k(u) + L(v) - Q_k(v),   L = Σ_{j in some} w_j ℓ_j,   Q_k its polynomial at m_k,

for the nearest of the summits in its own metric, and v = u up to `REACH` sd away from it; beyond, v is where the way to u comes
to that. So the missing part is exact in mean, of third order, and never outgrows P_k. Its error is random in j: at t posterior
sd from the summit it is about t³/√(nB), where the posterior of B observations alone would be off by √(n/B) sd. Terms that are
far from parabolas, like those of observations near an edge that moves with u, are chosen more often, w_j ∝ 1/r_j, where the r_j
are third differences of ℓ_j across the posterior.

Then all n terms are added up once at some of the draws, which gives the weights that are left, the ratio of e^ℓ to what was
drawn from. Unless their effective size is nearly that of the draws, they are computed for all draws, and these resampled. Where
it is below `LEAST_SHARE`, P_k and Q_k are fitted to the sums at the draws instead, and it begins again from there; if that does
not help, as for a posterior that is curved on its own scale, with more terms, and in the end with all; and with all at once
where a summit is within an sd of what terms rule out.

The summits are found by `summits.py` on a sum of some terms, and followed on the sum of all from there.

Reference: "Speeding up MCMC by efficient data subsampling", Quiroz, Kohn, Villani and Tran, 2019, for such differences.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from scorefold.sample.by_steps import IMPOSSIBLE, Look, numbers, on_cores, program, step_by_step
from scorefold.sample.summits import STEPS, Climber, Mixture, ahead_of, around, arrived, climbed, climbers, stepped
from scorefold.sample.tempered import Clouds, TemperedInfo, systematic, tempered_draws
from scorefold.types import Array, Callable, Cloud, Float, Int, Key, Scalar, Theta

SOME, LOOKED_AT, IN_BETWEEN = 16, 64, 1_024
"""B at first, the terms of the sum on which summits are looked for, and of that on which they are followed first."""
REACH = 8.0
CENTRES, FURTHER_STEPS, ARRIVED = 8, 16, 1e-3
"""Summits that are followed on the sum of all terms, at most, by how many steps at most, and how far in log density a point may
be from its summit."""
FAR_LOWER = 60.0
"""A summit of the sum that was looked at which is so much lower than the highest, each term once, is not followed."""
REFITS, MORE = 1, 8
"""By least squares at draws, before there are so many times as many terms."""
LEAST_SHARE, NEAR_ALL, FIRST_WEIGHED = 0.9, 0.99, 64
"""At so many draws the weights are known first; if their effective size is nearly all, the others have them as well."""
WEIGHED_TOGETHER = 32
TRIED, PLAUSIBLE, LEAST_PROMISE = 64, 4.0, 0.3
"""Draws of the summits' Gaussians at which an expansion is tried before clouds move on it, the nats by which the posterior may
differ there from these, and the share of weights below which clouds do not move: polynomials that are fitted to draws may still
come to the share that is asked for from above it."""
DIRECTIONS, LEAST_BENT = 8, 0.1
"""In which terms are compared with parabolas, and what is added to every size, in means."""


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


class Expansion(NamedTuple):
    """The polynomials."""

    centres: Float[Array, "points dim"]
    whiten: Float[Array, "points dim dim"]
    """δ to posterior sd."""
    whole: Local
    """At the centres, the sum of all terms"""
    some: Local
    """and that of some."""
    there: Array
    """Which of the centres are no copies."""

    @program
    def start(self) -> Mixture:
        """Gaussians around the centres."""
        height = self.whole.value - jnp.sum(self.centres**2, axis=1) / 2
        covariance = jnp.linalg.inv(jnp.swapaxes(self.whiten, 1, 2) @ self.whiten)
        return around(self.centres, jnp.where(self.there, height, -jnp.inf), covariance)

    def nearest(self, u: Theta) -> tuple[Int[Array, ""], Scalar]:
        """Which of the centres is, and how far it is in its own sd."""
        away = jnp.linalg.norm(jnp.einsum("kij,kj->ki", self.whiten, u - self.centres), axis=1)
        k = jnp.argmin(away)
        return k, away[k]

    def within(self, u: Theta) -> Theta:
        """The point itself, or where the way to it from the nearest centre has come to `REACH` sd."""
        k, away = self.nearest(u)
        return self.centres[k] + (u - self.centres[k]) * jnp.minimum(1.0, REACH / jnp.maximum(away, 1e-30))

    def rest(self, u: Theta) -> Scalar:
        """What is to be added to the sum of some terms at `within(u)`."""
        k = self.nearest(u)[0]
        return self.whole.at(k, u - self.centres[k]) - self.some.at(k, self.within(u) - self.centres[k])


def expanded(look: Look, expansion: Expansion) -> Look:
    """The expansion and its gradient at every draw, where `look` has the sum of some terms."""

    def at(u: Cloud) -> tuple[Float[Array, " draws"], Cloud]:
        return _with_rest(expansion, u, *look(_within(expansion, u)))

    return at


@program
def _within(expansion: Expansion, u: Cloud) -> Cloud:
    return jax.vmap(expansion.within)(u)


@program
def _with_rest(
    expansion: Expansion, u: Cloud, value: Float[Array, " draws"], slope: Cloud
) -> tuple[Float[Array, " draws"], Cloud]:
    back = jax.vjp(jax.vmap(expansion.within), u)[1]
    more, pull = jax.vmap(jax.value_and_grad(expansion.rest))(u)
    return value + more, back(slope)[0] + pull


@program
def _rests(expansion: Expansion, u: Cloud) -> Float[Array, " draws"]:
    return jax.vmap(expansion.rest)(u)


def expanded_draws(many: Many, dim: int, clouds: Clouds, draws: int, key: Key) -> tuple[np.ndarray, TemperedInfo]:
    """Draws given many observations, like those of `tempered_draws` on the sum of all terms.

    Args:
        many: The sum.
        dim: The number of parameters.
        clouds: How many clouds there are, and how large.
        draws: How many draws to make.
        key: The random key.

    Returns:
        The draws (draws, dim) in the N(0, I) space and the runs' `TemperedInfo`.

    Raises:
        Diverged: The likelihood is not a number where a cloud ended.
    """
    seed = int(np.asarray(jax.random.key_data(key)).ravel()[-1])
    key_look, key_draw, key_keep = jax.random.split(key, 3)
    looked_at = many.some(many.levelled(jnp.zeros(dim)), LOOKED_AT, seed, None)
    with jax.default_matmul_precision("highest"):
        looked = climbed(many.at(looked_at), climbers(dim, key_look), STEPS + 1, step_by_step)
        whole, summits = _followed(many, looked, seed)
    sizes, terms = None if summits is None else _bent(many, whole, summits, seed), SOME
    first = max(FIRST_WEIGHED, 3 * coefficients(dim))
    while summits is not None and 4 * terms <= many.number:
        some = many.some(whole, terms, seed, sizes)
        expansion = _expansion(many, some, summits)
        for _ in range((1 + REFITS) * _promises(many, whole, some, expansion, seed)):
            at = expanded(many.at(some), expansion)
            u, info = tempered_draws(at, dim, clouds, max(draws, first), key_draw, expansion.start())
            exact = _values(many, whole, u[:first])
            left = _ratio(exact, _expanded_values(many, some, expansion, u[:first]))
            if (share := share_of(left)) >= LEAST_SHARE:
                if share < NEAR_ALL:
                    rest = u[first:]
                    left = np.append(left, _ratio(_values(many, whole, rest), _expanded_values(many, some, expansion, rest)))
                    u = u[np.asarray(systematic(jnp.asarray(np.exp(left - left.max())), key_keep))]
                evidence = info.log_evidence + float(logsumexp(left)) - np.log(len(left)) + many.level(whole)
                return u[:draws], info._replace(log_evidence=evidence, terms=terms, share=share_of(left))
            expansion = refitted(expansion, u[:first], exact, _values(many, some, u[:first]))
        terms *= MORE
    u, info = tempered_draws(many.at(whole), dim, clouds, draws, key_draw)
    return u, info._replace(log_evidence=info.log_evidence + many.level(whole))


def _promises(many: Many, whole: Any, some: Any, expansion: Expansion, seed: int) -> bool:
    """Whether the expansion may do, by its error where the posterior is nearly as high as at the nearest summit.

    It is looked at before clouds move: at draws of the Gaussians at the summits, of which those count that the sum of all terms
    puts within `PLAUSIBLE` nats of what a Gaussian has there.
    """
    rng = np.random.default_rng(seed)
    k = np.resize(np.flatnonzero(np.asarray(expansion.there)), TRIED)
    z = rng.normal(size=(TRIED, expansion.centres.shape[1]))
    centre, whiten = (np.asarray(part, np.float64)[k] for part in (expansion.centres, expansion.whiten))
    u = centre + np.linalg.solve(whiten, z[:, :, None])[:, :, 0]
    exact, found = _values(many, whole, u), _expanded_values(many, some, expansion, u)
    gaussian = (
        np.asarray(expansion.whole.value, np.float64)[k] - np.square(centre).sum(axis=1) / 2 - np.square(z).sum(axis=1) / 2
    )
    left = _ratio(exact, found)[np.abs(exact - np.square(u).sum(axis=1) / 2 - gaussian) < PLAUSIBLE]
    return len(left) < TRIED // 4 or share_of(left) >= LEAST_PROMISE


def coefficients(dim: int) -> int:
    """Of a polynomial of second order."""
    return (dim + 1) * (dim + 2) // 2


def refitted(
    expansion: Expansion,
    u: Float[np.ndarray, "draws dim"],
    whole: Float[np.ndarray, " draws"],
    some: Float[np.ndarray, " draws"],
) -> Expansion:
    """Polynomials by least squares at draws, where the sums of all terms and of some are known, in place of Taylor's.

    Where a posterior is not curved as it is at its summit, they hold for where the draws are.
    """
    nearest = np.asarray(jax.vmap(lambda u: expansion.nearest(u)[0])(jnp.asarray(u, jnp.float32)))
    parts = jax.tree.map(lambda v: np.array(v, np.float64), expansion)
    known = np.minimum(whole, some) > IMPOSSIBLE / 2
    for k in np.unique(nearest):
        own = (nearest == k) & known
        if own.sum() < 2 * coefficients(u.shape[1]):
            continue
        centre = u[own].mean(axis=0)
        root = np.linalg.cholesky(np.cov(u[own].T).reshape(len(centre), -1) + 1e-12 * np.eye(len(centre)))
        z = np.linalg.solve(root, (u[own] - centre).T).T
        upper = np.triu_indices(len(centre))
        design = np.concatenate([np.ones((len(z), 1)), z, z[:, upper[0]] * z[:, upper[1]]], axis=1)
        fit = np.linalg.lstsq(design, np.stack([whole[own], some[own]], axis=1), rcond=None)[0]
        whiten = np.linalg.inv(root)
        parts.centres[k], parts.whiten[k] = centre, whiten
        for local, found in ((parts.whole, fit[:, 0]), (parts.some, fit[:, 1])):
            bend = np.zeros_like(root)
            bend[upper] = found[1 + len(centre) :]
            local.value[k], local.slope[k] = found[0], found[1 : 1 + len(centre)] @ whiten
            values, vectors = np.linalg.eigh(bend + bend.T)
            bend = (vectors * (np.minimum(values, -0.1) if local is parts.whole else values)) @ vectors.T  # a maximum
            local.bend[k] = whiten.T @ bend @ whiten
    return jax.tree.map(lambda v, like: jnp.asarray(v, like.dtype), parts, expansion)


def share_of(log_weights: Float[np.ndarray, " draws"]) -> float:
    """The effective size of weighted draws, as a share of their number; 0 where none weighs anything."""
    if log_weights.max() == -np.inf:
        return 0.0
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / np.square(weights).sum() / len(weights))


def _ratio(exact: Float[np.ndarray, " draws"], drawn: Float[np.ndarray, " draws"]) -> Float[np.ndarray, " draws"]:
    """The logarithms of the weights that are left; none for draws which one of the terms rules out."""
    return np.where(exact > IMPOSSIBLE / 2, exact - drawn, -np.inf)


def _followed(many: Many, looked: Climber, seed: int) -> tuple[Any, Summits | None]:
    """From the summits of some terms' sum to those of the sum of all, and its data, level at the highest of the former.

    Of very many terms, more are looked at in between, where most of what is no summit falls behind. None where one of them is
    at an edge: no polynomial is right there, and draws on one side of it would not tell what is missing on the other.
    """
    at, height, covariance = (np.asarray(part, np.float64) for part in (looked.u, looked.value, looked.inverse))
    kept = apart(at, height, covariance, FAR_LOWER * many.number / LOOKED_AT)
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


def _bent(many: Many, whole: Any, summits: Summits, seed: int) -> Float[np.ndarray, " terms"]:
    """How far each term is from a parabola around the summits: r_j, by third differences along some directions."""
    rng = np.random.default_rng(seed)
    k = np.resize(np.flatnonzero(np.asarray(summits.there)), DIRECTIONS)
    roots = np.linalg.cholesky(np.asarray(summits.covariance, np.float64)[k])
    step = np.einsum("kij,kj->ki", roots, rng.normal(size=(DIRECTIONS, roots.shape[1])))
    centre = np.asarray(summits.u, np.float64)[k]
    far, near, back, behind = (many.each(whole, jnp.asarray(centre + t * step, jnp.float32)) for t in (2, 1, -1, -2))
    with np.errstate(invalid="ignore"):  # -∞ less -∞
        third = np.abs(far - 2 * near + 2 * back - behind)
    known = np.isfinite(third)
    third = np.where(known, third, third.max(initial=1.0, where=known))  # what a term rules out is an edge
    size = np.sqrt(np.square(third).mean(axis=0))
    return size + LEAST_BENT * size.mean() + 1e-12


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
        if not below(now):
            break
        to = ahead_of(now)
        now = stepped(now, to, *map(_filled, at(np.asarray(to)[:there])))
    covariance = _covariances(_locals(at, now.u, begin, there).bend)
    local = _locals(at, now.u, covariance, there)
    return jax.tree.map(lambda v: np.asarray(v)[:there], (now.u, _covariances(local.bend), local))


@program
def below(now: Climber) -> Array:
    """Whether a summit is still to be reached, by how much higher it would be for a parabola."""
    gain = jnp.einsum("ki,kij,kj->k", now.score, now.inverse, now.score) / 2
    return jnp.any(~jnp.isfinite(now.value) | (gain > ARRIVED))


def _expansion(many: Many, some: Any, summits: Summits) -> Expansion:
    """At the summits."""
    there = int(np.asarray(summits.there).sum())
    local = _locals(many.at(some), summits.u, summits.covariance, there)
    return Expansion(summits.u, _whitening(summits.covariance), summits.terms, local, summits.there)


@program
def _whitening(covariance: Float[Array, "points dim dim"]) -> Float[Array, "points dim dim"]:
    return jnp.linalg.inv(jnp.linalg.cholesky(covariance))


def _locals(at: Look, u: Float[Array, "points dim"], covariance: Float[Array, "points dim dim"], there: int) -> Local:
    """The sum around the first points, its bend from gradients an sd to either side: terms may have kinks.

    It is impossible where one of these points is.
    """
    places: np.ndarray = np.asarray(_to_either_side(u, covariance))[:there]
    looked = (part.reshape(there, places.shape[1], *part.shape[1:]) for part in at(np.concatenate(places)))
    return _between(covariance, *map(_filled, looked))


def _filled(part: Any) -> np.ndarray:
    """With copies, where there are fewer summits than places for them, so that few programs serve any number."""
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
    """Of a Gaussian as curved as the posterior is, nowhere wider than the prior."""
    values, vectors = jnp.linalg.eigh(jnp.eye(len(bend)) - bend)
    return (vectors / jnp.maximum(jnp.abs(values), 1.0)) @ vectors.T


def _values(many: Many, data: Any, u: np.ndarray) -> Float[np.ndarray, " draws"]:
    """A sum at draws, a few of them at a time."""
    if not len(u):
        return np.zeros(0)
    parts = on_cores(lambda some: many.values(data, some), np.split(u, range(WEIGHED_TOGETHER, len(u), WEIGHED_TOGETHER)))
    value = np.concatenate(parts).astype(np.float64)
    return np.where(np.isfinite(value), value, IMPOSSIBLE)


def _expanded_values(many: Many, some: Any, expansion: Expansion, u: np.ndarray) -> Float[np.ndarray, " draws"]:
    """The expansion at draws."""
    if not len(u):
        return np.zeros(0)
    at = jnp.asarray(u, jnp.float32)
    near: np.ndarray = np.asarray(_within(expansion, at))
    return _values(many, some, near) + np.asarray(_rests(expansion, at), np.float64)
