"""The trained score of any number of sets: base, mean of the members' residuals, control; summed over the sets.

The sum runs over chunks of sets with a trip count known only at run time, so memory does not grow with the number of
observations and a new number does not recompile. Sets are padded to a few bucket sizes.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.networks.control import Control
from scorefold.networks.gaussian_base import GaussianBase
from scorefold.networks.score import Embedded, ScoreModel, ScoreNetwork
from scorefold.networks.standardize import Standardize
from scorefold.noise import Level
from scorefold.types import Array, Cloud, Float, Int

CHUNK = 8


class Sets(eqx.Module):
    """Embedded sets, padded; the first `count` are real."""

    join: Float[Array, "members sets width"]
    mean: Float[Array, "sets dim"]
    size: Int[Array, "sets"]
    count: Int[Array, ""]


class ScoreEnsemble(eqx.Module):
    """Networks trained on the same cases; `network` has a leading member axis on every array."""

    network: ScoreNetwork
    standardize: Standardize
    base: GaussianBase | None
    control: Control | None

    def member(self, network: ScoreNetwork) -> ScoreModel:
        """One member as a model of its own."""
        return ScoreModel(network, self.standardize, self.base)

    def embed(self, x: Float[Array, "sets set x"], sizes: Int[Array, "sets"], count: Int[Array, ""]) -> Sets:
        """Everything that depends on the observations alone, chunk by chunk."""

        def one(network: ScoreNetwork, x: Array, size: Array) -> Embedded:
            return self.member(network).embed(x, size)

        def chunk(part: tuple[Array, Array]) -> Embedded:
            over_sets = jax.vmap(one, in_axes=(None, 0, 0))
            return jax.vmap(over_sets, in_axes=(0, None, None))(self.network, *part)

        length = min(CHUNK, len(sizes))
        parts = jax.tree.map(lambda v: v.reshape(-1, length, *v.shape[1:]), (x, sizes))
        embedded = jax.lax.map(chunk, parts)  # (chunks, members, length, …)
        embedded = jax.tree.map(lambda v: jnp.moveaxis(v, 1, 0).reshape(v.shape[1], len(sizes), *v.shape[3:]), embedded)
        return Sets(embedded.join, embedded.mean[0], sizes, count)

    def total(self, sets: Sets) -> Callable[[Cloud, Level], Cloud]:
        """Σ_j s(u, t, X_j) over the real sets, as a function of the cloud and the level."""
        length = min(CHUNK, len(sets.size))

        def part(u: Cloud, level: Level, start: Array) -> Cloud:
            def cut(v: Array, axis: int = 0) -> Array:
                return jax.lax.dynamic_slice_in_dim(v, start, length, axis)

            mean, size = cut(sets.mean), cut(sets.size)
            real = (start + jnp.arange(length) < sets.count)[:, None]

            def base(u: Array) -> Array:
                each = jax.vmap(lambda m, s: self._any().base_score(u, level, Embedded(m, m, s)))(mean, size)
                return jnp.sum(jnp.where(real, each, 0.0), axis=0)

            def residual(network: ScoreNetwork, join: Array) -> Cloud:
                def of_draw(u: Array) -> Array:
                    each = jax.vmap(
                        lambda j, m, s: self.member(network).residual_score(u, level, Embedded(j, m, s))
                    )(join, mean, size)
                    return jnp.sum(jnp.where(real, each, 0.0), axis=0)

                return jax.vmap(of_draw)(u)

            members = jax.vmap(residual)(self.network, cut(sets.join, 1))
            gate = 1.0 if self.control is None else self.control.gate_at(level.t)
            return jax.vmap(base)(u) + gate * jnp.mean(members, axis=0)

        def total(u: Cloud, level: Level) -> Cloud:
            chunks = (sets.count + length - 1) // length
            summed = jax.lax.fori_loop(0, chunks, lambda i, s: s + part(u, level, i * length), jnp.zeros_like(u))
            if self.control is not None:
                summed = summed - sets.count * self.control.mean_at(u, level.t)
            return summed

        return total

    def _any(self) -> ScoreModel:
        return self.member(self.network)


def bucket(sets: int) -> int:
    """The padded number of sets: 1, 2, 4, then powers of two."""
    return 1 << int(np.ceil(np.log2(sets))) if sets > 1 else 1
