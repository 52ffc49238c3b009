"""Every distribution the prior takes, against a battery of properties; then every refusal."""

import ast
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import scorefold.prior
from scorefold.errors import ScorefoldError
from scorefold.prior import Prior, diffused_score
from scorefold.prior.marginals import NUMPYRO

FALSE_FAILURE = 1e-6  # of each statistical check, had it a random seed

SCIPY = {
    "normal": stats.norm(-1.0, 3.0),
    "normal far from 0": stats.norm(1e4, 0.1),
    "lognormal": stats.lognorm(0.5, scale=0.4),
    "lognormal, wide": stats.lognorm(20.0),
    "uniform": stats.uniform(0, 2),
    "uniform off 0": stats.uniform(-5, 3),
    "gamma": stats.gamma(2.0, scale=0.5),
    "gamma with a pole at 0": stats.gamma(0.2),
    "beta": stats.beta(2, 5),
    "beta with poles at 0 and 1": stats.beta(0.5, 0.5),
    "exponential": stats.expon(scale=3),
    "half-normal": stats.halfnorm(scale=2),
    "half-Cauchy": stats.halfcauchy(scale=2),
    "Cauchy": stats.cauchy(1, 2),
    "Student": stats.t(3, 1, 2),
    "Laplace": stats.laplace(1, 2),
    "logistic": stats.logistic(1, 2),
    "Gumbel": stats.gumbel_r(1, 2),
    "inverse gamma": stats.invgamma(3, scale=2),
    "Pareto": stats.pareto(0.5, scale=2),
    "Weibull": stats.weibull_min(1.5, scale=2),
    "log-uniform": stats.loguniform(1e-3, 10),
    "truncated normal": stats.truncnorm(-1, 2, 0.3, 1.1),
    "truncated normal, one side": stats.truncnorm(-np.inf, 1),
    "triangular": stats.triang(0.3, loc=-1, scale=4),
    "skew normal": stats.skewnorm(4, loc=1, scale=2),
}

NUMPYRO_LAWS = {
    "Beta": dist.Beta(2.0, 3.0),
    "Cauchy": dist.Cauchy(1.0, 2.0),
    "Exponential": dist.Exponential(3.0),
    "Gamma": dist.Gamma(2.0, 3.0),
    "Gumbel": dist.Gumbel(1.0, 2.0),
    "HalfCauchy": dist.HalfCauchy(2.0),
    "HalfNormal": dist.HalfNormal(2.0),
    "InverseGamma": dist.InverseGamma(3.0, 2.0),
    "Laplace": dist.Laplace(1.0, 2.0),
    "LogNormal": dist.LogNormal(jnp.log(0.4), 0.5),
    "LogUniform": dist.LogUniform(0.1, 10.0),
    "Logistic": dist.Logistic(1.0, 2.0),
    "Normal": dist.Normal(jnp.array(-1.0), 3),
    "Pareto": dist.Pareto(2.0, 3.0),
    "StudentT": dist.StudentT(3.0, 1.0, 2.0),
    "TruncatedNormal": dist.TruncatedNormal(0.3, 1.1, low=-1.0, high=2.0),
    "TruncatedNormal, below": dist.TruncatedNormal(0.3, 1.1, low=0.0),
    "TruncatedNormal, above": dist.TruncatedNormal(0.3, 1.1, high=2.0),
    "Uniform": dist.Uniform(-1.0, 2.0),
    "Weibull": dist.Weibull(2.0, 1.5),
}

MEAN, COV = [1.0, -2.0, 0.5], [[2.0, 0.6, 0.1], [0.6, 1.0, -0.3], [0.1, -0.3, 0.5]]
WHOLE = {
    "SciPy": stats.multivariate_normal(MEAN, COV),
    "NumPyro": dist.MultivariateNormal(np.array(MEAN), np.array(COV)),
    "NumPyro, factor": dist.MultivariateNormal(np.array(MEAN), scale_tril=np.linalg.cholesky(COV)),
}

LAWS = {**SCIPY, **{f"NumPyro's {key}": law for key, law in NUMPYRO_LAWS.items()}}
PRIORS = {
    **{key: (lambda law=law: Prior({"a": law})) for key, law in LAWS.items()},
    **{f"multivariate, {key}": (lambda law=law: Prior(law)) for key, law in WHOLE.items()},
    "mixed": lambda: Prior([("b", SCIPY["uniform"]), ("a", NUMPYRO_LAWS["Gamma"]), ("c", SCIPY["Student"])]),
}
# Near 1 float64 has too few numbers for this one: all that lies above u = 5.7 is 1.
HIGHEST_U = {"beta with poles at 0 and 1": 4.5}

