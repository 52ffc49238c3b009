"""Every embedding and shape against a battery of properties; then what they can tell apart, and every refusal."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorefold.errors import ScorefoldError
from scorefold.score.embedding import MOST_TOKENS, Attention, Convolution, build, positions

KEY = jax.random.key(0)


class Own(eqx.Module):
    """What a user may write."""

    weight: jax.Array

    def __init__(self, shape, key):
        self.weight = jax.random.normal(key, (3, *shape))

    def __call__(self, x):
        return jnp.tanh(jnp.tensordot(self.weight, x, x.ndim))


class Chosen(eqx.Module):
    """Some of the observation's numbers, by a static tuple."""

    weight: jax.Array
    index: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, shape, key):
        self.weight, self.index = jax.random.normal(key, (3, *shape)), tuple(range(shape[0]))[::-1]

    def __call__(self, x):
        return self.weight @ x[jnp.asarray(self.index)]


# Of each: the shape of an observation, the embedding and the length of its output.
TABLE = {
    "series": ((50,), "convolution", 32),
    "series, odd": ((33,), Convolution(channels=(4,), out=3), 3),
    "series, shorter than the kernel": ((3,), Convolution(kernel=9), 32),
    "one number": ((1,), Convolution(), 32),
    "series of channels": ((40, 3), "convolution", 32),
    "grey image": ((20, 17), Convolution(channels=(4, 8)), 32),
    "colour image": ((9, 12, 3), Convolution(channels=(4, 8), kernel=3), 32),
    "image smaller than the kernel": ((2, 3, 1), Convolution(channels=(4,), kernel=4), 32),
    "sequence": ((30,), "attention", 32),
    "sequence of images": ((6, 4, 4), Attention(width=8, heads=4, layers=1, out=5), 5),
    "one token": ((1, 5), Attention(width=8, heads=1, layers=1), 32),
    "the user's class": ((4, 5), Own, 3),
    "the user's class with an index": ((4,), Chosen, 3),
    "the user's function": ((7,), lambda shape, key: eqx.nn.MLP(shape[0], 2, 8, 1, key=key), 2),
}
every_embedding = pytest.mark.parametrize("key", TABLE)


apply = eqx.filter_jit(lambda module, x: module(x))


@cache
def made(key, seed=0):
    shape, embedding, _ = TABLE[key]
    return build(embedding, shape, jax.random.key(seed))


def inputs(key, count=3):
    return jnp.asarray(np.random.default_rng(1).standard_normal((count, *TABLE[key][0])), jnp.float32)


@cache
def in_a_batch(key):
    """The vectors of a batch, and the gradients of a linear function of them in weights and observations."""
    weights, rest = eqx.partition(made(key), eqx.is_inexact_array)
    toward = jax.random.normal(jax.random.key(2), (TABLE[key][2],))  # the sum of a layer normalisation has no gradient

    @jax.jit
    def both(weights, x):
        def loss(weights, x):
            y = jax.vmap(eqx.combine(weights, rest))(x)
            return jnp.sum(y @ toward), y

        return jax.grad(loss, argnums=(0, 1), has_aux=True)(weights, x)

    return both(weights, inputs(key))


@every_embedding
def test_vectors_of_the_right_length_alone_and_in_batches(key):
    apart = np.stack([apply(made(key), one) for one in inputs(key)])
    assert apart.shape == (3, TABLE[key][2])
    assert apart.dtype == np.float32
    assert np.isfinite(apart).all()
    np.testing.assert_allclose(in_a_batch(key)[1], apart, rtol=1e-3, atol=1e-5)


@every_embedding
def test_every_number_of_the_observation_and_every_weight_counts(key):
    of_weights, of_x = in_a_batch(key)[0]
    assert np.isfinite(of_x).all()
    assert (np.abs(of_x) > 0).all()
    for gradient in jax.tree.leaves(of_weights):
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 0 or key == "one token"  # which has nothing to compare itself with


@every_embedding
def test_keys_and_observations_make_a_difference(key):
    shape, embedding, _ = TABLE[key]
    x, modules = inputs(key), (made(key), build(embedding, shape, jax.random.key(0)), made(key, seed=1))
    first, again, other = (np.asarray(apply(module, x[0])) for module in modules)
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3
    assert np.abs(first - apply(modules[0], x[1])).max() > 1e-4


@pytest.mark.parametrize("key", ["series, odd", "image smaller than the kernel", "one token", "the user's class"])
def test_a_stack_of_them_is_built_under_vmap(key):
    shape, embedding, out = TABLE[key]
    stack = eqx.filter_vmap(lambda k: build(embedding, shape, k))(jax.random.split(KEY, 2))
    x = inputs(key)
    y = eqx.filter_jit(eqx.filter_vmap(lambda module: jax.vmap(module)(x)))(stack)
    assert y.shape == (2, 3, out)
    assert np.abs(y[0] - y[1]).max() > 1e-4


# What they can tell apart

BUMPS = jnp.exp(-((jnp.arange(64.0) - jnp.asarray([[10.0], [30.0], [50.0]])) ** 2) / 20)


