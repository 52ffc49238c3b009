"""Densities, their maxima and the evidence, where they are known in closed form."""

import warnings
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_posteriors import VARIANCES, Exact, Health, summed
from full import shortly
from linear_posterior import NOISE, exact, linear_posterior, spoiled
from scipy import stats
from scipy.special import logsumexp
from untrained import CASES, random_posterior, untrained

import scorefold as sf
from scorefold.errors import ScorefoldError
from scorefold.posterior.asked import Asked
from scorefold.posterior.belongs import refuse_others
from scorefold.posterior.draws import Draws, Options
from scorefold.posterior.evidence import ABSOLUTE, RELATIVE
from scorefold.posterior.line_integral import Composed, beside_a_summit, energies, from_summit, integrals
from scorefold.sample.ascent import curvatures
from scorefold.score.local_mean import LocalMean

N = 12


@pytest.fixture(scope="module")
def composed():
    return linear_posterior()


@pytest.fixture(scope="module")
def x():
    return np.array([0.5, -0.3]) + NOISE * np.random.default_rng(1).standard_normal((N, 2))


def normal_evidence(x, variances):
    """log p(x_1 … x_n) and Σ_j log p(x_j) of x_j ~ N(θ, variances), θ ~ N(0, I)."""
    n = len(x)
    laws = [stats.multivariate_normal(np.zeros(n), np.ones((n, n)) + v * np.eye(n)) for v in variances]
    return sum(law.logpdf(x[:, k]) for k, law in enumerate(laws)), stats.norm(0, np.sqrt(1 + variances)).logpdf(x).sum()


# Composed scores


@pytest.mark.false_failure(1e-6)
@pytest.mark.full
def test_log_prob_and_map_of_composed_scores(composed, x):
    mean, sd = exact(x)
    theta = mean + sd * np.random.default_rng(2).standard_normal((3, 50, 2))
    right = stats.norm(mean, sd).logpdf(theta).sum(axis=2)
    draws = composed.sample(x, 1_000)
    found = composed.log_prob(theta, x, draws=draws)
    assert found.shape == (3, 50)
    # The base is fitted to simulations, a hundredth of an sd off; the constant has an error of 0.02.
    assert np.abs(found - right).max() < 0.2
    relative = composed.log_prob(theta, x, normalised=False)
    np.testing.assert_allclose(relative - relative[0, 0], found - found[0, 0], atol=1e-6)
    assert relative.max() <= 0
    assert (np.abs(composed.map(x, draws=draws) - mean) < 0.1 * sd).all()


@pytest.mark.full
@pytest.mark.false_failure(1e-6)
def test_log_prob_under_another_prior(composed, x):
    other = sf.Prior({"a": stats.uniform(0.4, 2), "b": stats.norm(0, 1)})
    draws = composed.sample(x, 1_000, prior=other)
    found = composed.log_prob(draws.theta[:100], x, prior=other, draws=draws)
    precision = N / NOISE**2 + np.array([0, 1])
    mean, sd = x.sum(axis=0) / NOISE**2 / precision, precision**-0.5
    law = stats.truncnorm((0.4 - mean[0]) / sd[0], (2.4 - mean[0]) / sd[0], mean[0], sd[0])
    right = law.logpdf(draws["a"][:100]) + stats.norm(mean[1], sd[1]).logpdf(draws["b"][:100])
    assert np.abs(found - right).max() < 0.3
    assert composed.log_prob([[0.3, 0.0]], x, prior=other, normalised=False)[0] == -np.inf


def conservative():
    """A conservative network of random numbers."""
    method, prior, shape, largest = CASES["conservative"]
    posterior = random_posterior(method, prior, shape, largest)
    rng = np.random.default_rng(3)
    network = jax.tree.map(lambda v: jnp.asarray(0.3 * rng.standard_normal(v.shape), v.dtype), posterior.ensemble.network)
    scores = eqx.tree_at(lambda e: (e.network, e.correction), posterior.ensemble, (network, None), is_leaf=lambda v: v is None)
    return posterior, scores


