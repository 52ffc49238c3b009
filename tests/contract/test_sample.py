"""Every sampler with exact scores: what is wrong here is the sampler's own doing.

Seeds are fixed. The false-failure rates stated are those on fresh seeds, for a sampler without any bias: a mean of S
independent draws scatters by 1/√S posterior sd, and the log of their sd by 1/√(2S) where the posterior is Gaussian.
Each test has its mark; together they come to about 1 in 5,000.
"""

from functools import cache, partial
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from full import shortly
from scipy import stats

from scorefold import tasks
from scorefold.compose import RULES, Damped, Diffused, Tempered
from scorefold.noise import CLEAN, Level, levels
from scorefold.posterior.pilots import pilot_precisions
from scorefold.sample import DDIM, DPM, SAMPLERS, Ancestral, Langevin, Metropolis, ProbabilityFlow, SelfTuned, Transitions
from scorefold.sample.health import conclude, identities
from scorefold.sample.last_step import denoised
from scorefold.sample.self_tuned import LARGEST_VARIANCE, neighbours, preconditioner
from scorefold.tasks.exact import ExactSets, GaussianMixture, exact_sets, score
from scorefold.tasks.gaussian import VARIANCES

CLOUD = 1024
LOWEST = Level(*(jnp.asarray(v, jnp.float32) for v in CLEAN))


class Copies(ExactSets):
    """Every observation counts as `copies` equal ones."""

    copies: jax.Array

    def _alone(self):
        return ExactSets(self.x, jnp.int32(len(self.x)), self.group, self.precision, self.single_score, self.single_log_density)

    def fold(self, u, level, add, jacobian=False):
        return jax.tree.map(lambda once: self.copies * once, self._alone().fold(u, level, add, jacobian))

    def log_densities(self, u, level):
        return self.copies * self._alone().log_densities(u, level)


def copied(sets, copies):
    count = jnp.int32(copies * len(sets.x))
    return Copies(
        sets.x, count, sets.group, sets.precision, sets.single_score, sets.single_log_density, jnp.asarray(copies, jnp.float32)
    )


@eqx.filter_jit
def one_cloud(sampler, rule, size, sets, dim, grid, key):
    """As the posterior draws them."""
    key_start, key_run = jax.random.split(key)
    start = rule.reference_sd(sets.count) * jax.random.normal(key_start, (size, dim))
    density = (rule.log_density(sets),) if isinstance(sampler, Metropolis) else ()
    return sampler(rule.score(sets), grid, start, key_run, sets.count, *density)


def falling(sampler, schedule="log-snr"):
    return jax.tree.map(lambda v: v[::-1], levels(schedule, 400, sampler.levels))


def run(sampler, sets, dim=10, *, rule=RULES["diffused"], schedule="log-snr", clouds=4, size=CLOUD, seed=0):
    """Draws (clouds · size, dim) in float64, and the clouds' Infos stacked."""
    keys = jax.random.split(jax.random.key(seed), clouds)
    outcomes = [one_cloud(sampler, rule, size, sets, dim, falling(sampler, schedule), key) for key in keys]
    info = jax.tree.map(lambda *v: np.stack(v), *(info for _, info in outcomes))
    return np.concatenate([np.asarray(u, np.float64) for u, _ in outcomes]), info


@cache
def gaussian(n, seed=0):
    """The 10-D conjugate problem. Its scores are linear, so that n observations are n times their mean's."""
    task = tasks.get("gaussian")
    x = task.observe(n, seed)[1]
    precision = 1 + n / VARIANCES
    single = jnp.diag(jnp.asarray(1 + 1 / VARIANCES, jnp.float32))[None]
    return SimpleNamespace(
        x=x,
        sets=copied(exact_sets(task, x.mean(0, keepdims=True), single), n),
        mean=x.sum(0) / VARIANCES / precision,
        sd=precision**-0.5,
    )


def moments(u, mean, sd):
    """Shift of the mean, in posterior sd, and sd ratio, per dimension."""
    return (u.mean(0) - mean) / sd, u.std(0) / sd


def radius_distance(u, reference):
    """Kolmogorov's distance between the distributions of the distance to the reference's mean."""
    return stats.ks_2samp(*(np.linalg.norm(v - reference.mean(0), axis=1) for v in (u, reference))).statistic


# Every sampler


