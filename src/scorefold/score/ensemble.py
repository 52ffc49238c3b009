"""The trained score of any number of sets: base, mean of the members' residuals, correction.

Sets are padded to a few bucket sizes and their scores computed a chunk at a time (`sets.py`), so that memory does not grow
with the number of observations and a new number does not recompile. A partition has sets of one or two sizes only; what
depends on the size is computed for those.
"""

from dataclasses import replace
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp

from scorefold.compose.sets import SetScores
from scorefold.noise import CLEAN, Level
from scorefold.score import gaussian_base, masked_base, standardize
from scorefold.score.correction import Correction
from scorefold.score.gaussian_base import GaussianBase
from scorefold.score.local_mean import LocalMean
from scorefold.score.masked_base import MaskedBase
from scorefold.score.network import Embedded, ScoreModel, ScoreNetwork, Shape, residual_scale
from scorefold.score.standardize import Standardize
from scorefold.types import Array, Cloud, Float, Int

SETS_EMBEDDED_TOGETHER = 8
DRAWS_TIMES_SETS, DRAWS_TIMES_SETS_ON_ACCELERATORS = 8 * 1024, 32 * 1024
"""Draws × sets computed together."""


class ScoreEnsemble(eqx.Module):
    """Networks trained on the same cases, with all that turns their output into scores: what `NPSE` trains and a posterior
    keeps. `embed` gives the sets' scores that a rule composes.

    Every array of `network` has a leading member axis; a score is the mean over members.
    """

    network: ScoreNetwork
    standardize: Standardize
    base: GaussianBase | MaskedBase | None
    correction: Correction | None
    local: LocalMean | None = None
    """What simulations around one data set's draws say besides."""

    def member(self, network: ScoreNetwork) -> ScoreModel:
        """One member as a model of its own."""
        return ScoreModel(network, self.standardize, self.base)

    def embed(self, x: Float[Array, "sets set x"], sizes: Int[Array, " sets"], count: Int[Array, ""]) -> "EnsembleSets":
        """Compute everything that depends on the observations alone, once for a whole run.

        Args:
            x: (sets, set, x), observations as they are, padded.
            sizes: (sets,), how many of each set count: s or s + 1 for some s.
            count: How many of the sets are real; the others are padding.

        Returns:
            The sets' scores, as a rule takes them.
        """

        def one(network: ScoreNetwork, x: Array, size: Array) -> Embedded:
            return self.member(network).embed(x, size)

        def chunk(part: tuple[Array, Array]) -> Embedded:
            over_sets = jax.vmap(one, in_axes=(None, 0, 0))
            return jax.vmap(over_sets, in_axes=(0, None, None))(self.network, *part)

        length = min(SETS_EMBEDDED_TOGETHER, len(sizes))
        parts = jax.tree.map(lambda v: v.reshape(-1, length, *v.shape[1:]), (x, sizes))
        embedded = jax.lax.map(chunk, parts)  # (chunks, members, length, …)
        embedded = jax.tree.map(lambda v: jnp.moveaxis(v, 1, 0).reshape(v.shape[1], len(sizes), *v.shape[3:]), embedded)
        largest = self.network.shape.largest_set
        smallest = jnp.min(sizes)
        present = jnp.minimum(smallest + jnp.arange(min(largest, 2)), largest)
        base = self.base
        which = group = sizes - smallest
        precision = vectors = variances = None
        if isinstance(base, GaussianBase):
            precision = jax.vmap(lambda size: base.matrix(-1.0, CLEAN, size))(present)
        elif base is not None:
            assert embedded.vectors is not None
            assert embedded.variances is not None
            vectors, variances, group = embedded.vectors[0], embedded.variances[0], jnp.arange(len(sizes))
            precision = jnp.einsum("jde,je,jfe->jdf", vectors, 1 / variances, vectors)
        return EnsembleSets(
            ensemble=self,
            join=embedded.join,
            mean=embedded.mean[0],
            sizes=present,
            which=which,
            count=count,
            precision=precision,
            group=group,
            empty=self._empty() if self.network.shape.learns_prior else None,
            vectors=vectors,
            variances=variances,
        )

    def _empty(self) -> "EnsembleSets":
        """One set without observations, as a set like any other: its posterior is the prior."""
        shape = self.network.shape
        join = jax.vmap(lambda network: network.embed(jnp.zeros((1, shape.x)), jnp.zeros((), int)))(self.network)
        zero = jnp.zeros(1, int)
        return EnsembleSets(
            ensemble=ScoreEnsemble(self.network, self.standardize, self.base, None),
            join=join[:, None],
            mean=jnp.zeros((1, shape.dim)),
            sizes=zero,
            which=zero,
            count=jnp.ones((), int),
            precision=None,
            group=zero,
            empty=None,
        )