@pytest.mark.full
def test_line_integrals_of_a_gradient_are_differences_of_energies():
    posterior, scores = conservative()
    padded, _ = posterior.arrange(np.random.default_rng(0).normal(size=(1, 5, 2)), [(0, 0)], Options(sampler="self-tuned"))
    padded = padded._replace(x=padded.x[0])
    level = jax.tree.map(lambda v: v[0], posterior.levels())
    a, way = np.random.default_rng(1).normal(size=(2, 40, 2))
    b = a + 0.3 * way
    composed = Composed(scores, Asked(), padded, level)
    by_energies = energies(composed, b) - energies(composed, a)
    np.testing.assert_allclose(integrals(composed, a, b), by_energies, atol=0.02, rtol=1e-3)
    curvature = np.asarray(curvatures(lambda u: composed.score()(u, level, jax.random.key(0)), jnp.asarray(a[:1], jnp.float32)))
    near = a[0] + 0.3 * way
    found = from_summit(composed, a[0], curvature[0], near)
    np.testing.assert_allclose(found, energies(composed, near) - energies(composed, a[:1]), atol=0.02, rtol=1e-3)


def test_a_line_from_a_summit_is_exact_for_polynomials_of_degree_five():
    rule = beside_a_summit()
    of_value, of_slope = 1 - rule.weights.sum(), 0.5 - rule.weights @ rule.nodes
    for degree in range(6):
        known = of_value * (degree == 0) + of_slope * (degree == 1)
        assert abs(known + rule.weights @ rule.nodes**degree - 1 / (degree + 1)) < 1e-12
    assert abs(rule.weights @ rule.nodes**6 - 1 / 7) > 1e-4


