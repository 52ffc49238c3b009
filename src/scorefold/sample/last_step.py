"""The last step of a reversed diffusion, from the lowest level to no noise at all.

Given u at level γ, u_0 has mean (u + (1-γ) s)/√γ and covariance (1-γ)/γ (I + (1-γ) ∇s) (Tweedie's formula and its second
order). Taking the mean alone leaves draws too narrow where the posterior is as narrow as the last noise; the covariance's share
is drawn here, with -∇s from the differences between neighbouring draws, as the self-tuned sampler measures it.
"""

import jax
import jax.numpy as jnp

from scorefold.noise import Level, Score
from scorefold.sample.health import Identities, Info, conclude, identities
from scorefold.sample.self_tuned import preconditioner
from scorefold.types import Array, Cloud, Float, Key


def finish(
    score: Score, levels: Level, u: Cloud, keys: tuple[Key, Key], step: Float[Array, " levels"], checks: Identities
) -> tuple[Cloud, Info]:
    """Take a cloud at the lowest level to no noise at all, and conclude the run: the draws and the `Info`; `checks` are those
    of the levels above.
    """
    lowest = jax.tree.map(lambda v: v[-1], levels)
    s = score(u, lowest, keys[0])
    checks = jax.tree.map(jnp.append, checks, identities(u, s))
    u = denoised(u, s, lowest, keys[1])
    return u, conclude(u, levels.gamma, step, checks)


def denoised(u: Cloud, s: Cloud, level: Level, key: Key) -> Cloud:
    """Draw u_0 given the cloud at the lowest level and its scores, by Tweedie's mean and a share of its covariance."""
    key_near, key_noise = jax.random.split(key)
    noise = level.noise
    root = preconditioner(u, s, key_near)
    vectors, widths, _ = jnp.linalg.svd(root)  # -∇s ≈ (root rootᵀ)⁻¹
    spread = jnp.sqrt(noise / level.gamma * jnp.clip(1 - noise / widths**2, 0.0, 1.0))
    mean = (u + noise * s) / jnp.sqrt(level.gamma)
    # The symmetric root: vectors come with either sign, which must not decide on the draws.
    return mean + jax.random.normal(key_noise, u.shape) @ (vectors * spread @ vectors.T)
