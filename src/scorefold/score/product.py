"""x W for vectors x and a matrix W, so that its derivatives are quick on a CPU too.

The derivative by W sums over a batch, ∑_b x_b g_bᵀ = Xᵀ G. Left to itself, XLA reads X down its columns there, which takes four
times as long as turning X over first and multiplying then, as the product itself does. So this is an operation of its own with
the plain product's value, precision and derivatives, in both modes. `vmap` over x alone makes one matrix product of the batch.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from scorefold.types import Array, Float


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