every_prior = pytest.mark.parametrize("key", PRIORS)
every_scipy = pytest.mark.parametrize("key", SCIPY)
every_numpyro = pytest.mark.parametrize("key", NUMPYRO_LAWS)


def u_grid(prior: Prior, highest: float = 6.0) -> np.ndarray:
    """Rows of u from -6 to 6, a different order in each column."""
    u = np.linspace(-6, highest, 241)
    return np.stack([np.roll(u, 50 * i) for i in range(prior.dim)], axis=-1)


def test_every_numpyro_conversion_is_tested():
    assert {key.split(",")[0] for key in NUMPYRO_LAWS} == set(NUMPYRO)


@every_prior
def test_map_and_inverse_agree(key):
    prior = PRIORS[key]()
    u = u_grid(prior, HIGHEST_U.get(key, 6.0))
    theta = prior.from_normal(u)
    np.testing.assert_allclose(prior.to_normal(theta), u, rtol=0, atol=1e-6)
    np.testing.assert_allclose(prior.from_normal(prior.to_normal(theta)), theta, rtol=1e-6, atol=1e-12)


@pytest.mark.filterwarnings("ignore:Error in function boost:RuntimeWarning")
@every_prior
def test_far_u_stays_within_the_support(key):
    prior = PRIORS[key]()
    u = np.array([-np.inf, -40, -20, -9, 0, 9, 20, 40, np.inf])[:, None] * np.ones(prior.dim)
    theta = prior.from_normal(u)
    low, high = prior.bounds.T
    assert np.isfinite(theta).all()
    assert (low < theta).all()
    assert (theta < high).all()
    if "multivariate" not in key:
        assert (np.diff(theta, axis=0) >= 0).all()
    assert np.isfinite(prior.to_normal(theta)).all()


@pytest.mark.parametrize("key", LAWS)
def test_theta_at_a_bound_gives_a_far_finite_u(key):
    prior = Prior({"a": LAWS[key]})
    for sign, bound in zip((-1, 1), prior.bounds[0], strict=True):
        if np.isfinite(bound):
            assert 5 <= sign * prior.to_normal([bound])[0] <= 40
            assert 5 <= sign * prior.to_normal([np.float64(np.float32(bound))])[0] <= 40


@every_prior
def test_shapes_follow_the_batch(key):
    prior = PRIORS[key]()
    u = np.random.default_rng(0).standard_normal((4, 2, prior.dim))
    theta = prior.from_normal(u)
    assert theta.shape == u.shape
    assert theta.dtype == np.float64
    assert prior.log_prob(theta).shape == (4, 2)
    np.testing.assert_allclose(prior.from_normal(u[1, 0]), theta[1, 0])
    np.testing.assert_allclose(prior.to_normal(theta[1, 0]), u[1, 0], atol=1e-9)
    np.testing.assert_allclose(prior.log_prob(theta[1, 0]), prior.log_prob(theta)[1, 0])


@every_prior
def test_a_longer_run_starts_with_the_shorter_one(key):
    prior = PRIORS[key]()
    long = prior.sample(1000, seed=3)
    for count in (0, 1, 2, 7, 999):
        np.testing.assert_array_equal(prior.sample(count, seed=3), long[:count])
    assert (prior.sample(5, seed=4) != long[:5]).all()


def test_a_longer_run_starts_with_the_shorter_one_in_many_dimensions():
    factor = np.tri(16) / (1 + np.arange(16))
    prior = Prior(stats.multivariate_normal(np.zeros(16), factor @ factor.T + np.eye(16)))
    long = prior.sample(1000, seed=3)
    for count in (1, 2, 7, 999):
        np.testing.assert_array_equal(prior.sample(count, seed=3), long[:count])


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("key", LAWS)
def test_draws_follow_the_distribution(key):
    prior = Prior({"a": LAWS[key]})
    (marginal,) = prior.describe()["marginals"]  # of a NumPyro law the density is compared below
    parameters = {k: float(v) for k, v in marginal["parameters"].items()}
    law = SCIPY.get(key) or getattr(stats, marginal["distribution"])(**parameters)
    draws = prior.sample(20_000, seed=1)[:, 0]
    assert stats.kstest(draws, law.cdf).pvalue > FALSE_FAILURE


@every_scipy
def test_log_prob_is_scipys(key):
    prior, law = Prior({"a": SCIPY[key]}), SCIPY[key]
    theta = prior.sample(200, seed=2)
    np.testing.assert_allclose(prior.log_prob(theta), law.logpdf(theta[:, 0]), rtol=1e-10)


