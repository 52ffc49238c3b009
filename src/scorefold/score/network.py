"""The score of the diffused posterior of one set of observations, ∇ log p_t(u | X).

The network follows "Compositional score modeling for simulation-based inference" (Geffner, Papamakarios and Mnih,
2023), appendix B: a residual MLP embeds u, another embeds each observation (averaged over the set), and a third takes
both with a positional embedding of t ("Attention is all you need", Vaswani et al., 2017) and the one-hot set size.

What its output f means depends on the base:

- without one (the paper's network), f is the noise: score = -f / √(1-γ);
- with the Gaussian base N(√γ μ, Γ), Γ = γ R + (1-γ) I, it is what the base leaves over, in units in which that is of order
  one at every level: score = -Γ⁻¹ (u - √γ μ) + √γ Γ^{-1/2} f. It also sees z = Γ^{-1/2} (u - √γ μ).

The conservative form ("Should EBMs model the energy or the score?", Salimans and Ho, 2021) has a scalar output φ, and
the residual score is √γ ∇φ (with the base) or -∇φ / √(1-γ) (without).

Observations that are not vectors go through an embedding of their own first (`embedding.py`).

Where numbers of an observation may be missing (`Shape.missing`), it comes with as many that say which are; the base is then
one for every set, by its holes (`masked_base.py`).

Everything is written for one draw and one set. The join is a sum of linear maps, one for each input, so that for many draws
and sets the u part is needed once per draw, the X part once per set and the t part once per level (`ensemble.py`).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from scorefold.noise import Level
from scorefold.score.embedding import Embedding, Trainable, build, joined, with_channels
from scorefold.score.gaussian_base import GaussianBase
from scorefold.score.masked_base import MaskedBase
from scorefold.score.resmlp import Block, Linear, ResMLP, after
from scorefold.score.standardize import Standardize
from scorefold.types import Array, Float, Int, Key, Observation, Scalar, Theta


class Embedded(NamedTuple):
    """What the score needs of one set of observations, computed once for a whole run."""

    join: Float[Array, " width"]
    """The set's share of the join: embedded observations and set size."""
    mean: Float[Array, " dim"]
    """The Gaussian base's mean μ(X); zero without a base."""
    size: Int[Array, ""]
    vectors: Float[Array, "dim dim"] | None = None
    variances: Float[Array, " dim"] | None = None
    """Of the base's covariance, where every set has its own."""


class Shape(NamedTuple):
    """The sizes of a score network."""

    dim: int
    x: int
    largest_set: int
    width: int = 128
    depth: int = 3
    conservative: bool = False
    base: bool = True
    learns_prior: bool = False
    """The empty set's posterior, which is the prior, is learned too."""
    observation: tuple[int, ...] = ()
    """The shape of one observation before it was made a vector, for the embedding."""
    embedding: Embedding | None = None
    """What to do with an observation before the residual MLP sees it."""
    missing: bool = False
    """Numbers of an observation may be missing: as many more say which are."""


def positional(t: Scalar, width: int) -> Float[Array, " width"]:
    """Sines and cosines of t at wavelengths from 2π to 10,000·2π."""
    angles = t * jnp.exp(-jnp.log(1e4) * jnp.arange(width // 2) / (width // 2))
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)])


def residual_scale(level: Level, base: bool) -> Scalar:
    """What f is multiplied by: √γ with a base, -1/√(1-γ) without."""
    return jnp.sqrt(level.gamma) if base else -1 / jnp.sqrt(level.noise)


