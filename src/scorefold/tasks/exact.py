"""Exact scores of sets of one observation, as a task knows them, and those of Gaussian mixtures.

A Gaussian mixture stays one when it is diffused. If p(θ) = Σ_c w_c N(θ | μ_c, diag v_c) and θ_t = √γ θ + √(1-γ) ξ with
ξ ~ N(0, I), then

    p_t(θ) = Σ_c w_c N(θ | √γ μ_c, diag(γ v_c + 1-γ)),
    ∇log p_t(θ) = Σ_c r_c(θ) (√γ μ_c - θ) / (γ v_c + 1-γ),   r_c the responsibilities.

With p_t(θ|x_j) known for every observation at every level, a composition rule has exact scores to work with, and what a
sampler then gets wrong is its own error or the rule's.
"""

from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.compose.sets import SetScores
from scorefold.errors import ScorefoldError
from scorefold.noise import Level
from scorefold.tasks.task import Task
from scorefold.types import Array, Callable, Cloud, Float, Int, Observation, Scalar, Theta

PAIRS_AT_ONCE = {"cpu": 4096, "gpu": 262_144}
"""Draws × observations held in memory together; a pair needs 3,000 numbers where its score is an integral."""

SingleScore = Callable[[Theta, Observation, Scalar], Theta]
SingleLogDensity = Callable[[Theta, Observation, Scalar], Scalar]


class GaussianMixture(NamedTuple):
    """A mixture of Gaussians with diagonal covariances, or a stack of such mixtures, one for each observation."""

    log_weights: Float[Array, "*obs components"]
    """Normalised: their exponentials sum to one."""
    means: Float[Array, "*obs components dim"]
    variances: Float[Array, "*obs components dim"]


def diffused(mixture: GaussianMixture, gamma: Scalar | float) -> GaussianMixture:
    """The mixture after the noise of level γ: the kernel N(√γ θ, (1-γ) I) makes another mixture of it."""
    return GaussianMixture(mixture.log_weights, jnp.sqrt(gamma) * mixture.means, gamma * mixture.variances + 1 - gamma)


def log_density(mixture: GaussianMixture, theta: Theta) -> Scalar:
    """log p(θ), the log density of the mixture at one θ."""
    return jax.nn.logsumexp(_log_joint(mixture, theta))


def score(mixture: GaussianMixture, theta: Theta) -> Theta:
    """∇log p(θ), the score of the mixture at one θ."""
    responsibilities = jax.nn.softmax(_log_joint(mixture, theta))
    return jnp.sum(responsibilities[:, None] * (mixture.means - theta) / mixture.variances, axis=0)


def single_score(posterior: Callable[[Observation], GaussianMixture]) -> SingleScore:
    """The function (u, x, γ) to the score of the diffused p(u|x), from a function that gives p(u|x) as a mixture."""
    return lambda u, x, gamma: score(diffused(posterior(x), gamma), u)


def single_log_density(posterior: Callable[[Observation], GaussianMixture]) -> SingleLogDensity:
    """The function (u, x, γ) to log p_t(u|x), from a function that gives p(u|x) as a mixture."""
    return lambda u, x, gamma: log_density(diffused(posterior(x), gamma), u)


