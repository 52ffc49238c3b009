"""The ratio of another prior to the one that was simulated from, as tables, against SciPy's densities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import scorefold as sf
from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.posterior.asked import on_device
from scorefold.prior.prior_ratio import check_overlap, prior_ratio, volume
from scorefold.prior.proposal import GaussianProposal

MARGINALS = sf.Prior({"a": stats.lognorm(0.5, scale=2.0), "b": stats.uniform(-1, 4)})
NORMALS = sf.Prior({"a": stats.norm(1, 2), "b": stats.norm(0, 1)})
CORRELATED = sf.Prior(stats.multivariate_normal([0, 1], [[1, 0.5], [0.5, 2]]), names=["a", "b"])
NARROW = sf.Prior(stats.multivariate_normal([0.5, 0.5], [[0.3, -0.1], [-0.1, 0.2]]), names=["a", "b"])
PAIRS = {
    "marginals to marginals": (MARGINALS, sf.Prior({"a": stats.gamma(4, scale=0.5), "b": stats.beta(2, 3, -1, 4)})),
    "normals to marginals": (NORMALS, sf.Prior({"a": stats.t(8, 1, 1), "b": stats.logistic(0.3, 0.4)})),
    "correlated to marginals": (CORRELATED, sf.Prior({"a": stats.norm(0, 0.5), "b": stats.t(8, 1, 1)})),
    "normals to correlated": (NORMALS, NARROW),
    "uniform to correlated": (sf.Prior({"a": stats.uniform(-5, 10), "b": stats.uniform(-5, 10)}), NARROW),
    "correlated to correlated": (CORRELATED, NARROW),
}


@pytest.mark.parametrize("case", PAIRS)
def test_tables_are_the_ratio_of_densities(case):
    prior, other = PAIRS[case]
    theta = other.sample(200, seed=1)
    u = prior.to_normal(theta)
    exact = other.log_prob(theta) - prior.log_prob(theta)
    found = np.asarray(jax.vmap(on_device(prior_ratio(prior, other)).log_ratio)(jnp.asarray(u, jnp.float32)))
    np.testing.assert_allclose(found - found[0], exact - exact[0], atol=5e-3)


def test_slopes_are_those_of_the_ratio():
    prior, other = PAIRS["normals to marginals"]
    ratio = on_device(prior_ratio(prior, other))
    u = np.random.default_rng(0).uniform(-2, 2, (50, 2))

    def exact(u):
        theta = prior.from_normal(u)
        return other.log_prob(theta) - prior.log_prob(theta)

    slopes = np.stack([(exact(u + 1e-5 * axis) - exact(u - 1e-5 * axis)) / 2e-5 for axis in np.eye(2)], axis=1)
    found = np.asarray(jax.vmap(jax.grad(ratio.log_ratio))(jnp.asarray(u, jnp.float32)))
    np.testing.assert_allclose(found, slopes, atol=2e-3)


def test_of_a_proposal_it_is_relative_to_the_prior_that_it_stands_for():
    prior, other = PAIRS["normals to marginals"]
    proposed = prior.proposing(GaussianProposal(np.ones(2), 0.1 * np.eye(2)))
    for one, same in zip(prior_ratio(proposed, other), prior_ratio(prior, other), strict=True):
        assert np.array_equal(one, same)


def test_where_the_other_prior_ends():
    ratio = prior_ratio(NORMALS, sf.Prior({"a": stats.uniform(0, 2), "b": stats.norm(0, 1)}))
    u = NORMALS.to_normal([[-0.1, 0], [0.1, 5], [1.9, 0], [2.1, 0]])
    assert ratio.cuts
    assert ratio.inside(u).tolist() == [False, True, True, False]
    values = [float(on_device(ratio).exact_log_ratio(jnp.asarray(one, jnp.float32), None)) for one in u]
    assert np.isfinite(values).tolist() == [False, True, True, False]
    smooth = [float(on_device(ratio).log_ratio(jnp.asarray(one, jnp.float32))) for one in u]
    assert np.isfinite(smooth).all(), "samplers that follow scores go a little beyond"
    assert not prior_ratio(*PAIRS["normals to marginals"]).cuts


@pytest.mark.parametrize("prior", [MARGINALS, CORRELATED], ids=["marginals", "correlated"])
def test_volume(prior):
    theta = prior.sample(100, seed=2)
    exact = prior.log_volume(theta)
    u = jnp.asarray(prior.to_normal(theta), jnp.float32)
    found = np.asarray(jax.vmap(on_device(volume(prior)).log_ratio)(u))
    np.testing.assert_allclose(found - found[0], exact - exact[0], atol=2e-3)


def test_log_volume_of_a_prior_from_draws():
    rng = np.random.default_rng(0)
    draws = np.stack([rng.normal(size=500), rng.exponential(size=500) + 0.1, rng.uniform(0.1, 0.9, 500)], axis=1)
    prior = sf.Prior.from_draws(draws, names=["a", "b", "c"], bounds={"b": (0, np.inf), "c": (0, 1)})
    at, step = np.array([0.3, 0.7, 0.4]), 1e-6
    columns = [(prior.to_normal(at + step * axis) - prior.to_normal(at - step * axis)) / (2 * step) for axis in np.eye(3)]
    np.testing.assert_allclose(prior.log_volume(at), np.linalg.slogdet(np.stack(columns))[1], atol=1e-5)


# What is refused, and said


def test_weight_outside_the_support_is_refused():
    with pytest.raises(ScorefoldError, match=r"'b' goes from -1 to 3.*weight outside"):
        check_overlap(MARGINALS, sf.Prior({"a": stats.lognorm(0.5), "b": stats.norm(0, 2)}))


def test_weight_where_little_was_simulated_is_said():
    with pytest.warns(ScorefoldWarning, match="most of all of 'a'"):
        check_overlap(NORMALS, sf.Prior({"a": stats.norm(9, 1), "b": stats.norm(0, 1)}))


def test_a_wider_prior_is_only_said():
    """A third of it lies beyond 6 sd of the first prior; the posterior may be in the middle."""
    with pytest.warns(ScorefoldWarning, match="If the posterior is there, too"):
        check_overlap(sf.Prior({"a": stats.norm(0, 1)}), sf.Prior({"a": stats.norm(0, 6)}))
    with pytest.raises(ScorefoldError, match=r"6[0-9]% of its weight beyond 6 prior sd, most of all of 'a'"):
        check_overlap(sf.Prior({"a": stats.norm(0, 1)}), sf.Prior({"a": stats.norm(0, 14)}))


@pytest.mark.filterwarnings("error")
def test_a_prior_within_the_first_one_is_neither():
    check_overlap(NORMALS, sf.Prior({"a": stats.norm(0, 1), "b": stats.norm(0.5, 0.5)}))
    check_overlap(MARGINALS, sf.Prior({"a": stats.lognorm(0.4, scale=2.5), "b": stats.uniform(0, 1)}))
    check_overlap(NORMALS, NORMALS)


def test_what_is_no_other_prior_is_refused():
    drawn = sf.Prior.from_draws(np.random.default_rng(0).normal(size=(200, 2)), names=["a", "b"])
    for other, words in (
        (stats.norm(0, 1), "an sf.Prior"),
        (sf.Prior({"b": stats.norm(0, 1), "a": stats.norm(0, 1)}), "same order, a, b"),
        (drawn, "to change to whose density is known"),
    ):
        with pytest.raises(ScorefoldError, match=words):
            check_overlap(NORMALS, other)
    with pytest.raises(ScorefoldError, match="simulated from whose density is known"):
        check_overlap(drawn, NORMALS)