class ScoreNetwork(eqx.Module):
    """The trainable part: (u, z, t, X) ↦ f, or ↦ φ in the conservative form."""

    theta_mlp: ResMLP
    embedding: Trainable | None
    x_mlp: ResMLP
    from_theta: Linear
    from_z: Linear | None
    from_x: Linear
    from_t: Linear
    from_size: Linear
    blocks: tuple[Block, ...]
    norm: eqx.nn.LayerNorm
    out: Linear
    shape: Shape = eqx.field(static=True)

    def __init__(self, shape: Shape, *, key: Key):
        keys = iter(jax.random.split(key, 8 + shape.depth))
        features, self.embedding = shape.x * (2 if shape.missing else 1), None
        if shape.embedding is not None:
            seen = with_channels(shape.observation) if shape.missing else shape.observation
            module = build(shape.embedding, seen, jax.random.fold_in(key, 1))
            features = jax.eval_shape(module, jnp.zeros(seen)).shape[0]
            self.embedding = Trainable(module)
        width = shape.width
        self.shape = shape
        self.theta_mlp = ResMLP(shape.dim, width, shape.depth, key=next(keys))
        self.x_mlp = ResMLP(features, width, shape.depth, key=next(keys))
        self.from_theta = Linear(width, width, key=next(keys))
        self.from_z = Linear(shape.dim, width, use_bias=False, key=next(keys)) if shape.base else None
        self.from_x = Linear(width, width, use_bias=False, key=next(keys))
        self.from_t = Linear(width, width, use_bias=False, key=next(keys))
        self.from_size = Linear(shape.largest_set, width, use_bias=False, key=next(keys))
        self.blocks = tuple(Block(width, key=next(keys)) for _ in range(shape.depth - 1))
        self.norm = eqx.nn.LayerNorm(width)
        out = Linear(width, 1 if shape.conservative else shape.dim, key=next(keys))
        if shape.base:  # start at the base itself
            out = jax.tree.map(jnp.zeros_like, out)
        self.out = out

    def embed(self, x: Float[Array, "set x"], size: Int[Array, ""]) -> Float[Array, " width"]:
        """The set's share of the join, from standardised observations, of which the first `size` count."""

        def one(x: Observation) -> Float[Array, " width"]:
            return self.x_mlp(x if self.embedding is None else self.embedding(joined(x, self.shape.observation)))

        counts = (jnp.arange(x.shape[0]) < size)[:, None]
        pooled = jnp.sum(jnp.where(counts, jax.vmap(one)(x), 0.0), axis=0) / jnp.maximum(size, 1)
        one_hot = jax.nn.one_hot(size - 1, self.shape.largest_set)
        return self.from_x(pooled) + self.from_size(one_hot)

    def theta_part(self, theta: Theta, t: Scalar) -> Float[Array, " width"]:
        """The share of u and t in the join."""
        return self.theta_mlp.then(self.from_theta, theta) + self.from_t(positional(t, self.shape.width))

    def z_part(self, z: Theta) -> Float[Array, " width"]:
        """The share of z in the join; zero without a base."""
        return jnp.zeros(self.shape.width) if self.from_z is None else self.from_z(z)

    def head(self, join: Float[Array, " width"]) -> Float[Array, " out"]:
        """f (or φ), from the join."""
        h = jax.nn.silu(join)
        for block in self.blocks:
            h = block(h)
        return after(self.norm, self.out, h)


class ScoreModel(eqx.Module):
    """Standardisation, Gaussian base and one network: ∇ log p_t(u | X) for one draw and one set."""

    network: ScoreNetwork
    standardize: Standardize
    base: GaussianBase | MaskedBase | None

    def embed(self, x: Float[Array, "set x"], size: Int[Array, ""]) -> Embedded:
        """Everything that depends on the set alone."""
        x = jax.vmap(self.standardize)(x)
        if isinstance(self.base, MaskedBase):
            mean, vectors, variances = self.base.of(x, size)
            return Embedded(self.network.embed(x, size), mean, size, vectors, variances)
        if self.base is None:
            mean = jnp.zeros(self.network.shape.dim)
        else:
            counts = (jnp.arange(x.shape[0]) < size)[:, None]
            mean = self.base.mean(jnp.sum(jnp.where(counts, x, 0.0), axis=0) / jnp.maximum(size, 1), size)
        return Embedded(self.network.embed(x, size), mean, size)

    def base_score(self, theta: Theta, level: Level, embedded: Embedded) -> Theta:
        """The Gaussian base's score; zero without a base."""
        if self.base is None:
            return jnp.zeros_like(theta)
        return -self.times(theta - jnp.sqrt(level.gamma) * embedded.mean, -1.0, level, embedded)

    def times(self, v: Theta, power: float, level: Level, embedded: Embedded) -> Theta:
        """(γ R + (1-γ) I)^power v, with the covariance R of the base; v itself without one."""
        if self.base is None:
            return v
        if isinstance(self.base, GaussianBase):
            return self.base.times(v, power, level, embedded.size)
        assert embedded.vectors is not None
        assert embedded.variances is not None
        return embedded.vectors @ ((v @ embedded.vectors) * (level.gamma * embedded.variances + level.noise) ** power)

    def residual_score(self, theta: Theta, level: Level, embedded: Embedded) -> Theta:
        """What the network adds to the base (everything, without a base)."""

        def whiten(v: Theta) -> Theta:
            return self.times(v, -0.5, level, embedded)

        def output(theta: Theta) -> Array:
            z = whiten(theta - jnp.sqrt(level.gamma) * embedded.mean)
            return self.network.head(self.network.theta_part(theta, level.t) + self.network.z_part(z) + embedded.join)

        scale = residual_scale(level, self.base is not None)
        if self.network.shape.conservative:
            return scale * jax.grad(lambda theta: output(theta)[0])(theta)
        return scale * whiten(output(theta))

    def __call__(self, theta: Theta, level: Level, embedded: Embedded) -> Theta:
        """Base and residual together."""
        return self.base_score(theta, level, embedded) + self.residual_score(theta, level, embedded)