@pytest.mark.parametrize("embedding", ["convolution", "attention"])
def test_where_a_bump_is_makes_a_difference(embedding):
    module = build(embedding, (64,), KEY)
    *y, zero = (np.asarray(apply(module, x)) for x in [*BUMPS, jnp.zeros(64)])
    shifts = [np.linalg.norm(y[i] - y[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert min(shifts) > 0.05 * np.linalg.norm(y[0] - zero)


def test_two_axes_are_channels_or_an_image_by_their_length():
    def axes(embedding, shape):
        return embedding(shape, KEY).axes

    shapes = {(50,): 1, (50, 8): 1, (50, 9): 2, (8, 50): 2, (5, 5, 1): 2}
    assert {shape: axes(Convolution(), shape) for shape in shapes} == shapes
    assert axes(Convolution(axes=2), (50, 8)) == 2
    assert axes(Convolution(axes=1), (8, 50)) == 1


def test_channels_are_not_positions():
    module, x = build(Convolution(), (10, 3), KEY), inputs("series of channels")[0, :10]
    assert module.layers[0].weight.shape[1] == 3
    for exchanged in (x[:, ::-1], x[::-1]):
        assert np.abs(apply(module, x) - apply(module, exchanged)).max() > 1e-3


def test_positions_tell_every_token_from_every_other():
    for tokens in (1, 2, 30, MOST_TOKENS):
        codes = np.asarray(positions(tokens, 8))
        assert codes.shape == (tokens, 8)
        if tokens > 1:
            unlike = np.linalg.norm(np.diff(codes, axis=0), axis=1)
            assert unlike.min() > 0.1
            assert len(np.unique(codes.round(3), axis=0)) == tokens


def test_embeddings_stay_small():
    def size(embedding, shape):
        leaves = jax.tree.leaves(eqx.filter(embedding(shape, KEY), eqx.is_inexact_array))
        return sum(leaf.size for leaf in leaves)

    assert size(Convolution(), (1000,)) < 15_000
    assert size(Convolution(), (100, 100)) < 35_000
    assert size(Attention(), (1000,)) < 20_000


# Refusals


class Returns(eqx.Module):
    value: object = eqx.field(static=True)

    def __call__(self, x):
        return self.value(x) if callable(self.value) else self.value


def returns(value):
    return lambda shape, key: Returns(value)


class Picks(eqx.Module):
    """Some of the observation's numbers, by an index that should be a static tuple."""

    weight: jax.Array
    index: jax.Array

    def __init__(self, shape, key):
        self.weight, self.index = jax.random.normal(key, (3, 2)), jnp.asarray([0, 2])

    def __call__(self, x):
        return self.weight @ x[self.index]


REFUSED = {
    "whole numbers in a JAX array": (lambda: build(Picks, (9,), KEY), r"to be floats.*got int32 in \.index.*a tuple"),
    "unknown word": (lambda: build("convolutoin", (9,), KEY), "unknown embedding 'convolutoin'. Did you mean 'convolution'"),
    "number": (lambda: build(3, (9,), KEY), "expected an embedding as a word.*got 3"),
    "a module, not its builder": (lambda: build(Own((9,), KEY), (9,), KEY), "Write lambda shape, key: MyModule"),
    "no axes": (lambda: build("convolution", (), KEY), r"at least one axis.*got shape \(\)"),
    "nothing along an axis": (lambda: build("convolution", (9, 0), KEY), "none of length 0"),
    "four axes": (lambda: build("convolution", (9, 9, 9, 9), KEY), r"got \(9, 9, 9, 9\). Reshape them"),
    "a vector as an image": (lambda: build(Convolution(axes=2), (9,), KEY), "a convolution over 2 axes"),
    "an image as a series": (lambda: build(Convolution(axes=1), (9, 9, 3), KEY), "a convolution over 1 axes"),
    "too many tokens": (lambda: build("attention", (MOST_TOKENS + 1,), KEY), "at most 2048 positions.*Use a convolution"),
    "no layers": (lambda: Convolution(channels=()), "at least one layer"),
    "no channels": (lambda: Convolution(channels=(4, 0)), r"channels, kernel and out ≥ 1.*\(4, 0\)"),
    "no kernel": (lambda: Convolution(kernel=0), "kernel=0"),
    "three axes": (lambda: Convolution(axes=3), "axes=3"),
    "no heads": (lambda: Attention(heads=0), "sizes ≥ 1"),
    "heads that do not divide": (lambda: Attention(width=20, heads=4), "a width that 2 · heads divides"),
    "builder without arguments": (lambda: build(lambda: Own((9,), KEY), (9,), KEY), r"expected \(shape, key\).*TypeError"),
    "builder raises": (lambda: build(lambda shape, key: 1 / 0, (9,), KEY), "it raised ZeroDivisionError"),
    "not a module": (lambda: build(lambda shape, key: jnp.sin, (9,), KEY), "an equinox module, which can be trained"),
    "wants a batch": (lambda: build(returns(lambda x: x @ jnp.ones((4, 2))), (9,), KEY), "without a batch axis.*it raised"),
    "a matrix": (lambda: build(returns(lambda x: x), (9, 2), KEY), r"a vector of floats.*shape \(9, 2\)"),
    "a number out": (lambda: build(returns(jnp.sum), (9,), KEY), r"shape \(\).*y\.ravel"),
    "an empty vector": (lambda: build(returns(lambda x: x[:0]), (9,), KEY), r"shape \(0,\)"),
    "whole numbers": (lambda: build(returns(lambda x: x.astype(int)), (9,), KEY), "type int"),
    "a tuple": (lambda: build(returns(lambda x: (x, x)), (9,), KEY), "a vector of floats"),
    "not finite": (lambda: build(returns(lambda x: x / jnp.linalg.norm(x)), (9,), KEY), "to be finite.*9 values"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("key", REFUSED)
def test_refused_with_advice(key):
    call, message = REFUSED[key]
    with pytest.raises(ScorefoldError, match=message):
        call()
