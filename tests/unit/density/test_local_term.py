"""A correction of terms does to their gradient what one of scores does to a score."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorefold.density.local_term import local_term
from scorefold.score.local_mean import LocalMean

CENTRE, SD = np.array([0.5, -1.0]), np.array([0.1, 0.02])


def found(offset=(0.0, 0.0), slope=((0.0, 0.0), (0.0, 0.0)), weight=((1.0, 0.0), (0.0, 1.0))):
    parts = (np.asarray(part, float) for part in (offset, slope, weight))
    return LocalMean(CENTRE, np.diag(1 / SD), *parts, np.eye(2), np.zeros(2), 0.0, 1.0)


@pytest.mark.false_failure(0)
def test_without_an_error_nothing_changes():
    local, u = local_term(found(), 30), jnp.array([0.55, -0.97])
    np.testing.assert_allclose(local.moved(u), u, atol=1e-6)
    assert float(local.taken(u)) == 0.0


@pytest.mark.false_failure(0)
def test_what_is_taken_away_is_the_line_near_the_draws():
    offset, slope = np.array([0.3, -2.0]), np.array([[4.0, 1.0], [1.0, -9.0]])
    local, u = local_term(found(offset, slope), 30), CENTRE + SD * np.array([1.5, -2.0])
    np.testing.assert_allclose(jax.grad(local.taken)(jnp.asarray(u)), offset + slope @ (u - CENTRE), rtol=1e-4)


@pytest.mark.false_failure(0)
def test_far_from_the_draws_it_is_what_it_is_at_their_edge():
    local = local_term(found((0.3, -2.0), ((4.0, 1.0), (1.0, -9.0))), 30)
    far, farther = (CENTRE + times * SD * np.array([3.0, -4.0]) for times in (10, 100))
    assert float(local.taken(jnp.asarray(far))) == pytest.approx(float(local.taken(jnp.asarray(farther))), rel=1e-4)


@pytest.mark.false_failure(0)
@pytest.mark.parametrize("n", [1, 100])
def test_a_gaussian_sum_gets_the_maximum_and_the_curvature_of_the_weighed_score(n):
    """-n (u - c)ᵀ P (u - c) / 2n less n φ, with P the precision of the draws, and a symmetric G in their white space."""
    offset, white = np.array([8.0, -30.0]) / n, np.array([[1.6, 0.2], [0.2, 0.7]])
    weight = np.diag(1 / SD) @ white @ np.diag(SD)
    local = local_term(found(offset, weight=weight), n)

    def total(u):
        v = local.moved(u)
        return -jnp.sum(((v - CENTRE) / SD) ** 2) / 2 - n * local.taken(v)

    right = CENTRE - SD**2 * n * offset
    np.testing.assert_allclose(jax.grad(total)(jnp.asarray(right)), 0.0, atol=0.05)
    curvature = -np.diag(SD) @ jax.hessian(total)(jnp.asarray(right)) @ np.diag(SD)
    np.testing.assert_allclose(curvature, white, atol=1e-3)
