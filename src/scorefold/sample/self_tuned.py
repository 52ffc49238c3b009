"""Self-tuned annealed Langevin: the cloud of draws chooses its own step.

At every step, with A the covariance of the draws, F the covariance of their scores, and A = L Lᵀ:

    Q = Lᵀ F L = V diag(q) Vᵀ,   M = L V diag(1/max(q, ¼)) Vᵀ Lᵀ,   a = e^{-h},
    u ← u + (1-a) M s(u) + √(1-a²) M^{1/2} ξ.

For a Gaussian target Q = I once the cloud has its covariance, M is that covariance, and the step is exact for any h. Where
the cloud spans several modes, or lags behind the level, q grows in just those directions and the step shrinks in them to
the modes' own width (F⁻¹), so nothing depends on the number of observations or on the task. The steps of the last level
shrink from h to h/8, which removes what discretisation error is left for targets that are not Gaussian.

Annealed Langevin is due to "Generative modeling by estimating gradients of the data distribution" (Song and Ermon, 2019);
moving a cloud with its own covariance to "Interacting Langevin diffusions" (Garbuno-Inigo, Hoffmann, Li and Stuart, 2020).
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from scorefold.noise import Level
from scorefold.sample.info import Info, conclude, identities
from scorefold.types import Array, Cloud, Float, Key, Scalar

SMALLEST_Q = 0.25
OUTLYING = 6.0


@dataclass(frozen=True)
class SelfTuned:
    """The default sampler."""

    levels: int = 25
    steps: int = 4
    h: float = 0.5
    last: int = 16
    """Steps at the last level."""

    def __call__(
        self, score: Callable[[Cloud, Level], Cloud], levels: Level, u: Cloud, key: Key, sets: int
    ) -> tuple[Cloud, Info]:
        """Move the cloud `u` from the noisiest level to the first; `levels` in falling t."""

        def step(carry: tuple[Cloud, Level], at: tuple[Key, Scalar]) -> tuple[tuple[Cloud, Level], tuple]:
            u, level = carry
            key, h = at
            s = score(u, level)
            root = preconditioner(u, s)
            noise = jax.random.normal(key, u.shape)
            moved = u + (1 - jnp.exp(-h)) * (s @ root) @ root.T + jnp.sqrt(1 - jnp.exp(-2 * h)) * noise @ root.T
            size = (1 - jnp.exp(-2 * h)) * jnp.mean(jnp.sum(root**2, axis=1))
            return (moved, level), (size, identities(u, s))

        def anneal(u: Cloud, at: tuple[Level, Key]) -> tuple[Cloud, tuple]:
            level, key = at
            keys = jax.random.split(key, self.steps)
            (u, _), (size, checks) = jax.lax.scan(step, (u, level), (keys, jnp.full(self.steps, self.h)))
            return u, jax.tree.map(lambda v: v[-1], (size, checks))

        keys = jax.random.split(key, len(levels.t))
        u, (size, checks) = jax.lax.scan(anneal, u, (levels, keys))
        lowest = jax.tree.map(lambda v: v[-1], levels)
        shrinking = self.h * 0.125 ** (jnp.arange(1, self.last + 1) / self.last)
        last_keys = jax.random.split(jax.random.fold_in(key, 1), self.last)
        (u, _), (last_size, last_checks) = jax.lax.scan(step, (u, lowest), (last_keys, shrinking))
        size, checks = jax.tree.map(lambda all, end: all.at[-1].set(end[-1]), (size, checks), (last_size, last_checks))
        return u, conclude(u, levels.gamma, size, checks)


def preconditioner(u: Cloud, s: Cloud) -> Float[Array, "dim dim"]:
    """A square root of M, from the draws and their scores."""
    dim = u.shape[1]
    covariance = jnp.cov(u, rowvar=False).reshape(dim, dim)
    covariance = covariance + 1e-6 * jnp.trace(covariance) / dim * jnp.eye(dim)
    lower = jnp.linalg.cholesky(covariance)
    projected = (s - s.mean(axis=0)) @ lower
    length = jnp.sum(projected**2, axis=1)
    # A few draws that lag far behind have enormous scores; they must not set the step for all the others.
    weight = jnp.minimum(1.0, OUTLYING * jnp.median(length) / jnp.maximum(length, 1e-30))
    q, vectors = jnp.linalg.eigh((weight[:, None] * projected).T @ projected / len(u))
    return lower @ (vectors / jnp.sqrt(jnp.maximum(q, SMALLEST_Q)))