# The samplers as their own tests below compile them.
PAPER = {"rule": Tempered(), "schedule": "linear-beta"}
SETTINGS = dict.fromkeys(["langevin", "transitions", "ancestral"], PAPER)
SIZES = {"self-tuned": 128, "langevin": 128}
LEVELS = {"self-tuned": 25, "metropolis": 50, "ddim": 100, "dpm": 60, "probability-flow": 40}
DETERMINISTIC = {"ddim", "probability-flow"}


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("name", shortly(SAMPLERS, *(name for name in SAMPLERS if name != "metropolis")))
def test_contract(name):
    sampler, settings = SAMPLERS[name], {**SETTINGS.get(name, {}), "clouds": 1, "size": SIZES.get(name, CLOUD)}
    problem = gaussian(1)
    u, info = run(sampler, problem.sets, **settings)
    again, _ = run(sampler, problem.sets, **settings)
    other, _ = run(sampler, problem.sets, **settings, seed=1)
    assert u.shape == (settings["size"], 10)
    assert np.isfinite(u).all()
    assert np.array_equal(u, again)
    assert (u == other).mean() < 1e-3
    assert {np.shape(v) for v in info[:5]} == {(1, LEVELS.get(name, 400))}
    assert info.converged.shape == info.diverged.shape == (1,)
    assert not info.diverged
    assert (np.diff(info.gamma[0]) > 0).all(), "first the noisiest"
    assert (info.step[0, :-1] > 0).all() == (name not in DETERMINISTIC), "noise is added"
    assert np.isfinite(info.q).all()
    assert (info.acceptance is not None) == (name == "metropolis")
    # A score that fails is said to have failed.
    _, info = run(sampler, eqx.tree_at(lambda sets: sets.x, problem.sets, problem.sets.x * jnp.nan), **settings)
    assert not info.converged
    assert info.diverged
    if name == "metropolis":
        assert info.acceptance.max() == 0, "nothing is accepted: the draws are still those of the start"


def test_defaults():
    # What the documentation says: the paper's a, L and all T levels; 25 levels × 2 steps + 12 for the default.
    assert Langevin() == Langevin(a=0.3, steps=5, levels=None)
    assert Ancestral().levels is None
    assert Transitions().levels is None
    assert SelfTuned() == SelfTuned(levels=25, steps=2, h=1.0, last=12)
    assert DDIM() == DDIM(levels=100)
    assert DPM() == DPM(levels=60)
    assert ProbabilityFlow() == ProbabilityFlow(levels=40)
    assert Metropolis() == Metropolis(levels=50, steps=4, last=48)


# The default, where it is promised


@pytest.mark.false_failure(3e-6)
@pytest.mark.usefixtures("quick_to_run")
@pytest.mark.parametrize("n", shortly([1, 10, 100, 1000], 10, 1000))
def test_self_tuned_is_right_on_the_conjugate_gaussian(n, figure):
    # 16,384 draws: standard errors 0.0078 (mean) and 0.0055 (sd ratio). Over 4 n × 10 dimensions, false failure of
    # a mean (6.4 standard errors) 6e-9, of a ratio (5.4) 3e-6; of a flag (see the false alarms below) < 1e-6.
    problem = gaussian(n)
    u, info = run(SelfTuned(), problem.sets, clouds=16)
    shift, ratio = moments(u, problem.mean, problem.sd)
    figure(f"means off by {np.abs(shift).max():.3f} sd at most, sd ratios {ratio.min():.3f} to {ratio.max():.3f}")
    assert np.abs(shift).max() < 0.05
    assert ratio.min() > 0.97
    assert ratio.max() < 1.03
    assert info.converged.all()
    assert not info.diverged.any()


def test_a_thousand_observations_have_a_thousand_times_their_means_score():
    # What the test above relies on.
    problem, u = gaussian(1000), jnp.asarray(np.random.default_rng(0).standard_normal((50, 10)), jnp.float32)
    total = eqx.filter_jit(lambda sets, level: sets.total(u, level))
    for gamma in (0.9999, 0.5, 1e-4):
        level = LOWEST._replace(gamma=jnp.asarray(gamma, jnp.float32))
        full = total(exact_sets(tasks.get("gaussian"), problem.x), level)
        np.testing.assert_allclose(full, total(problem.sets, level), rtol=1e-4, atol=0.1)


@pytest.mark.false_failure(3e-6)
@pytest.mark.full
@pytest.mark.usefixtures("quick_to_run")
def test_self_tuned_is_right_on_the_sum_over_a_thousand_observations():
    # As above, rounding included. 4,096 draws: standard errors 0.016 (mean) and 0.011 (sd ratio), bounds at 5.6 and 5.4.
    problem = gaussian(1000)
    u, info = run(SelfTuned(), exact_sets(tasks.get("gaussian"), problem.x), clouds=4)
    shift, ratio = moments(u, problem.mean, problem.sd)
    assert np.abs(shift).max() < 0.09
    assert ratio.min() > 0.94
    assert ratio.max() < 1.06
    assert info.converged.all()


@pytest.mark.false_failure(1e-5)
@pytest.mark.full
def test_self_tuned_is_right_with_few_draws():
    # 64 clouds of 128 in 10-D, the fewest there are: 8,192 draws, standard errors 0.011 (mean) and 0.0078 (sd ratio),
    # bounds at 5.4 and 5.1: false failure 4e-6. Alarms have a probability below 1e-6 each.
    problem = gaussian(30)
    u, info = run(SelfTuned(), problem.sets, clouds=64, size=128)
    shift, ratio = moments(u, problem.mean, problem.sd)
    assert np.abs(shift).max() < 0.06
    assert ratio.min() > 0.96
    assert ratio.max() < 1.04
    assert info.converged.all()


