"""The damped rule for very many sets: a few of them a step, and the prior's pull released slowly.

With k sets, of which a random batch B of M is looked at,

    s = s_0 + d(t) [ Ŝ - k s_0 ],   Ŝ(u) = Σ_j s_j(c) + (k/M) Σ_{j ∈ B} [ s_j(u) - s_j(c) ],   d(t) = (M/k)^{1-γ_t}.

c is the nearest of a few anchors, the centres of the cloud's clusters, where all sets are summed: eight draws instead of a
thousand. Ŝ is unbiased, and its error is that of the batch's *differences*, which shrink with the cloud: without the anchors
the error of the sum would outweigh the noise of a Langevin step by k/M. All draws share the batch; as the anchors are means,
its error hardly moves the cloud as a whole. d = 1 at the end; at the noisiest level the sets count as M, and s is -u there.

Damping and mini-batches are due to "Compositional amortized inference for large-scale hierarchical Bayesian models" (Arruda
et al., 2025), who damp the prior with the rest; the anchors are the control variate of "Control variates for stochastic
gradient MCMC" (Baker, Fearnhead, Fox and Nemeth, 2019). With no more sets than a batch holds this is the diffused rule.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from scorefold import settings
from scorefold.compose.factorized import Diffused
from scorefold.compose.sets import SetScores
from scorefold.errors import ScorefoldError
from scorefold.noise import Level, Score
from scorefold.types import Array, Cloud, Count, Float, Int, Key, Scalar

CLUSTERING_STEPS = 2
LARGEST_BATCH = 100_000
MOST_ANCHORS = 64
"""No cloud has fewer draws than twice as many."""


@dataclass(frozen=True)
class Damped:
    """The sum of the sets' scores from a few of them at each step, for very many sets (after Arruda et al., 2025).

    Take it for a thousand sets or more, where it is the default, with the `SelfTuned` sampler: its time hardly grows with the
    number of sets, and with exact scores it is as right as `Diffused`, which it becomes for no more sets than a batch holds.
    Any prior will do. It does not go with samplers that reverse a diffusion, nor with `Metropolis`, as a part of the sets gives
    no density to compare.

    Args:
        batch: How many sets, drawn at random, are looked at in each step; more make steps slower and less noisy.
        anchors: At how many points all sets are summed in each step: the centres of clusters of the draws, around which the
            batch stands for the rest. More help with many modes.

    Raises:
        ScorefoldError: A setting is not a whole number, below 1, or larger than is of use.

    Example:
        >>> import scorefold as sf
        >>> sf.rules.Damped()
        Damped(batch=128, anchors=8)
        >>> sf.NPSE(rule=sf.rules.Damped(batch=256)).rule.batch
        256
        >>> sf.rules.Damped(batch=0)
        Traceback (most recent call last):
        scorefold.errors.ScorefoldError: expected batch of Damped to be at least 1; got 0
    """

    batch: int = 128
    anchors: int = 8
    reversible: ClassVar[bool] = False

    def __post_init__(self) -> None:
        settings.check(self, batch=1, anchors=1)
        if self.batch > LARGEST_BATCH or self.anchors > MOST_ANCHORS:
            raise ScorefoldError(f"expected batch up to {LARGEST_BATCH:,} and anchors up to {MOST_ANCHORS}; got {self}")

    def score(self, sets: SetScores) -> Score:
        """Compose the scores of these sets.

        Args:
            sets: The scores of the sets one by one, and of the prior.

        Returns:
            A function `score(u, level, key)` of a cloud of draws and a noise level, as every sampler takes it.
        """
        whole = Diffused().score(sets)
        if len(sets.group) <= self.batch:
            return whole

        def score(u: Cloud, level: Level, key: Key) -> Cloud:
            # The sets may be fewer than their padding; how many there are is known only at run time.
            return jax.lax.cond(sets.count <= self.batch, whole, batched, u, level, key)

        def batched(u: Cloud, level: Level, key: Key) -> Cloud:
            key_batch, key_anchors = jax.random.split(key)
            picked = sets.pick(jax.random.randint(key_batch, (self.batch,), 0, sets.count), jnp.asarray(self.batch))
            centres, nearest = anchors(u, self.anchors, key_anchors)
            both = picked.total(jnp.concatenate([u, centres]), level)
            moved = both[: len(u)] - both[len(u) :][nearest]
            summed = sets.total(centres, level)[nearest] + sets.count / self.batch * moved
            prior = sets.prior(u, level)
            damping = (self.batch / sets.count) ** level.noise
            return prior + damping * (summed - sets.count * prior)

        return score

    def reference_sd(self, sets: Count) -> float | Scalar:
        """The sd that a cloud starts with at the noisiest level: 1, as the composed score is that of N(0, I) there."""
        return 1.0


def anchors(u: Cloud, number: int, key: Key) -> tuple[Float[Array, "anchors dim"], Int[Array, " draws"]]:
    """Cluster the draws by a few steps of Lloyd's algorithm: `number` centres of the clusters, and the index of each draw's
    own.
    """
    scale = jnp.std(u, axis=0) + 1e-12

    def assign(centres: Array) -> Int[Array, " draws"]:
        distance = jnp.sum(((u[:, None] - centres) / scale) ** 2, axis=-1)
        return jnp.argmin(distance, axis=1)

    centres = u[jax.random.choice(key, len(u), (number,), replace=False)]
    for _ in range(CLUSTERING_STEPS):
        nearest = assign(centres)
        members = jax.nn.one_hot(nearest, number)
        counts = members.sum(axis=0)[:, None]
        centres = jnp.where(counts > 0, members.T @ u / jnp.maximum(counts, 1), centres)
    return centres, nearest  # of the last means, so that a draw's centre is the mean of its cluster
