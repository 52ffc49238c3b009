"""Drift diffusion: the density against its integrals and a walk, and the reference by NUTS against importance sampling.

13 p-values fail below 10⁻⁶ and 44 means beyond 5.5 standard errors: on fresh seeds they would fail falsely once in 70,000. That
the density is that of Navarro and Fuss, to 10⁻⁹, and that it has the simulator's distribution, is in `test_tasks.py`.
"""

import importance
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, logit

from scorefold import tasks
from scorefold.errors import ScorefoldError
from scorefold.tasks import drift_diffusion as dd
from scorefold.tasks import first_passage

P_MIN, Z_MAX = 1e-6, 5.5
LOW, HIGH = np.array([-4, 0.5, 0.3, 0.1]), np.array([4, 2.5, 0.7, 0.6])
SOME = np.array([[1.0, 1.5, 0.5, 0.3], [-3.9, 2.4, 0.7, 0.1], [0.0, 0.6, 0.35, 0.5], [3.0, 2.0, 0.3, 0.2]])


@pytest.fixture(scope="module")
def log_likelihood():
    """(θ rows, trials) to log p, rows by trials, in double precision."""
    compiled = jax.jit(jax.vmap(jax.vmap(dd.log_likelihood, in_axes=(None, 0)), in_axes=(0, None)))

    def evaluate(theta, x):
        with jax.enable_x64(True):
            return np.asarray(compiled(jnp.asarray(theta, jnp.float64), jnp.asarray(x, jnp.float64)))

    return evaluate


def test_the_density_integrates_to_the_probability_of_the_choice(log_likelihood):
    """P(lower) = (e^{-2va} - e^{-2vaw}) / (e^{-2va} - 1), Cox and Miller; both choices together to 1."""
    v, a, w = SOME[:, :3].T
    with np.errstate(invalid="ignore"):
        lower = np.where(v == 0, 1 - w, (np.exp(-2 * v * a) - np.exp(-2 * v * a * w)) / (np.exp(-2 * v * a) - 1))
    for theta, below in zip(SOME, lower, strict=True):
        t = theta[3] + theta[1] ** 2 * np.exp(np.linspace(-7, 3, 4_001))
        f = [np.exp(log_likelihood(theta[None], np.column_stack([t, np.full_like(t, side)]))[0]) for side in (0, 1)]
        mass = [integrate.simpson(each * (t - theta[3]), x=np.log(t - theta[3])) for each in f]
        np.testing.assert_allclose(mass, [below, 1 - below], rtol=1e-7, atol=1e-12)


@pytest.mark.full
def test_the_distribution_function_is_the_densitys_integral():
    """The two series that a draw inverts, against the density that NUTS sees."""
    with jax.enable_x64(True):
        for mu, w in ((0.0, 0.4), (0.005, 0.7), (2.0, 0.3), (9.9, 0.65)):
            mu, w = jnp.float64(mu), jnp.float64(w)
            tau = np.exp(np.linspace(-9, 2, 8_001))
            f = np.exp(np.asarray(jax.vmap(lambda t: first_passage.log_driftless(t, w) - mu**2 * t / 2)(jnp.asarray(tau))))  # noqa: B023
            below = integrate.cumulative_simpson(f * tau, x=np.log(tau), initial=0)
            early, late = tau < 0.5, tau > 0.5
            sooner = jax.vmap(lambda t: first_passage._sooner(t, mu, w))(jnp.asarray(tau[early]))  # noqa: B023
            later = jax.vmap(lambda t: first_passage._later(t, mu, w))(jnp.asarray(tau[late]))  # noqa: B023
            whole = float(first_passage.mass_below(mu, w))
            assert whole == pytest.approx(below[-1], rel=1e-8)
            np.testing.assert_allclose(sooner, below[early], atol=1e-9)
            np.testing.assert_allclose(later, whole - below[late], atol=1e-9)


def test_short_times_and_impossible_ones(log_likelihood):
    theta = np.array([[1.0, 2.0, 0.5, 0.3]])
    x = np.array([[0.3, 1], [0.2, 0], [0.3 + 1e-9, 1], [0.3 + 1e-4, 0]])
    found = log_likelihood(theta, x)[0]
    assert (found[:2] == -np.inf).all()
    assert found[2] == pytest.approx(-0.5 / 1e-9, rel=1e-3)  # e^{-(aw)²/2t}
    assert np.isfinite(found[3])
    slope = jax.jit(jax.grad(dd.log_likelihood))
    for one in x:
        assert np.isfinite(slope(jnp.asarray(theta[0], jnp.float32), jnp.asarray(one, jnp.float32))).all()


