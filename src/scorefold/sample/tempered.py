"""Tempered sequential Monte Carlo on a summed log likelihood ℓ in the N(0, I) space: several modes, each with its weight.

A cloud of draws passes through π_τ(u) ∝ q(u)^{1-τ} [N(u | 0, I) e^{ℓ(u)}]^τ from τ = 0, where it is drawn exactly, to τ = 1.
q has Gaussians at the summits of the posterior and the prior (`summits.py`), so that two or three rises are enough for a
posterior that is nearly Gaussian around each of its modes. Each rise of τ is as large as leaves the weights e^{Δτ v},
v = log N + ℓ - log q, an effective size of half the cloud. Then the cloud is resampled, and moved by Metropolis steps of three
kinds that leave π_τ as it is, one half of the cloud at a time with what the other half knows ("Ensemble samplers with affine
invariance", Goodman and Weare, 2010):

- Langevin steps with the local preconditioner M of `self_tuned.py`, which make every draw forget where in its mode it was;
- jumps to u' ~ g(u'), accepted with probability min(1, π(u') g(u) / (π(u) g(u'))), which make it forget in which mode it was;
  in turns with g = q and with g(u') = mean_k N(u' | v_k, w² M) around the other half's draws v_k, w Scott's width for so many.

At τ = 1 moves go on until draws have forgotten where they were: a step of length h that is accepted for a share r of the
draws forgets r (1 - e^{-h}), a jump all. The mean weight of every rise gives the evidence, ∫ N(u | 0, I) e^{ℓ(u)} du.

Two clouds or more run on their own. Where their means, widths or evidences differ, a mode was missed by one of them, or its
weight is not known; a mode so narrow that none of the clouds meets it goes unseen.

Reference: "Sequential Monte Carlo samplers", Del Moral, Doucet and Jasra, 2006.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.errors import Diverged
from scorefold.sample.by_steps import IMPOSSIBLE, Look, Loop, at_once, numbers, program, step_by_step
from scorefold.sample.health import FARTHEST_DRAW, Identities, identities
from scorefold.sample.metropolis import LARGEST_PROPOSED_H, SMALLEST_PROPOSED_H, WANTED, ahead, log_transition
from scorefold.sample.self_tuned import preconditioner
from scorefold.sample.summits import Mixture, summits
from scorefold.shown import brief
from scorefold.types import Array, Cloud, Float, Int, Key, Scalar, on_cores

EFFECTIVE_SHARE = 0.5
"""The effective size of the weights after a rise, as a share of the cloud."""
BISECTIONS = 40
SMALLEST_RISE = 1e-12
MOST_RISES = 300
FORGET, FORGET_LAST = 0.5, 5.0
"""How often draws forget where they were, by moves after a rise and at τ = 1."""
MOST_MOVES, MOST_LAST_MOVES = 8, 64
LEAST_FORGOTTEN = 2.0
"""At τ = 1, in a run that converged."""
STEP_SPREAD = 6.0
"""The longest Langevin step of a move over the shortest."""
SMALLEST_CLOUD, LARGEST_CLOUD = 256, 1024
LARGEST_DIFFERENCE, LARGEST_SPREAD = 0.4, 2.0
"""Between clouds that agree."""


class Clouds(NamedTuple):
    """How many clouds there are, each on its own from the prior on."""

    number: int
    size: int
    """Draws that move together, an even number."""


def clouds_for(draws: int, dim: int) -> Clouds:
    """Two or more, of few sizes: enough draws for a local covariance, few enough for bounded memory."""
    size = SMALLEST_CLOUD
    while size < min(max(-(-draws // 2), 20 * dim), LARGEST_CLOUD):
        size *= 2
    return Clouds(max(2, -(-draws // size)), size)


class TemperedInfo(NamedTuple):
    """What a run says of itself."""

    tau: Float[np.ndarray, " rises"]
    """The power of the likelihood, rise by rise of the first cloud."""
    acceptance: Float[np.ndarray, " rises"]
    """Of the Langevin steps."""
    jumps: Float[np.ndarray, " rises"]
    """Accepted share of the jumps across the cloud."""
    forgotten: float
    """How often draws have forgotten where they were, at τ = 1."""
    difference: float
    """The largest between clouds: of their means, in sd, and of the logarithms of their sds."""
    log_evidence: float
    """log ∫ N(u | 0, I) e^{ℓ(u)} du, up to what ℓ leaves out; the clouds' mean."""
    spread: float
    """Between the clouds' log evidences, from the least to the largest."""
    stein: float
    drift: float
    """As in `health.py`."""
    clouds: int
    converged: bool
    """τ = 1 was reached, draws have forgotten where they were, the identities hold and the clouds agree."""
    diverged: bool
    """Draws are beyond 15 prior sd."""
    terms: int = 0
    """Terms added up at every step, where the others were expanded (`expanded.py`); 0 where all were added up."""
    share: float = 1.0
    """Effective size, as a share of the draws, of the weights that this left."""

    def __repr__(self) -> str:
        return brief(self)