@every_numpyro
def test_log_prob_is_numpyros(key):
    prior, law = Prior({"a": NUMPYRO_LAWS[key]}), NUMPYRO_LAWS[key]
    theta = prior.sample(200, seed=2)
    np.testing.assert_allclose(prior.log_prob(theta), law.log_prob(theta[:, 0]), rtol=1e-4, atol=1e-4)


def test_normal_and_lognormal_are_exact():
    prior = Prior({"a": stats.norm(-1, 3), "b": dist.LogNormal(-2.0, 0.2)})
    u = np.linspace(-30, 30, 121)[:, None] * np.ones(2)
    exact = np.stack([-1 + 3 * u[:, 0], np.exp(-2 + 0.2 * u[:, 1])], axis=-1)
    np.testing.assert_allclose(prior.from_normal(u), exact, rtol=1e-12)
    np.testing.assert_allclose(prior.to_normal(exact), u, rtol=1e-12, atol=1e-12)


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("key", WHOLE)
def test_multivariate_normal(key):
    prior = Prior(WHOLE[key], names=["a", "b", "c"])
    assert prior.names == ("a", "b", "c")
    assert Prior(WHOLE[key]).names == ("theta_0", "theta_1", "theta_2")
    u = np.random.default_rng(0).standard_normal((50, 3))
    theta = MEAN + u @ np.linalg.cholesky(COV).T
    np.testing.assert_allclose(prior.from_normal(u), theta, atol=1e-5)  # NumPyro's numbers are float32
    reference = stats.multivariate_normal(MEAN, COV).logpdf(theta)
    np.testing.assert_allclose(prior.log_prob(theta), reference, rtol=1e-4)
    draws, count = prior.sample(20_000, seed=1), 20_000
    error = np.cov(draws.T) - COV
    sd = np.sqrt((np.outer(np.diag(COV), np.diag(COV)) + np.square(COV)) / count)
    assert (np.abs(error / sd) < stats.norm.isf(FALSE_FAILURE / 18)).all()


def test_draws_come_from_the_seeds_first_child():
    u = np.random.default_rng(np.random.SeedSequence(7, spawn_key=(0,))).standard_normal((5, 3))
    prior = PRIORS["mixed"]()
    np.testing.assert_array_equal(prior.sample(5, seed=7), prior.from_normal(u))


def test_names_bounds_and_density_of_a_mixed_prior():
    prior = PRIORS["mixed"]()
    assert prior.names == ("b", "a", "c")
    assert prior.dim == 3
    np.testing.assert_array_equal(prior.bounds, [[0, 2], [0, np.inf], [-np.inf, np.inf]])
    theta = prior.sample(20, seed=0)
    parts = stats.uniform(0, 2), stats.gamma(2, scale=1 / 3), stats.t(3, 1, 2)
    total = sum(law.logpdf(theta[:, i]) for i, law in enumerate(parts))
    np.testing.assert_allclose(prior.log_prob(theta), total)


def test_log_prob_is_minus_infinity_outside():
    prior = Prior({"a": stats.beta(0.5, 0.5), "b": stats.expon()})
    outside = [[0.5, -1], [2, 1], [0, -1], [0.5, np.inf], [np.nan, 1]]  # the density of a is infinite at 0
    assert (prior.log_prob(outside) == -np.inf).all()
    assert np.isfinite(prior.log_prob([0.5, 1]))


def test_a_bound_at_zero_is_exactly_zero():
    for loc, scale in [(0.7, 0.3), (1000.0, 0.37), (0.9, 0.3), (0.9, 7.0)]:
        prior = Prior({"a": dist.TruncatedNormal(loc, scale, low=0.0)})
        assert prior.bounds[0, 0] == 0
        assert prior.to_normal([0.0]) < -5
    assert Prior({"a": stats.loguniform(1e-20, 1)}).bounds[0, 0] == 1e-20


def test_equality_is_by_name_and_parameter():
    prior = Prior({"a": stats.norm(0, 2)})
    assert prior == Prior([("a", stats.norm(loc=0, scale=2.0))]) == Prior({"a": dist.Normal(0.0, 2.0)})
    others = [{"b": stats.norm(0, 2)}, {"a": stats.norm(0, 3)}, {"a": stats.cauchy(0, 2)}]
    assert all(prior != Prior(other) for other in others)
    assert prior != Prior(stats.multivariate_normal([0], [[4]]), names=["a"])
    assert prior != "a"


