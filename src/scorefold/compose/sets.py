"""The scores of many sets of observations, a few sets at a time.

A composition rule needs the sets' scores s_j(u, t), weighs and sums them. Draws × sets of them need not fit in memory and the
number of sets is known only at run time, so a rule says what to add up for a chunk of sets, and `fold` runs over the chunks.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.noise import Level
from scorefold.types import Array, Cloud, Float, Int

Sums = TypeVar("Sums")


def sizes_of_sets(n: int, set_size: int) -> np.ndarray:
    """How n observations are cut into as few sets as can be, of nearly equal sizes.

    Args:
        n: Observations.
        set_size: m, the most of them in one set.

    Returns:
        The sizes of the k = ⌈n/m⌉ sets, the larger ones first.

    Example:
        >>> sizes_of_sets(8, 3).tolist()
        [3, 3, 2]
    """
    sets = -(-n // set_size)
    return np.full(sets, n // sets) + (np.arange(sets) < n % sets)


class Chunk(NamedTuple):
    """The scores of some of the sets at all draws, as `SetScores.fold` hands them to a rule to be weighed and summed."""

    score: Float[Array, "chunk draws dim"]
    jacobian: Float[Array, "chunk draws dim dim"] | None
    """∂ score[i] / ∂ u[k], where it was asked for"""
    real: Float[Array, " chunk"]
    """1 for a set, 0 for padding"""
    sets: Int[Array, " chunk"]
    """which ones"""


class SetScores(eqx.Module):
    """The scores of sets of observations one by one, and the prior's: what a rule composes.

    The sets are padded to a size that compiled programs share; the first `count` are real. Networks implement it, and so do
    tasks whose exact scores are known (`tasks.exact.exact_sets`). A subclass says how the scores of some sets are computed, and
    `fold` adds up over all of them what a rule makes of these.
    """

    count: eqx.AbstractVar[Int[Array, ""]]
    group: eqx.AbstractVar[Int[Array, " sets"]]
    """Which of the precisions belongs to a set."""
    precision: eqx.AbstractVar[Float[Array, "groups dim dim"] | None]
    """Inverse covariances of the sets' posteriors, where they are known."""

    @abstractmethod
    def prepare(self, u: Cloud, level: Level) -> Any:
        """Compute once, for these draws and this level, what the scores of all sets share; `chunk` gets it."""

    @abstractmethod
    def chunk(self, prepared: Any, level: Level, index: Int[Array, " chunk"]) -> Float[Array, "chunk draws dim"]:
        """The scores of the sets at `index`, at all draws, from what `prepare` computed for them."""

    @abstractmethod
    def prior(self, u: Cloud, level: Level) -> Cloud:
        """The score of the diffused prior at the draws; -u for a prior that is N(0, I), whatever the level."""

    @abstractmethod
    def log_densities(self, u: Cloud, level: Level) -> Float[Array, " draws"]:
        """Σ_j log p_t(u | X_j) at every draw, up to a constant; only where the sets' scores are gradients."""

    @abstractmethod
    def prior_log_density(self, u: Cloud, level: Level) -> Float[Array, " draws"]:
        """log p_t(u), the log density of the diffused prior at every draw, up to a constant."""

    @abstractmethod
    def with_precision(self, precision: Float[Array, "sets dim dim"]) -> "SetScores":
        """The same sets, each with its own inverse covariance in place of a shared one, as `Gauss` needs after its pilots."""

    @abstractmethod
    def pick(self, index: Int[Array, " some"], count: Int[Array, ""]) -> "SetScores":
        """Only the sets at `index`, in this order, of which the first `count` are real and the rest padding."""

    @abstractmethod
    def at_once(self, draws: int) -> int:
        """How many sets to take in one chunk so that their scores at so many draws fit in memory."""

    def fold(
        self,
        u: Cloud,
        level: Level,
        add: Callable[[Chunk], Sums],
        jacobian: bool = False,
    ) -> Sums:
        """Sum over all sets, a chunk of them at a time.

        Args:
            u: The draws.
            level: The noise level.
            add: What to sum: a function of a `Chunk` that returns arrays, in which padding is to count for nothing
                (`chunk.real`).
            jacobian: Whether chunks hold the derivatives of the scores too; off by default, as these are costly.

        Returns:
            The sums, of the form that `add` returns.
        """
        prepared, push = jax.linearize(lambda u: self.prepare(u, level), u) if jacobian else (self.prepare(u, level), None)

        def one(index: Int[Array, " chunk"], real: Float[Array, " chunk"]) -> Sums:
            if push is None:
                return add(Chunk(self.chunk(prepared, level, index), None, real, index))
            score, push_chunk = jax.linearize(lambda p: self.chunk(p, level, index), prepared)

            def column(axis: Float[Array, " dim"]) -> Float[Array, "chunk draws dim"]:
                return push_chunk(push(jnp.broadcast_to(axis, u.shape)))

            columns = jax.lax.map(column, jnp.eye(u.shape[1]))
            return add(Chunk(score, jnp.moveaxis(columns, 0, -1), real, index))

        return self.over_chunks(len(u), one)

    def over_chunks(self, draws: int, add: Callable[[Int[Array, " chunk"], Float[Array, " chunk"]], Sums]) -> Sums:
        """Add up over all sets what `add` makes of a chunk of them, so that memory does not grow with the number of sets. It is
        told which sets are in the chunk and which of them are padding.
        """
        room = len(self.group)
        length = -(-room // -(-room // self.at_once(draws)))  # chunks of one size, so that the last is as full as the others

        def one(start: Int[Array, ""]) -> Sums:
            index = start + jnp.arange(length)
            return add(index, (index < self.count).astype(jnp.float32))

        zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(one, jnp.zeros((), int)))
        chunks = (self.count + length - 1) // length
        return jax.lax.fori_loop(0, chunks, lambda i, sums: jax.tree.map(jnp.add, sums, one(i * length)), zero)

    def total(self, u: Cloud, level: Level) -> Cloud:
        """The sum of all sets' scores at the draws: what a rule starts from that weighs all sets alike."""
        return self.fold(u, level, lambda chunk: jnp.einsum("j,jnd->nd", chunk.real, chunk.score))
