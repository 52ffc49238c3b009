"""The posterior of one set as a flow: q(u | x_1 … x_n) with n ≤ m.

A residual MLP embeds each observation; the mean over the set goes, with the one-hot set size, into a conditional flow, as in
appendix B of "Compositional score modeling for simulation-based inference" (Geffner, Papamakarios and Mnih, 2023). With the
Gaussian base u | X ≈ N(μ(X), R_s) of `gaussian_base.py` the flow is that of R_s^{-1/2} (u - μ(X)), so that it starts from a
fitted line. Where numbers may be missing, observations come with as many numbers that say which are, and the base is that of
each set (`masked_base.py`).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from scorefold.density.flow import ConditionalFlow
from scorefold.noise import CLEAN
from scorefold.score.embedding import Embedding, Trainable, build, joined, with_channels
from scorefold.score.gaussian_base import GaussianBase
from scorefold.score.masked_base import MaskedBase
from scorefold.score.resmlp import ResMLP
from scorefold.score.standardize import Standardize
from scorefold.train.rows import few_at_a_time
from scorefold.train.training_set import Cases, thinned
from scorefold.types import Array, Float, Int, Key, Observation, Scalar, Theta


class SetFlowShape(NamedTuple):
    """The sizes of the network."""

    dim: int
    x: int
    largest_set: int
    width: int
    depth: int
    layers: int
    kind: str
    observation: tuple[int, ...] = ()
    """The shape of one observation before it was made a vector, for the embedding."""
    embedding: Embedding | None = None
    missing: bool = False
    """Numbers of an observation may be missing: as many more say which are."""


class SetFlowNetwork(eqx.Module):
    """The embedding of an observation and the flow."""

    embedding: Trainable | None
    x_mlp: ResMLP
    flow: ConditionalFlow
    shape: SetFlowShape = eqx.field(static=True)

    def __init__(self, shape: SetFlowShape, *, key: Key):
        key_embedding, key_x, key_flow = jax.random.split(key, 3)
        seen = with_channels(shape.observation) if shape.missing else shape.observation
        module = None if shape.embedding is None else build(shape.embedding, seen, key_embedding)
        self.embedding = None if module is None else Trainable(module)
        features = shape.x * (2 if shape.missing else 1) if module is None else int(module(jnp.zeros(seen)).shape[0])
        self.x_mlp = ResMLP(features, shape.width, shape.depth, key=key_x)
        given = shape.width + shape.largest_set + shape.dim
        self.flow = ConditionalFlow(shape.dim, given, shape.width, shape.depth, shape.layers, shape.kind, key=key_flow)
        self.shape = shape

    def embed(self, x: Float[Array, "set x"], counts: Array) -> Float[Array, " width"]:
        """The mean embedding of the standardised observations that count."""

        def one(x: Observation) -> Float[Array, " width"]:
            return self.x_mlp(x if self.embedding is None else self.embedding(joined(x, self.shape.observation)))

        return jnp.sum(jnp.where(counts, jax.vmap(one)(x), 0.0), axis=0) / jnp.maximum(jnp.sum(counts), 1)


class Embedded(NamedTuple):
    """What the flow needs of a set."""

    given: Float[Array, " c"]
    mean: Theta
    size: Int[Array, ""]
    vectors: Float[Array, "dim dim"] | None = None
    variances: Theta | None = None
    """Of the covariance of the set's own base, where numbers may be missing."""


class SetFlow(eqx.Module):
    """Standardisation, Gaussian base and one network."""

    network: SetFlowNetwork
    standardize: Standardize
    base: GaussianBase | MaskedBase | None

    def embed(self, x: Float[Array, "set x"], size: Int[Array, ""]) -> Embedded:
        """Everything that depends on the set alone; the first `size` observations count."""
        x = jax.vmap(self.standardize)(x)
        counts = (jnp.arange(x.shape[0]) < size)[:, None]
        mean, vectors, variances = jnp.zeros(self.network.shape.dim), None, None
        if isinstance(self.base, MaskedBase):
            mean, vectors, variances = self.base.of(x, size)
        elif self.base is not None:
            mean = self.base.mean(jnp.sum(jnp.where(counts, x, 0.0), axis=0) / jnp.maximum(size, 1), size)
        one_hot = jax.nn.one_hot(size - 1, self.network.shape.largest_set)
        return Embedded(jnp.concatenate([self.network.embed(x, counts), one_hot, mean]), mean, size, vectors, variances)

    def log_density(self, u: Theta, embedded: Embedded) -> Scalar:
        """log q(u | X)."""
        if self.base is None:
            return self.network.flow.log_density(u, embedded.given)
        white = self._times(u - embedded.mean, -0.5, embedded)
        return self.network.flow.log_density(white, embedded.given) - self._log_volume(embedded)

    def draw(self, z: Theta, embedded: Embedded) -> Theta:
        """The draw that z ~ N(0, I) becomes."""
        u = self.network.flow.inverse(z, embedded.given)
        return u if self.base is None else embedded.mean + self._times(u, 0.5, embedded)

    def _times(self, v: Theta, power: float, embedded: Embedded) -> Theta:
        """R^power v."""
        if isinstance(self.base, GaussianBase):
            return self.base.times(v, power, CLEAN, embedded.size)
        assert embedded.vectors is not None
        assert embedded.variances is not None
        return embedded.vectors @ (embedded.variances**power * (v @ embedded.vectors))

    def _log_volume(self, embedded: Embedded) -> Scalar:
        """log |R| / 2."""
        if isinstance(self.base, GaussianBase):
            return self.base.log_volume(embedded.size)
        assert embedded.variances is not None
        return jnp.sum(jnp.log(embedded.variances)) / 2


Fixed = tuple[Standardize, GaussianBase | MaskedBase | None]
"""What training does not change."""


def set_flow_loss(network: SetFlowNetwork, fixed: Fixed, cases: Cases, key: Key) -> Scalar:
    """-log q(u | X), averaged over cases, half of them thinned."""
    return _mean_loss(network, fixed, cases, key, jax.vmap)


def set_flow_validation(network: SetFlowNetwork, fixed: Fixed, cases: Cases, key: Key) -> Scalar:
    """The same, in memory that does not grow with the number of cases."""
    return _mean_loss(network, fixed, cases, key, few_at_a_time)


def _mean_loss(network: SetFlowNetwork, fixed: Any, cases: Cases, key: Key, over: Any) -> Scalar:
    model, some = SetFlow(network, *fixed), thinned(cases, key, learns_prior=False)
    return -jnp.mean(over(lambda u, x, size: model.log_density(u, model.embed(x, size)))(some.u, some.x, some.sizes))
