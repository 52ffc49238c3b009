"""Tempered clouds on exact likelihoods: wide and narrow targets, several modes and their weights, and what is said in doubt."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chance import one_of
from exact_posteriors import summed
from full import shortly
from scipy import stats

from scorefold import tasks
from scorefold.errors import ScorefoldError
from scorefold.sample.summits import CLIMBERS, LADDER, Mixture, summits
from scorefold.sample.tempered import Clouds, clouds_for, largest_rise, log_around, systematic, tempered_draws
from scorefold.tasks import slcp


def looked(evaluate, data):
    """As a sampler looks at it."""
    return jax.jit(lambda u: evaluate(u, data))


def gaussian(u, data):
    x, sd = data
    return jax.vmap(jax.value_and_grad(lambda u: -jnp.sum(((x - u) / sd) ** 2) / 2))(u)


def four_points(u, x):
    def one(u):
        theta = slcp.PRIOR_EDGE * (2 * jax.scipy.special.ndtr(u) - 1)
        return jnp.sum(jax.vmap(lambda x: slcp.log_likelihood(theta, x))(x))

    return jax.vmap(jax.value_and_grad(one))(u)


# Over 20 seeds the means were off by 0.03 sd and the sds by 2 %, rms (the largest by 0.09 and 7 %), the log evidence by
# 0.2 ± 0.2; 0.25 and 0.18 are 8 of these.
@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize(("dim", "sd"), shortly([(1, 2.0), (2, 0.05), (5, 0.002), (10, 0.01)], (2, 0.05)))
def test_a_gaussian_however_narrow(dim, sd, figure):
    x = jnp.asarray(np.random.default_rng(0).normal(size=dim), jnp.float32)
    u, info = tempered_draws(looked(gaussian, (x, jnp.asarray(sd))), dim, clouds_for(1_000, dim), 1_000, jax.random.key(0))
    precision = 1 + 1 / sd**2
    mean = np.asarray(x) / sd**2 / precision
    assert u.shape == (1_000, dim)
    assert info.converged
    assert (np.abs(u.mean(0) - mean) < 0.25 * precision**-0.5).all()
    ratio = u.std(0) * precision**0.5
    figure(f"sd ratios {ratio.min():.3f} to {ratio.max():.3f}")
    assert (np.abs(ratio - 1) < 0.18).all()
    exact = stats.norm(0, np.sqrt(1 + sd**2)).logpdf(np.asarray(x, np.float64)).sum() + dim * np.log(np.sqrt(2 * np.pi) * sd)
    assert abs(info.log_evidence - exact) < 1.5


# Shares of a mode over 20 seeds: 0.25 ± 0.015, the farthest off by 0.032; 0.12 is 8 times the former.
@pytest.mark.false_failure(1e-6)
def test_four_modes_have_their_weights():
    _, x = tasks.get("slcp").observe(8, seed=0)
    u, info = tempered_draws(
        looked(four_points, jnp.asarray(x, jnp.float32)), 5, clouds_for(1_000, 5), 1_000, jax.random.key(0)
    )
    shares = np.bincount(2 * (u[:, 2] > 0) + (u[:, 3] > 0), minlength=4) / len(u)
    assert info.converged
    assert (np.abs(shares - 0.25) < 0.12).all()
    theta, reference = tasks.get("slcp").prior.from_normal(u), tasks.get("slcp").reference(x, 4_000, 0)
    np.testing.assert_allclose(np.abs(theta).std(0), np.abs(reference).std(0), rtol=0.25)


def peak_on_a_hill(u, sds):
    """Two Gaussians of equal mass around one point, one of them wide and one narrow, and narrower than the prior."""
    narrow, wide = sds

    def one(u):
        square, dim = jnp.sum((u - 0.5) ** 2), len(u)
        return jnp.logaddexp(-square / 2 / narrow**2 - dim * jnp.log(narrow), -square / 2 / wide**2 - dim * jnp.log(wide))

    return jax.vmap(jax.value_and_grad(one))(u)


# Its share is 0.520; over 20 seeds it was 0.527 ± 0.013. A cloud that comes down from the prior by powers of the likelihood
# misses it.
@pytest.mark.full
@pytest.mark.false_failure(1e-6)
def test_a_narrow_peak_on_a_wide_hill_is_found():
    dim, sds = 10, (0.03, 0.15)
    data = jnp.asarray(sds, jnp.float32)
    u, info = tempered_draws(looked(peak_on_a_hill, data), dim, clouds_for(1_000, dim), 1_000, jax.random.key(0))
    masses = [float(stats.multivariate_normal(np.full(dim, 0.5), 1 + sd**2).pdf(np.zeros(dim))) for sd in sds]
    share = (np.square(u - 0.5).sum(1) < dim * 0.065**2).mean()
    assert info.converged
    assert abs(share - masses[0] / sum(masses)) < 0.12


def peak_beside_a_hill(u, x):
    """One observation x of u whose noise has an sd of 1.5 or of 1/3, each half of the time."""

    def one(u):
        square, dim = jnp.sum((x - u) ** 2), len(u)
        return jnp.logaddexp(-square / 2 / 2.25 - dim / 2 * jnp.log(2.25), -4.5 * square + dim / 2 * jnp.log(9.0))

    return jax.vmap(jax.value_and_grad(one))(u)


# Its share is 0.751; over 24 seeds it was 0.750 ± 0.012. Uphill from the prior is the hill's summit, 6.4 sd of the peak away.
@pytest.mark.false_failure(1e-7)
def test_a_narrow_peak_beside_the_summit_of_a_wide_hill_is_found():
    dim, at = 10, 1.2
    look = looked(peak_beside_a_hill, jnp.full(dim, at))
    u, info = tempered_draws(look, dim, clouds_for(1_000, dim), 1_000, jax.random.key(0))
    hill, peak = (float(stats.multivariate_normal(np.full(dim, at), 1 + noise).pdf(np.zeros(dim))) for noise in (2.25, 1 / 9))
    near = np.square(u - at / (1 + 1 / 9)).sum(1) < 0.1 * stats.chi2(dim).ppf(0.999)
    assert info.converged
    assert abs(near.mean() - peak / (peak + hill)) < 0.08


# Every one of 32 points climbs one hill, whatever the key.
@pytest.mark.false_failure(1e-6)
def test_climbers_end_at_the_top_and_know_its_width():
    mixture = summits(lambda u: gaussian(u, (jnp.asarray([0.3, -0.7]), jnp.asarray([0.02, 0.5]))), 2, jax.random.key(0))
    variance = 1 / (1 + 1 / np.array([0.02, 0.5]) ** 2)
    top = np.array([0.3, -0.7]) * (1 - variance)
    own = slice(1, 1 + (len(mixture.centres) - 1) // len(LADDER))
    np.testing.assert_allclose(mixture.centres[own], np.broadcast_to(top, (CLIMBERS, 2)), atol=2e-3)
    wide = np.einsum("kij,klj->kil", mixture.roots[own], mixture.roots[own])
    np.testing.assert_allclose(np.median(wide[:, [0, 1], [0, 1]], axis=0), (1 + 2**-0.5) * variance, rtol=0.3)


@pytest.mark.false_failure(1e-8)
def test_a_mixture_has_the_density_that_it_draws_from():
    rng = np.random.default_rng(0)
    roots = np.stack([np.eye(2), [[0.5, 0.0], [0.2, 0.3]]])
    mixture = Mixture(
        *(
            jnp.asarray(v, jnp.float32)
            for v in (rng.normal(size=(2, 2)), roots, np.linalg.inv(roots), np.log([0.25, 0.75]), np.log([1.0, 0.15]))
        )
    )
    u = rng.normal(size=(4, 2))
    exact = [
        np.log(
            sum(
                w * stats.multivariate_normal(c, r @ r.T).pdf(one)
                for w, c, r in zip((0.25, 0.75), mixture.centres, roots, strict=True)
            )
        )
        for one in u
    ]
    np.testing.assert_allclose(jax.vmap(mixture.log_density)(jnp.asarray(u, jnp.float32)), exact, atol=1e-4)
    draws = np.asarray(mixture.draw(jax.random.key(0), 20_000))
    mean = np.array([0.25, 0.75]) @ np.asarray(mixture.centres)
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.06)  # 6 standard errors


@pytest.mark.full
def test_clouds_that_found_different_modes_are_reported():
    """The four points are 2 · 10⁻⁶ apart along one axis: no prior draw is near, and a cloud ends in some of the modes."""
    _, x = tasks.get("slcp").observe(8, seed=1)
    data = jnp.asarray(x, jnp.float32)
    _, info = one_of(
        lambda seed: tempered_draws(looked(four_points, data), 5, clouds_for(1_000, 5), 1_000, jax.random.key(seed)),
        lambda run: run[1].difference > 1,
    )
    assert not info.converged


def test_the_rise_leaves_half_of_the_draws():
    value = jnp.asarray(np.random.default_rng(0).normal(0, 1e4, 512), jnp.float32)
    weights = jax.nn.softmax(largest_rise(value, jnp.ones(())) * value)
    np.testing.assert_allclose(1 / jnp.sum(weights**2), 256, rtol=0.02)
    assert largest_rise(value / 1e6, jnp.asarray(0.3)) == jnp.asarray(0.3)


# The same for every key: each weight is a whole number of eighths.
@pytest.mark.false_failure(0)
def test_resampling_keeps_what_weighs_something():
    chosen = np.asarray(systematic(jnp.array([0.0, 0.5, 0.25, 0.25, 0.0, 0.0, 0.0, 0.0]), jax.random.key(0)))
    assert np.bincount(chosen, minlength=8).tolist() == [0, 4, 2, 2, 0, 0, 0, 0]


def test_the_density_around_draws_is_a_mixture():
    rng = np.random.default_rng(0)
    centres, root = rng.normal(size=(6, 2)), np.array([[0.5, 0.0], [0.2, 0.3]])
    u = rng.normal(size=(4, 2))
    exact = [np.log(sum(stats.multivariate_normal(c, root @ root.T).pdf(one) for c in centres)) for one in u]
    found = np.asarray(log_around(*(jnp.asarray(v, jnp.float32) for v in (u, centres, np.linalg.inv(root)))))
    np.testing.assert_allclose(found - found[0], np.array(exact) - exact[0], atol=1e-4)


def test_clouds_are_of_few_sizes():
    assert clouds_for(1, 2) == Clouds(2, 256)
    assert clouds_for(1_000, 5) == Clouds(2, 512)
    assert clouds_for(5_000, 5) == Clouds(5, 1_024)
    assert clouds_for(100, 40) == Clouds(2, 1_024)


class NotANumber(eqx.Module):
    def prepare(self, x):
        return x

    def term(self, u, x):
        return jnp.nan * jnp.sum(u)


def test_a_likelihood_that_is_never_a_number_is_refused():
    with pytest.raises(ScorefoldError, match="not a number at any"):
        summed(NotANumber(), sampler="smc").sample(np.ones((2, 2)), 100)
