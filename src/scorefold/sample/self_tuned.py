"""Self-tuned annealed Langevin: the cloud of draws chooses its own step.

At every step each draw i has a near neighbour j. With A the second moment of the differences u_i - u_j and F that of the
differences of their scores s_i - s_j, the preconditioner is the matrix geometric mean

    M = A # F⁻¹ = A^{1/2} (A^{1/2} F A^{1/2})^{-1/2} A^{1/2},   a = e^{-h},
    u ← u + (1-a) M s(u) + √(1-a²) M^{1/2} ξ.

Where the score is linear, s = -H (u - μ), F = H A H and so M = H⁻¹ exactly, whatever the cloud's own width and however far it
lags behind the level: the step is then exact for any h. Differences between neighbours cancel what the draws of one mode
have in common, so with several modes M is their own width and not the distance between them; in regions of negative
curvature it is |H|⁻¹. M is kept below twice the cloud's covariance. Nothing depends on the number of observations or on
the task. The steps of the last level shrink from h to h/8, which removes most of the discretisation error that targets
other than Gaussian have.

Annealed Langevin is due to "Generative modeling by estimating gradients of the data distribution" (Song and Ermon, 2019);
moving a cloud with its own covariance to "Interacting Langevin diffusions" (Garbuno-Inigo, Hoffmann, Li and Stuart, 2020).
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from scorefold import settings
from scorefold.errors import ScorefoldError
from scorefold.noise import Level, Score
from scorefold.sample.health import MOST_STEPS, Info, conclude, identities
from scorefold.types import Array, Cloud, Count, Float, Int, Key, Scalar

JITTER = 1e-6
OTHERS_LOOKED_AT = 64
LARGEST_VARIANCE = 2.0
LARGEST_H = 10.0
"""Of h: a step that forgets everything."""


@dataclass(frozen=True)
class SelfTuned:
    """Annealed Langevin steps that the cloud of draws tunes itself. This is the default for several sets.

    Take it unless you have a reason not to: it follows any rule's score, needs no tuning to the number of observations or to
    the task, and with exact scores and the rules that add scores it is the most accurate sampler here. Its steps are exact for
    a Gaussian posterior. If `Info` says that a run has not settled, or modes come out too wide, try more levels or steps, or
    a smaller `h`; the time grows in proportion to levels × steps + last. For one set `DPM` reverses the diffusion itself,
    which is better still.

    Args:
        levels: How many noise levels to go through, evenly spaced among those that the network was trained with.
        steps: Langevin steps at each level.
        h: The length of a step, above 0 and at most 10: a draw forgets all but e^{-h} of where it was. Small steps are more
            exact where the posterior is not Gaussian, and need more of them.
        last: Further Langevin steps at the last level, in which `h` shrinks to an eighth.

    Raises:
        ScorefoldError: A setting is of the wrong type or out of its range.

    Example:
        >>> import scorefold as sf
        >>> sf.samplers.SelfTuned()
        SelfTuned(levels=25, steps=2, h=1.0, last=12)
        >>> careful = sf.samplers.SelfTuned(levels=100, steps=4, h=0.3)
        >>> sf.NPSE(sampler=careful).sampler.levels
        100
    """

    levels: int = 25
    steps: int = 2
    h: float = 1.0
    last: int = 12
    """Steps at the last level."""
    reverses: ClassVar[bool] = False

    def __post_init__(self) -> None:
        settings.check(self, levels=2, steps=1, last=1)
        if not 0 < self.h <= LARGEST_H or max(self.steps, self.last) > MOST_STEPS:
            raise ScorefoldError(f"expected 0 < h ≤ {LARGEST_H} and at most {MOST_STEPS:,} steps a level; got {self}")

    def __call__(self, score: Score, levels: Level, u: Cloud, key: Key, sets: Count) -> tuple[Cloud, Info]:
        """Move a cloud of draws from the noisiest level to the lowest.

        Args:
            score: The score to follow, `score(u, level, key)`.
            levels: The noise levels in falling t, stacked.
            u: Where the draws start, a cloud (draws, dim) of the rule's reference distribution.
            key: The random key; the same one gives the same draws.
            sets: How many sets the score was composed of; it makes no difference here.

        Returns:
            The draws (draws, dim) in the N(0, I) space, and the run's `Info`.
        """

        def step(carry: tuple[Cloud, Level], at: tuple[Key, Scalar]) -> tuple[tuple[Cloud, Level], tuple]:
            u, level = carry
            key, h = at
            key_noise, key_near, key_score = jax.random.split(key, 3)
            s = score(u, level, key_score)
            root = preconditioner(u, s, key_near)
            noise = jax.random.normal(key_noise, u.shape)
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


def preconditioner(u: Cloud, s: Cloud, key: Key) -> Float[Array, "dim dim"]:
    """A square root of the matrix M that a Langevin step is scaled with, from the draws, their scores and a key to pick
    neighbours.
    """
    dim = u.shape[1]
    covariance = jnp.cov(u, rowvar=False).reshape(dim, dim)
    lower = jnp.linalg.cholesky(covariance + JITTER * jnp.trace(covariance) / dim * jnp.eye(dim))
    # The inverse is formed first: a triangular solve for every draw would leave LAPACK's threads in the score's way.
    inverse = jax.scipy.linalg.solve_triangular(lower, jnp.eye(dim), lower=True)
    v = (u - u.mean(axis=0)) @ inverse.T
    near = neighbours(v, key)
    dv, ds = v - v[near], (s - s[near]) @ lower
    root = jnp.linalg.cholesky(dv.T @ dv / len(u) + JITTER * jnp.eye(dim))
    q, vectors = jnp.linalg.eigh(root.T @ (ds.T @ ds / len(u)) @ root)
    mean = root @ (vectors * jnp.maximum(q, JITTER**2) ** -0.25)
    variances, vectors = jnp.linalg.eigh(mean @ mean.T)
    # Symmetric, as vectors come with either sign, which must not decide on the draws.
    return lower @ (vectors * jnp.sqrt(jnp.clip(variances, JITTER, LARGEST_VARIANCE)) @ vectors.T)


def neighbours(v: Cloud, key: Key) -> Int[Array, " draws"]:
    """The index of a near neighbour for every draw: the nearest of a few other draws that are picked at random."""
    count = len(v)
    others = (jnp.arange(count)[:, None] + jax.random.randint(key, (1, OTHERS_LOOKED_AT), 1, count)) % count
    distance = jnp.sum((v[:, None] - v[others]) ** 2, axis=-1)
    return jnp.take_along_axis(others, jnp.argmin(distance, axis=1)[:, None], axis=1)[:, 0]
