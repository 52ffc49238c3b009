"""Draws under another prior, and of some parameters given others, where the right answer is known without training."""

import numpy as np
import pytest
from exact_posteriors import VARIANCES, summed
from full import shortly
from linear_posterior import NOISE, linear_posterior
from scipy import stats
from untrained import untrained

import scorefold as sf
from scorefold.errors import ScorefoldError, UntrustworthyDraws
from scorefold.posterior.amortised import each_reweighed, reweighed
from scorefold.posterior.draws import Options
from scorefold.prior.prior_ratio import prior_ratio

N = 12
DRAWS = 1_000


@pytest.fixture(scope="module")
def composed():
    return linear_posterior()


def observed(sd):
    return np.array([0.5, -0.3]) + sd * np.random.default_rng(1).standard_normal((N, 2))


def conjugate(x, variances, mean, sd):
    """Of N(mean, sd²) priors."""
    precision = len(x) / variances + 1 / np.square(sd)
    return (x.sum(axis=0) / variances + mean / np.square(sd)) / precision, precision**-0.5


def near(draws, mean, sd):
    """Means and sds as 1,000 draws tell them, with 8 standard errors and a tenth for the base's fit."""
    assert (np.abs(draws.mean(axis=0) - mean) < (0.1 + 8 / np.sqrt(DRAWS)) * sd).all()
    assert (np.abs(draws.std(axis=0) / sd - 1) < 0.05 + 8 / np.sqrt(2 * DRAWS)).all()


SHIFTED = np.array([1.0, -1.0]), np.array([0.3, 0.2])


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("n", shortly([1, N], N))
def test_composed_scores_under_another_prior(composed, n):
    x = observed(NOISE)[:n]
    mean, sd = SHIFTED
    other = sf.Prior({"a": stats.norm(mean[0], sd[0]), "b": stats.norm(mean[1], sd[1])})
    drawn = composed.sample(x, DRAWS, prior=other)
    assert drawn.info.converged
    assert drawn.prior == other
    near(drawn.theta, *conjugate(x, NOISE**2, mean, sd))


@pytest.mark.false_failure(1e-6)
def test_composed_scores_under_a_correlated_prior(composed):
    x, mean = observed(NOISE), SHIFTED[0]
    covariance = np.array([[0.09, 0.04], [0.04, 0.04]])
    drawn = composed.sample(x, DRAWS, prior=sf.Prior(stats.multivariate_normal(mean, covariance), names=["a", "b"]))
    precision = np.linalg.inv(covariance) + np.diag(N / NOISE**2)
    exact = np.linalg.solve(precision, np.linalg.solve(covariance, mean) + x.sum(axis=0) / NOISE**2)
    right = np.linalg.inv(precision)
    near(drawn.theta, exact, np.sqrt(np.diag(right)))
    assert abs(np.corrcoef(drawn.theta.T)[0, 1] - right[0, 1] / np.sqrt(right[0, 0] * right[1, 1])) < 0.25


@pytest.mark.false_failure(1e-6)
def test_composed_scores_under_a_prior_that_cuts_the_posterior(composed):
    x = observed(NOISE)
    mean, sd = conjugate(x, NOISE**2, np.zeros(2), np.array([1e6, 1.0]))
    drawn = composed.sample(x, DRAWS, prior=sf.Prior({"a": stats.uniform(0.4, 2), "b": stats.norm(0, 1)}))
    law = stats.truncnorm((0.4 - mean[0]) / sd[0], (2.4 - mean[0]) / sd[0], mean[0], sd[0])
    assert drawn.theta[:, 0].min() > 0.4
    near(drawn.theta, [law.mean(), mean[1]], np.array([law.std(), sd[1]]))


@pytest.mark.false_failure(1e-6)
def test_composed_scores_given_a_parameter(composed):
    x = observed(NOISE)
    drawn = composed.sample(x, DRAWS, given={"a": 1.0})
    mean, sd = conjugate(x, NOISE**2, np.zeros(2), np.ones(2))
    np.testing.assert_allclose(drawn["a"], 1.0, atol=1e-6)
    near(drawn.theta[:, 1:], mean[1:], sd[1:])
    assert "not judged" in str(drawn.trust)


def test_samplers_that_reverse_a_diffusion_are_refused(composed):
    with pytest.raises(ScorefoldError, match="not that of a diffusion"):
        composed.sample(observed(NOISE), 10, prior=composed.prior, sampler="ancestral")
    with pytest.raises(ScorefoldError, match="not that of a diffusion"):
        composed.sample(observed(NOISE), 10, given={"a": 0.0}, rule="tempered", sampler="transitions")


@pytest.mark.false_failure(2e-6)
@pytest.mark.parametrize("sampler", ["smc", "vi"])
def test_likelihoods_under_another_prior(sampler):
    x, (mean, sd) = observed(np.sqrt(VARIANCES)), SHIFTED
    posterior = summed(sampler=sampler)
    other = sf.Prior({name: stats.norm(mean[i], sd[i]) for i, name in enumerate(posterior.prior.names)})
    near(posterior.sample(x, DRAWS, prior=other).theta, *conjugate(x, VARIANCES, mean, sd))


