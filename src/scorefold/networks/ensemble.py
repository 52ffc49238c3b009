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
from scorefold.networks.score import Embedded, ScoreModel, ScoreNetwork, residual_scale
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
        of_size = jax.nn.one_hot(self._index(sets.size), self._sizes) * (jnp.arange(len(sets.size)) < sets.count)[:, None]

        def total(u: Cloud, level: Level) -> Cloud:
            gate = 1.0 if self.control is None else self.control.gate_at(level.t)
            # One member after the other: on a CPU a batch of small matrix products is slower than a loop of them.
            members = jax.lax.map(lambda m: self._residuals(m[0], m[1], sets, of_size, u, level), (self.network, sets.join))
            summed = self._bases(sets, of_size, u, level) + gate * jnp.mean(members, axis=0)
            return summed if self.control is None else summed - sets.count * self.control.mean_at(u, level.t)

        return total

    @property
    def _sizes(self) -> int:
        return 1 if self.base is None else self.base.weight.shape[0]

    def _index(self, size: Int[Array, "sets"]) -> Int[Array, "sets"]:
        """Which of the base's fits belongs to a set; without a base all sets are alike."""
        return jnp.minimum(size, self._sizes) - 1

    def _times(self, v: Float[Array, "sizes rows dim"], power: float, level: Level) -> Float[Array, "sizes rows dim"]:
        """The base's covariance to a power, times vectors, for every set size."""
        if self.base is None:
            return v
        rows = jax.vmap(self.base.times, in_axes=(0, None, None, None))
        return jax.vmap(rows, in_axes=(0, None, None, 0))(v, power, level.gamma, jnp.arange(1, self._sizes + 1))

    def _bases(self, sets: Sets, of_size: Float[Array, "sets sizes"], u: Cloud, level: Level) -> Cloud:
        """Σ_j of the Gaussian bases' scores: linear in u, so its cost does not depend on the number of sets."""
        if self.base is None:
            return jnp.zeros_like(u)
        pulls = jnp.sqrt(level.gamma) * of_size.T @ sets.mean  # (sizes, dim)
        off = pulls[:, None] - of_size.sum(axis=0)[:, None, None] * u
        return jnp.sum(self._times(off, -1.0, level), axis=0)

    def _residuals(
        self,
        network: ScoreNetwork,
        join: Float[Array, "sets width"],
        sets: Sets,
        of_size: Array,
        u: Cloud,
        level: Level,
    ) -> Cloud:
        """Σ_j of one member's residual scores, chunk by chunk."""
        length, sizes = min(CHUNK, len(sets.size)), self._sizes
        z_parts = jax.vmap(jax.vmap(network.z_part))

        def theta_parts(u: Cloud) -> Float[Array, "sizes draws width"]:
            z = self._times(jnp.broadcast_to(u, (sizes, *u.shape)), -0.5, level)
            return jax.vmap(network.theta_part, in_axes=(0, None))(u, level.t) + z_parts(z)

        def outputs(parts: Array, start: Array) -> Float[Array, "sizes draws out"]:
            join_c, mean, size, of_size_c = (
                jax.lax.dynamic_slice_in_dim(v, start, length) for v in (join, sets.mean, sets.size, of_size)
            )
            index = self._index(size)
            z = self._times(jnp.broadcast_to(jnp.sqrt(level.gamma) * mean, (sizes, *mean.shape)), -0.5, level)
            own = join_c - z_parts(z)[index, jnp.arange(length)]
            pairs = parts[index] + own[:, None]
            out = jax.vmap(network.head)(pairs.reshape(-1, pairs.shape[-1]))
            return jnp.einsum("js,jno->sno", of_size_c, out.reshape(length, len(u), -1))

        def chunk(start: Array, parts: Array) -> Cloud:
            if network.shape.conservative:
                return jax.grad(lambda u: jnp.sum(outputs(theta_parts(u), start)))(u)
            return jnp.sum(self._times(outputs(parts, start), -0.5, level), axis=0)

        def body(index: Array, carry: tuple[Cloud, Array]) -> tuple[Cloud, Array]:
            summed, parts = carry
            return summed + chunk(index * length, parts), parts

        chunks = (sets.count + length - 1) // length
        summed, _ = jax.lax.fori_loop(0, chunks, body, (jnp.zeros_like(u), theta_parts(u)))
        return residual_scale(level, self.base is not None) * summed


def bucket(sets: int) -> int:
    """The padded number of sets: 1, 2, 4, then powers of two."""
    return 1 << int(np.ceil(np.log2(sets))) if sets > 1 else 1
