"""The product with derivatives of its own is the plain product, however it is transformed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorefold.score.resmlp import product

X = jax.random.normal(jax.random.key(1), (2, 7, 5))
W = jax.random.normal(jax.random.key(2), (5, 3))


def loss(times):
    def of(weight, x):
        return jnp.sum(jnp.tanh(jax.vmap(jax.vmap(lambda one: times(one, weight)))(x)))

    return of


TRANSFORMED = {
    "value": lambda f: f(W, X),
    "by the matrix": lambda f: jax.grad(f)(W, X),
    "by the vectors": lambda f: jax.grad(f, 1)(W, X),
    "forward over reverse": lambda f: jax.jacfwd(jax.grad(f, 1), 1)(W, X),
    "reverse over reverse": lambda f: jax.grad(lambda w: jnp.sum(jax.grad(f, 1)(w, X) ** 2))(W),
    "of several members": lambda f: jax.jit(jax.vmap(jax.grad(f), (0, None)))(jnp.stack([W, 2 * W]), X),
    "of members with cases of their own": lambda f: jax.vmap(jax.grad(f))(jnp.stack([W, 2 * W]), X[:, None]),
}


@pytest.mark.parametrize("way", TRANSFORMED)
def test_it_is_the_plain_product(way):
    own, plain = (TRANSFORMED[way](loss(times)) for times in (product, jnp.matmul))
    np.testing.assert_allclose(own, plain, rtol=1e-5, atol=1e-6)


def test_the_sum_over_a_batch_is_one_product():
    """What it is for: `vmap` over cases makes no product of single cases, and the batch is turned before it is summed."""
    text = jax.jit(jax.grad(loss(product))).lower(W, X).as_text()
    assert "tensor<5x14xf32>, tensor<14x3xf32>" in text
    assert "optimization_barrier" in text


def test_it_is_as_precise_as_asked_where_it_is_called():
    def asked(x, weight):
        with jax.default_matmul_precision("highest"):
            return jax.vmap(product, in_axes=(0, None))(x, weight)

    shapes = jnp.zeros((8, 3)), jnp.zeros((3, 2))
    assert "HIGHEST" in jax.jit(asked).lower(*shapes).as_text()
    assert "HIGHEST" in jax.jit(jax.grad(lambda x, weight: asked(x, weight).sum(), argnums=1)).lower(*shapes).as_text()
    assert "HIGHEST" not in jax.jit(lambda x, weight: jax.vmap(product, in_axes=(0, None))(x, weight)).lower(*shapes).as_text()