class ExactSets(SetScores):
    """The observations of a task as sets of one, with exact scores for a rule to compose; padded, and the first `count` are
    real.
    """

    x: Float[Array, "sets x"]
    count: Int[Array, ""]
    group: Int[Array, " sets"]
    precision: Float[Array, "groups dim dim"] | None
    single_score: SingleScore = eqx.field(static=True)
    single_log_density: SingleLogDensity = eqx.field(static=True)

    def prepare(self, u: Cloud, level: Level) -> Cloud:
        """The draws themselves, as nothing can be shared among observations here."""
        return u

    def chunk(self, prepared: Cloud, level: Level, index: Int[Array, " chunk"]) -> Float[Array, "chunk draws dim"]:
        """The exact scores of the observations at `index`, at all draws, as an array (chunk, draws, dim)."""
        return self._pairs(self.single_score, prepared, level, index)

    def prior(self, u: Cloud, level: Level) -> Cloud:
        """The score of N(0, I) at the draws, which is -u whatever the level."""
        return -u

    def log_densities(self, u: Cloud, level: Level) -> Float[Array, " draws"]:
        """Σ_j log p_t(u | x_j) at every draw, over the real observations and up to a constant."""

        def add(index: Int[Array, " chunk"], real: Float[Array, " chunk"]) -> Float[Array, " draws"]:
            values = self._pairs(self.single_log_density, u, level, index)
            return jnp.sum(jnp.where(real > 0, values.T, 0.0), axis=1)

        return self.over_chunks(len(u), add)

    def prior_log_density(self, u: Cloud, level: Level) -> Float[Array, " draws"]:
        """The log density of N(0, I) at every draw, up to a constant, whatever the level."""
        return -jnp.sum(u**2, axis=1) / 2

    def with_precision(self, precision: Float[Array, "sets dim dim"]) -> "ExactSets":
        """The same observations, each with a precision of its own in place of a shared one."""
        return replace(self, group=jnp.arange(len(self.x)), precision=precision)

    def pick(self, index: Int[Array, " some"], count: Int[Array, ""]) -> "ExactSets":
        """Only the observations at `index`, of which the first `count` are real."""
        return replace(self, x=self.x[index], count=count, group=self.group[index])

    def at_once(self, draws: int) -> int:
        """How many observations to take in one chunk so that their scores at so many draws fit in memory."""
        return max(1, _pairs_at_once() // draws)

    def _pairs(
        self, function: Callable[..., Array], u: Cloud, level: Level, index: Int[Array, " chunk"]
    ) -> Float[Array, "chunk draws ..."]:
        """A function of (u, x, γ) at all draws and the observations at `index`, a few draws at a time."""
        x = jnp.take(self.x, index, axis=0, mode="clip")  # the last chunk may reach beyond the padding
        over_sets = jax.vmap(function, in_axes=(None, 0, None))
        values = jax.lax.map(lambda draw: over_sets(draw, x, level.gamma), u, batch_size=min(_pairs_at_once(), len(u)))
        return jnp.moveaxis(values, 1, 0)


def exact_sets(
    task: Task, x_obs: np.ndarray, precision: Float[Array, "groups dim dim"] | None = None, room_for: int = 0
) -> ExactSets:
    """A task's exact scores of these observations, to try a rule and a sampler without a network's error.

    Args:
        task: A task whose single scores are known, such as `gaussian`, `mixture`, `bimodal` or `correlated`.
        x_obs: The observations (n, x).
        precision: The inverse covariance that the rule `Gauss` gives every observation; None, the default, for other rules.
        room_for: Pad to so many observations, so that several n share one compiled program; by default there is no padding.

    Returns:
        `ExactSets`, which a rule's `score` takes.

    Raises:
        ScorefoldError: The single scores of this task are not known.
    """
    if task.single_score is None or task.single_log_density is None:
        raise ScorefoldError(f"expected a task whose single scores are known; got {task.name!r}. Train a network for it.")
    x = jnp.asarray(np.resize(x_obs, (max(len(x_obs), room_for), *np.shape(x_obs)[1:])), jnp.float32)
    return ExactSets(
        x=x,
        count=jnp.asarray(len(x_obs), jnp.int32),
        group=jnp.zeros(len(x), jnp.int32),
        precision=precision,
        single_score=task.single_score,
        single_log_density=task.single_log_density,
    )


def _pairs_at_once() -> int:
    return PAIRS_AT_ONCE.get(jax.default_backend(), PAIRS_AT_ONCE["cpu"])


def _log_joint(mixture: GaussianMixture, theta: Theta) -> Float[Array, " components"]:
    """log w_c + log N(θ | μ_c, diag v_c)."""
    log_normal = jax.scipy.stats.norm.logpdf(theta, mixture.means, jnp.sqrt(mixture.variances))
    return mixture.log_weights + log_normal.sum(-1)