def test_repr_reads_well():
    prior = Prior({"beta": stats.lognorm(0.5, scale=0.4), "gamma": dist.Uniform(0.0, 2.0), "z": stats.norm()})
    assert repr(prior) == "Prior(beta ~ lognorm(s=0.5, scale=0.4), gamma ~ uniform(scale=2), z ~ norm())"
    whole = Prior(stats.multivariate_normal([0, 1], [[1, 0.2], [0.2, 1]]), names=["a", "b"])
    assert repr(whole) == "Prior(a, b ~ multivariate_normal(mean=[0, 1], cov=[[1, 0.2], [0.2, 1]]))"


def test_numpyro_is_not_imported():
    files = Path(scorefold.prior.__file__).parent.glob("*.py")
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    names = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert "numpy" in names
    assert not any(name.startswith("numpyro") for name in names)


@pytest.mark.parametrize("gamma", [0.05, 0.5, 0.95])
def test_diffused_score_is_that_of_the_diffused_density(gamma):
    v = np.linspace(-12, 12, 20_001)
    u, h = np.linspace(-3, 3, 13), 1e-4

    def log_density(u):
        kernel = stats.norm.pdf(u[:, None], np.sqrt(gamma) * v, np.sqrt(1 - gamma))
        return np.log(np.trapezoid(kernel * stats.norm.pdf(v), v, axis=-1))

    numeric = (log_density(u + h) - log_density(u - h)) / (2 * h)
    np.testing.assert_allclose(diffused_score(u, gamma), numeric, atol=1e-6)
    np.testing.assert_allclose(diffused_score(jnp.asarray(u), gamma), numeric, atol=1e-6)


class Own(stats.rv_continuous):
    def _pdf(self, x):
        return np.exp(-x)


