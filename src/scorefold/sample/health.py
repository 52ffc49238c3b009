"""What a sampler says about its run, and whether its draws are to be trusted.

For draws of any density with score s, whatever its shape, two identities hold: E[s] = 0 and, by Stein's identity,
-E[(u - E u) sᵀ] = I ("A bound for the error in the normal approximation", Stein, 1972). With A the draws' covariance:

- `stein` = -mean (u - ū)ᵀ s / dim is 1; above it the draws are too wide for their score, below it too narrow;
- `drift` = √(s̄ᵀ A s̄ / dim) is 0: how far, in sd, the draws' mean still has to go;
- `q` = mean (s - s̄)ᵀ A (s - s̄) / dim is 1 for one Gaussian mode; it grows with separated modes, and without bound
  when a run diverges.
"""

from typing import NamedTuple

import jax.numpy as jnp

from scorefold.shown import brief
from scorefold.types import Array, Cloud, Float, Scalar

FARTHEST_DRAW = 15.0
"""In prior sd; a run with a draw beyond has diverged."""
MOST_STEPS = 10_000
"""At one level; more never ended well."""


class Info(NamedTuple):
    """What a sampler says about its run, as `draws.info` holds it.

    The arrays have one entry for each level, the noisiest first. `stein` near 1 and `drift` near 0 at the last level say that
    the draws agree with the score that they followed; whether that score is right they cannot say, which is what `sf.diagnose`
    is for. Look at `stein` when `converged` is false: above 1 the draws are still too wide, below 1 too narrow. More levels or
    steps help.

    Example:
        >>> import scorefold as sf
        >>> sf.samplers.Info._fields[:5]
        ('gamma', 'step', 'q', 'stein', 'drift')
    """

    gamma: Float[Array, " levels"]
    step: Float[Array, " levels"]
    """Mean squared length of the noise added in a step, per dimension."""
    q: Float[Array, " levels"]
    stein: Float[Array, " levels"]
    drift: Float[Array, " levels"]
    diverged: Array
    """Draws or their scores are not finite, or draws beyond 15 prior sd."""
    converged: Array
    """The identities hold at the last level, up to what this many draws can show."""
    acceptance: Float[Array, " levels"] | None = None
    """Of a Metropolis sampler's proposals."""
    projected: float = 0.0
    """Share of the sets whose pilot draws were wider than the prior, so that the GAUSS rule cut their covariance.

    It covers the pilots' covariances only, and is 0 without pilots: what the JAC rule cuts is not counted."""

    def __repr__(self) -> str:
        return brief(self)


class Identities(NamedTuple):
    """The three checks of `identities` at one level, with the standard error of the second."""

    q: Scalar
    stein: Scalar
    drift: Scalar
    error: Scalar
    """Standard error of `stein`, relative to it where it is above 1."""


def identities(u: Cloud, score: Cloud) -> Identities:
    """Check a cloud of draws against its own scores: `q`, `stein` and `drift`, of which `stein` is 1 and `drift` 0 for draws
    that are right.
    """
    dim = u.shape[1]
    centred, s_mean = u - u.mean(axis=0), score.mean(axis=0)
    spread = score - s_mean
    covariance = centred.T @ centred / len(u)
    q = jnp.sum((spread.T @ spread / len(u)) * covariance) / dim
    each = -jnp.sum(centred * score, axis=1) / dim
    stein = jnp.mean(each)
    drift = jnp.sqrt(jnp.maximum(s_mean @ covariance @ s_mean, 0.0) / dim)
    return Identities(q, stein, drift, jnp.std(each) / jnp.sqrt(len(u)) / jnp.maximum(stein, 1.0))


def conclude(u: Cloud, gamma: Array, step: Array, checks: Identities) -> Info:
    """The `Info` of a run, from its final draws, the noise levels, the steps' sizes and the checks made at every level."""
    diverged = ~jnp.all(jnp.isfinite(u)) | ~jnp.isfinite(checks.q[-1]) | (jnp.max(jnp.abs(u)) > FARTHEST_DRAW)
    # A tenth is allowed, and four standard errors of what this many draws can show.
    noise = 4 * jnp.sqrt(jnp.maximum(checks.q[-1], 1.0) / len(u))
    stein_holds = jnp.abs(checks.stein[-1] - 1) < 0.1 + 4 * checks.error[-1]
    converged = stein_holds & (checks.drift[-1] < 0.1 + noise) & ~diverged
    return Info(gamma, step, checks.q, checks.stein, checks.drift, diverged=diverged, converged=converged)
