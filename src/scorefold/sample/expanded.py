"""Draws from a posterior of very many terms: a few of them at every draw, and Taylor polynomials of what is left.

A draw given n observations would cost the sum of n terms, ℓ(u) = Σ_j ℓ_j(u), at every step. Given many, a posterior is narrow,
and around a summit m_k the sum is nearly a polynomial P_k of second order, by all n terms. What is missing is taken from B of
the terms, with weights w_j that make them stand for all:

    ℓ(u) ≈ P_k(u) + L(v) - Q_k(v),   L = Σ_{j in some} w_j ℓ_j,   Q_k its polynomial at m_k,

for the nearest of the summits in its own metric, and v = u up to `UNCHANGED_WITHIN` sd away from it; beyond, v is where the way
to u comes to that. So the missing part is exact in mean, of third order, and never outgrows P_k. Its error is random in j: at t
posterior sd from the summit it is about t³/√(nB), where the posterior of B observations alone would be off by √(n/B) sd. Terms
that are far from parabolas, like those of observations near an edge that moves with u, are chosen more often, w_j ∝ 1/r_j,
where the r_j are third differences of ℓ_j across the posterior.

Then all n terms are added up once at some of the draws, which gives the weights that are left, the ratio of e^ℓ to what was
drawn from. Unless their effective size is nearly that of the draws, they are computed for all draws, and these resampled. Where
it is below `LEAST_SHARE`, P_k and Q_k are fitted to the sums at the draws instead, and it begins again from there; if that does
not help, as for a posterior that is curved on its own scale, with more terms, and in the end with all; and with all at once
where a summit is within an sd of what terms rule out.

The summits are found by `summits_of_many.py`.

Reference: "Speeding up MCMC by efficient data subsampling", Quiroz, Kohn, Villani and Tran, 2019, for such differences.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from scorefold.sample.by_steps import IMPOSSIBLE, Look, program
from scorefold.sample.summits import Mixture, around
from scorefold.sample.summits_of_many import Local, Many, Summits, locals_at, summits_of
from scorefold.sample.tempered import Clouds, TemperedInfo, systematic, tempered_draws
from scorefold.types import Array, Cloud, Float, Int, Key, Scalar, Theta, on_cores

SOME = 16
"""B at first."""
UNCHANGED_WITHIN = 8.0
REFITS, MORE_TERMS = 1, 8
"""By least squares at draws, before there are so many times as many terms."""
LEAST_SHARE, NEAR_ALL, FIRST_WEIGHED = 0.9, 0.99, 64
"""At so many draws the weights are known first; if their effective size is nearly all, the others have them as well."""
WEIGHED_TOGETHER = 32
TRIED, PLAUSIBLE, LEAST_PROMISE = 64, 4.0, 0.7
"""Draws of the summits' Gaussians at which an expansion is tried before clouds move on it, the nats by which the posterior may
differ there from these, and the share of weights below which clouds do not move: polynomials that are fitted to draws may still
come to the share that is asked for from above it."""
DIRECTIONS, LEAST_BENT = 8, 0.1
"""In which terms are compared with parabolas, and what is added to every size, in means."""


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
        """The point itself, or where the way to it from the nearest centre has come to `UNCHANGED_WITHIN` sd."""
        k, away = self.nearest(u)
        return self.centres[k] + (u - self.centres[k]) * jnp.minimum(1.0, UNCHANGED_WITHIN / jnp.maximum(away, 1e-30))

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
    whole, summits = summits_of(many, dim, key_look, seed)
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
        terms *= MORE_TERMS
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
    """How many coefficients a polynomial of second order has."""
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


def _expansion(many: Many, some: Any, summits: Summits) -> Expansion:
    """The expansion of what some terms leave out, at the summits."""
    there = int(np.asarray(summits.there).sum())
    local = locals_at(many.at(some), summits.u, summits.covariance, there)
    return Expansion(summits.u, _whitening(summits.covariance), summits.terms, local, summits.there)


@program
def _whitening(covariance: Float[Array, "points dim dim"]) -> Float[Array, "points dim dim"]:
    return jnp.linalg.inv(jnp.linalg.cholesky(covariance))


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
