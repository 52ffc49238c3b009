"""Draws given many observations from a few exact terms and an expansion, against closed forms and quadrature."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_posteriors import VARIANCES, Exact, summed
from full import shortly
from scipy import stats

import scorefold as sf
from scorefold.errors import Diverged, ScorefoldError
from scorefold.posterior import sum_at_draws
from scorefold.posterior import sum_of_terms as sums
from scorefold.sample import expanded as module
from scorefold.sample.expanded import SOME, Expansion, coefficients, expanded, refitted, share_of
from scorefold.sample.summits_of_many import CENTRES, Local, apart

DRAWS = 1_000


class Weibull(eqx.Module):
    """Waiting times, whose logarithms are skewed: scale e^{u_0}, shape e^{u_1}."""

    def prepare(self, x):
        return x

    def term(self, u, x):
        z = jnp.exp(u[1]) * (jnp.log(x) - u[0])
        return jnp.sum(u[1] + z - jnp.exp(z))


class Folded(eqx.Module):
    """x_0 ~ N((u_0 - 0.1)², 1): two modes, the one nearer to 0 a little heavier."""

    def prepare(self, x):
        return x

    def term(self, u, x):
        return -((x[0] - (u[0] - 0.1) ** 2) ** 2 + (x[1] - u[1]) ** 2) / 2


class Edge(eqx.Module):
    """x_0 - u_0 ~ Exp(1): no x_0 below u_0."""

    def prepare(self, x):
        return x

    def term(self, u, x):
        return jnp.where(x[0] > u[0], u[0] - x[0], -jnp.inf) - (x[1] - u[1]) ** 2 / 2


class SteepEdge(eqx.Module):
    """The same, but possible a little below, as a learned likelihood would have it."""

    def prepare(self, x):
        return x

    def term(self, u, x):
        return u[0] - x[0] - jax.nn.softplus(500 * (u[0] - x[0])) - (x[1] - u[1]) ** 2 / 2


def rounded(x):
    """As the sums see it: a smallest of many numbers is an edge."""
    return np.asarray(np.asarray(x, np.float32), np.float64)


def normal(n):
    return rounded(np.random.default_rng(n).normal([0.7, -0.5], np.sqrt(VARIANCES), (n, 2)))


def waits(n):
    return rounded(np.exp(0.4) * np.random.default_rng(n).weibull(np.exp(0.3), (n, 2)))


def late(n):
    rng = np.random.default_rng(n)
    return rounded(np.stack([0.3 + rng.exponential(size=n), rng.normal(-0.5, 1, n)], axis=1))


def drawn(terms, x, draws=DRAWS, **options):
    return summed(terms, sampler="smc").sample(x, draws, seed=0, **options)


def conjugate(x, variances, mean=0.0, sd=1.0):
    """Mean, sd and log ∫ N(u | mean, sd²) Π_j exp(-(x_j - u)²/2σ²) du of every parameter."""
    precision = len(x) / variances + sd**-2.0
    centre = (x.sum(axis=0) / variances + mean / sd**2) / precision
    evidence = (centre**2 * precision - mean**2 / sd**2 - (x**2).sum(axis=0) / variances - np.log(precision * sd**2)) / 2
    return centre, precision**-0.5, evidence


def by_grid(log_density, at):
    """Mean, sd and log integral in one dimension."""
    values = log_density(at)
    weights = np.exp(values - values.max())
    mean = weights @ at / weights.sum()
    sd = np.sqrt(weights @ (at - mean) ** 2 / weights.sum())
    return mean, sd, np.log(weights.sum() * (at[1] - at[0])) + values.max()


def near(theta, mean, sd, wide=1):
    """Over 24 seeds means were off by up to 0.033 sd and sds by 2.9 %, rms (at most 0.10 and 7 %); 7 and 6 times that, which
    a Gaussian error passes less than once in 10⁸."""
    assert (np.abs(theta.mean(axis=0) - mean) < 0.25 * wide * sd).all()
    assert (np.abs(theta.std(axis=0) / sd - 1) < 0.18 * wide).all()


# The log evidence was off by 0.05, rms, here and below.


@pytest.mark.false_failure(1e-7)
@pytest.mark.parametrize("n", [64, 100, 1_000, 10_000])
def test_the_conjugate_gaussian_of_many_observations(n):
    x = normal(n)
    draws = drawn(Exact(), x)
    mean, sd, evidence = conjugate(x, VARIANCES)
    near(draws.theta, mean, sd)
    assert draws.info.converged
    assert draws.info.terms == SOME
    assert draws.info.share > 0.999
    assert abs(draws.info.log_evidence - evidence.sum()) < 0.5


@pytest.mark.false_failure(1e-7)
@pytest.mark.parametrize("n", shortly([64, 300], 300))
def test_a_likelihood_that_is_not_gaussian(n):
    x = waits(n)
    draws = drawn(Weibull(), x)
    logs, (scales, shapes) = np.log(x).ravel(), (0.4 + np.linspace(-1, 1, 401), 0.3 + np.linspace(-1, 1, 401))
    powers = np.exp(np.exp(shapes)[:, None] * logs).sum(axis=1)  # Σ x^k
    k, a = np.exp(shapes), scales[:, None]
    values = len(logs) * (shapes - k * a) + k * logs.sum() - np.exp(-k * a) * powers - (a**2 + shapes**2) / 2
    weights = np.exp(values - values.max())
    evidence = np.log(weights.sum() * (2 / 400) ** 2) + values.max() - np.log(2 * np.pi)
    found = [
        by_grid(lambda _, w=w: np.log(w + 1e-300), at)[:2] for w, at in ((weights.sum(1), scales), (weights.sum(0), shapes))
    ]
    mean, sd = np.array(found).T
    near(draws.theta, mean, sd)
    assert draws.info.converged
    assert draws.info.terms == SOME
    assert draws.info.share > 0.9
    assert abs(draws.info.log_evidence - evidence) < 0.5


# The mode's share over 24 seeds: off by 0.015, rms. A mode has half of the draws: means were off by 0.044 sd and sds by 2.6 %.
@pytest.mark.full
@pytest.mark.false_failure(1e-7)
def test_two_modes_keep_their_weights():
    x = rounded(np.random.default_rng(0).normal([1.0, -0.5], 1, (100, 2)))
    draws = drawn(Folded(), x)

    def log_density(a):
        return -(a**2 + ((x[:, :1] - (a - 0.1) ** 2) ** 2).sum(axis=0) + np.log(2 * np.pi)) / 2

    modes = [by_grid(log_density, np.linspace(*ends, 2_001)) for ends in ((-2.4, 0.1), (0.1, 2.6))]
    masses = np.array([mode[2] for mode in modes])
    share = np.exp(masses - np.logaddexp(*masses))
    assert draws.info.converged
    assert draws.info.terms == SOME
    for mode, side in zip(modes, (draws.theta[:, 0] < 0.1, draws.theta[:, 0] > 0.1), strict=True):
        near(draws.theta[side, :1], *mode[:2], wide=1.5)
    assert abs(np.mean(draws.theta[:, 0] > 0.1) - share[1]) < 0.13
    exact = np.logaddexp(*masses) + conjugate(x[:, 1], 1.0)[2]
    assert abs(draws.info.log_evidence - exact) < 0.5


def beyond_the_edge(x):
    mean, sd, mass = by_grid(
        lambda a: -(a**2 + np.log(2 * np.pi)) / 2 + len(x) * a - x[:, 0].sum(),
        x[:, 0].min() - np.linspace(40 / len(x), 0, 20_001),
    )
    other = conjugate(x[:, 1], 1.0)
    return np.array([mean, other[0]]), np.array([sd, other[1]]), mass + other[2]


# Draws at an edge do not satisfy Stein's identity, which is what is said. Over 20 seeds with n = 100 and 300 means were off by
# 0.04 sd, sds by 4.5 % and the log evidence by 0.1, rms. With polynomials at the edge one seed in 24 was off by 1.5 sd.
@pytest.mark.false_failure(1e-7)
@pytest.mark.filterwarnings("ignore::scorefold.errors.UntrustworthyDraws")
@pytest.mark.parametrize("n", shortly([100, 300, 1_000], 100))
def test_an_edge_that_moves_with_the_parameters(n):
    x = late(n)
    draws = drawn(Edge(), x)
    mean, sd, evidence = beyond_the_edge(x)
    assert draws.info.terms == 0
    near(draws.theta, mean, sd, wide=2)
    assert (draws.theta[:, 0] < x[:, 0].min()).all()
    assert abs(draws.info.log_evidence - evidence) < 0.8


# Over 20 seeds means were off by 0.04 sd and sds by 6 %, rms; 15 (n = 100) and 6 (300) added up all terms.
@pytest.mark.false_failure(1e-7)
@pytest.mark.filterwarnings("ignore::scorefold.errors.UntrustworthyDraws")
@pytest.mark.full
@pytest.mark.parametrize("n", [100, 300])
def test_a_steep_edge_that_moves_with_the_parameters(n):
    x = late(n)
    draws = drawn(SteepEdge(), x)
    at = x[:, 0].min() + np.linspace(-40 / n, 0.1, 40_001)
    first = np.sort(x[:, 0])[:40]  # the others are far beyond
    mean, sd, _ = by_grid(lambda a: -(a**2) / 2 + n * a - np.logaddexp(0, 500 * (a[:, None] - first)).sum(axis=1), at)
    other = conjugate(x[:, 1], 1.0)
    near(draws.theta, np.array([mean, other[0]]), np.array([sd, other[1]]), wide=3)


@pytest.mark.full
@pytest.mark.false_failure(1e-7)
def test_draws_under_another_prior():
    x, (mean, sd) = normal(100), (np.array([0.9, -0.9]), np.array([0.05, 0.1]))
    draws = drawn(Exact(), x, prior=sf.Prior({"theta_1": stats.norm(mean[0], sd[0]), "theta_2": stats.norm(mean[1], sd[1])}))
    centre, width, evidence = conjugate(x, VARIANCES, mean, sd)
    near(draws.theta, centre, width)
    assert draws.info.terms == SOME
    assert abs(draws.info.log_evidence - evidence.sum()) < 0.5


# Over 20 seeds means were off by 0.04 sd and sds by 3 %, rms.
@pytest.mark.false_failure(1e-7)
def test_draws_under_a_prior_that_ends_within_the_posterior():
    x = normal(100)
    (mean, other), (sd, width), _ = conjugate(x, VARIANCES, 0.0, np.array([1e6, 1.0]))
    draws = drawn(Exact(), x, prior=sf.Prior({"theta_1": stats.uniform(mean, 2), "theta_2": stats.norm(0, 1)}))
    half = stats.halfnorm(mean, sd)
    near(draws.theta, np.array([half.mean(), other]), np.array([half.std(), width]), wide=2)
    assert draws.theta[:, 0].min() > mean


# Over 20 seeds the mean was off by 0.033 sd and the sd by 1.6 %, rms.
@pytest.mark.full
@pytest.mark.false_failure(1e-7)
def test_draws_given_a_parameter():
    x = waits(100)
    posterior = summed(Weibull(), sampler="smc")
    theta = posterior.sample(x, DRAWS, seed=0, given={posterior.prior.names[1]: 0.3}).theta
    k = np.exp(0.3)
    mean, sd, _ = by_grid(
        lambda a: -(a**2) / 2 - x.size * k * a - np.exp(-k * a) * (x**k).sum(), 0.4 + np.linspace(-1, 1, 4_001)
    )
    np.testing.assert_allclose(theta[:, 1], 0.3, atol=1e-6)
    near(theta[:, :1], mean, sd)


def test_the_share_of_weights():
    assert share_of(np.full(10, -3e5)) == 1
    np.testing.assert_allclose(share_of(np.append(np.zeros(5), np.full(5, -1e3))), 0.5)
    np.testing.assert_allclose(share_of(np.log([1.0, 2.0, 3.0])), 36 / 14 / 3)
    np.testing.assert_allclose(share_of(np.append(np.zeros(3), -np.inf)), 0.75)
    assert share_of(np.full(4, -np.inf)) == 0


def test_summits_are_apart():
    u = np.array([[0.0, 0.0], [0.05, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 0.3]])
    height, covariance = np.array([1.0, 5.0, 2.0, -100.0, 4.0]), np.tile(np.diag([0.01, 1.0]), (5, 1, 1))
    assert apart(u, height, covariance, 60.0) == [1, 2]  # 0 and 4 are half an sd from 1, and 3 is too low
    assert apart(u, height, covariance, 1_000.0) == [1, 2, 3]
    many = np.arange(20.0)[:, None]
    assert apart(many, -many[:, 0], np.full((20, 1, 1), 0.01), 60.0) == list(range(CENTRES))


def two_centres():
    """Around (0, 0), narrow, and (1, 0), wide; with polynomials of no meaning."""
    rng = np.random.default_rng(0)
    bend = rng.normal(size=(2, 2, 2, 2))
    local = [
        Local(*(jnp.asarray(v, jnp.float32) for v in (rng.normal(size=2), rng.normal(size=(2, 2)), b + b.mT))) for b in bend
    ]
    whiten = jnp.asarray(np.stack([100 * np.eye(2), 10 * np.eye(2)]), jnp.float32)
    return Expansion(jnp.array([[0.0, 0.0], [1.0, 0.0]]), whiten, *local, jnp.array([True, True]))


def test_a_way_ends_at_so_many_sd_of_the_nearest_centre():
    expansion = two_centres()
    for u in ([0.05, 0.0], [0.0, 0.0799], [1.3, 0.3], [0.4, 0.0]):  # the last is 40 sd from one centre, and 6 from the other
        np.testing.assert_allclose(expansion.within(jnp.array(u)), u, rtol=1e-6)
    np.testing.assert_allclose(expansion.within(jnp.array([1.0, -3.0])), [1.0, -0.8], rtol=1e-6)
    np.testing.assert_allclose(expansion.within(jnp.array([-0.09, 0.0])), [-0.08, 0.0], rtol=1e-6)


def quadratic(u, value, slope, bend):
    return value + u @ slope + np.einsum("ni,ij,nj->n", u, bend, u) / 2


@pytest.mark.false_failure(0)
def test_polynomials_are_fitted_to_the_sums_at_draws():
    rng = np.random.default_rng(0)
    whole = (3.0, np.array([1.0, -2.0]), np.array([[-400.0, 30.0], [30.0, -90.0]]))
    some = (-1.0, np.array([5.0, 2.0]), np.array([[20.0, -40.0], [-40.0, -300.0]]))
    u = np.array([1.0, 0.1]) + rng.normal(size=(40, 2)) * [0.05, 0.1]
    seen = quadratic(u, *whole), quadratic(u, *some)
    seen[0][0] = -1e30  # ruled out, and not to be fitted
    before = two_centres()
    fitted = refitted(before, u, *seen)
    far = np.array([1.0, 0.1]) + rng.normal(size=(20, 2)) * 0.3
    step = jnp.asarray(far, jnp.float32) - fitted.centres[1]
    for local, exact in ((fitted.whole, whole), (fitted.some, some)):
        found = jax.vmap(lambda step, local=local: local.at(jnp.asarray(1), step))(step)
        np.testing.assert_allclose(found, quadratic(far, *exact), rtol=1e-3, atol=2e-3)
        np.testing.assert_allclose(local.value[0], (before.whole if local is fitted.whole else before.some).value[0])
    np.testing.assert_allclose(fitted.centres[1], u[1:].mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(
        np.cov((u[1:] - u[1:].mean(0)) @ np.asarray(fitted.whiten[1]).T, rowvar=False), np.eye(2), atol=1e-4
    )


def test_a_fit_is_a_maximum_whatever_the_draws_say():
    u = 1 + np.random.default_rng(0).normal(size=(40, 2)) * 0.1
    rising = quadratic(u, 0.0, np.zeros(2), 50 * np.eye(2))
    fitted = refitted(two_centres(), u, rising, rising)
    assert (np.linalg.eigvalsh(fitted.whole.bend[1]) < 0).all()
    assert (np.linalg.eigvalsh(fitted.some.bend[1]) > 0).all()


def test_too_few_draws_leave_the_polynomials_as_they_are():
    few, before = np.ones((2 * coefficients(2) - 1, 2)), two_centres()
    jax.tree.map(np.testing.assert_array_equal, refitted(before, few, few[:, 0], few[:, 1]), before)


def cubes(u, data):
    """Terms of third order, as many as there are weights."""
    weights, thirds = data

    def one(u):
        return jnp.sum(weights * (jnp.sum(u) - 50 * jnp.sum(u**2) + thirds * u[0] ** 3))

    return jax.vmap(jax.value_and_grad(one))(u)


def test_an_expansion_adds_what_is_of_third_order():
    some = (jnp.array([2.0, 2.0]), jnp.array([30.0, 50.0]))  # for four terms, whose mean of thirds is 40
    centre, root = jnp.array([[0.01, 0.01]]), jnp.sqrt(1 / 401.0)
    value, slope = cubes(centre, some)
    bend = jnp.diag(jnp.array([-400.0 + 960 * 0.01, -400.0]))[None]
    whole = Local(value + 7, slope, bend)  # the sum of all, where it is known, is another
    expansion = Expansion(centre, jnp.eye(2)[None] / root, whole, Local(value, slope, bend), jnp.array([True]))
    u = centre + root * jnp.asarray(np.random.default_rng(0).normal(size=(8, 2)), jnp.float32)
    of_all = expanded(lambda u: cubes(u, some), expansion)
    found = of_all(u)
    np.testing.assert_allclose(found[0], cubes(u, some)[0] + 7, rtol=1e-4)
    np.testing.assert_allclose(found[1], cubes(u, some)[1], rtol=1e-4, atol=1e-3)
    far = jnp.array([[100.0, 0.0], [200.0, 0.0], [1.0, 0.0]])
    value, slope = of_all(far)
    assert (value < -100).all()  # where the cubes would be 160 u³
    assert (slope[:, 0] < 0).all()
    for i, at in enumerate(np.asarray(far)):
        ends = of_all(jnp.asarray(at + np.array([[0.01, 0], [-0.01, 0]]), jnp.float32))[0]
        np.testing.assert_allclose((ends[0] - ends[1]) / 0.02, slope[i, 0], rtol=0.05)


def test_one_draw_is_judged_by_many(monkeypatch):
    judged = []
    monkeypatch.setattr(module, "share_of", lambda left: judged.append(len(left)) or share_of(left))
    assert drawn(Exact(), normal(64), 1).theta.shape == (1, 2)
    assert min(judged) >= module.FIRST_WEIGHED


@pytest.mark.full
def test_a_sum_of_very_many_terms_is_precise_where_it_is_level():
    x = normal(100_000)
    at = x.mean(axis=0)
    data = sum_at_draws.prepared(Exact(), *sums.counted(x), None)
    u = at + np.array([[0.0, 0.0], [3e-3, 0.0], [0.0, -6e-3]])
    exact = -(((x[None] - rounded(u)[:, None]) ** 2 - (x - rounded(at)) ** 2) / VARIANCES).sum(axis=(1, 2)) / 2
    level = sum_at_draws.levelled(data, jnp.asarray(at, jnp.float32))
    np.testing.assert_allclose(sum_at_draws.likelihoods(jnp.asarray(u, jnp.float32), level)[0], exact, atol=2e-3)
    np.testing.assert_allclose(sum_at_draws.level(level), -(((x - rounded(at)) ** 2) / VARIANCES).sum() / 2, rtol=1e-6)


@pytest.mark.false_failure(0)
@pytest.mark.parametrize(("share", "moves"), [(module.LEAST_PROMISE - 0.01, False), (1.0, True)])
def test_clouds_move_on_an_expansion_that_promises_something(monkeypatch, share, moves):
    moved = []

    def draws(at, dim, clouds, draws, key, start=None):
        moved.append(start is not None)
        raise Diverged("enough")

    monkeypatch.setattr(module, "tempered_draws", draws)
    monkeypatch.setattr(module, "share_of", lambda left: share)
    with pytest.raises(ScorefoldError, match="enough"):
        drawn(Exact(), normal(64))
    assert moved == [moves]  # with a start, or on the sum of all terms
