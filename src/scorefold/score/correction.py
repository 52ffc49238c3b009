"""What the simulations say about the trained score as a whole: how much of it to keep, and its mean.

Gate. The residual r that a network adds to the base is kept at the fraction g_t that minimises the denoising loss on cases the
network has not seen, g = ⟨target - base, r⟩ / ⟨r, r⟩ clipped to [0, 1]; a network that learned nothing is switched off.

Mean. At every level, whatever the simulator, E[∇ log p_t(u_t | X) | u_t] = ∇ log p_t(u_t), which is -u_t (or the learned score
of a prior known through draws; the gate then stays open). Where simulations failed, p is not the prior but what the cases
follow, the prior given that they do not fail. It is not known, but only its best straight line is needed, and E[∇ log p_t] = 0
and E[∇ log p_t u_tᵀ] = -I hold for any density: the line is the score of a Gaussian with the cases' mean and covariance. A
score that misses this by b(u) misses the sum over n observations by n b(u), while the posterior narrows like 1/√n: it is the
error that ruins many observations. So b is estimated as a linear function of u_t, by least squares on cases the network has not
seen, and subtracted. (The cross-fitting is that of "Double/debiased machine learning", Chernozhukov et al., 2018.)
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.noise import Level
from scorefold.score.network import ScoreModel, ScoreNetwork
from scorefold.train.rows import few_at_a_time
from scorefold.train.training_set import Cases, TrainingSet, thinned
from scorefold.types import UNTUNED, Array, Cloud, Float, Key, Scalar, Theta, new_key

CORRECTED_LEVELS = 21


class Correction(eqx.Module):
    """Gate and mean at a few levels, linear in t between them."""

    t: Float[Array, " knots"]
    gate: Float[Array, " knots"]
    offset: Float[Array, "knots dim"]
    slope: Float[Array, "knots dim dim"]

    def fault(self) -> str:
        """What is wrong with its numbers, if they come from a file; else nothing."""
        return "" if bool(jnp.all(jnp.diff(self.t) > 0)) else "levels should rise"

    def symmetric(self) -> "Correction":
        """The correction with a mean that is a gradient."""
        return Correction(self.t, self.gate, self.offset, (self.slope + jnp.swapaxes(self.slope, 1, 2)) / 2)

    def _at(self, table: Float[Array, "knots ..."], t: Scalar) -> Float[Array, "..."]:
        right = jnp.clip(jnp.searchsorted(self.t, t), 1, len(self.t) - 1)
        part = jnp.clip((t - self.t[right - 1]) / (self.t[right] - self.t[right - 1]), 0.0, 1.0)
        return (1 - part) * table[right - 1] + part * table[right]

    def gate_at(self, t: Scalar) -> Scalar:
        """The fraction of the residual to keep."""
        return self._at(self.gate, t)

    def potential_at(self, u: Cloud, t: Scalar) -> Float[Array, " draws"]:
        """What b(u) is the gradient of, where the slope is symmetric."""
        return u @ self._at(self.offset, t) + jnp.einsum("nd,de,ne->n", u, self._at(self.slope, t), u) / 2

    def mean_at(self, u: Cloud, t: Scalar) -> Cloud:
        """b(u), by which one set's score misses the identity."""
        return self._at(self.offset, t) + u @ self._at(self.slope, t).T


class GaussianScore(NamedTuple):
    """The straight line closest to ∇ log p_t, whatever p: the score of the Gaussian with p's mean and covariance, diffused."""

    mean: Float[Array, " dim"]
    vectors: Float[Array, "dim dim"]
    variances: Float[Array, " dim"]

    def score(self, theta: Theta, level: Level) -> Theta:
        """-(γ C + (1-γ) I)⁻¹ (u_t - √γ m)."""
        off = (theta - jnp.sqrt(level.gamma) * self.mean) @ self.vectors
        return -self.vectors @ (off / (level.gamma * self.variances + level.noise))


def matched(u: np.ndarray) -> GaussianScore:
    """The straight line for the density that u (cases, dim) came from."""
    u = np.asarray(u, np.float64)
    variances, vectors = np.linalg.eigh(np.cov(u, rowvar=False).reshape(u.shape[1], -1))
    return GaussianScore(*(jnp.asarray(v, jnp.float32) for v in (u.mean(axis=0), vectors, variances)))


class _Sums(NamedTuple):
    """Sums over cases at one level; features are [1, u_t]."""

    up: Scalar
    down: Scalar
    gram: Float[Array, "features features"]
    base: Float[Array, "dim features"]
    residual: Float[Array, "dim features"]
    spread: Scalar
    rows: Scalar