def test_a_score_that_is_no_gradient_is_said(composed, x):
    turned = spoiled(composed, slope=((0.0, 2.0), (-2.0, 0.0)))
    with pytest.warns(sf.errors.UntrustworthyDraws, match="not the gradient of a density"):
        turned.log_prob(exact(x)[0] + 0.2 * np.random.default_rng(0).normal(size=(50, 2)), x, normalised=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        composed.log_prob(exact(x)[0] + 0.2 * np.random.default_rng(0).normal(size=(50, 2)), x, normalised=False)


# Bounded parameters


class Bounded(eqx.Module):
    """x | θ ~ N(θ, 0.04), with θ uniform on (0, 1) and (0, 2)."""

    def prepare(self, x):
        return x

    def term(self, u, x):
        theta = jax.scipy.stats.norm.cdf(u) * jnp.array([1.0, 2.0])
        return -jnp.sum((x - theta) ** 2) / 0.08


@pytest.mark.full
def test_the_maximum_is_that_of_theta_not_of_u():
    prior = sf.Prior({"a": stats.uniform(0, 1), "b": stats.uniform(0, 2)})
    posterior = replace(summed(Bounded(), sampler="smc"), prior=prior)
    x = np.array([[0.8, 1.7], [0.7, 1.9]])
    np.testing.assert_allclose(posterior.map(x), x.mean(axis=0), atol=1e-3)
    grid = np.stack(np.meshgrid(np.linspace(0.0005, 0.9995, 200), np.linspace(0.001, 1.999, 200)), axis=-1)
    assert abs(np.exp(posterior.log_prob(grid, x)).mean() * 2 - 1) < 0.1, "a density integrates to 1"
    assert (posterior.log_prob([[1.2, 1.0], [0.5, -0.1], [np.nan, 1.0]], x, normalised=False) == -np.inf).all()


class Peaked(eqx.Module):
    """x | u ~ N(u, 1.5² I) or, as often, N(u, 0.05² I)."""

    def prepare(self, x):
        return x

    def term(self, u, x):
        return jax.nn.logsumexp(jnp.stack([-jnp.sum((x - u) ** 2) / (2 * sd**2) - len(x) * jnp.log(sd) for sd in (1.5, 0.05)]))


def test_the_maximum_is_found_where_no_draws_are():
    posterior, x = summed(Peaked(), sampler="smc"), np.array([[2.0, 2.0]])
    hill = x / (1 + 1.5**2) + 0.1 * np.random.default_rng(0).standard_normal((100, 2))
    found = posterior.map(x, draws=Draws(hill, posterior.prior.names, Health(), 1, None, 0.0))
    np.testing.assert_allclose(found, x[0] / (1 + 0.05**2), atol=1e-3)


def test_the_density_at_the_very_end_of_a_support():
    """u = Φ⁻¹(F(θ)) is infinite there, and a learned likelihood is not known."""
    prior = sf.Prior({"a": stats.uniform(0, 1), "b": stats.lognorm(0.5)})
    posterior = replace(summed(sampler="smc"), prior=prior)  # its likelihood is a parabola in u
    ends, last = [[0.0, 1.0], [1.0, 1.0]], prior.from_normal([[-6.0, 0.0], [6.0, 0.0]])
    at_ends, at_last = (posterior.log_prob(theta, np.zeros((1, 2)), normalised=False) for theta in (ends, last))
    np.testing.assert_allclose(at_ends, at_last, rtol=1e-5)
    beyond = posterior.log_prob([[0.5, 0.0]], np.zeros((1, 2)), normalised=False)
    assert beyond == -np.inf, "as the prior's own density there"


# Evidence


class Likelihood(Exact):
    """With what its terms leave out."""

    normalised: bool = eqx.field(static=True, default=True)

    def log_volume(self, x):
        return -jnp.sum(jnp.log(2 * jnp.pi * jnp.asarray(VARIANCES, jnp.float32))) / 2


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("n", shortly([1, N], N))
def test_evidence_of_a_likelihood_and_of_ratios(x, n):
    total, _ = normal_evidence(x[:n], VARIANCES)
    found = sf.evidence(summed(Likelihood(), sampler="smc"), x[:n])
    assert found.kind == ABSOLUTE
    assert found.absolute
    assert found.error < 0.05
    assert abs(found.log - total) < 0.3
    ratios = sf.evidence(summed(sampler="smc"), x[:n])
    assert ratios.kind == RELATIVE
    assert "Σ_j log p(x_j)" in str(ratios)


@pytest.mark.full
@pytest.mark.false_failure(1e-6)
def test_evidence_of_composed_scores(composed, x):
    total, single = normal_evidence(x, NOISE**2)
    found = sf.evidence(composed, x)
    assert found.kind == RELATIVE
    assert abs(found.log - (total - single)) < 0.3
    alone = sf.evidence(composed, x[:1])
    assert (alone.log, alone.error) == (0.0, 0.0)


def under(other, x, variances):
    """log p(x_1 … x_n) with θ_k ~ `other`[k], by quadrature."""
    grid = np.linspace(-6, 6, 20_001)
    each = [
        law.logpdf(grid) + stats.norm(grid[:, None], np.sqrt(v)).logpdf(x[:, k]).sum(axis=1)
        for k, (law, v) in enumerate(zip(other, variances, strict=True))
    ]
    return sum(logsumexp(one) + np.log(grid[1] - grid[0]) for one in each)


OTHERS = [
    (stats.norm(0.4, 0.3), stats.norm(-0.5, 0.7)),
    (stats.uniform(-1, 1.4), stats.norm(-0.5, 0.7)),  # ends inside the support
]


@pytest.mark.full
@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("other", OTHERS, ids=["normal", "with an edge"])
def test_evidence_of_a_likelihood_under_another_prior(x, other):
    posterior = summed(Likelihood(), sampler="smc")
    found = sf.evidence(posterior, x, prior=sf.Prior(dict(zip(posterior.prior.names, other, strict=True))))
    assert found.kind == ABSOLUTE
    assert abs(found.log - under(other, x, VARIANCES)) < 0.3


@pytest.mark.full
@pytest.mark.false_failure(1e-6)
def test_evidence_of_composed_scores_under_another_prior(composed, x):
    """Σ_j log p(x_j), which is taken away, stays that under the first one."""
    _, single = normal_evidence(x[:1], NOISE**2)
    found = sf.evidence(composed, x[:1], prior=sf.Prior(dict(zip(composed.prior.names, OTHERS[0], strict=True))))
    assert abs(found.log - (under(OTHERS[0], x[:1], NOISE**2) - single)) < 0.3


def test_log_likelihood_of_every_observation(x):
    posterior = summed(Likelihood(), sampler="smc")
    theta = np.random.default_rng(0).normal(size=(7, 2))
    found = posterior.log_likelihood(theta, x)
    exact = np.stack([stats.norm(one, np.sqrt(VARIANCES)).logpdf(x).sum(axis=1) for one in theta])
    np.testing.assert_allclose(found, exact, atol=1e-3)
    draws = posterior.sample(x, 200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        inference = draws.to_arviz(log_likelihood=posterior.log_likelihood(draws.theta, x))
    assert inference.log_likelihood["x"].shape == (1, 200, N)
    with pytest.raises(ScorefoldError, match=r"of shape \(200, 12\)"):
        draws.to_arviz(log_likelihood=found)
    with pytest.raises(ScorefoldError, match="ratio"):
        summed(sampler="smc").log_likelihood(theta, x)


# The shortest interval


def test_shortest_interval():
    theta = np.stack([np.random.default_rng(0).exponential(size=20_000), np.linspace(0, 1, 20_000)], axis=1)
    draws = Draws(theta, ("a", "b"), Health(), 1, None, 0.0)
    low, high = draws.hdi(0.8)["a"]
    assert low < 0.01
    assert abs(high - np.log(5)) < 0.1
    assert abs(np.diff(draws.hdi(0.5)["b"])[0] - 0.5) < 1e-3
    with pytest.raises(ScorefoldError, match="level"):
        draws.hdi(1.0)


def test_what_has_no_density_says_so():
    abc, npe = untrained("abc"), untrained("npe")
    with pytest.raises(ScorefoldError, match="ABC has none"):
        abc.log_prob([[0.0, 0.5]], np.zeros((1, 2)))
    with pytest.raises(ScorefoldError, match="whose evidence can be known"):
        sf.evidence(abc, np.zeros((1, 2)))
    for posterior in (abc, npe):
        with pytest.raises(ScorefoldError, match=r"single observations.*'f-npse', 'pf-npse', 'nle' or 'nre'"):
            posterior.sensitivity(np.zeros((1, 2)))
    with pytest.raises(ScorefoldError, match="has none"):
        npe.log_likelihood([[0.0, 0.5]], np.zeros((1, 2)))
    values = npe.log_prob([[0.0, 0.5], [0.0, 2.0]], np.zeros((1, 2)))
    assert np.isfinite(values[0])
    assert values[1] == -np.inf


def test_corrected_scores_have_no_evidence():
    """The correction holds near the draws given all observations, not for each by itself."""
    one, zero = np.eye(2), np.zeros(2)
    local = LocalMean(zero, one, zero, 0 * one, one, one, zero, 0.01, 1.0)
    with pytest.raises(ScorefoldError, match="as it was trained; got a corrected one"):
        sf.evidence(replace(untrained("conservative"), local=local), np.zeros((1, 2)))


# Draws that are handed over


def test_draws_of_something_else_are_refused(x):
    posterior = summed(Likelihood(), sampler="smc")
    names = posterior.prior.names
    own = Draws(np.random.default_rng(0).normal(size=(400, 2)), names, Health(), N, None, 0.0, x, posterior.prior)
    posterior.map(x, draws=own)
    other = sf.Prior({name: stats.norm(0, 0.5) for name in names})
    held = own.theta * [1.0, 0.0] + [0.0, 0.5]
    for draws, words in (
        (replace(own, names=("one", "two")), f"draws of one, two instead of {', '.join(names)}"),
        (replace(own, n=3), "given 3 observations instead of 12"),
        (replace(own, x_obs=x + 0.1), "given other observations"),
        (replace(own, prior=other), "under another prior"),
        (replace(own, theta=held), "of some parameters given others"),
    ):
        with pytest.raises(ScorefoldError, match=words):
            posterior.log_prob(own.theta, x, draws=draws)
    with pytest.raises(ScorefoldError, match="under another prior"):
        sf.evidence(posterior, x, draws=own, prior=other)
    with pytest.raises(ScorefoldError, match="given other observations"):
        posterior.sensitivity(x[::-1], draws=own)
    with pytest.raises(ScorefoldError, match="as `sample` returned them; got ndarray"):
        refuse_others(own.theta, x, posterior.prior)


# What moves the means


# 256 draws tell a covariance to a tenth.
@pytest.mark.full
@pytest.mark.false_failure(1e-6)
def test_sensitivity_to_observations_and_to_the_prior(composed, x):
    mean, sd = exact(x)
    pulled = composed.sensitivity(x, draws=composed.sample(x, 1_000))
    assert pulled.names == ("a", "b")
    # Leaving x_j out of n moves the mean by (x_j - mean) / (variance · precision), to first order.
    right = (x - mean) / NOISE**2 * sd
    assert np.abs(pulled.observations - right).max() < 0.25
    assert pulled.order[0] == int(np.abs(pulled.observations).max(axis=1).argmax())
    np.testing.assert_allclose(pulled.prior, -mean * sd, atol=0.15)
    assert str(pulled).splitlines()[1].startswith("the prior")
    other = summed(sampler="smc").sensitivity(x)
    assert np.abs(other.observations - (x - conjugate_mean(x)) / VARIANCES * conjugate_sd(x)).max() < 0.4


def conjugate_sd(x):
    return (1 + len(x) / VARIANCES) ** -0.5


def conjugate_mean(x):
    return x.sum(axis=0) / VARIANCES * conjugate_sd(x) ** 2
