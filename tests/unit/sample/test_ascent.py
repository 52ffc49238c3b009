"""Newton's method uphill, also where a density is not concave."""

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.sample.ascent import ascend


def test_a_gaussian_at_once():
    precision = jnp.array([[4.0, 1.0], [1.0, 2.0]])
    found = ascend(lambda u: (jnp.array([0.1, -0.2]) - u) @ precision, jnp.array([[0.3, 0.1], [0.0, 0.0]]), 1)
    np.testing.assert_allclose(found, np.tile([0.1, -0.2], (2, 1)), atol=1e-5)


def test_to_the_nearest_of_two_modes():
    def log_density(u):
        return jax.nn.logsumexp(jnp.array([-jnp.sum((u - 2) ** 2), -jnp.sum((u + 2) ** 2)]) / 0.5)

    score = jax.vmap(jax.grad(log_density))
    found = ascend(score, jnp.array([[0.4, 0.3], [-0.4, -0.1], [5.0, 1.0]]), 30)
    np.testing.assert_allclose(found, [[2, 2], [-2, -2], [2, 2]], atol=1e-3)