def _sums(
    models: ScoreModel, judge: ScoreNetwork, cases: Cases, matching: GaussianScore | None, level: Level, key: Key
) -> _Sums:
    """The sums over cases that `judge` did not train on, at one level, for ±noise; `matching` unless u follows the prior."""

    def one(u: Array, x: Array, size: Array, noise: Array) -> _Sums:
        sigma = jnp.sqrt(level.noise)
        theta = jnp.sqrt(level.gamma) * u + sigma * noise
        own = replace(models, network=judge)
        embedded = own.embed(x, size)
        base, residual = own.base_score(theta, level, embedded), own.residual_score(theta, level, embedded)
        prior = -theta if matching is None else matching.score(theta, level)
        if matching is None and judge.shape.learns_prior:
            prior = own(theta, level, own.embed(x, jnp.zeros((), size.dtype)))

        def of(network: ScoreNetwork) -> Array:
            member = replace(models, network=network)
            return member.residual_score(theta, level, member.embed(x, size))

        mean = jnp.mean(jax.vmap(of)(models.network), axis=0)

        def metric(v: Array) -> Array:
            return own.times(v, 1.0, level, embedded)

        features = jnp.concatenate([jnp.ones(1), theta])
        return _Sums(
            up=(-noise / sigma - base) @ metric(residual),
            down=mean @ metric(mean),
            gram=jnp.outer(features, features),
            base=jnp.outer(base - prior, features),
            residual=jnp.outer(residual, features),
            spread=jnp.sum((base + residual - prior) ** 2),
            rows=jnp.ones(()),
        )

    noise = jax.random.normal(key, cases.u.shape)
    both = [few_at_a_time(one)(cases.u, cases.x, cases.sizes, sign * noise) for sign in (1.0, -1.0)]
    return jax.tree.map(lambda a, b: jnp.sum(a + b, axis=0), *both)


@partial(jax.jit, compiler_options=UNTUNED)
def _over_levels(
    models: ScoreModel, judge: ScoreNetwork, cases: Cases, matching: GaussianScore | None, levels: Level, keys: Array
) -> _Sums:
    with jax.default_matmul_precision("highest"):  # as draws are made
        return jax.lax.map(lambda at: _sums(models, judge, cases, matching, *at), (levels, keys))


def fit_correction(models: ScoreModel, training: TrainingSet, members: int, levels: Level) -> Correction:
    """Find out, from cases that networks have not seen, how much of them to keep and what to subtract.

    Args:
        models: The trained networks with what is fixed; every array of `network` has a leading member axis.
        training: The training set, of which every member has held out a part.
        members: How many members there are.
        levels: The noise levels that they were trained on.

    Returns:
        Gate and mean at some of the levels.
    """
    # Off the device: cutting arrays up there is a program for every shape.
    cases, network, levels = (jax.tree.map(np.asarray, one) for one in (training.cases, models.network, levels))
    held_out, rows = training.unseen(members), knots_of(len(levels.t))
    knots = jax.tree.map(lambda v: jnp.asarray(v[rows]), levels)
    key = jax.random.fold_in(new_key(training.seed), 7)
    keys = jax.random.split(key, len(rows))
    if training.failed:
        held_out = held_out & (training.sizes > 0)
    fewest = int(held_out.sum(axis=1).min())
    parts = []
    for member, out in enumerate(held_out):
        judge = jax.tree.map(lambda v, m=member: jnp.asarray(v[m]), network)
        chosen: Cases = jax.tree.map(lambda v, out=out: jnp.asarray(v[np.flatnonzero(out)[:fewest]]), cases)
        if chosen.weights is not None:
            chosen = thinned(chosen, jax.random.fold_in(key, member), learns_prior=False)
        matching = matched(np.asarray(chosen.u)) if training.failed else None
        parts.append(_over_levels(models, judge, chosen, matching, knots, keys))
    sums: _Sums = jax.tree.map(lambda *p: np.sum(np.asarray(p, np.float64), axis=0), *parts)
    shape = models.network.shape
    correction = _solve(sums, np.asarray(knots.t), gated=shape.base and not shape.learns_prior)
    return correction.symmetric() if shape.conservative else correction


def knots_of(count: int) -> np.ndarray:
    """Which of so many levels, evenly spaced."""
    return np.unique(np.round(np.linspace(0, count - 1, CORRECTED_LEVELS)).astype(int))


def _solve(sums: _Sums, t: np.ndarray, gated: bool) -> Correction:
    def smooth(v: np.ndarray) -> np.ndarray:
        return np.convolve(np.pad(v, 1, mode="edge"), [1, 2, 1], mode="valid")

    gate = np.ones(len(t))
    if gated:
        gate = np.clip(smooth(np.asarray(sums.up)) / np.maximum(smooth(np.asarray(sums.down)), 1e-30), 0.0, 1.0)
    target = np.asarray(sums.base) + gate[:, None, None] * np.asarray(sums.residual)
    gram, rows = np.asarray(sums.gram), np.asarray(sums.rows)
    solution = np.linalg.solve(gram, np.swapaxes(target, 1, 2))  # (knots, features, dim)
    explained = np.einsum("kfd,kdf->k", solution, target)
    left_over = np.maximum(np.asarray(sums.spread) - explained, 0.0)
    # ±noise share a case, so there are half as many independent rows.
    by_chance = gram.shape[1] * left_over / (rows / 2)
    shrink = np.clip(1 - by_chance / np.maximum(explained, 1e-30), 0.0, 1.0)  # positive-part James–Stein
    solution = solution * shrink[:, None, None]
    return Correction(*(jnp.asarray(v, jnp.float32) for v in (t, gate, solution[:, 0], np.swapaxes(solution[:, 1:], 1, 2))))