class _Cloud(NamedTuple):
    """Two halves, with v and log q, and their gradients."""

    u: Float[Array, "2 half dim"]
    value: Float[Array, "2 half"]
    slope: Float[Array, "2 half dim"]
    start: Float[Array, "2 half"]
    start_slope: Float[Array, "2 half dim"]

    def score(self, tau: Scalar) -> Float[Array, "2 half dim"]:
        """∇ log π_τ."""
        return self.start_slope + tau * self.slope


class _Run(NamedTuple):
    """A cloud on its way."""

    cloud: _Cloud
    mixture: Mixture
    tau: Scalar
    h: Scalar
    rise: Int[Array, ""]
    log_evidence: Scalar
    forgotten: Scalar
    """By the moves since the last rise."""
    made: Int[Array, ""]
    """Moves since then, four of them for a step and a jump of one half, then of the other."""
    rates: Float[Array, "2"]
    """What was accepted of steps and of jumps, added up."""
    log: Float[Array, "3 rises"]
    """τ, acceptance and jumps."""
    keys: tuple[Key, Key]
    """The second for the moves after a rise."""
    moves: Array
    """Whether another move is due,"""
    rises: Array
    """and whether another rise."""

    @property
    def jumps(self) -> Array:
        """Which move is due: 0 for a step, 1 and 2 for a jump from q or around others."""
        return self.made % 2 * (1 + self.made // 4 % 2)


class _Proposed(NamedTuple):
    """Where the first half may move, by what is needed to decide."""

    to: Cloud
    a: Float[Array, "half 1"]
    root: Float[Array, "dim dim"]
    inverse: Float[Array, "dim dim"]
    allowed: Float[Array, " half"]
    """Up to which probability a move is refused."""


class Tempered(NamedTuple):
    """The draws, and what tells whether they are to be trusted."""

    u: Cloud
    checks: Identities
    rises: Int[Array, ""]
    log_evidence: Scalar
    forgotten: Scalar
    log: Float[Array, "3 rises"]


def tempered_draws(
    at: Look, dim: int, clouds: Clouds, draws: int, key: Key, start: Mixture | None = None
) -> tuple[np.ndarray, TemperedInfo]:
    """Draws of several clouds, each from its start to the posterior, and how they agree.

    Args:
        at: The log likelihood and its gradient at any number of draws, outside of any compiled program.
        dim: The number of parameters.
        clouds: How many clouds there are, and how large.
        draws: How many draws to make.
        key: The random key.
        start: q, where it is known; else every cloud looks for the summits itself.

    Returns:
        The draws (draws, dim) in the N(0, I) space and the runs' `TemperedInfo`.

    Raises:
        Diverged: The likelihood is not a number where a cloud ended.
    """
    keys = [jax.random.fold_in(key, i) for i in range(clouds.number)]
    runs = on_cores(lambda key: tempered(at, dim, clouds.size, key, start, step_by_step), keys)
    return judged(jax.tree.map(lambda *parts: np.stack(parts), *runs), draws)


def judged(runs: Tempered, draws: int) -> tuple[np.ndarray, TemperedInfo]:
    """Draws of clouds (clouds, size, dim), as many of each, and how the clouds agree; Diverged where they are no use."""
    u = np.asarray(runs.u, np.float64)
    number, size, dim = u.shape
    if not np.isfinite(u).all():
        raise Diverged(
            "the likelihood is not a number at any of the draws. Training has failed, or the observations are unlike any "
            "simulation; look at posterior.history."
        )
    # A cloud is in no order, as it was shuffled.
    picked = u.transpose(1, 0, 2).reshape(-1, dim)[:draws]
    tau, acceptance, jumps = np.asarray(runs.log, np.float64)[0, :, : int(runs.rises[0])]
    q, stein, drift, error = (np.asarray(part, np.float64) for part in runs.checks)
    diverged = bool(not np.isfinite(q).all() or np.abs(u).max() > FARTHEST_DRAW)
    # As in `health.py`: a tenth is allowed, and four standard errors.
    holds = (np.abs(stein - 1) < 0.1 + 4 * error) & (drift < 0.1 + 4 * np.sqrt(np.maximum(q, 1.0) / size))
    reached = (runs.log[np.arange(number), 0, runs.rises - 1] >= 1) & (runs.forgotten >= LEAST_FORGOTTEN)
    evidence, difference = np.asarray(runs.log_evidence, np.float64), _difference(u)
    agree = difference < LARGEST_DIFFERENCE and np.ptp(evidence) < LARGEST_SPREAD
    return picked, TemperedInfo(
        tau, acceptance, jumps, float(runs.forgotten.min()), difference, float(evidence.mean()), float(np.ptp(evidence)),
        float(stein.mean()), float(drift.max()), number,
        converged=bool(holds.all() and reached.all() and agree and not diverged), diverged=diverged,
    )  # fmt: skip


def despite_edges(info: TemperedInfo) -> TemperedInfo:
    """The same, judged without the identities, which do not hold for a density that is cut off."""
    agree = info.difference < LARGEST_DIFFERENCE and info.spread < LARGEST_SPREAD
    reached = bool(info.tau[-1] >= 1) and info.forgotten >= LEAST_FORGOTTEN
    return info._replace(converged=agree and reached and not info.diverged)


def _difference(u: Float[np.ndarray, "clouds size dim"]) -> float:
    """The largest of the differences between the clouds' means, in sd, and between the logarithms of their sds."""
    sd = np.maximum(u.std(axis=1), 1e-12)
    means = np.ptp(u.mean(axis=1), axis=0) / sd.mean(axis=0)
    return float(max(means.max(), np.ptp(np.log(sd), axis=0).max()))


def tempered(at: Look, dim: int, cloud: int, key: Key, start: Mixture | None = None, loop: Loop = at_once) -> Tempered:
    """One cloud from its start to the posterior."""

    def move(run: _Run) -> _Run:
        proposed = _proposed(run)
        return _decided(run, proposed, at(proposed.to))

    def rise(run: _Run) -> _Run:
        return _noted(loop(lambda run: run.moves, move, _risen(run)))

    with jax.default_matmul_precision("highest"):
        key_look, key_start, key = _three(key)
        mixture = summits(at, dim, key_look, loop) if start is None else start
        u = _first_draws(mixture, key_start, cloud)
        return _ended(loop(lambda run: run.rises, rise, _begun(mixture, u, at(u), key)))


_three = program(lambda key: jax.random.split(key, 3))


@partial(program, static_argnums=2)
def _first_draws(mixture: Mixture, key: Key, cloud: int) -> Cloud:
    return mixture.draw(key, cloud)


@program
def _begun(mixture: Mixture, u: Cloud, looked: tuple[Array, Cloud], key: Key) -> _Run:
    """The cloud at τ = 0."""
    cloud = jax.tree.map(lambda v: v.reshape(2, len(u) // 2, *v.shape[1:]), _seen(mixture, u, *looked))
    zero, none, yes = jnp.zeros(()), jnp.zeros((), int), jnp.ones((), bool)
    h, log = jnp.full((), LARGEST_PROPOSED_H, float), jnp.zeros((3, MOST_RISES))
    return _Run(cloud, mixture, zero, h, none, zero, zero, none, jnp.zeros(2), log, (key, key), yes, yes)


@program
def _ended(run: _Run) -> Tempered:
    """The draws and what is said of them."""
    u, score, value = (
        v.reshape(-1, *v.shape[2:]) for v in (run.cloud.u, run.cloud.score(jnp.ones(())), run.cloud.value[..., None])
    )
    u = jnp.where(value > IMPOSSIBLE, u, jnp.nan)  # possible nowhere
    return Tempered(u, identities(u, score), run.rise, run.log_evidence, run.forgotten, run.log)


def _seen(mixture: Mixture, u: Cloud, value: Float[Array, " draws"], slope: Cloud) -> _Cloud:
    """Draws with their densities."""
    value, slope = numbers(value, slope)
    start, start_slope = jax.vmap(jax.value_and_grad(mixture.log_density))(u)
    prior = -jnp.sum(u**2, axis=1) / 2 - u.shape[1] / 2 * jnp.log(2 * jnp.pi)
    there = jnp.where(value > IMPOSSIBLE, value + prior - start, IMPOSSIBLE)
    return _Cloud(u, there, slope - u - start_slope, start, start_slope)


@program
def _risen(run: _Run) -> _Run:
    """The cloud at the next τ, weighted and resampled."""
    key, key_resample, key_shuffle, key_move = jax.random.split(run.keys[0], 4)
    value = run.cloud.value.ravel()
    rise = largest_rise(value, 1 - run.tau)
    tau = jnp.where(rise >= 1 - run.tau, 1.0, run.tau + rise)
    evidence = run.log_evidence + jax.nn.logsumexp(rise * value) - jnp.log(len(value))
    chosen = jax.random.permutation(key_shuffle, systematic(jax.nn.softmax(rise * value), key_resample))
    cloud = jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:])[chosen].reshape(v.shape), run.cloud)
    zero, none = jnp.zeros(()), jnp.zeros((), int)
    return run._replace(
        cloud=cloud, tau=tau, log_evidence=evidence, forgotten=zero, made=none, rates=jnp.zeros(2), keys=(key, key_move),
        moves=jnp.ones((), bool),
    )  # fmt: skip


