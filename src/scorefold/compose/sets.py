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

from scorefold.noise import Level
from scorefold.types import Array, Cloud, Float, Int

Sums = TypeVar("Sums")


class Chunk(NamedTuple):
    """Some sets' scores at all draws."""

    score: Float[Array, "chunk draws dim"]
    jacobian: Float[Array, "chunk draws dim dim"] | None
    """∂ score[i] / ∂ u[k], where it was asked for"""
    real: Float[Array, "chunk"]
    """1 for a set, 0 for padding"""
    sets: Int[Array, "chunk"]
    """which ones"""


class SetScores(eqx.Module):
    """Sets of observations, padded; the first `count` are real."""

    count: eqx.AbstractVar[Int[Array, ""]]
    group: eqx.AbstractVar[Int[Array, "sets"]]
    """Which of the precisions belongs to a set."""
    precision: eqx.AbstractVar[Float[Array, "groups dim dim"] | None]
    """Inverse covariances of the sets' posteriors, where they are known."""

    @abstractmethod
    def prepare(self, u: Cloud, level: Level) -> Any:
        """What all sets share at these draws."""

    @abstractmethod
    def chunk(self, prepared: Any, level: Level, index: Int[Array, "chunk"]) -> Float[Array, "chunk draws dim"]:
        """The scores of the sets at `index`."""

    @abstractmethod
    def prior(self, u: Cloud, level: Level) -> Cloud:
        """The score of the diffused prior."""

    @abstractmethod
    def log_densities(self, u: Cloud, level: Level) -> Float[Array, "draws"]:
        """Σ_j log p_t(u | X_j) up to a constant, for scores that are gradients."""

    @abstractmethod
    def prior_log_density(self, u: Cloud, level: Level) -> Float[Array, "draws"]:
        """log p_t(u) up to a constant."""

    @abstractmethod
    def with_precision(self, precision: Float[Array, "sets dim dim"]) -> "SetScores":
        """The same sets, each with a precision of its own."""

    @abstractmethod
    def pick(self, index: Int[Array, "some"], count: Int[Array, ""]) -> "SetScores":
        """Only the sets at `index`, of which the first `count` are real."""

    @abstractmethod
    def at_once(self, draws: int) -> int:
        """Sets in a chunk."""

    def fold(
        self,
        u: Cloud,
        level: Level,
        add: Callable[[Chunk], Sums],
        jacobian: bool = False,
    ) -> Sums:
        """Σ over chunks of add(chunk)."""
        prepared, push = jax.linearize(lambda u: self.prepare(u, level), u) if jacobian else (self.prepare(u, level), None)

        def one(index: Int[Array, "chunk"], real: Float[Array, "chunk"]) -> Sums:
            if push is None:
                return add(Chunk(self.chunk(prepared, level, index), None, real, index))
            score, push_chunk = jax.linearize(lambda p: self.chunk(p, level, index), prepared)

            def column(axis: Float[Array, "dim"]) -> Float[Array, "chunk draws dim"]:
                return push_chunk(push(jnp.broadcast_to(axis, u.shape)))

            columns = jax.lax.map(column, jnp.eye(u.shape[1]))
            return add(Chunk(score, jnp.moveaxis(columns, 0, -1), real, index))

        return self.over_chunks(len(u), one)

    def over_chunks(self, draws: int, add: Callable[[Int[Array, "chunk"], Float[Array, "chunk"]], Sums]) -> Sums:
        """Σ of add(which sets, 1 for a set and 0 for padding), over as many chunks as the sets need."""
        room = len(self.group)
        length = -(-room // -(-room // self.at_once(draws)))  # chunks of one size, so that the last is as full as the others

        def one(start: Int[Array, ""]) -> Sums:
            index = start + jnp.arange(length)
            return add(index, (index < self.count).astype(jnp.float32))

        zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(one, jnp.zeros((), int)))
        chunks = (self.count + length - 1) // length
        return jax.lax.fori_loop(0, chunks, lambda i, sums: jax.tree.map(jnp.add, sums, one(i * length)), zero)

    def total(self, u: Cloud, level: Level) -> Cloud:
        """Σ_j s_j(u)."""
        return self.fold(u, level, lambda chunk: jnp.einsum("j,jnd->nd", chunk.real, chunk.score))
