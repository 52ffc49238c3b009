"""Metropolis-adjusted annealed Langevin: the stationary distribution of every level is exact.

Where the composed score is the gradient of a log density ℓ (a conservative network, or a score known in closed form), the step
of the self-tuned sampler, u' = u + (1-a) M s(u) + √(1-a²) M^{1/2} ξ with a = e^{-h}, is a proposal, accepted with probability
min(1, exp[ℓ(u') - ℓ(u)] q(u|u') / q(u'|u)) ("Exponential convergence of Langevin distributions and their discrete
approximations", Roberts and Tweedie, 1996). M comes from the other half of the cloud ("Ensemble samplers with affine
invariance", Goodman and Weare, 2010), so a move does not depend on what it moves, and detailed balance holds. For a Gaussian
every proposal is accepted. Every draw takes a random share of h, which follows the acceptance rate while the levels fall and
stands still at the last one.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from scorefold import settings
from scorefold.errors import ScorefoldError
from scorefold.noise import Level, LogDensity, Score
from scorefold.sample.health import MOST_STEPS, Info, conclude, identities
from scorefold.sample.self_tuned import preconditioner
from scorefold.types import Array, Cloud, Count, Float, Key, Scalar

WANTED = 0.7
LARGEST_PROPOSED_H, SMALLEST_PROPOSED_H = 1.0, 0.01
STEP_SPREAD = 30.0
"""The longest step of a move over the shortest."""


class _State(NamedTuple):
    u: Float[Array, "2 half dim"]
    score: Float[Array, "2 half dim"]
    value: Float[Array, "2 half"]


@dataclass(frozen=True)
class Metropolis:
    """Annealed Langevin steps that are accepted or refused, so that each level's distribution is exact if the run mixes.

    Take it when you want acceptance rates, or no error from the steps' length. It compares densities: train with
    `sf.NPSE(conservative=True)`, whose score is the gradient of one, and use the rule `Diffused` or `Tempered`. It is slower
    than `SelfTuned`, and like it moves all draws together; with posteriors that a bounded prior cuts, or modes that lie apart,
    and very many sets it may not mix, and then `Info` says that it has not settled. The acceptance rates are in
    `Info.acceptance`.

    Args:
        levels: How many noise levels to go through, evenly spaced among those that the network was trained with.
        steps: Steps at each level; from level to level their length follows the acceptance rate.
        last: Further steps at the last level, all of one length.

    Raises:
        ScorefoldError: A setting is of the wrong type or out of its range.

    Example:
        >>> import scorefold as sf
        >>> sf.samplers.Metropolis()
        Metropolis(levels=50, steps=4, last=48)
        >>> method = sf.NPSE(conservative=True, sampler=sf.samplers.Metropolis(last=200))
    """

    levels: int = 50
    steps: int = 4
    last: int = 48
    """Steps at the last level."""
    reverses: ClassVar[bool] = False

    def __post_init__(self) -> None:
        settings.check(self, levels=2, steps=1, last=1)
        if max(self.steps, self.last) > MOST_STEPS:
            raise ScorefoldError(f"expected at most {MOST_STEPS:,} steps a level; got {self}")

    def __call__(
        self, score: Score, levels: Level, u: Cloud, key: Key, sets: Count, log_density: LogDensity
    ) -> tuple[Cloud, Info]:
        """Move a cloud of draws from the noisiest level to the lowest.

        Args:
            score: The score to follow, `score(u, level, key)`.
            levels: The noise levels in falling t, stacked.
            u: Where the draws start, a cloud (draws, dim) of an even number of draws, from the rule's reference distribution.
            key: The random key; the same one gives the same draws.
            sets: How many sets the score was composed of; it makes no difference here.
            log_density: What the score is the gradient of, `log_density(u, level)`, up to a constant.

        Returns:
            The draws (draws, dim) in the N(0, I) space, and the run's `Info`.
        """
        halves = u.reshape(2, -1, u.shape[1])

        def at_level(u: Array, level: Level, key: Key) -> _State:
            flat = u.reshape(-1, u.shape[2])
            values = log_density(flat, level)
            return _State(u, score(flat, level, key).reshape(u.shape), values.reshape(u.shape[:2]))

        def step(carry: tuple[_State, Level, Scalar], key: Key) -> tuple[tuple[_State, Level, Scalar], Scalar]:
            state, level, h = carry
            rates = []
            for half, key_half in enumerate(jax.random.split(key)):
                state, rate = _move(score, log_density, state, half, level, h, key_half)
                rates.append(rate)
            return (state, level, h), (rates[0] + rates[1]) / 2

        def anneal(carry: tuple[Array, Scalar], at: tuple[Level, Key]) -> tuple[tuple[Array, Scalar], tuple]:
            (u, h), (level, key) = carry, at
            (state, _, _), rates = jax.lax.scan(step, (at_level(u, level, key), level, h), jax.random.split(key, self.steps))
            followed = jnp.clip(h * jnp.exp(2 * (jnp.mean(rates) - WANTED)), SMALLEST_PROPOSED_H, LARGEST_PROPOSED_H)
            return (state.u, followed), (h, jnp.mean(rates), _checks(state))

        start = (halves, jnp.asarray(LARGEST_PROPOSED_H, u.dtype))
        (halves, h), (size, rates, checks) = jax.lax.scan(anneal, start, (levels, jax.random.split(key, len(levels.t))))
        lowest = jax.tree.map(lambda v: v[-1], levels)
        keys = jax.random.split(jax.random.fold_in(key, 1), self.last)
        (state, _, _), last = jax.lax.scan(step, (at_level(halves, lowest, key), lowest, h), keys)
        checks = jax.tree.map(lambda all, end: all.at[-1].set(end), checks, _checks(state))
        rates = rates.at[-1].set(jnp.mean(last))
        u = state.u.reshape(u.shape)
        return u, conclude(u, levels.gamma, size, checks)._replace(acceptance=rates)


def _checks(state: _State) -> tuple:
    dim = state.u.shape[2]
    return identities(state.u.reshape(-1, dim), state.score.reshape(-1, dim))


def _move(
    score: Score, log_density: LogDensity, state: _State, half: int, level: Level, h: Scalar, key: Key
) -> tuple[_State, Scalar]:
    """One step of one half; and the share of it that moved."""
    key_near, key_noise, key_accept, key_score, key_step = jax.random.split(key, 5)
    root = preconditioner(state.u[1 - half], state.score[1 - half], key_near)
    inverse = jnp.linalg.inv(root)
    # Steps of many lengths: a draw where the density is narrower than elsewhere would refuse all long ones.
    a = jnp.exp(-h * STEP_SPREAD ** (-(jax.random.uniform(key_step, (len(state.u[half]), 1)) ** 2)))

    u, s, value = state.u[half], state.score[half], state.value[half]
    to = ahead(u, s, a, root) + jnp.sqrt(1 - a**2) * jax.random.normal(key_noise, u.shape) @ root.T
    s_to, value_to = score(to, level, key_score), log_density(to, level)
    back, forth = log_transition(u, to, s_to, a, root, inverse), log_transition(to, u, s, a, root, inverse)
    gain = value_to - value + back - forth
    accepted = jnp.log(jax.random.uniform(key_accept, gain.shape)) < jnp.nan_to_num(gain, nan=-jnp.inf)
    moved = _State(
        state.u.at[half].set(jnp.where(accepted[:, None], to, u)),
        state.score.at[half].set(jnp.where(accepted[:, None], s_to, s)),
        state.value.at[half].set(jnp.where(accepted, value_to, value)),
    )
    return moved, jnp.mean(accepted)


def ahead(u: Cloud, s: Cloud, a: Float[Array, "draws 1"], root: Float[Array, "dim dim"]) -> Cloud:
    """The means of a step from u with scores s, u + (1-a) M s, for M = root rootᵀ and each draw's own a."""
    return u + (1 - a) * (s @ root) @ root.T


def log_transition(
    to: Cloud, u: Cloud, s: Cloud, a: Float[Array, "draws 1"], root: Float[Array, "dim dim"], inverse: Float[Array, "dim dim"]
) -> Float[Array, " draws"]:
    """log q(to|u) of such a step with noise √(1-a²) root ξ, up to a constant; `inverse` is that of the root."""
    return -jnp.sum(((to - ahead(u, s, a, root)) @ inverse.T) ** 2 / (2 * (1 - a**2)), axis=1)