@program
def _noted(run: _Run) -> _Run:
    """After the moves at one τ."""
    rates = run.rates / (run.made / 4)
    h = jnp.clip(run.h * jnp.exp(2 * (rates[0] - WANTED)), SMALLEST_PROPOSED_H, LARGEST_PROPOSED_H)
    log = run.log.at[:, run.rise].set(jnp.concatenate([run.tau[None], rates]))
    return run._replace(h=h, rise=run.rise + 1, log=log, rises=(run.tau < 1) & (run.rise + 1 < MOST_RISES))


def largest_rise(value: Float[Array, " draws"], missing: Scalar) -> Scalar:
    """The largest Δτ, up to what is missing, that leaves the weights e^{Δτ v} half the draws, by bisection of its logarithm."""

    def bears(rise: Scalar) -> Array:
        return 1 / jnp.sum(jax.nn.softmax(rise * value) ** 2) > EFFECTIVE_SHARE * len(value)

    def halve(_: Any, ends: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        low, high = ends
        middle = (low + high) / 2
        ok = bears(jnp.exp(middle))
        return jnp.where(ok, middle, low), jnp.where(ok, high, middle)

    ends = (jnp.asarray(jnp.log(SMALLEST_RISE), missing.dtype), jnp.log(missing))
    low, _ = jax.lax.fori_loop(0, BISECTIONS, halve, ends)
    return jnp.where(bears(missing), missing, jnp.exp(low))


def systematic(weights: Float[Array, " draws"], key: Key) -> Int[Array, " draws"]:
    """Which draws are kept, each as often as its weight says, up to one time more or less."""
    count = len(weights)
    places = (jnp.arange(count) + jax.random.uniform(key)) / count
    return jnp.clip(jnp.searchsorted(jnp.cumsum(weights) / jnp.sum(weights), places), 0, count - 1)


@program
def _proposed(run: _Run) -> _Proposed:
    """Proposals for the first half: a Langevin step (0), a jump from q (1) or around the others (2)."""
    key_near, key_normal, key_uniform = jax.random.split(jax.random.fold_in(run.keys[1], run.made), 3)
    (u, others), (s, s_others) = run.cloud.u, run.cloud.score(run.tau)
    root = preconditioner(others, s_others, key_near)
    # One move is made, and these serve any of the three.
    normal, (where, allowed) = jax.random.normal(key_normal, u.shape), jax.random.uniform(key_uniform, (2, len(u)))
    # Steps of many lengths: a draw where the density is narrower than elsewhere would refuse all long ones.
    a, noise = jnp.exp(-run.h * STEP_SPREAD ** -where[:, None]), normal @ root.T
    near = ahead(u, s, a, root) + jnp.sqrt(1 - a**2) * noise
    far = others[jnp.minimum((where * len(u)).astype(int), len(u) - 1)] + _width(u) * noise
    to = jnp.select([run.jumps == 0, run.jumps == 1, run.jumps == 2], [near, run.mixture.at(where, normal), far])
    return _Proposed(to, a, root, jnp.linalg.inv(root), allowed)


@program
def _decided(run: _Run, proposed: _Proposed, looked: tuple[Array, Cloud]) -> _Run:
    """The first half after its move; after a jump it is the second one's turn."""
    to, a, root, inverse, allowed = proposed
    cloud, tau, jumps = run.cloud, run.tau, run.jumps
    u, others = cloud.u
    before, after = jax.tree.map(lambda v: v[0], cloud), _seen(run.mixture, to, *looked)
    s, s_to = (one.start_slope + tau * one.slope for one in (before, after))
    there, back = log_transition(to, u, s, a, root, inverse), log_transition(u, to, s_to, a, root, inverse)
    wider = inverse / _width(u)
    across = log_around(u, others, wider) - log_around(to, others, wider)
    gain = after.start - before.start + tau * (after.value - before.value)
    gain = gain + jnp.select([jumps == 0, jumps == 1, jumps == 2], [back - there, before.start - after.start, across])
    accepted = jnp.log(allowed) < jnp.nan_to_num(gain, nan=-jnp.inf)

    def moved(whole: Array, new: Array, old: Array) -> Array:
        whole = whole.at[0].set(jnp.where(accepted.reshape(-1, *[1] * (new.ndim - 1)), new, old))
        return jnp.where(jumps > 0, whole[::-1], whole)

    last, made = tau >= 1, run.made + 1
    enough, most = jnp.where(last, FORGET_LAST, FORGET), jnp.where(last, MOST_LAST_MOVES, MOST_MOVES)
    forgotten = run.forgotten + jnp.mean(accepted[:, None] * jnp.where(jumps > 0, 1.0, 1 - a)) / 2
    return run._replace(
        cloud=jax.tree.map(moved, cloud, after, before), forgotten=forgotten, made=made,
        rates=run.rates.at[run.made % 2].add(jnp.mean(accepted) / 2),
        moves=(made % 4 > 0) | ((forgotten < enough) & (made < 4 * most)),
    )  # fmt: skip


def _width(u: Cloud) -> float:
    """Scott's, for a mean of Gaussians around so many draws."""
    return len(u) ** (-1 / (u.shape[1] + 4))


def log_around(u: Cloud, centres: Float[Array, "centres dim"], inverse: Float[Array, "dim dim"]) -> Float[Array, " draws"]:
    """log mean_k N(u | v_k, C) at every draw, up to a constant, for `inverse` that of a square root of C."""
    middle = centres.mean(axis=0)
    off = ((u - middle) @ inverse.T)[:, None] - (centres - middle) @ inverse.T
    return jax.nn.logsumexp(-jnp.sum(off**2, axis=2) / 2, axis=1)
