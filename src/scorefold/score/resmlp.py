"""A residual multilayer perceptron with layer normalisation.

h₁ = W₀ x + b₀, then for each further hidden layer h ← h + silu(W LN(h) + b), then y = LN(h).

The blocks are those of "Deep residual learning" (He, Zhang, Ren and Sun, 2016) with "Layer normalization" (Ba,
Kiros and Hinton, 2016) before each linear map. The normalisation's scale and shift are taken into the linear map that follows,
W (a ∘ n + c) + b = (a ∘ W) n + (W c + b): they are applied once to the weights, not to every case.

`product` is x W with derivatives that are quick on a CPU too. The one by W sums over a batch, ∑_b x_b g_bᵀ = Xᵀ G. Left to
itself, XLA reads X down its columns there, which takes four times as long as turning X over first and multiplying then, as the
product itself does. So it is an operation of its own, with the plain product's value, precision and derivatives, in both modes;
`vmap` over x alone makes one matrix product of the batch.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

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
    """The perceptron: from `size_in` features to `width` features through `depth` hidden layers."""

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


def product(x: Float[Array, "*batch in"], weight: Float[Array, "in out"]) -> Float[Array, "*batch out"]:
    """x W, as precisely as `jax.default_matmul_precision` says where it is called."""
    return _bind(x, weight, jax.config.jax_default_matmul_precision)  # type: ignore[attr-defined]


_product = Primitive("product")


def _bind(x: Array, weight: Array, precision: str | None) -> Array:
    return _product.bind(x, weight, precision=precision)


def _plain(x: Array, weight: Array, *, precision: str | None) -> Array:
    return jnp.matmul(x, weight, precision=precision)


def _by_x(g: Array, x: Any, weight: Array, *, precision: str | None) -> Array:
    return _bind(g, weight.T, precision)


def _by_weight(g: Array, x: Array, weight: Any, *, precision: str | None) -> Array:
    if x.ndim == 1:
        return jnp.outer(x, g)
    turned = jax.lax.optimization_barrier(x.reshape(-1, x.shape[-1]).T)  # else XLA takes the turn into the product
    return jnp.matmul(turned, g.reshape(-1, g.shape[-1]), precision=precision)


def _batched(args: tuple[Array, Array], axes: tuple[int | None, int | None], *, precision: str | None) -> tuple[Array, int]:
    """Over x alone it stays one product; over both, or W, it is a batch of them."""
    (x, weight), (axis_x, axis_weight) = args, axes
    if axis_weight is None:
        assert axis_x is not None
        return _bind(jnp.moveaxis(x, axis_x, 0), weight, precision), 0
    return jax.vmap(partial(_plain, precision=precision), in_axes=axes)(x, weight), 0


_product.def_impl(jax.jit(_plain, static_argnames="precision"))
_product.def_abstract_eval(lambda x, weight, *, precision: x.update(shape=(*x.shape[:-1], weight.shape[1])))
mlir.register_lowering(_product, mlir.lower_fun(_plain, multiple_results=False))
ad.defbilinear(_product, _by_x, _by_weight)
batching.primitive_batchers[_product] = _batched