class EnsembleSets(SetScores):
    """Embedded sets, padded; the first `count` are real."""

    ensemble: ScoreEnsemble
    join: Float[Array, "members sets width"]
    mean: Float[Array, "sets dim"]
    sizes: Int[Array, " sizes"]
    """The one or two sizes that there are."""
    which: Int[Array, " sets"]
    """Which of them a set has."""
    count: Int[Array, ""]
    precision: Float[Array, "groups dim dim"] | None
    group: Int[Array, " sets"]
    empty: "EnsembleSets | None"
    """The empty set, where the prior is learned."""
    vectors: Float[Array, "sets dim dim"] | None = None
    variances: Float[Array, "sets dim"] | None = None
    """Of the covariance of each set's own base, where numbers may be missing."""
    turns: bool = eqx.field(static=True, default=False)
    """Above the lowest level members take turns: each chunk is left to one of them, at every level to the next."""

    def taking_turns(self) -> "EnsembleSets":
        """The same sets for a sampler whose draws forget at the lowest level how they came there.

        Until then a sum over sets each of which one member scores will do, at a fraction of the cost. The members' errors that
        all sets have in common nearly cancel in it as they do in the mean.
        """
        return self if self.ensemble.network.shape.conservative else replace(self, turns=True)

    def at_once(self, draws: int) -> int:
        """Sets in a chunk."""
        together = DRAWS_TIMES_SETS if jax.default_backend() == "cpu" else DRAWS_TIMES_SETS_ON_ACCELERATORS
        return max(1, together // draws)

    def with_precision(self, precision: Float[Array, "sets dim dim"]) -> "EnsembleSets":
        """The same sets, each with a precision of its own."""
        return replace(self, precision=precision, group=jnp.arange(len(self.which)))

    def pick(self, index: Int[Array, " some"], count: Int[Array, ""]) -> "EnsembleSets":
        """Only the sets at `index`."""
        return replace(
            self,
            join=self.join[:, index],
            mean=self.mean[index],
            which=self.which[index],
            count=count,
            group=self.group[index],
            vectors=None if self.vectors is None else self.vectors[index],
            variances=None if self.variances is None else self.variances[index],
        )

    def prior(self, u: Cloud, level: Level) -> Cloud:
        """The score of the diffused prior: -u, or learned with the empty set."""
        return -u if self.empty is None else self.empty.total(u, level)

    def prepare(self, u: Cloud, level: Level) -> tuple[Cloud, Float[Array, "members sizes draws width"]]:
        """The draws, and their share of every member's join."""

        def parts(network: ScoreNetwork) -> Float[Array, "sizes draws width"]:
            own = jax.vmap(network.theta_part, in_axes=(0, None))(u, level.t)
            return own[None] if z is None else own + jax.vmap(jax.vmap(network.z_part))(z)

        # Where every set has a covariance of its own, z is left to the chunks.
        z = None if self.vectors is not None else jnp.einsum("nd,sde->sne", u, self._matrices(-0.5, level))
        # One member after the other: on a CPU a batch of small matrix products is slower than a loop of them.
        return u, jax.lax.map(parts, self.ensemble.network)

    def chunk(
        self, prepared: tuple[Cloud, Float[Array, "members sizes draws width"]], level: Level, index: Int[Array, " chunk"]
    ) -> Float[Array, "chunk draws dim"]:
        """The scores of the sets at `index`."""
        u, _ = prepared
        ensemble, which, mean = self.ensemble, self.which[index], self.mean[index]
        if ensemble.network.shape.conservative:

            def potential(u: Cloud, one: Int[Array, ""]) -> Array:
                return jnp.sum(self._outputs(self.prepare(u, level), level, one[None]))

            residual = jax.vmap(jax.grad(potential), in_axes=(None, 0))(u, index)
        else:
            residual = self._outputs(prepared, level, index)
            if ensemble.base is not None:
                residual = jnp.einsum("jnd,jde->jne", residual, self._of_sets(-0.5, level, index))
        score = residual_scale(level, ensemble.base is not None) * self._gate(level) * residual
        if ensemble.base is not None:
            off = jnp.sqrt(level.gamma) * mean[:, None] - u
            score = score + jnp.einsum("jnd,jde->jne", off, self._of_sets(-1.0, level, index))
        if ensemble.correction is not None:
            score = score - ensemble.correction.mean_at(u, level.t)
        if ensemble.local is not None:
            score = ensemble.local.corrected(score, self.prior(u, level), u, level, self.sizes[which])
        return score

    def log_densities(self, u: Cloud, level: Level) -> Float[Array, " draws"]:
        """Σ_j of the conservative networks' energies."""
        prepared, ensemble = self.prepare(u, level), self.ensemble
        scale = residual_scale(level, ensemble.base is not None) * self._gate(level)

        def add(index: Int[Array, " chunk"], real: Float[Array, " chunk"]) -> Float[Array, " draws"]:
            each = scale * self._outputs(prepared, level, index)[..., 0]
            if ensemble.base is not None:
                off = jnp.sqrt(level.gamma) * self.mean[index][:, None] - u
                each -= jnp.einsum("jnd,jde,jne->jn", off, self._of_sets(-1.0, level, index), off) / 2
            return real @ each

        summed = self.over_chunks(len(u), add)
        return summed if ensemble.correction is None else summed - self.count * ensemble.correction.potential_at(u, level.t)

    def prior_log_density(self, u: Cloud, level: Level) -> Float[Array, " draws"]:
        """log p_t(u)."""
        return -jnp.sum(u**2, axis=1) / 2 if self.empty is None else self.empty.log_densities(u, level)

    def _gate(self, level: Level) -> float | Array:
        correction = self.ensemble.correction
        return 1.0 if correction is None else correction.gate_at(level.t)

    def _matrices(self, power: float, level: Level) -> Float[Array, "sizes dim dim"]:
        """The base's diffused covariance to a power, for the sizes there are."""
        base = self.ensemble.base
        if base is None:
            return jnp.broadcast_to(jnp.eye(self.mean.shape[1]), (len(self.sizes), *2 * self.mean.shape[1:]))
        return jax.vmap(lambda size: base.matrix(power, level, size))(self.sizes)

    def _of_sets(self, power: float, level: Level, index: Int[Array, " chunk"]) -> Float[Array, "chunk dim dim"]:
        """The power of the covariance of the sets at `index`, each by its size or by its own."""
        if self.vectors is None or self.variances is None:
            return self._matrices(power, level)[self.which[index]]
        vectors, spread = self.vectors[index], level.gamma * self.variances[index] + level.noise
        return jnp.einsum("jde,je,jfe->jdf", vectors, spread**power, vectors)

    def _outputs(
        self, prepared: tuple[Cloud, Float[Array, "members sizes draws width"]], level: Level, index: Int[Array, " chunk"]
    ) -> Float[Array, "chunk draws out"]:
        """The members' mean f (or φ) for the sets at `index`."""
        u, parts = prepared
        which, whiten = self.which[index], self._of_sets(-0.5, level, index)
        z = jnp.einsum("jd,jde->je", jnp.sqrt(level.gamma) * self.mean[index], whiten)
        own_z = None if self.vectors is None else jnp.einsum("nd,jde->jne", u, whiten)

        def one(member: tuple[ScoreNetwork, Array, Array]) -> Float[Array, "chunk draws out"]:
            network, parts, join = member
            own = join[index] - jax.vmap(network.z_part)(z)
            pairs = own[:, None] + (parts[which] if own_z is None else parts + jax.vmap(jax.vmap(network.z_part))(own_z))
            out = jax.vmap(network.head)(pairs.reshape(-1, pairs.shape[-1]))
            return out.reshape(*pairs.shape[:2], -1)

        stacked, members = (self.ensemble.network, parts, self.join), len(self.join)
        if not self.turns:
            return jnp.mean(jax.lax.map(one, stacked), axis=0)
        asked = jnp.where(level.t > 1, 1, members)
        first = index[0] // len(index) + level.t.astype(int)

        def add(turn: Int[Array, ""], total: Array) -> Array:
            return total + one(jax.tree.map(lambda v: v[(first + turn) % members], stacked))

        zero = jnp.zeros((len(index), len(u), self.ensemble.network.out.weight.shape[-1]))
        return jax.lax.fori_loop(0, asked, add, zero) / asked


@lru_cache(maxsize=8)
def skeleton(shape: Shape, members: int, knots: int | None) -> ScoreEnsemble:
    """An ensemble of these sizes with shapes and types in place of its arrays; nothing is allocated."""
    dim, x = shape.dim, shape.x

    def make(key: Array) -> ScoreEnsemble:
        network = jax.vmap(lambda k: ScoreNetwork(shape, key=k))(jax.random.split(key, members))
        base: GaussianBase | MaskedBase | None = None
        correction = None
        if shape.base:
            known = 0 if shape.learns_prior else 1
            base = masked_base.blank(x, dim) if shape.missing else gaussian_base.blank(x, dim, shape.largest_set, known)
        if knots is not None:
            table = jnp.zeros((knots, dim)), jnp.zeros((knots, dim, dim))
            correction = Correction(jnp.zeros(knots), jnp.zeros(knots), *table)
        return ScoreEnsemble(network, standardize.blank(x, shape.missing), base, correction)

    return eqx.filter_eval_shape(make, jax.random.key(0))


def fewest_numbers(shape: Shape, members: int) -> int:
    """A lower bound of how many numbers such an ensemble has, by arithmetic alone."""
    mlps = (3 * shape.depth + 2) * shape.width**2 + (shape.dim + shape.largest_set) * shape.width
    base = shape.largest_set * shape.dim * (shape.x + shape.dim) if shape.base else 0
    return members * mlps + base + 2 * shape.x