@cache
def bimodal(n):
    task = tasks.get("bimodal")
    x = task.observe(n, 0)[1]
    padded = exact_sets(task, np.concatenate([x, np.zeros((300 - n, 2))]))  # one program for every n
    axis = np.linalg.eigh(x.T @ x)[1][:, -1]
    sets = eqx.tree_at(lambda sets: sets.count, padded, jnp.int32(n))
    return SimpleNamespace(sets=sets, axis=axis, reference=task.reference(x, 20_000, 1))


def assert_both_modes(u, problem):
    # 2,048 draws: a weight has standard error 0.011, its bound is at 4.5 of them. The modes mirror each other, so all
    # draws are looked at on one side: against 20,000 reference draws the mode's mean has 0.023 and its sd 0.017, with
    # bounds at 5.2 and 5.3. In all, false failure 1e-5 a call.
    assert len(u) == 2048
    assert abs((u @ problem.axis > 0).mean() - 0.5) < 0.05

    def one_side(v):
        return v * np.sign(v @ problem.axis)[:, None]

    reference = one_side(problem.reference)
    shift, ratio = moments(one_side(u), reference.mean(0), reference.std(0))
    assert np.abs(shift).max() < 0.12
    assert ratio.min() > 0.91
    assert ratio.max() < 1.09


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("n", shortly([5, 30, 300], 30))
def test_self_tuned_finds_both_modes(n, figure):
    u, info = run(SelfTuned(), bimodal(n).sets, 2, clouds=2)
    figure(f"a mode's weight {(u @ bimodal(n).axis > 0).mean():.3f}, where 0.5 is right")
    assert_both_modes(u, bimodal(n))
    assert info.converged.all()


@pytest.mark.false_failure(2e-6)
@pytest.mark.full
def test_self_tuned_with_the_damped_rule_is_right_on_the_conjugate_gaussian():
    # 300 observations, 64 of them a step. 4,096 draws: standard errors 0.016 (mean) and 0.011 (sd ratio), bounds at 5.6 and
    # 5.4 over 10 dimensions: false failure 1e-6.
    problem = gaussian(300)
    sets = exact_sets(tasks.get("gaussian"), problem.x)
    u, info = run(SelfTuned(), sets, rule=Damped())
    shift, ratio = moments(u, problem.mean, problem.sd)
    assert np.abs(shift).max() < 0.09
    assert ratio.min() > 0.94
    assert ratio.max() < 1.06
    assert info.converged.all()


@pytest.mark.full
def test_self_tuned_with_the_damped_rule_finds_both_modes():
    # Whether it says so is left out: with modes this far apart even exact draws raise false alarms (see the end).
    u, info = run(SelfTuned(), bimodal(300).sets, 2, rule=Damped(), clouds=2)
    assert_both_modes(u, bimodal(300))
    assert not info.diverged.any()


@pytest.mark.false_failure(1e-6)
@pytest.mark.full
def test_self_tuned_is_right_on_the_mixture():
    # 4,096 draws against 20,000: standard errors 0.017 (mean) and, for a Gaussian, 0.012 (sd ratio); bounds at 5.8.
    # The distributions of the distance to the mean, which show the components' weights, are 0.07 apart by chance once
    # in 10¹⁴. In all, false failure 2e-7.
    task = tasks.get("mixture")
    _, x = task.observe(8, 0)
    u, info = run(SelfTuned(), exact_sets(task, x))
    reference = task.reference(x, 20_000, 1)
    shift, ratio = moments(u, reference.mean(0), reference.std(0))
    assert np.abs(shift).max() < 0.1
    assert ratio.min() > 0.93
    assert ratio.max() < 1.07
    assert radius_distance(u, reference) < 0.07
    assert info.converged.all()


# The default, on problems of every scale: exact Gaussians, turned so that no axis is special


SCALES = {
    "one dimension": (10, [0.3], [0.5]),
    "one dimension, one observation": (1, [0.05], [1.5]),
    "as wide as the prior": (50, [1.0] * 6, [0.0] * 6),
    "tiny, sd 1e-4": (10**6, [0.01] * 6, [0.5, -0.3, 0.0, 1.0, 0.2, -2.0]),
    "condition number 1e6": (1000, [9e-4, 1.0, 0.1, 0.5, 0.9, 0.01], [2.0, 0.0, -1.0, 0.3, 0.2, 1.0]),
}


def turned(u, x, gamma):
    """The score of the diffused N(m, R diag(v) Rᵀ) for x = (m, v, R)."""
    dim = len(u)
    mean, variances, rotation = x[:dim], x[dim : 2 * dim], x[2 * dim :].reshape(dim, dim)
    return -rotation @ ((u - jnp.sqrt(gamma) * mean @ rotation.T) @ rotation / (gamma * variances + 1 - gamma))