@pytest.mark.false_failure(1e-5)
@pytest.mark.full
def test_the_two_simulators_agree():
    """The batched inversion and the walk: 4 means of the choice, and 8 p-values of times given it, where enough chose it."""
    rng, simulator = np.random.default_rng(0), jax.jit(tasks.get("drift_diffusion").simulator.function)
    for theta in SOME:
        keys = jax.random.split(jax.random.key(1), 20_000)
        batched = np.asarray(simulator(jnp.tile(jnp.asarray(theta, jnp.float32), (20_000, 1)), keys), np.float64)
        walked = np.array([dd.numpy_simulator(theta, rng) for _ in range(5_000)])
        share = np.concatenate([batched, walked])[:, 1].mean()
        error = np.sqrt(share * (1 - share) * (1 / 20_000 + 1 / 5_000))
        assert abs(batched[:, 1].mean() - walked[:, 1].mean()) < Z_MAX * error
        for side in (0, 1):
            times = [x[x[:, 1] == side, 0] for x in (batched, walked)]
            if min(map(len, times)) > 50:
                assert stats.ks_2samp(*times, method="asymp").pvalue > P_MIN
        assert min(batched[:, 0].min(), walked[:, 0].min()) > theta[3]


def against_importance_sampling(x, chains, count, at_least, log_likelihood):
    """8 means, of how far θ is through the prior cut at the shortest time; y is its logit.

    Proposals come from the prior for one or two trials, and otherwise from a t at the mode, which SciPy finds.
    """
    assert chains.good(1_000)
    high = np.r_[HIGH[:3], min(0.6, x[:, 0].min())]
    assert (chains.draws > LOW).all()
    assert (chains.draws < high).all()

    def log_density(y):
        share = expit(y)
        pieces = np.array_split(LOW + (high - LOW) * share, 1 + len(y) * len(x) // 2**20)
        likelihood = np.concatenate([log_likelihood(piece, x).sum(1) for piece in pieces])
        return likelihood + np.sum(np.log(share) + np.log1p(-share), axis=1)

    rng = np.random.default_rng(3)
    y = logit((chains.draws - LOW) / (high - LOW))
    if len(x) > 2:
        points, log_weight = importance.log_weights(
            log_density, *importance.mode_and_covariance(log_density, np.zeros(4)), count, rng
        )
    else:
        points = logit(rng.uniform(size=(count, 4)))
        log_weight = log_density(points) - np.sum(np.log(expit(points)) + np.log(expit(-points)), axis=1)
    # Where the posterior lies against a bound, y has a long tail that few points are in, and its moments are not known.
    importance.assert_same_moments(expit(y), expit(points), log_weight, at_least, effective=500)


@pytest.mark.full
@pytest.mark.parametrize("sizes", [(1, 8), (30, 30)])
def test_reference_against_importance_sampling(sizes, log_likelihood):
    """Of two sets of trials that are drawn for together."""
    x = [tasks.get("drift_diffusion").observe(n, seed)[1] for seed, n in enumerate(sizes, start=1)]
    for one, chains in zip(x, dd.posteriors(x, 1_000, [0, 0]), strict=True):
        against_importance_sampling(one, chains, 40_000, 500, log_likelihood)


@pytest.mark.full
@pytest.mark.usefixtures("quick_to_run")
def test_reference_of_many_trials_against_importance_sampling(log_likelihood):
    x = tasks.get("drift_diffusion").observe(1_000, 4)[1]
    against_importance_sampling(x, dd.posteriors([x], 1_000, [0])[0], 8_000, 200, log_likelihood)


@pytest.mark.false_failure(1e-5)
@pytest.mark.full
@pytest.mark.usefixtures("quick_to_run")
def test_true_parameters_rank_like_reference_draws():
    """θ* and 9 draws are exchangeable given x: 5 p-values, over 160 sets of 5 trials."""
    task = tasks.get("drift_diffusion")
    truth, x = zip(*(task.observe(5, seed) for seed in range(160)), strict=True)
    ranks = []
    for theta, chains in zip(truth, dd.posteriors(list(x), 1_000, list(range(160))), strict=True):
        ranks.append((chains.draws[::111][:9] < theta).sum(0))
    for column in np.array(ranks).T:
        assert stats.chisquare(np.bincount(column, minlength=10)).pvalue > P_MIN


@pytest.mark.parametrize("x", [[[0.05, 1.0]], [[0.5, 2.0]], [[0.5, -1.0]]])
def test_what_is_no_trial_is_refused(x):
    with pytest.raises(ScorefoldError, match=r"reaction times above 0\.1 s and choices 0 or 1"):
        tasks.get("drift_diffusion").reference(np.array(x), 10, 0)