NORM = stats.norm(0, 1)
SINGULAR = np.array([[1.0, 1.0], [1.0, 1.0]])
REFUSED = {
    "empty mapping": (lambda: Prior({}), "at least one parameter"),
    "empty list": (lambda: Prior([]), "at least one parameter"),
    "not pairs": (lambda: Prior([NORM]), "list of such pairs"),
    "duplicate names": (lambda: Prior([("a", NORM), ("a", NORM)]), r"2 different names.*\['a', 'a'\]"),
    "empty name": (lambda: Prior({" ": NORM}), "a string with something in it"),
    "name not a string": (lambda: Prior({0: NORM}), r"names, each a string.*got \[0\]"),
    "names with marginals": (lambda: Prior({"a": NORM}, names=["a"]), "names= only with a multivariate"),
    "too few names": (lambda: Prior(WHOLE["SciPy"], names=["a"]), "expected 3 different names"),
    "names as something else": (lambda: Prior(WHOLE["SciPy"], names=False), "expected 3 different names.*got False"),
    "names without an order": (lambda: Prior(WHOLE["SciPy"], names={"a", "b", "c"}), "expected 3 different names"),
    "names as one string": (lambda: Prior(WHOLE["SciPy"], names="abc"), "expected 3 different names"),
    "marginal without a name": (lambda: Prior(NORM), "expected named marginals.*Give every marginal"),
    "multivariate not called": (lambda: Prior(stats.multivariate_normal), r"SciPy's \(called\)"),
    "number": (lambda: Prior({"a": 3.0}), r"'a': expected a continuous.*got 3\.0\. Use one such"),
    "not called": (lambda: Prior({"a": stats.norm}), "scipy.stats.norm itself. Call it"),
    "discrete": (lambda: Prior({"a": stats.poisson(3)}), "poisson, which is discrete"),
    "discrete, not called": (lambda: Prior({"a": stats.poisson}), "poisson, which is discrete"),
    "made elsewhere": (lambda: Prior({"a": Own(a=0, name="own")()}), "'own', made elsewhere"),
    "on the circle": (lambda: Prior({"a": stats.vonmises(1)}), "Use scipy.stats.vonmises_line"),
    "multivariate as marginal": (lambda: Prior({"a": WHOLE["SciPy"]}), "Pass it by itself"),
    "SciPy batch": (lambda: Prior({"a": stats.norm([0, 1], 1)}), r"batch of shape \(2,\).*'a_0'"),
    "negative scale": (lambda: Prior({"a": stats.norm(0, -1)}), "'a': .*scale = -1. Scales must be positive"),
    "zero scale": (lambda: Prior({"a": stats.norm(0, 0)}), "Scales must be positive"),
    "infinite scale": (lambda: Prior({"a": stats.uniform(0, np.inf)}), "make uniform a proper distribution"),
    "NaN": (lambda: Prior({"a": stats.norm(np.nan, 1)}), "loc = nan.*nothing may be NaN"),
    "impossible shape": (lambda: Prior({"a": stats.gamma(-1)}), "a = -1"),
    "lost in rounding": (lambda: Prior({"a": stats.uniform(1e9, 1e-6)}), "float64 can tell apart"),
    "lost in underflow": (lambda: Prior({"a": stats.gamma(1e-3)}), "float64 can tell apart"),
    "NumPyro discrete": (lambda: Prior({"a": dist.Poisson(3.0)}), "NumPyro's Poisson, which is discrete"),
    "NumPyro improper": (
        lambda: Prior({"a": dist.ImproperUniform(dist.constraints.real, (), ())}),
        "ImproperUniform, which cannot be drawn from",
    ),
    "NumPyro batch": (lambda: Prior({"a": dist.Normal(jnp.zeros(3), 1.0)}), r"batch of shape \(3,\).*'a_0'"),
    "NumPyro expanded": (lambda: Prior({"a": dist.Normal(0, 1).expand([2]).to_event(1)}), "batch of shape"),
    "NumPyro unknown": (lambda: Prior({"a": dist.Kumaraswamy(2.0, 3.0)}), "Kumaraswamy.*Known: Beta, Cauchy"),
    "NumPyro truncated": (
        lambda: Prior({"a": dist.TruncatedCauchy(low=0.0)}),
        "TruncatedCauchy. Did you mean 'TruncatedNormal'",
    ),
    "NumPyro invalid": (
        lambda: Prior({"a": dist.Gamma(2.0, 0.0, validate_args=False)}),
        "make gamma a proper distribution",
    ),
    "NumPyro multivariate as marginal": (lambda: Prior({"a": WHOLE["NumPyro"]}), "Pass it by itself"),
    "NumPyro multivariate batch": (
        lambda: Prior(dist.MultivariateNormal(np.zeros((3, 2)), np.eye(2), validate_args=False)),
        "not a batch",
    ),
    "singular": (
        lambda: Prior(stats.multivariate_normal([0, 0], SINGULAR, allow_singular=True)),
        "positive definite covariance",
    ),
    "no variance": (
        lambda: Prior(stats.multivariate_normal([0, 0], np.diag([1.0, 0.0]), allow_singular=True)),
        "positive definite covariance",
    ),
    "not positive": (
        lambda: Prior(dist.MultivariateNormal(np.zeros(2), np.array([[1, 2], [2, 1.0]]), validate_args=False)),
        "positive definite covariance",
    ),
    "not symmetric": (
        lambda: Prior(stats.multivariate_normal([0, 0], [[1, 0.5], [0.2, 1]])),
        "symmetric covariance",
    ),
    "a longer mean": (lambda: Prior(stats.multivariate_normal([0, 1], [1.0])), r"a mean as long as .* 1; got .*\(2,\)"),
    "NaN mean": (lambda: Prior(stats.multivariate_normal([np.nan, 0], np.eye(2))), "finite mean"),
    "theta outside": (
        lambda: PRIORS["mixed"]().to_normal([[1, 1, 1], [2.1, 1, 1]]),
        r"'b' .*0 to 2; got 2\.1 \(1 of 2 values.*order of the columns, which is b, a, c",
    ),
    "theta NaN": (lambda: PRIORS["mixed"]().to_normal([1, 1, np.nan]), "'c' finite.*got nan"),
    "theta infinite": (lambda: PRIORS["mixed"]().to_normal([1, np.inf, 0]), "'a' finite.*got inf"),
    "u NaN": (lambda: PRIORS["mixed"]().from_normal([1, np.nan, 0]), "NaN in 1 of 3 values"),
    "wrong shape": (lambda: PRIORS["mixed"]().log_prob(np.zeros((5, 2))), r"\(\.\.\., 3\).*\(5, 2\)"),
    "a number for theta": (lambda: Prior({"a": NORM}).to_normal(np.array(0.0)), r"got shape \(\)"),
    "negative count": (lambda: Prior({"a": NORM}).sample(-1, seed=0), "count to be a whole number ≥ 0"),
    "negative seed": (lambda: Prior({"a": NORM}).sample(1, seed=-1), "seed to be a whole number ≥ 0"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("key", REFUSED)
def test_refused_with_advice(key):
    call, message = REFUSED[key]
    with pytest.raises(ScorefoldError, match=message):
        call()
