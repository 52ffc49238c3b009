"""A residual multilayer perceptron with layer normalisation.

h₁ = W₀ x + b₀, then for each further hidden layer h ← h + silu(W LN(h) + b), then y = LN(h).

The blocks are those of "Deep residual learning" (He, Zhang, Ren and Sun, 2016) with "Layer normalization" (Ba,
Kiros and Hinton, 2016) before each linear map.
"""

import equinox as eqx
import jax

from scorefold.types import Array, Float, Key


class Block(eqx.Module):
    """h ← h + silu(W LN(h) + b)."""

    norm: eqx.nn.LayerNorm
    linear: eqx.nn.Linear

    def __init__(self, width: int, *, key: Key):
        self.norm = eqx.nn.LayerNorm(width)
        self.linear = eqx.nn.Linear(width, width, key=key)

    def __call__(self, h: Float[Array, "width"]) -> Float[Array, "width"]:
        return h + jax.nn.silu(self.linear(self.norm(h)))


class ResMLP(eqx.Module):
    """From `size_in` features to `width` features through `depth` hidden layers."""

    first: eqx.nn.Linear
    blocks: tuple[Block, ...]
    norm: eqx.nn.LayerNorm

    def __init__(self, size_in: int, width: int, depth: int, *, key: Key):
        keys = jax.random.split(key, depth + 1)
        self.first = eqx.nn.Linear(size_in, width, key=keys[0])
        self.blocks = tuple(Block(width, key=k) for k in keys[1:])
        self.norm = eqx.nn.LayerNorm(width)

    def __call__(self, x: Float[Array, "in"]) -> Float[Array, "width"]:
        h = self.first(x)
        for block in self.blocks:
            h = block(h)
        return self.norm(h)
