"""Exact scores: Gaussian mixtures stay Gaussian mixtures when they are diffused.

If p(θ) = Σ_c w_c N(θ | μ_c, diag v_c) and θ_t = √γ θ + √(1-γ) ξ with ξ ~ N(0, I), then

    p_t(θ) = Σ_c w_c N(θ | √γ μ_c, diag(γ v_c + 1-γ)),
    ∇log p_t(θ) = Σ_c r_c(θ) (√γ μ_c - θ) / (γ v_c + 1-γ),   r_c the responsibilities.

With p(θ|x_j) such a mixture for every observation, the sum over observations in the composed score is known
exactly at every level, and what a sampler then gets wrong is the sampler's own error.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from scorefold.types import Array, Callable, Cloud, Float, Scalar, Theta

DRAWS_AT_ONCE = 64


class GaussianMixture(NamedTuple):
    """A mixture of Gaussians with diagonal covariances, or a stack of them over observations."""

    log_weights: Float[Array, "*obs components"]
    """Normalised: their exponentials sum to one."""
    means: Float[Array, "*obs components dim"]
    variances: Float[Array, "*obs components dim"]


@runtime_checkable
class HasGamma(Protocol):
    """What is needed of a noise level."""

    @property
    def gamma(self) -> Scalar:
        """How much of θ is left, γ_t."""


def diffused(mixture: GaussianMixture, gamma: Scalar | float) -> GaussianMixture:
    """The mixture after the kernel N(√γ θ, (1-γ) I)."""
    return GaussianMixture(mixture.log_weights, jnp.sqrt(gamma) * mixture.means, gamma * mixture.variances + 1 - gamma)


def log_density(mixture: GaussianMixture, theta: Theta) -> Scalar:
    """log p(θ)."""
    return jax.nn.logsumexp(_log_joint(mixture, theta))


def score(mixture: GaussianMixture, theta: Theta) -> Theta:
    """∇log p(θ)."""
    responsibilities = jax.nn.softmax(_log_joint(mixture, theta))
    return jnp.sum(responsibilities[:, None] * (mixture.means - theta) / mixture.variances, axis=0)


def composed_score(mixtures: GaussianMixture) -> Callable[[Cloud, HasGamma], Cloud]:
    """Σ_j ∇log p_t(θ|x_j), the plain sum without a prior term, for mixtures stacked over observations."""

    def total(theta: Cloud, level: HasGamma) -> Cloud:
        at_level = diffused(mixtures, level.gamma)

        def one(draw: Theta) -> Theta:
            return jax.vmap(score, in_axes=(0, None))(at_level, draw).sum(0)

        # A few draws at a time: draws × observations × components × dim may not fit in memory.
        return jax.lax.map(one, theta, batch_size=DRAWS_AT_ONCE)

    return total


def _log_joint(mixture: GaussianMixture, theta: Theta) -> Float[Array, "components"]:
    """log w_c + log N(θ | μ_c, diag v_c)."""
    log_normal = jax.scipy.stats.norm.logpdf(theta, mixture.means, jnp.sqrt(mixture.variances))
    return mixture.log_weights + log_normal.sum(-1)
