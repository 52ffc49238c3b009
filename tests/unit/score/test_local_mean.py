"""The correction of scores around one data set's draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorefold.noise import levels
from scorefold.score.local_mean import LocalMean

LEVELS = levels(T=50)
LOWEST, HIGHEST = (jax.tree.map(lambda v, i=i: v[i], LEVELS) for i in (0, -1))
CENTRE = np.array([0.2, -0.1])
OFFSET, SLOPE = np.array([0.3, -0.1]), np.array([[0.5, 0.1], [0.0, -0.2]])


def correction(**changes):
    eye = np.eye(2)
    usual = LocalMean(CENTRE, eye / 0.1, OFFSET, SLOPE, eye, eye, np.zeros(2), float(LOWEST.noise), 0.01)
    return usual._replace(**changes)


def applied(local, score, u, level, sizes):
    given = (jnp.asarray(one, jnp.float32) for one in (score, -u, u))
    score, prior, u = given
    return np.asarray(local.corrected(score, prior, u, level, jnp.asarray(sizes)))


def some(count=20):
    rng = np.random.default_rng(0)
    u = CENTRE + 0.1 * rng.standard_normal((count, 2))
    return u, rng.standard_normal((3, count, 2))


def test_a_line_in_proportion_to_the_set_is_taken_away():
    u, right = some()
    sizes = np.array([1, 2, 5])
    spoiled = right + sizes[:, None, None] * (OFFSET + (u - CENTRE) @ SLOPE.T)
    assert applied(correction(), spoiled, u, LOWEST, sizes) == pytest.approx(right, abs=1e-5)


def test_what_the_score_adds_to_the_prior_is_weighed():
    u, right = some()
    weight = np.array([[2.0, 0.1], [0.0, 0.5]])
    local = correction(offset=np.zeros(2), slope=np.zeros((2, 2)), weight=weight)
    found = applied(local, right, u, LOWEST, np.ones(3, int))
    assert found == pytest.approx(-u + (right + u) @ weight.T, abs=1e-5)


def test_it_fades_where_the_noise_is_larger_than_the_draws_spread():
    u, right = some()
    assert applied(correction(), right, u, HIGHEST, np.ones(3, int)) == pytest.approx(right, abs=1e-4)


def test_far_from_the_draws_the_line_goes_on_as_a_constant():
    u = CENTRE + np.array([[10.0, 0.0], [1e4, 0.0]])
    right = np.zeros((1, 2, 2))
    found = applied(correction(), right, u, LOWEST, np.ones(1, int))
    assert found[0, 0] == pytest.approx(found[0, 1], abs=1e-2)
    assert np.abs(found).max() < 1