@pytest.mark.false_failure(1e-6)
@pytest.mark.filterwarnings("error::scorefold.errors.UntrustworthyDraws")
def test_likelihoods_under_a_prior_with_an_edge_and_given_a_parameter():
    x, posterior = observed(np.sqrt(VARIANCES)), summed(sampler="smc")
    one, two = posterior.prior.names
    mean, sd = conjugate(x, VARIANCES, np.zeros(2), np.array([1e6, 1.0]))
    law = stats.truncnorm((0.4 - mean[0]) / sd[0], (2.4 - mean[0]) / sd[0], mean[0], sd[0])
    cut = sf.Prior({one: stats.uniform(0.4, 2), two: stats.norm(0, 1)})
    near(posterior.sample(x, DRAWS, prior=cut).theta, [law.mean(), mean[1]], np.array([law.std(), sd[1]]))
    with pytest.raises(ScorefoldError, match="cannot do with edges"):
        posterior.sample(x, 10, prior=cut, sampler="vi")
    given = posterior.sample(x, DRAWS, given={one: 1.0}).theta
    np.testing.assert_allclose(given[:, 0], 1.0, atol=1e-6)
    near(given[:, 1:], mean[1:], sd[1:])


@pytest.mark.false_failure(1e-6)
def test_draws_are_picked_by_the_ratio():
    prior, other = (sf.Prior({"a": stats.norm(0, 1)}), sf.Prior({"a": stats.norm(0.5, 0.5)}))
    u = np.random.default_rng(0).standard_normal((16 * DRAWS, 1))
    near(reweighed(u, prior_ratio(prior, other), DRAWS, (0, 0)), 0.5, 0.5)
    with pytest.warns(UntrustworthyDraws, match="are worth"):
        reweighed(u, prior_ratio(prior, sf.Prior({"a": stats.norm(3, 0.05)})), DRAWS, (0, 0))


@pytest.mark.false_failure(1e-7)
def test_flows_are_judged_by_their_draws_under_the_other_prior():
    """Members that agree on the posterior do not agree where only a few of their draws count."""
    prior, near, far = (sf.Prior({"a": law}) for law in (stats.norm(0, 1), stats.norm(0.5, 0.5), stats.norm(3, 0.2)))
    each = np.random.default_rng(0).standard_normal((3, 6_000, 1))
    beside, there = (each_reweighed(each, prior_ratio(prior, other), (0, 0)) for other in (near, far))
    assert beside.shape == (3, 2_000, 1)
    assert np.ptp(beside.mean(axis=1)) < 0.4 * beside.std()
    assert len(np.unique(there)) < 200
    posterior, nowhere = untrained("npe"), sf.Prior({"a": stats.uniform(7, 1), "b": stats.uniform(0, 1)})
    doubts = posterior.doubts(np.zeros((1, 2)), np.zeros((50, 2)), (0, 0), Options(prior=nowhere))
    assert "no draws where the other prior has weight" in str(doubts)


def test_methods_without_them_refuse():
    abc, npe = untrained("abc"), untrained("npe")
    with pytest.raises(ScorefoldError, match=r"got given\. For another prior, or given values"):
        abc.sample(np.zeros((1, 2)), given={"a": 0.0})
    with pytest.raises(ScorefoldError, match=r"got given\. For another prior"):
        npe.sample(np.zeros((1, 2)), given={"a": 0.0})


# Means of 200 draws for each of three data sets, within 8 standard errors and a tenth.
@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("cut", shortly([False, True], True))
def test_many_data_sets_under_another_prior(composed, cut):
    x = np.stack([observed(NOISE) + shift for shift in (0.0, 0.3, 0.6)])
    mean, sd = SHIFTED
    first = stats.uniform(0.4, 2) if cut else stats.norm(mean[0], sd[0])
    other = sf.Prior({"a": first, "b": stats.norm(mean[1], sd[1])})
    many = composed.sample_many(x, 200, prior=other)
    assert many.converged.all()
    for one, theta in zip(x, many.theta, strict=True):
        right, width = conjugate(one, NOISE**2, mean, sd)
        assert np.abs(theta[:, 1].mean() - right[1]) < (0.1 + 8 / np.sqrt(200)) * width[1]
        assert theta[:, 0].min() > 0.4 or not cut
        assert np.abs(theta[:, 0].mean() - right[0]) < (0.1 + 8 / np.sqrt(200)) * width[0] or cut
    with pytest.raises(ScorefoldError, match="beyond 6 prior sd, most of all of 'a'"):
        composed.sample_many(x, 10, prior=sf.Prior({"a": stats.norm(100, 1), "b": stats.norm(0, 1)}))


@pytest.mark.full
@pytest.mark.false_failure(1e-6)
def test_many_data_sets_given_a_parameter(composed):
    x = np.stack([observed(NOISE), observed(NOISE) + 0.5])
    for posterior, variances in ((composed, NOISE**2), (summed(sampler="smc"), VARIANCES)):
        name = posterior.prior.names[0]
        many = posterior.sample_many(x, 200, given={name: 1.0})
        np.testing.assert_allclose(many.theta[..., 0], 1.0, atol=1e-5)
        right = [conjugate(one, variances, np.zeros(2), np.ones(2)) for one in x]
        off = [np.abs(theta[:, 1].mean() - m[1]) / s[1] for theta, (m, s) in zip(many.theta, right, strict=True)]
        assert max(off) < 0.1 + 8 / np.sqrt(200)
    with pytest.raises(ScorefoldError, match=r"got given\. For another prior"):
        untrained("npe").sample_many(np.zeros((2, 1, 2)), 10, given={"a": 0.0})