@pytest.mark.false_failure(8e-6)
@pytest.mark.parametrize("name", shortly(SCALES, "condition number 1e6"))
def test_self_tuned_at_every_scale(name, figure):
    # 8,192 draws: standard errors 0.011 (mean) and 0.0078 (sd ratio); bounds at 5.4 and 5.1, over 20 dimensions:
    # false failure 8e-6.
    n, variances, means = SCALES[name]
    v, mu = np.array(variances), np.array(means)
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((len(v), len(v))))[0]
    x = jnp.asarray(np.concatenate([mu, v, rotation.ravel()])[None], jnp.float32)
    sets = copied(ExactSets(x, jnp.int32(1), jnp.zeros(1, jnp.int32), None, turned, turned), n)
    u, info = run(SelfTuned(), sets, len(v), clouds=8)
    gamma = float(levels("log-snr").gamma[0])  # the least noise, of sd 0.01, is still in the target
    precision = n / (gamma * v + 1 - gamma) + 1 - n
    mean = n * np.sqrt(gamma) * mu / (gamma * v + 1 - gamma) / precision
    shift, ratio = moments(u @ rotation, mean, precision**-0.5)
    figure(f"sd ratios {ratio.min():.3f} to {ratio.max():.3f}")
    assert np.abs(shift).max() < 0.06
    assert ratio.min() > 0.96
    assert ratio.max() < 1.04
    assert info.converged.all()


def test_the_scales_are_what_they_are_called():
    n, variances, _ = SCALES["condition number 1e6"]
    gamma = float(levels("log-snr").gamma[0])
    precision = n / (gamma * np.array(variances) + 1 - gamma) + 1 - n
    assert 0.9e6 < precision.max() / precision.min() < 1.1e6
    n, variances, _ = SCALES["tiny, sd 1e-4"]
    assert (n / (variances[0] + 1e-4)) ** -0.5 < 1.01e-4


# The default's preconditioner

rng = np.random.default_rng(5)
CLOUDS = {
    "normal": rng.standard_normal((512, 4)),
    "shifted": rng.standard_normal((512, 4)) + 7,
    "uniform": rng.uniform(-3, 3, (512, 4)),
    "heavy-tailed": rng.standard_t(3, (512, 4)),
    "two far modes": rng.standard_normal((512, 4)) + 20 * np.sign(rng.standard_normal((512, 1))),
    "correlated": rng.standard_normal((512, 4)) @ np.tril(np.ones((4, 4))),
    "of 128": rng.standard_normal((128, 4)),
    "wide": 30 * rng.standard_normal((512, 4)),
}
LAST = jax.tree.map(lambda v: v[0], levels("log-snr"))
HESSIAN = np.cov(np.random.default_rng(6).standard_normal((4, 12))) * 20


def matrix(u, s, key=0):
    root = jax.jit(preconditioner)(jnp.asarray(u, jnp.float32), jnp.asarray(s, jnp.float32), jax.random.key(key))
    return np.asarray(root @ root.T, np.float64)


@pytest.mark.parametrize("name", CLOUDS)
def test_a_linear_score_gives_the_inverse_hessian_whatever_the_cloud(name):
    u = CLOUDS[name]
    got = matrix(u, -(u - 0.7) @ HESSIAN)
    unit = np.linalg.cholesky(HESSIAN)
    # Relative to H⁻¹ in every direction: Lᵀ M L = I. The widest cloud has 140 times the sd of H⁻¹; from 1,000 times on,
    # M is kept above 1e-6 of the cloud's covariance.
    np.testing.assert_allclose(unit.T @ got @ unit, np.eye(4), atol=5e-3)


