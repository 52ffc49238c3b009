"""A residual multilayer perceptron with layer normalisation.

h₁ = W₀ x + b₀, then for each further hidden layer h ← h + silu(W LN(h) + b), then y = LN(h).

The blocks are those of "Deep residual learning" (He, Zhang, Ren and Sun, 2016) with "Layer normalization" (Ba,
Kiros and Hinton, 2016) before each linear map. The normalisation's scale and shift are taken into the linear map that follows,
W (a ∘ n + c) + b = (a ∘ W) n + (W c + b): they are applied once to the weights, not to every case.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from scorefold.score.product import product
from scorefold.types import Array, Float, Key

WIDEST = 16_384
DEEPEST = 64
"""What may be asked for; it also bounds what a file can ask for."""


class Linear(eqx.Module):
    """x ↦ x W + b, with W stored as (in, out): batched, this is one plain matrix product without a transpose."""

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"] | None

    def __init__(self, size_in: int, size_out: int, *, use_bias: bool = True, key: Key):
        limit = size_in**-0.5
        self.weight = jax.random.uniform(key, (size_in, size_out), minval=-limit, maxval=limit)
        self.bias = jnp.zeros(size_out) if use_bias else None

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """Apply."""
        y = product(x, self.weight)
        return y if self.bias is None else y + self.bias


def normal(h: Float[Array, " width"], eps: float) -> Float[Array, " width"]:
    """h with mean 0 and variance 1."""
    centred = h - jnp.mean(h)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2) + eps)


def after(norm: eqx.nn.LayerNorm, linear: Linear, h: Float[Array, " width"]) -> Float[Array, " out"]:
    """The linear map of the normalised h."""
    assert norm.weight is not None
    assert norm.bias is not None
    shift = norm.bias @ linear.weight
    return product(normal(h, norm.eps), norm.weight[:, None] * linear.weight) + (
        shift if linear.bias is None else shift + linear.bias
    )


class Block(eqx.Module):
    """h ← h + silu(W LN(h) + b)."""

    norm: eqx.nn.LayerNorm
    linear: Linear

    def __init__(self, width: int, *, key: Key):
        self.norm = eqx.nn.LayerNorm(width)
        self.linear = Linear(width, width, key=key)

    def __call__(self, h: Float[Array, " width"]) -> Float[Array, " width"]:
        """Apply."""
        return h + jax.nn.silu(after(self.norm, self.linear, h))


class ResMLP(eqx.Module):
    """From `size_in` features to `width` features through `depth` hidden layers."""

    first: Linear
    blocks: tuple[Block, ...]
    norm: eqx.nn.LayerNorm

    def __init__(self, size_in: int, width: int, depth: int, *, key: Key):
        keys = jax.random.split(key, depth + 1)
        self.first = Linear(size_in, width, key=keys[0])
        self.blocks = tuple(Block(width, key=k) for k in keys[1:])
        self.norm = eqx.nn.LayerNorm(width)

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " width"]:
        """Apply."""
        return self.norm(self.hidden(x))

    def then(self, linear: Linear, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """The linear map of the features."""
        return after(self.norm, linear, self.hidden(x))

    def hidden(self, x: Float[Array, " in"]) -> Float[Array, " width"]:
        """The features before the last normalisation."""
        h = self.first(x)
        for block in self.blocks:
            h = block(h)
        return h
