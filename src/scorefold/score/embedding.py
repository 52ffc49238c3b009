"""Embeddings: from one observation that is not a vector (a series, an image) to one that is.

An embedding is a builder (shape, key) ↦ module; the module maps one standardised observation of that shape to a vector and is
trained with the score network. Two are here, and a function of the user's may take their place.

Convolution. h⁰ = x, hˡ = silu(Wˡ * hˡ⁻¹ + bˡ) with stride 2, for series (one axis) or images (two), and

    y = W [mean h¹, …, mean hᴸ, cells of hᴸ] + b.

Averages over all positions are what stationary noise has to say (its variance, its correlation at the scale of each layer);
the last layer's averages over a few cells, kept apart, say where and when something happened.

Attention. Tokens along the first axis, h⁰ = W x + p with p sines and cosines of the position, then for each layer

    h ← h + attention(LN h),   h ← h + W₂ silu(W₁ LN h),   and at last y = W mean(LN h) + b.

References: "Gradient-based learning applied to document recognition" (LeCun, Bottou, Bengio and Haffner, 1998), "Attention is
all you need" (Vaswani et al., 2017), "On layer normalization in the transformer architecture" (Xiong et al., 2020).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold import settings
from scorefold.errors import ScorefoldError, closest
from scorefold.score.resmlp import Linear
from scorefold.types import Array, Float, Key

__all__ = ["Attention", "Convolution"]

Shape = tuple[int, ...]
Vector = Float[Array, " out"]

MOST_CHANNELS = 8
"""An array of two axes whose last is no longer than this is taken for a series of so many channels, else for an image."""
CELLS = {1: 8, 2: 4}
"""Cells kept apart along an axis, by the number of axes."""
MOST_TOKENS = 2048
"""Attention compares every token with every other."""
MOST_EMBEDDING_LAYERS, WIDEST_EMBEDDING = 32, 4096


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True)
class Convolution:
    """Convolutions that make a vector of a series or an image, trained together with the score network.

    Take it for series of any length, (time,) or (time, channels), and for images, (height, width) or (height, width, channels).
    It keeps averages over everything at each scale and, of the last layer, averages over a few cells: what kind of noise there
    is, and roughly where something happened. Where far apart positions belong together, try `Attention`. Observations that are
    vectors of a few features need no embedding.

    Args:
        channels: How many channels each layer has; one layer for each entry, and every layer halves the resolution.
        kernel: The width of the convolutions, in positions.
        out: How many features the vector has.
        axes: 1 for a series, 2 for an image. By default the shape decides: arrays of three axes are images, and so are those of
            two unless the last is short enough to be channels.

    Raises:
        ScorefoldError: A setting is of the wrong type, below 1 or too large; when called, observations of a shape that it
            cannot take.

    Example:
        >>> import scorefold as sf
        >>> sf.embeddings.Convolution()
        Convolution(channels=(16, 32), kernel=5, out=32, axes=None)
        >>> method = sf.NPSE(embedding=sf.embeddings.Convolution(channels=(16, 32, 64), out=64))
        >>> sf.embeddings.Convolution(kernel=0)
        Traceback (most recent call last):
        scorefold.errors.ScorefoldError: expected at least one layer, channels, kernel and out ≥ 1, and axes 1, 2 or None; ...
    """

    channels: tuple[int, ...] = (16, 32)
    """One layer for each; every layer halves the resolution."""
    kernel: int = 5
    out: int = 32
    axes: int | None = None
    """1 for a series, 2 for an image; by default 2 axes of which the last is longer than 8 are an image, as are 3."""

    def __post_init__(self) -> None:
        settings.check(self)
        if not self.channels or min(*self.channels, self.kernel, self.out) < 1 or self.axes not in (None, 1, 2):
            raise ScorefoldError(
                f"expected at least one layer, channels, kernel and out ≥ 1, and axes 1, 2 or None; got {self}."
            )
        if len(self.channels) > MOST_EMBEDDING_LAYERS or max(*self.channels, self.kernel, self.out) > WIDEST_EMBEDDING:
            raise ScorefoldError(
                f"expected at most {MOST_EMBEDDING_LAYERS} layers, and nothing wider than {WIDEST_EMBEDDING:,}; "
                f"got {self!s:.200}."
            )

    def __call__(self, shape: Shape, key: Key) -> "ConvolutionNetwork":
        """Make the network, with random weights from `key`, that maps one observation of this shape to a vector; shapes that it
        cannot take are a ScorefoldError.
        """
        axes = self.axes or (1 if len(shape) == 1 or (len(shape) == 2 and shape[-1] <= MOST_CHANNELS) else 2)
        if not axes <= len(shape) <= axes + 1:
            raise ScorefoldError(
                f"expected observations of shape (time,), (time, channels), (height, width) or (height, width, channels) for a "
                f"convolution over {axes} axes; got {shape}. Reshape them in the simulator, or set Convolution(axes=...)."
            )
        return ConvolutionNetwork(self, shape, axes, key=key)


class ConvolutionNetwork(eqx.Module):
    """The network that a `Convolution` makes for one shape of observations: convolutions that halve the resolution, averages
    over positions and cells, and a last linear map.
    """

    layers: tuple[eqx.nn.Conv, ...]
    last: Linear
    shape: Shape = eqx.field(static=True)
    axes: int = eqx.field(static=True)

    def __init__(self, config: Convolution, shape: Shape, axes: int, *, key: Key):
        key_last, *keys = jax.random.split(key, len(config.channels) + 1)
        sizes = (shape[axes] if len(shape) > axes else 1, *config.channels)
        # Padded, so that a series shorter than the kernel has a convolution too.
        self.layers = tuple(
            eqx.nn.Conv(axes, before, after, config.kernel, stride=2, padding="SAME", key=k)
            for before, after, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        halved = [-(-size // 2 ** len(config.channels)) for size in shape[:axes]]
        cells = int(np.prod([min(size, CELLS[axes]) for size in halved]))
        self.last = Linear(sum(config.channels) + cells * config.channels[-1], config.out, key=key_last)
        self.shape, self.axes = shape, axes

    def __call__(self, x: Float[Array, "..."]) -> Vector:
        """Map one observation of the shape that the network was made for to a vector of features."""
        h = jnp.moveaxis(x.reshape(*self.shape[: self.axes], -1), -1, 0)
        means = []
        for layer in self.layers:
            h = jax.nn.silu(layer(h))
            means.append(h.reshape(len(h), -1).mean(axis=1))
        for axis in range(1, self.axes + 1):
            cells = jnp.array_split(h, min(h.shape[axis], CELLS[self.axes]), axis=axis)
            h = jnp.concatenate([cell.mean(axis=axis, keepdims=True) for cell in cells], axis=axis)
        return self.last(jnp.concatenate([*means, h.ravel()]))


@dataclass(frozen=True)
class Attention:
    """A transformer that makes a vector of a sequence, trained together with the score network.

    Take it for sequences (time, ...) in which far apart positions belong together; what is at one position is one token. It
    compares every token with every other, so time and memory grow with the square of the length: for long series take
    `Convolution`, or put several positions into one token by reshaping in the simulator.

    Args:
        width: The features of a token inside the network; twice `heads` must divide it.
        heads: How many attention heads there are.
        layers: How many layers there are.
        out: How many features the vector has.

    Raises:
        ScorefoldError: A setting is of the wrong type, below 1 or too large; when called, observations of more positions than
            it can take.

    Example:
        >>> import scorefold as sf
        >>> sf.embeddings.Attention()
        Attention(width=32, heads=4, layers=2, out=32)
        >>> method = sf.NPSE(embedding=sf.embeddings.Attention(layers=4))
        >>> sf.embeddings.Attention(width=30)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        scorefold.errors.ScorefoldError: expected sizes ≥ 1 and a width that 2 · heads divides; got ...
    """

    width: int = 32
    heads: int = 4
    layers: int = 2
    out: int = 32

    def __post_init__(self) -> None:
        settings.check(self)
        if max(self.width, self.out) > WIDEST_EMBEDDING or self.layers > MOST_EMBEDDING_LAYERS:
            raise ScorefoldError(
                f"expected at most {MOST_EMBEDDING_LAYERS} layers, and nothing wider than {WIDEST_EMBEDDING:,}; got {self}."
            )
        if min(self.width, self.heads, self.layers, self.out) < 1 or self.width % (2 * self.heads):
            raise ScorefoldError(f"expected sizes ≥ 1 and a width that 2 · heads divides; got {self}.")

    def __call__(self, shape: Shape, key: Key) -> "AttentionNetwork":
        """Make the network, with random weights from `key`, that maps one observation of this shape to a vector; shapes that it
        cannot take are a ScorefoldError.
        """
        if shape[0] > MOST_TOKENS:
            raise ScorefoldError(
                f"expected at most {MOST_TOKENS} positions along the first axis; got shape {shape}. Use a convolution, or "
                "several positions as one token: reshape (time,) to (time / 8, 8) in the simulator."
            )
        return AttentionNetwork(self, shape, key=key)


class AttentionBlock(eqx.Module):
    """One layer of a transformer: attention, then two linear maps at each token, both after layer normalisation."""

    attention: eqx.nn.MultiheadAttention
    norms: tuple[eqx.nn.LayerNorm, eqx.nn.LayerNorm]
    up: Linear
    down: Linear

    def __init__(self, width: int, heads: int, *, key: Key):
        key_attention, key_up, key_down = jax.random.split(key, 3)
        self.attention = eqx.nn.MultiheadAttention(heads, width, key=key_attention)
        self.norms = eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)
        self.up, self.down = Linear(width, 2 * width, key=key_up), Linear(2 * width, width, key=key_down)

    def __call__(self, h: Float[Array, "tokens width"]) -> Float[Array, "tokens width"]:
        """Map the tokens (tokens, width) to tokens of the same shape."""
        before, between = (jax.vmap(norm) for norm in self.norms)
        normed = before(h)
        h = h + self.attention(normed, normed, normed)
        return h + jax.vmap(lambda token: self.down(jax.nn.silu(self.up(token))))(between(h))


class AttentionNetwork(eqx.Module):
    """The network that an `Attention` makes for one shape of observations: a transformer over its tokens, and their mean."""

    first: Linear
    blocks: tuple[AttentionBlock, ...]
    norm: eqx.nn.LayerNorm
    last: Linear

    def __init__(self, config: Attention, shape: Shape, *, key: Key):
        key_first, key_last, *keys = jax.random.split(key, config.layers + 2)
        self.first = Linear(int(np.prod(shape[1:])), config.width, key=key_first)
        self.blocks = tuple(AttentionBlock(config.width, config.heads, key=k) for k in keys)
        self.norm = eqx.nn.LayerNorm(config.width)
        self.last = Linear(config.width, config.out, key=key_last)

    def __call__(self, x: Float[Array, "tokens ..."]) -> Vector:
        """Map one observation, whose first axis runs over tokens, to a vector of features."""
        h = jax.vmap(self.first)(x.reshape(len(x), -1))
        h = h + positions(len(x), h.shape[1])
        for block in self.blocks:
            h = block(h)
        return self.last(jax.vmap(self.norm)(h).mean(axis=0))


def positions(tokens: int, width: int) -> Float[Array, "tokens width"]:
    """Sines and cosines of each token's position, `width` of them, at wavelengths from 4 tokens to four times their number."""
    waves = 4 * np.geomspace(1, max(tokens, 2), width // 2)
    angles = 2 * np.pi * np.arange(tokens)[:, None] / waves
    return jnp.asarray(np.concatenate([np.sin(angles), np.cos(angles)], axis=1), jnp.float32)


Embedding = str | Callable[[Shape, Key], eqx.Module]
EMBEDDINGS: dict[str, Callable[[], Callable[[Shape, Key], eqx.Module]]] = {"convolution": Convolution, "attention": Attention}


class Trainable(eqx.Module):
    """Wraps a module so that all its leaves are float arrays, which are trained; what else it holds (functions, whole numbers)
    stays as it is.
    """

    arrays: Any
    rest: Any = eqx.field(static=True)

    def __init__(self, module: eqx.Module):
        self.arrays, self.rest = eqx.partition(module, eqx.is_inexact_array)

    def __call__(self, x: Float[Array, "..."]) -> Vector:
        """Map one observation to a vector, by the wrapped module with its weights as trained so far."""
        return eqx.combine(self.arrays, self.rest)(x)


def with_channels(observation: Shape) -> Shape:
    """The shape of an observation with as many more numbers that say which are missing, as further channels."""
    series = len(observation) == 2 and observation[1] <= MOST_CHANNELS
    if series or len(observation) > 2:
        return (*observation[:-1], 2 * observation[-1])
    return (*observation, 2)


def joined(x: Vector, observation: Shape) -> Float[Array, "..."]:
    """A standardised observation in its shape or, if it comes with as many numbers that say which are missing, in that one."""
    if x.size == np.prod(observation):
        return x.reshape(observation)
    parts = [half.reshape(observation) for half in jnp.split(x, 2)]
    same = len(with_channels(observation)) == len(observation)
    return jnp.concatenate(parts, axis=-1) if same else jnp.stack(parts, axis=-1)


def check_embedding(embedding: Any) -> None:
    """Refuse what is no embedding, before anything is trained.

    Args:
        embedding: None, "convolution", "attention", one of these configured, or a function (shape, key) that makes a module.

    Raises:
        ScorefoldError: It is something else; for an unknown word the message has the closest one.
    """
    if isinstance(embedding, str) and embedding not in EMBEDDINGS:
        raise ScorefoldError(f"unknown embedding {embedding!r:.60}. {closest(embedding[:60], list(EMBEDDINGS))}")
    if (
        embedding is not None
        and not isinstance(embedding, str)
        and (not callable(embedding) or isinstance(embedding, eqx.Module))
    ):
        raise ScorefoldError(
            f"expected an embedding as a word, a configuration such as Convolution() or a function (shape, key) that makes an "
            f"equinox module; got {embedding!r:.60}. Write lambda shape, key: MyModule(..., key=key)."
        )


def build(embedding: Embedding, shape: Shape, key: Key) -> Any:
    """Make the network of an embedding, and try it on zeros.

    Args:
        embedding: A word, a configured embedding, or a user's function (shape, key).
        shape: Of one observation.
        key: Of its initial numbers.

    Returns:
        A module that maps an observation to a vector.

    Raises:
        ScorefoldError: A user's function makes something else, or what it makes does not give a finite vector.
    """
    check_embedding(embedding)
    if isinstance(embedding, str):
        embedding = EMBEDDINGS[embedding]()
    if not shape or min(shape) < 1:
        raise ScorefoldError(f"expected observations with at least one axis and none of length 0; got shape {shape}.")
    module, y = _made_and_tried(embedding, shape, key)
    if not isinstance(module, eqx.Module):
        raise ScorefoldError(f"expected the embedding to make an equinox module, which can be trained; got {module!r:.60}.")
    _check_leaves(module)
    _check_output(y, shape)
    return module


@eqx.filter_jit
def _apply(module: Any, x: Array) -> Any:
    return module(x)


def _made_and_tried(embedding: Callable[[Shape, Key], Any], shape: Shape, key: Key) -> tuple[Any, Any]:
    """The module, and what it makes of zeros."""
    try:
        module = embedding(shape, key)
        return module, _apply(module, jnp.zeros(shape))
    except ScorefoldError:
        raise
    except Exception as error:
        raise ScorefoldError(
            f"expected (shape, key) to make a module that maps one observation of shape {shape}, without a batch axis, to a "
            f"vector; it raised {type(error).__name__}: {error!s:.200}"
        ) from error


def _check_leaves(module: eqx.Module) -> None:
    """Only floats can be trained, and what is not trained must be known before the program is compiled."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(module)[0]:
        if isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise ScorefoldError(
                f"expected the embedding's JAX arrays to be floats, which are trained; got {leaf.dtype} in "
                f"{jax.tree_util.keystr(path)}. Make it a NumPy array, or a tuple in a field(static=True)."
            )


def _check_output(y: Any, shape: Shape) -> None:
    made = f"an array of shape {y.shape} and type {y.dtype}" if isinstance(y, jax.Array) else f"{y!r:.60}"
    if not isinstance(y, jax.Array) or y.ndim != 1 or y.size == 0 or not jnp.issubdtype(y.dtype, jnp.floating):
        raise ScorefoldError(
            f"expected the embedding to map one observation of shape {shape} to a vector of floats; got {made}. End it with "
            "y.ravel(), or average over what is not a feature."
        )
    if not isinstance(y, jax.core.Tracer) and not jnp.isfinite(y).all():  # under vmap only its shape is known
        raise ScorefoldError(
            f"expected the embedding of zeros to be finite; got {made} with {int(jnp.sum(~jnp.isfinite(y)))} values that are "
            "not. Look for a division by a norm or a logarithm."
        )