def test_it_is_kept_below_twice_the_clouds_covariance():
    u = 1e-3 * CLOUDS["normal"]
    got = matrix(u, -u @ HESSIAN)
    np.testing.assert_allclose(got, LARGEST_VARIANCE * np.cov(u.T), rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("what", [lambda *cloud: preconditioner(*cloud), lambda u, s, key: denoised(u, s, LAST, key)])
def test_the_signs_of_eigenvectors_do_not_matter(what, monkeypatch):
    # They differ between one matrix and many at once; draws one by one and together must not.
    cloud = *(jnp.asarray(one, jnp.float32) for one in (CLOUDS["normal"], -CLOUDS["normal"] @ HESSIAN)), jax.random.key(0)
    as_they_come = what(*cloud)
    eigh, svd, flip = jnp.linalg.eigh, jnp.linalg.svd, jnp.array([-1.0, 1.0, -1.0, 1.0])
    monkeypatch.setattr(jnp.linalg, "eigh", lambda a: (eigh(a)[0], eigh(a)[1] * flip))
    monkeypatch.setattr(jnp.linalg, "svd", lambda a: (svd(a)[0] * flip, svd(a)[1], svd(a)[2] * flip[:, None]))
    np.testing.assert_allclose(what(*cloud), as_they_come, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stretch", [[1, 1, 1, 1], [0.5, 1, 2, 3]])
def test_it_turns_and_stretches_with_the_problem(stretch):
    # u → B u takes scores to B⁻ᵀ s and M to B M Bᵀ, whatever the score; and M does not feel a shift.
    u = CLOUDS["correlated"]
    s = -np.tanh(u) @ HESSIAN - 0.3 * np.sin(u[:, ::-1])
    B = np.linalg.qr(np.random.default_rng(1).standard_normal((4, 4)))[0] @ np.diag(stretch)
    expected, got = B @ matrix(u, s) @ B.T, matrix(u @ B.T + 3, s @ np.linalg.inv(B))
    np.testing.assert_allclose(got, expected, atol=2e-3 * np.abs(expected).max())


def test_several_modes_give_their_own_width():
    # Modes of sd 0.1 at ±5: M is 0.01 in every direction, not 25 in one.
    mixture = GaussianMixture(
        jnp.log(jnp.full(2, 0.5)),
        jnp.array([[5.0, 0.0], [-5.0, 0.0]]),
        jnp.full((2, 2), 0.01),
    )
    u = 0.1 * rng.standard_normal((1024, 2)) + np.array([5, 0]) * np.sign(rng.standard_normal((1024, 1)))
    s = jax.vmap(partial(score, mixture))(jnp.asarray(u, jnp.float32))
    np.testing.assert_allclose(matrix(u, s), 0.01 * np.eye(2), atol=5e-4)


@pytest.mark.false_failure(1e-9)
def test_nobody_is_their_own_neighbour():
    v = jnp.asarray(CLOUDS["normal"], jnp.float32)
    for key in range(5):
        near = np.asarray(neighbours(v, jax.random.key(key)))
        assert (near != np.arange(512)).all()
        assert len(np.unique(near)) > 100
    # Of a few random others the nearest: on average much nearer than a random one.
    gap = np.linalg.norm(v - v[near], axis=1).mean()
    assert gap < 0.5 * np.linalg.norm(v - v[::-1], axis=1).mean()


# The paper's samplers


@pytest.mark.false_failure(1e-6)
def test_langevin_converges_for_a_few_observations():
    # Measured before: sd ratio 1.04. With 1,024 draws its mean over 10 dimensions has standard error 0.007: bounds at
    # 5 of them, false failure 6e-7. The mean still lags, here by 0.24 sd.
    problem = gaussian(8)
    u, info = run(Langevin(), problem.sets, **PAPER, clouds=1)
    shift, ratio = moments(u, problem.mean, problem.sd)
    assert 1.003 < ratio.mean() < 1.075
    assert np.sqrt(np.mean(shift**2)) < 0.4
    assert not info.diverged.any()
    assert info.gamma.shape[1] == 400


@pytest.mark.full
def test_langevin_says_so_when_it_diverges():
    u, info = run(Langevin(), gaussian(1000).sets, **PAPER, clouds=1)
    assert not np.isfinite(u).all()
    assert info.diverged.all()
    assert not info.converged.any()


@pytest.mark.false_failure(1e-9)
def test_transitions_are_too_narrow_for_several_sets():
    # A quarter, with exact scores: the paper's Algorithm 2 as it is. 4,096 draws: the mean ratio's standard error is
    # 0.003, and a false failure out of the question.
    problem = gaussian(8)
    u, info = run(Transitions(), problem.sets, **PAPER)
    shift, ratio = moments(u, problem.mean, problem.sd)
    assert 0.65 < ratio.mean() < 0.85
    assert np.abs(shift).max() < 0.25
    assert not info.converged.any()


@pytest.mark.false_failure(3e-6)
@pytest.mark.full
def test_transitions_of_one_set_are_ancestral():
    # Both right, and so the same: 4,096 draws, standard errors 0.016 (mean) and 0.011 (sd ratio); bounds at more than
    # 5. The two differ in the noise they add (α's and its posterior's variance), which 400 levels make 1% of an sd.
    problem = gaussian(1)
    for sampler in (Transitions(), Ancestral()):
        u, info = run(sampler, problem.sets, **PAPER)
        shift, ratio = moments(u, problem.mean, problem.sd)
        assert np.abs(shift).max() < 0.09, sampler
        assert ratio.min() > 0.93, sampler
        assert ratio.max() < 1.06, sampler
        assert info.converged.all(), sampler


@pytest.mark.false_failure(1e-7)
def test_a_transition_of_one_set_is_an_ancestral_step():
    # One level, one set: Ancestral's mean (u + (1-α) s)/√α, and noise of variance 1-α.
    u = jnp.asarray(rng.standard_normal((50_000, 2)), jnp.float32)
    level = Level(*(jnp.full(1, v, jnp.float32) for v in (1.0, 0.8, 0.2, 0.8, 0.2, 1.0)))
    moved, _ = Transitions()(lambda u, level, key: jnp.sin(u), level, u, jax.random.key(0), 1)
    noise = np.asarray(moved - (u + 0.2 * jnp.sin(u)) / jnp.sqrt(0.8))
    # 100,000 normals: mean within 5.5 standard errors, variance within 5.5 as well; false failure 1e-7.
    assert abs(noise.mean()) < 5.5 * np.sqrt(0.2 / noise.size)
    assert abs(noise.var() / 0.2 - 1) < 5.5 * np.sqrt(2 / noise.size)


@pytest.mark.false_failure(2e-6)
@pytest.mark.parametrize("sampler", shortly([Ancestral(), DPM()], DPM()))
def test_one_observation_of_the_mixture(sampler):
    # Standard errors and bounds as for the mixture above, with room for the 1% that 400 ancestral levels lose.
    task = tasks.get("mixture")
    _, x = task.observe(1, 0)
    u, info = run(sampler, exact_sets(task, x))
    reference = task.reference(x, 20_000, 1)
    shift, ratio = moments(u, reference.mean(0), reference.std(0))
    assert np.abs(shift).max() < 0.1
    assert ratio.min() > 0.92
    assert ratio.max() < 1.06
    assert radius_distance(u, reference) < 0.07
    assert info.converged.all()


# Reversals of the diffusion


DOCUMENTED = {"ddim": 0.976, "probability-flow": 1.007}
"""The sd ratio: 2.4% too narrow, 0.7% too wide."""


def standardised_start():
    u = np.random.default_rng(5).standard_normal((CLOUD, 10))
    return jnp.asarray((u - u.mean(0)) / u.std(0), jnp.float32)


@pytest.mark.false_failure(1e-9)
@pytest.mark.parametrize("name", DOCUMENTED)
@pytest.mark.parametrize(
    ("rule", "n"),
    shortly([("diffused", 1), ("gauss", 8), ("gauss", 1000), ("jac", 8)], ("gauss", 8)),
)
def test_deterministic_reversals_are_right_on_the_conjugate_gaussian(name, rule, n):
    # Linear maps of their start but for the last step's noise, of which chance leaves less than the bounds: a posterior of sd
    # 0.03 (n = 1000) has a tenth of its variance from it, known within 5% from 1,024 draws.
    sampler, problem = SAMPLERS[name], gaussian(n)
    one = eqx.filter_jit(lambda sets, grid, u: sampler(RULES[rule].score(sets), grid, u, jax.random.key(0), sets.count))
    u, _ = one(problem.sets, falling(sampler), standardised_start())
    shift, ratio = moments(np.asarray(u), problem.mean, problem.sd)
    assert np.abs(shift).max() < 0.05
    np.testing.assert_allclose(ratio, DOCUMENTED[name], atol=4e-3 if n < 1000 else 0.03)


@pytest.mark.false_failure(2e-6)
@pytest.mark.parametrize("name", shortly(["ddim", "dpm", "probability-flow", "ancestral"], "ddim", "dpm"))
@pytest.mark.parametrize("sd", shortly([0.001, 0.01, 0.1], 0.001))
def test_reversals_are_right_where_the_posterior_is_narrower_than_the_last_noise(name, sd, figure):
    # The last noise has an sd of 0.01. Without the last step's own noise the ratio at 0.01 would be 0.7. 10,240 numbers: the
    # ratio's standard error is 0.007, the bounds 5 of them beyond the documented errors; false failure 1e-5 for all.
    sampler = SAMPLERS[name]

    def score(u, level, key):
        return -u / (level.gamma * sd**2 + 1 - level.gamma)

    u, _ = jax.jit(lambda u: sampler(score, falling(sampler), u, jax.random.key(1), 1))(standardised_start())
    figure(f"sd ratio {np.std(u) / sd:.3f}")
    assert 0.94 < np.std(u) / sd < 1.045


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize(("rule", "clouds", "size"), shortly([("gauss", 4, CLOUD), ("jac", 2, 256)], ("gauss", 4, CLOUD)))
def test_ancestral_is_right_with_rules_that_reverse(rule, clouds, size):
    # 400 levels leave the sd 1.2% too narrow. 4,096 (512) draws: standard errors 0.016 (0.044) of a mean, with bounds at 5.5,
    # and 0.0035 (0.01) of the mean sd ratio, with bounds at 5: false failure 5e-7.
    problem, draws = gaussian(8), clouds * size
    u, info = run(Ancestral(), problem.sets, rule=RULES[rule], clouds=clouds, size=size)
    shift, ratio = moments(u, problem.mean, problem.sd)
    assert np.abs(shift).max() < 5.5 / np.sqrt(draws)
    assert abs(ratio.mean() - 0.988) < 5 / np.sqrt(20 * draws)
    assert info.converged.all()


@pytest.mark.false_failure(1e-6)
@pytest.mark.full
@pytest.mark.parametrize("sampler", [DDIM(), ProbabilityFlow()])
def test_deterministic_reversals_are_right_on_one_observation_of_the_mixture(sampler):
    # Standard errors and bounds as for the mixture above, with room for the documented 2.4% and 0.7%.
    task = tasks.get("mixture")
    x = task.observe(1, 0)[1]
    u, info = run(sampler, exact_sets(task, x))
    reference = task.reference(x, 20_000, 1)
    shift, ratio = moments(u, reference.mean(0), reference.std(0))
    assert np.abs(shift).max() < 0.1
    assert ratio.min() > 0.91
    assert ratio.max() < 1.08
    assert radius_distance(u, reference) < 0.07
    assert info.converged.all()


def test_pilots_know_the_sets_precisions():
    # 200 draws a set: an entry of the whitened covariance is 1 or 0 within √(2/200) = 0.1, here for 3 × 55 of them within
    # 5.5 standard errors and the flow's 0.7%; false failure 4e-5 with the skewness of a variance.
    sets = exact_sets(tasks.get("gaussian"), tasks.get("gaussian").observe(3, 0)[1])
    precision, wider = jax.jit(partial(pilot_precisions, dim=10, grid=falling(ProbabilityFlow()), number=200))(
        sets, key=jax.random.key(1)
    )
    sd = (1 + 1 / VARIANCES) ** -0.5
    covariances = np.linalg.inv(np.asarray(precision, np.float64)) / np.outer(sd, sd)
    assert np.abs(covariances - np.eye(10)).max() < 0.55
    assert wider == 0


# Metropolis


@pytest.mark.false_failure(2e-6)
@pytest.mark.full
def test_metropolis_accepts_nearly_everything_on_a_gaussian():
    # Standard errors as for the damped rule above, bounds at 5.6 and 5.4: false failure 1e-6.
    problem = gaussian(10)
    u, info = run(Metropolis(), problem.sets)
    shift, ratio = moments(u, problem.mean, problem.sd)
    assert np.abs(shift).max() < 0.09
    assert ratio.min() > 0.94
    assert ratio.max() < 1.06
    assert info.acceptance[:, -1].min() > 0.98
    assert info.acceptance.max() <= 1
    assert info.converged.all()


@pytest.mark.full
@pytest.mark.parametrize("n", [5, 30])
def test_metropolis_keeps_the_weights_of_both_modes(n):
    u, info = run(Metropolis(), bimodal(n).sets, 2, clouds=2)
    assert 0.3 < info.acceptance.min() <= info.acceptance.max() <= 1
    assert_both_modes(u, bimodal(n))
    assert info.converged.all()


@pytest.mark.false_failure(1e-6)
@pytest.mark.full
@pytest.mark.usefixtures("quick_to_run")
@pytest.mark.parametrize(("sampler", "seed"), [(Metropolis(levels=100, steps=8), 501), (Metropolis(levels=100, steps=8), 503)])
def test_metropolis_is_right_on_two_observations_of_the_mixture(sampler, seed):
    # Data set 503 is one where the default sampler's sd is 1.12 times too wide. The sd ratio of 4,096 independent draws has
    # the standard error that parts of the reference show; the mean over dimensions is within 5.5 of it: false failure 1e-6.
    task = tasks.get("mixture")
    x = task.observe(2, seed)[1]
    reference = task.reference(x, 20 * 4096, 1)
    chance = (reference.reshape(20, 4096, 10).std(1) / reference.std(0)).mean(1).std()
    u, info = run(sampler, exact_sets(task, x))
    _, ratio = moments(u, reference.mean(0), reference.std(0))
    assert 0.3 < info.acceptance.min() <= info.acceptance.max() <= 1
    assert abs(ratio.mean() - 1) < 5.5 * chance


# Info


def score_at_lowest(task, x):
    score = Diffused().score(exact_sets(task, x))
    return jax.jit(lambda u: score(u, LOWEST, jax.random.key(0)))


PROBLEMS = [("gaussian", 10), ("mixture", 1), ("mixture", 8), ("bimodal", 5), ("bimodal", 30)]


@pytest.mark.false_failure(2e-6)
@pytest.mark.parametrize(("name", "n"), PROBLEMS)
def test_the_identities_hold_on_exact_draws(name, n):
    # E[s] = 0 per dimension and -E[(u - ū)ᵀ s] = dim, both within 5.5 standard errors of 50,000 draws: false failure
    # 39 × 4e-8 < 2e-6.
    task = tasks.get(name)
    _, x = task.observe(n, 0)
    u = task.reference(x, 50_000, 2)
    s = np.asarray(score_at_lowest(task, x)(jnp.asarray(u, jnp.float32)), np.float64)
    found = identities(jnp.asarray(u, jnp.float32), jnp.asarray(s, jnp.float32))
    products = -np.sum((u - u.mean(0)) * s, axis=1) / task.prior.dim
    assert float(found.stein) == pytest.approx(products.mean(), rel=1e-3)
    assert abs(products.mean() - 1) < 5.5 * products.std() / np.sqrt(len(u))
    assert np.abs(s.mean(0) / s.std(0)).max() < 5.5 / np.sqrt(len(u))
    within = s.mean(0) @ np.cov(u.T) @ s.mean(0) / task.prior.dim
    assert float(found.drift) == pytest.approx(np.sqrt(within), rel=1e-2)
    q = np.trace(np.cov(s.T) @ np.cov(u.T)) / task.prior.dim
    assert float(found.q) == pytest.approx(q, rel=1e-2)
    if name == "gaussian":
        assert q == pytest.approx(1, abs=0.03)  # standard error √(2·4 / (10 · 50,000)) = 0.004: seven of them


def judge(u, score):
    """(converged, diverged) as a sampler would say it at the end."""
    checks = jax.tree.map(lambda v: v[None], identities(u, score))
    info = conclude(u, jnp.ones(1), jnp.ones(1), checks)
    return info.converged, info.diverged


@partial(jax.jit, static_argnames=("size", "dim"))
def _judged(size, dim, wide, shift):
    def one(key):
        u = wide * jax.random.normal(key, (size, dim)) + shift
        return judge(u, -u)[0]

    return jax.vmap(one)(jax.random.split(jax.random.key(0), 500))


def flagged(size, dim, wide=1.0, shift=0.0):
    """The fraction of 500 clouds of N(shift, wide²) that N(0, 1)'s score rejects."""
    return 1 - float(np.mean(_judged(size, dim, wide, shift)))


@pytest.mark.false_failure(1e-6)
@pytest.mark.usefixtures("quick_to_run")
@pytest.mark.parametrize("size", [128, 1024])
@pytest.mark.parametrize("dim", shortly([1, 2, 10], 1))
def test_exact_draws_seldom_raise_a_false_alarm(size, dim):
    # Measured over 2,000: 1e-3 with 128 draws in one dimension, where the Stein identity is a skewed χ², and none
    # elsewhere. More than 8 of 500 then come once in 10⁸.
    assert flagged(size, dim) <= 0.016


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize(("name", "n"), shortly(PROBLEMS, ("mixture", 1), ("bimodal", 5)))
def test_exact_draws_of_a_task_seldom_raise_a_false_alarm(name, n):
    # 200 clouds of 1,024. The allowance is more than four standard errors of either identity, so that an alarm has a
    # probability below 1e-4; more than 2 of 200 then come about once in 10⁶.
    task = tasks.get(name)
    _, x = task.observe(n, 0)
    score = score_at_lowest(task, x)
    u = jnp.asarray(task.reference(x, 200 * CLOUD, 3), jnp.float32).reshape(200, CLOUD, -1)
    converged, diverged = jax.lax.map(lambda u: judge(u, score(u)), u)
    assert (~converged).sum() <= 2
    assert not diverged.any()


@pytest.mark.false_failure(1e-9)
@pytest.mark.usefixtures("quick_to_run")
@pytest.mark.parametrize("dim", shortly([1, 2, 10], 1))
@pytest.mark.parametrize(
    ("wide", "shift"),
    [(1.3, 0.0), (2.0, 0.0), (100.0, 0.0), (0.7, 0.0), (0.1, 0.0), (1.0, 0.5), (1.0, 3.0)],
)
def test_planted_failures_are_flagged(wide, shift, dim):
    # Over 500 clouds of 1,024. The least evident, a shift of half an sd, is at 8 standard errors from the threshold.
    assert flagged(CLOUD, dim, wide, shift) == 1


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize(("dim", "power"), shortly([(1, 0.5), (2, 0.85), (10, 0.99)], (1, 0.5)))
def test_planted_failures_are_flagged_with_few_draws(dim, power):
    # 30% too wide, in clouds of 128: measured 0.63, 0.94 and 1.00, of 500; the bounds are 5 standard errors below.
    assert flagged(128, dim, wide=1.3) > power


UNSEEN = pytest.mark.xfail(
    strict=True,
    reason="with separated modes the Stein identity is dominated by their distance: its standard error is 0.18 at n = 30 and "
    "0.5 at n = 300, where modes 30% too wide or too narrow change it by 0.7 and 0.5",
)


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize(
    ("n", "wide"),
    [
        (5, 1.3),
        (5, 0.7),
        (30, 2.0),
        pytest.param(30, 1.3, marks=UNSEEN),
        pytest.param(30, 0.7, marks=UNSEEN),
        pytest.param(300, 1.3, marks=(UNSEEN, pytest.mark.full)),
    ],
)
def test_modes_of_the_wrong_width_are_flagged(n, wide):
    task = tasks.get("bimodal")
    _, x = task.observe(n, 0)
    score = score_at_lowest(task, x)
    u = task.reference(x, 50 * CLOUD, 4)
    side = np.sign(u @ np.linalg.eigh(x.T @ x)[1][:, [-1]])
    centre = (u * side).mean(0)
    wrong = side * (centre + wide * (u * side - centre))
    clouds = jnp.asarray(wrong, jnp.float32).reshape(50, CLOUD, -1)
    converged, _ = jax.lax.map(lambda u: judge(u, score(u)), clouds)
    assert (~converged).mean() > 0.95


@pytest.mark.full
@pytest.mark.usefixtures("quick_to_run")
@pytest.mark.xfail(
    strict=True,
    reason="dividing the standard error by a Stein identity above 1 makes 1.3% of exact clouds look too wide when modes are "
    "this far apart; 4 standard errors should leave 1 in 10,000",
)
def test_exact_draws_of_far_modes_seldom_raise_a_false_alarm():
    task = tasks.get("bimodal")
    _, x = task.observe(300, 0)
    score = score_at_lowest(task, x)
    u = jnp.asarray(task.reference(x, 1000 * CLOUD, 3), jnp.float32).reshape(1000, CLOUD, -1)
    converged, _ = jax.lax.map(lambda u: judge(u, score(u)), u)
    assert (~converged).sum() <= 4


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 15.1, -1e30])
def test_one_runaway_draw_is_flagged(value):
    u = np.random.default_rng(0).standard_normal((CLOUD, 3))
    u[17, 1] = value
    u = jnp.asarray(u, jnp.float32)
    converged, diverged = judge(u, -u)
    assert diverged
    assert not converged


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_score_that_is_not_finite_is_flagged(value):
    u = jnp.asarray(np.random.default_rng(0).standard_normal((CLOUD, 3)), jnp.float32)
    converged, diverged = judge(u, (-u).at[5, 0].set(value))
    assert not converged
    assert diverged, "the draws may be fine, but nothing is known of them"
