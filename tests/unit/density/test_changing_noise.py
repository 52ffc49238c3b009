"""Noise that changes with the parameters: what is found of it, and that it leaves a density."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorefold.density import changing_noise
from scorefold.density.changing_noise import CASES_EACH, ChangingNoise, fit_changing_noise
from scorefold.density.line import fit_line

COUNT = 4_000


def cases(seed, features=3, given=2, count=COUNT):
    rng = np.random.default_rng(seed)
    return rng, rng.standard_normal((count, features)), rng.standard_normal((count, given))


def made(found, r, v):
    """e."""
    return np.asarray(jax.vmap(found)(jnp.asarray(r, jnp.float32), jnp.asarray(v, jnp.float32)), np.float64)


@pytest.mark.false_failure(1e-8)
@pytest.mark.parametrize(("features", "given"), [(1, 1), (3, 2), (10, 10)])
def test_next_to_nothing_is_found_where_nothing_changes(features, given):
    _, r, v = cases(features, features, given)
    found = fit_changing_noise(r, v)
    if found is not None:  # what chance has left: far less than an sd for each number that could have been fitted
        slopes = np.concatenate([np.ravel(found.log_scale[:, 1:]), np.ravel(found.turn[..., 1:])])
        assert COUNT * np.square(slopes).sum() < 0.3 * len(slopes) + 20


@pytest.mark.false_failure(1e-8)
def test_sds_and_correlations_that_change_are_found():
    _, e, v = cases(0)
    correlation = np.tanh(0.5 * v[:, 1])
    r = e.copy()
    r[:, 1] = correlation * e[:, 0] + np.sqrt(1 - correlation**2) * e[:, 1]
    r *= np.exp(0.5 * v[:, :1])
    found = fit_changing_noise(r, v)
    np.testing.assert_allclose(found.log_scale[:, 1], -0.5, atol=0.1)
    np.testing.assert_allclose(found.log_scale[[0, 2], 2], 0.0, atol=0.1)
    assert 0.3 < found.turn[1, 0, 2] < 0.6
    left = made(found, r, v)
    np.testing.assert_allclose(left.T @ left / COUNT, np.eye(3), atol=0.12)
    for product in (left[:, 0] ** 2, left[:, 1] ** 2, left[:, 0] * left[:, 1]):
        assert np.abs(v.T @ (product - product.mean()) / COUNT).max() < 0.15


@pytest.mark.false_failure(1e-8)
def test_correlations_that_stay_are_told_from_sds_that_change():
    """Three numbers with an sd each, from 1/30 to 30, and correlations that are the same everywhere."""
    rng, e, _ = cases(7)
    v, mixing = 1.1 * rng.standard_normal((COUNT, 3)), np.array([[1, 0, 0], [0.8, 0.6, 0], [0.3, -0.5, 0.8]])
    r = np.exp(v) * (e @ mixing.T)
    found = fit_changing_noise(r, v)
    np.testing.assert_allclose(found.log_scale[:, 1:], -np.eye(3), atol=0.1)
    np.testing.assert_allclose(found.turn[..., 1:], 0.0, atol=0.1)
    assert np.square(made(found, r, v) - e).mean() < 0.02


@pytest.mark.false_failure(1e-8)
def test_where_sds_are_smallest_means_are_right():
    """An sd of 1e-6 is far beyond where sds follow v; the line's mean must still be the truth's there."""
    rng, e, v = cases(8, features=2)
    v[:, 1] = np.log(rng.random(COUNT))  # down to -8, and once lower
    v[0, 1] = -12.0
    x = v[:, :1] + np.exp(v[:, 1:]) * e
    line = fit_line(x, v, tails=True, changing=True)
    left = np.asarray(jax.vmap(line.residual)(jnp.asarray(x, jnp.float32), jnp.asarray(v, jnp.float32)))
    assert np.abs(left).max() < 7
    assert abs(np.square(left).mean() - 1) < 0.1


def test_few_cases_show_nothing():
    _, r, v = cases(2, count=CASES_EACH * 3 - 1)
    assert fit_changing_noise(np.exp(v[:, :1]) * r, v) is None


def test_its_volume_is_that_of_its_slope():
    rng, r, v = cases(3, count=5)
    parts = (rng.standard_normal(shape) for shape in ((3, 3), (3, 3), (3, 3, 3)))
    found = ChangingNoise(*(jnp.asarray(part, jnp.float32) for part in parts))
    for place, at in zip(jnp.asarray(r, jnp.float32), jnp.asarray(v, jnp.float32), strict=True):
        jacobian = jax.jacfwd(lambda place, at=at: found(place, at))(place)
        np.testing.assert_allclose(np.linalg.slogdet(jacobian)[1], found.log_scales(at).sum(), rtol=1e-4, atol=1e-4)


def test_the_blank_one_changes_nothing():
    _, r, v = cases(4)
    np.testing.assert_array_equal(made(changing_noise.blank(3, 2), r, v), r.astype(np.float32))


@pytest.mark.false_failure(1e-8)
@pytest.mark.parametrize("tails", [False, True])
def test_a_line_knows_a_model_of_place_and_scale(tails):
    """x ~ N(a, e^{2b}): the line's density is the truth's."""
    rng, _, u = cases(5)
    line = fit_line(u[:, :1] + np.exp(0.5 * u[:, 1:]) * rng.standard_normal((COUNT, 2)), u, tails, changing=True)
    place, log_sd = np.array([0.3, -1.0]), 0.5 * -1.0
    x = place[0] + np.exp(log_sd) * np.array([0.5, -1.2])
    x, place = jnp.asarray(x, jnp.float32), jnp.asarray(place, jnp.float32)
    log_density = -jnp.square(line.residual(x, place)).sum() / 2 + line.log_scales(x, place).sum() + line.log_det(x)
    assert abs(float(log_density) - (-(0.5**2 + 1.2**2) / 2 - 2 * log_sd)) < 0.25


@pytest.mark.false_failure(1e-8)
def test_where_noise_would_not_be_gaussian_it_is_as_it_was():
    """Outliers, and sds that are no log-linear function of u."""
    rng, e, u = cases(6)
    scale = np.where(rng.random(COUNT) < 0.1, 6.0, 1.0)
    for sd in (scale * np.exp(0.3 * u[:, 1]), 0.1 + u[:, 1] ** 2):
        x = u[:, :1] + sd[:, None] * e
        line, before = fit_line(x, u, tails=True, changing=True), fit_line(x, u, tails=True)
        assert not any(np.any(part) for part in jax.tree.leaves(line.changing))
        for one, other in zip(jax.tree.leaves(dataclasses.replace(line, changing=None)), jax.tree.leaves(before), strict=True):
            np.testing.assert_array_equal(one, other)
