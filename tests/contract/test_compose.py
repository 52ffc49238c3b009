"""Every rule against closed forms: one set, Gaussian sets, every task's own likelihood; and what each promises of itself.

Rules are checked at all levels of a schedule, with exact scores. Statistical tests state how often they fail on fresh seeds
although all is right.
"""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from full import shortly

from scorefold import tasks
from scorefold.compose import RULES, Damped, Diffused, Gauss, Jac, Tempered
from scorefold.compose.damped import CLUSTERING_STEPS, anchors
from scorefold.compose.gauss import positive
from scorefold.noise import SCHEDULES, Level, levels
from scorefold.tasks import exact
from scorefold.tasks.exact import ExactSets, exact_sets
from scorefold.tasks.gaussian import VARIANCES

CLOUD = np.random.default_rng(0).standard_normal((16, 10))
KEY = jax.random.key(0)
SUMS = {"diffused": Diffused(), "tempered": Tempered()}
SMALL = {**SUMS, "gauss": Gauss(), "jac": Jac(), "damped": Damped(batch=2, anchors=3)}
"""Every rule, with a batch that is smaller than the few sets here."""
NAMES = shortly(["gaussian", "mixture", "bimodal"], "bimodal")
ROWS = 11
"""Sets and padding, unless told otherwise: the programs are then the same."""


@pytest.fixture(autouse=True, scope="module")
def small_chunks():
    """Of four sets, so that padding is in the last chunk of sets and in chunks of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "PAIRS_AT_ONCE", {"cpu": 4 * len(CLOUD)})
        yield


def level(gamma, remaining=0.5):
    return Level(*(jnp.asarray(v, jnp.float32) for v in (1.0, gamma, 1 - gamma, gamma, 1 - gamma, remaining)))


def cloud(dim):
    return jnp.asarray(CLOUD[:, :dim], jnp.float32)


def definite(count, dim, seed=0):
    """Precisions that have nothing to do with each other or with any posterior; their eigenvalues are above 1."""
    root = np.random.default_rng(seed).standard_normal((count, dim, dim))
    return jnp.asarray(np.eye(dim) + root @ np.swapaxes(root, 1, 2), jnp.float32)


def observed(name, n, rows=ROWS, seed=0, garbage=1):
    """n observations of a task with arbitrary precisions, then padding that would show."""
    task = tasks.get(name)
    x, precision = task.observe(n, seed)[1], definite(n, task.prior.dim)
    padding = 30 * np.random.default_rng(garbage).standard_normal((rows - n, x.shape[1]))
    sets = exact_sets(task, np.concatenate([x, padding]))
    sets = sets.with_precision(jnp.concatenate([precision, garbage * definite(rows - n, task.prior.dim, 1)]))
    return eqx.tree_at(lambda sets: sets.count, sets, jnp.int32(n))


@eqx.filter_jit
def composed(rule, sets, at, u, key=KEY):
    """The composed score at a level, or at each of a stack."""
    score = rule.score(sets)
    return score(u, at, key) if at.gamma.ndim == 0 else jax.lax.map(lambda at: score(u, at, key), at)


def assert_close(ours, expected, tolerance):
    """Relative to the largest at each level."""
    scale = np.abs(expected).max(axis=(-1, -2), keepdims=True)
    np.testing.assert_allclose(np.asarray(ours) / scale, np.asarray(expected) / scale, rtol=0, atol=tolerance)


# One set


@pytest.mark.parametrize("rule", SMALL)
@pytest.mark.parametrize("name", NAMES)
def test_one_set_gives_the_single_score_at_every_level(name, rule):
    # Whatever its precision, which only weighs it against itself.
    task, sets = tasks.get(name), observed(name, 1)
    u, at = cloud(task.prior.dim), levels("log-snr")
    single = jax.jit(jax.vmap(jax.vmap(task.single_score, (0, None, None)), (None, None, 0)))(u, sets.x[0], at.gamma)
    assert_close(composed(SMALL[rule], sets, at, u), single, 1e-5)


@pytest.mark.parametrize("rule", SUMS)
@pytest.mark.parametrize(("gamma", "remaining"), [(0.9999, 0.9975), (0.5, 0.5), (1e-4, 0.0)])
def test_one_set_gives_the_single_score_bit_by_bit(rule, gamma, remaining):
    # For a score that is nothing like a Gaussian's.
    def single(u, x, gamma):
        return jnp.sin(3 * u) * gamma - u**3

    sets = ExactSets(jnp.zeros((1, 1)), jnp.int32(1), jnp.zeros(1, jnp.int32), None, single, single)
    u, at = cloud(10), level(gamma, remaining)
    assert np.array_equal(composed(SUMS[rule], sets, at, u), jax.jit(single)(u, None, at.gamma))


# Padding, and the number of sets


@pytest.mark.parametrize("rule", SMALL)
@pytest.mark.parametrize("name", NAMES)
def test_what_the_padding_is_changes_nothing(name, rule):
    u, at = cloud(tasks.get(name).prior.dim), levels("log-snr")
    one, other = (composed(SMALL[rule], observed(name, 5, garbage=garbage), at, u) for garbage in (1, 100))
    assert np.array_equal(one, other)
    assert np.isfinite(one).all()


@pytest.mark.parametrize("rule", SMALL)
def test_one_program_for_any_number_of_sets_is_the_one_without_padding(rule):
    rule, u, at = SMALL[rule], cloud(2), levels("log-snr")
    sd = jax.jit(rule.reference_sd)
    for count in (5, 8):
        expected = composed(rule, observed("bimodal", count, rows=count), at, u)
        assert_close(composed(rule, observed("bimodal", count), at, u), expected, 1e-5)
        assert float(sd(jnp.int32(count))) == pytest.approx(rule.reference_sd(count))


# The conjugate Gaussian: p(θ|x_j) = N(μ_j, v), diffused N(√γ μ_j, γ v + 1-γ)


def conjugate(n, seed=0):
    """Observations of the Gaussian task with the precision that all of their posteriors share."""
    x = tasks.get("gaussian").observe(n, seed)[1]
    return x, exact_sets(tasks.get("gaussian"), x, jnp.diag(jnp.asarray(1 + 1 / VARIANCES, jnp.float32))[None])


@pytest.mark.parametrize("rule", SUMS)
@pytest.mark.parametrize("n", [2, 8, 300])
@pytest.mark.parametrize(("gamma", "remaining"), [(1.0, 1.0), (0.9, 0.75), (0.3, 0.5), (1e-4, 0.0)])
def test_conjugate_gaussian(rule, n, gamma, remaining):
    x, sets = conjugate(n)
    means, variances = x / (1 + VARIANCES), VARIANCES / (1 + VARIANCES)
    total = ((np.sqrt(gamma) * means.sum(0) - n * CLOUD) / (gamma * variances + 1 - gamma)).astype(np.float64)
    prior = -CLOUD * (remaining if rule == "tempered" else 1.0)
    expected = total + (1 - n) * prior
    got = composed(SUMS[rule], sets, level(gamma, remaining), cloud(10))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * n)


@pytest.mark.parametrize("rule", SUMS)
@pytest.mark.parametrize("n", [1, 8])
def test_without_noise_it_is_the_score_of_the_conjugate_posterior(rule, n):
    x, sets = conjugate(n, 1)
    expected = x.sum(0) / VARIANCES - (1 + n / VARIANCES) * CLOUD
    np.testing.assert_allclose(composed(SUMS[rule], sets, level(1.0, 1.0), cloud(10)), expected, rtol=1e-4, atol=1e-5 * n)


def joint_score(x, gamma, u):
    """Of the diffused joint posterior N(√γ m, γ V + 1-γ), for a stack of levels."""
    gamma, precision = np.asarray(gamma, np.float64)[:, None, None], 1 + len(x) / VARIANCES
    return (np.sqrt(gamma) * x.sum(0) / VARIANCES / precision - u) / (gamma / precision + 1 - gamma)


@pytest.mark.parametrize("rule", ["gauss", "jac"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("n", "every"), shortly([(2, 10), (8, 10), (300, 133)], (8, 10)))
def test_gauss_and_jac_are_the_score_of_the_diffused_joint_posterior(rule, schedule, n, every):
    # Without noise to speak of (1-γ = 1e-4) the sets' weights cancel to 1 in 10⁴ n, in float32.
    x, sets = conjugate(n)
    at = jax.tree.map(lambda v: v[::every], levels(schedule))
    assert_close(composed(SMALL[rule], sets, at, cloud(10)), joint_score(x, at.gamma, CLOUD), 2e-4 + 1e-5 * n)


def test_the_plain_sum_is_not():
    # So that the test above can fail.
    x, sets = conjugate(8)
    ours, expected = composed(Diffused(), sets, level(0.5), cloud(10)), joint_score(x, [0.5], CLOUD)[0]
    assert np.abs(ours - expected).max() > 0.5 * np.abs(expected).max()


# Gaussian sets in general, each with a mean and a covariance of its own, turned its own way


def turned(u, x, gamma):
    """The score of the diffused N(m, R diag(v) Rᵀ) for x = (m, v, R)."""
    dim = len(u)
    mean, variances, rotation = x[:dim], x[dim : 2 * dim], x[2 * dim :].reshape(dim, dim)
    return -rotation @ ((u - jnp.sqrt(gamma) * mean) @ rotation / (gamma * variances + 1 - gamma))


def turned_sets(means, variances, rotations):
    x = jnp.asarray(np.concatenate([means, variances, rotations.reshape(len(means), -1)], axis=1), jnp.float32)
    covariances = np.einsum("jab,jb,jcb->jac", rotations, variances, rotations)
    precision = jnp.stack([positive(jnp.asarray(c, jnp.float32))[0] for c in covariances])
    sets = ExactSets(x, jnp.int32(len(x)), jnp.arange(len(x), dtype=jnp.int32), precision, turned, turned)
    return sets, covariances


@cache
def some_turned_sets(count=6, dim=3, widest=0.9):
    rng = np.random.default_rng(3)
    rotations = np.linalg.qr(rng.standard_normal((count, dim, dim)))[0]
    return (means := rng.standard_normal((count, dim))), *turned_sets(means, rng.uniform(0.05, widest, (count, dim)), rotations)


@pytest.mark.parametrize("rule", ["gauss", "jac"])
def test_gauss_and_jac_are_exact_for_any_gaussian_sets(rule):
    # And so the same. The joint posterior has precision Σ_j Σ_j⁻¹ + (1-k) I, in none of the sets' own axes.
    means, sets, covariances = some_turned_sets()
    each = np.linalg.inv(covariances)
    joint = np.linalg.inv(each.sum(0) + (1 - len(means)) * np.eye(3))
    mean = joint @ np.einsum("jab,jb->a", each, means)
    at = levels("log-snr")
    expected = [
        np.linalg.solve(g * joint + (1 - g) * np.eye(3), (np.sqrt(g) * mean - CLOUD[:, :3]).T).T
        for g in np.asarray(at.gamma, np.float64)
    ]
    assert_close(composed(SMALL[rule], sets, at, cloud(3)), np.stack(expected), 1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_sets_as_wide_as_the_prior_count_alike_and_gauss_is_the_diffused_rule(name):
    sets, u, at = observed(name, 4), cloud(tasks.get(name).prior.dim), levels("log-snr")
    equal = eqx.tree_at(lambda sets: sets.precision, sets, jnp.broadcast_to(jnp.eye(u.shape[1]), sets.precision.shape))
    assert_close(composed(Gauss(), equal, at, u), composed(Diffused(), sets, at, u), 1e-4)


@pytest.mark.parametrize("rule", ["gauss", "jac"])
def test_sets_wider_than_the_prior_count_as_wide_as_the_prior(rule):
    # Their scores stay as they are; their weights are cut to the prior's, and what is left is the plain sum.
    rng = np.random.default_rng(0)
    rotations = np.linalg.qr(rng.standard_normal((4, 3, 3)))[0]
    sets, _ = turned_sets(rng.standard_normal((4, 3)), rng.uniform(1.5, 4, (4, 3)), rotations)
    at = levels("log-snr", 400, 25)
    assert_close(composed(SMALL[rule], sets, at, cloud(3)), composed(Diffused(), sets, at, cloud(3)), 1e-4)


@pytest.mark.parametrize(
    ("variances", "inverse", "wider"),
    [
        ([0.01, 0.5, 0.99], [100.0, 2.0, 1 / 0.99], False),
        ([0.01, 0.5, 1.01], [100.0, 2.0, 1.0], True),
        ([0.5, 3.0, 40.0], [2.0, 1.0, 1.0], True),
    ],
)
def test_positive_cuts_what_is_wider_than_the_prior_and_says_so(variances, inverse, wider):
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    precision, said = positive(jnp.asarray(turn * variances @ turn.T, jnp.float32))
    np.testing.assert_allclose(precision, turn * inverse @ turn.T, rtol=1e-4, atol=1e-3)
    assert bool(said) is wider


def test_positive_keeps_a_covariance_without_full_rank_invertible():
    precision, said = positive(jnp.diag(jnp.asarray([0.0, 0.5])))
    np.testing.assert_allclose(precision, np.diag([1e8, 2.0]), rtol=1e-5)
    assert not said


# Densities


@eqx.filter_jit
def gradient(rule, sets, at, u):
    """Of the log density at every level, forward: there is no way back through a loop over a traced number of sets."""

    def along(axis, at):
        return jax.jvp(lambda u: rule.log_density(sets)(u, at), (u,), (jnp.broadcast_to(axis, u.shape),))[1]

    return jax.lax.map(lambda at: jax.vmap(along, (0, None), 1)(jnp.eye(u.shape[1]), at), at)


@pytest.mark.parametrize("rule", SUMS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 5])
def test_the_score_is_the_gradient_of_the_log_density(name, n, rule):
    sets, u, at = observed(name, n), cloud(tasks.get(name).prior.dim), levels("linear-beta")
    assert_close(composed(SUMS[rule], sets, at, u), gradient(SUMS[rule], sets, at, u), 1e-4)


TO_THETA = {"correlated": lambda u: 2 * jax.scipy.stats.norm.cdf(u) - 1}
"""Where the prior is not N(0, I)."""


@eqx.filter_jit
def log_posterior_gradient(name, x, count, u):
    def log_posterior(u):
        theta = TO_THETA.get(name, lambda u: u)(u)
        likelihoods = jax.vmap(tasks.get(name).log_likelihood, in_axes=(None, 0))(theta, x)
        return jnp.sum(jnp.where(jnp.arange(len(x)) < count, likelihoods, 0.0)) - jnp.sum(u**2) / 2

    return jax.vmap(jax.grad(log_posterior))(u)


@pytest.mark.parametrize("rule", SUMS)
@pytest.mark.parametrize("name", [*NAMES, "correlated"])
@pytest.mark.parametrize("n", [1, 10])
def test_without_noise_it_is_the_gradient_of_the_tasks_log_posterior(name, n, rule):
    sets, u = observed(name, n, seed=2), cloud(tasks.get(name).prior.dim)
    expected = log_posterior_gradient(name, sets.x, sets.count, u)
    ours = composed(SUMS[rule], sets, level(1.0, 1.0), u)
    np.testing.assert_allclose(ours, expected, rtol=2e-3, atol=2e-4 * n)


# How many sets


@pytest.mark.parametrize("rule", ["diffused", "gauss", "jac"])
def test_the_prior_counts_sets_not_observations(rule):
    # PF-NPSE: 6 observations in 2 sets of 3 have the prior to the power 1 - 2 (the paper prints 1 - 6).
    x = tasks.get("gaussian").observe(6, 3)[1]
    variances = 1 / (1 + 3 / VARIANCES)
    means = x.reshape(2, 3, 10).sum(1) / VARIANCES * variances
    sets, _ = turned_sets(means, np.tile(variances, (2, 1)), np.tile(np.eye(10), (2, 1, 1)))
    got = composed(SMALL[rule], sets, level(0.9999 if rule != "diffused" else 1.0), cloud(10))
    expected = x.sum(0) / VARIANCES - (1 + 6 / VARIANCES) * CLOUD
    # The other rules end at the least noise, 1-γ = 1e-4, which changes a score by 1e-4 of its slope.
    close = {"rtol": 1e-4, "atol": 1e-4} if rule == "diffused" else {"rtol": 5e-3, "atol": 0.02}
    np.testing.assert_allclose(got, expected, **close)


# The damped rule


def damped_sum(sets, at, u, batch):
    """What the mini-batches estimate: s_0 + (M/k)^{1-γ} (Σ_j s_j - k s_0)."""
    count, gamma = int(sets.count), np.asarray(at.gamma, np.float64).reshape(-1, 1, 1)
    total = np.asarray(composed(Diffused(), sets, at, u), np.float64) + (1 - count) * np.asarray(u, np.float64)
    return -u + (batch / count) ** (1 - gamma) * (total + count * np.asarray(u, np.float64))


@pytest.mark.false_failure(2e-6)
def test_damped_is_unbiased():
    # 4,000 batches: each of 16 × 2 means within 5.5 of its standard errors, false failure 32 × 4e-8 = 1e-6. The standard
    # errors are below a hundredth of the scores, so that a batch counted wrongly by as much would show.
    rule, sets, u, at = Damped(batch=8, anchors=3), observed("bimodal", 40, rows=40), cloud(2), level(0.7)
    keys = jax.random.split(jax.random.key(3), 4000)
    found = jax.jit(lambda keys: jax.lax.map(lambda key: rule.score(sets)(u, at, key), keys, batch_size=100))(keys)
    found, expected = np.asarray(found, np.float64), damped_sum(sets, at, u, 8)[0]
    error = found.std(0) / np.sqrt(len(keys))
    assert (np.abs(found.mean(0) - expected) < 5.5 * error + 1e-4).all()
    assert error.min() > 0
    assert error.max() < 0.01 * np.abs(expected).max()


@pytest.mark.parametrize("count", [40, 3])
def test_damped_has_no_error_where_sets_differ_by_a_shift(count):
    # Linear scores of one slope: s_j(u) - s_j(c) is the same for all. Three sets are fewer than a batch.
    sets, u, at = observed("gaussian", count, rows=44), cloud(10), levels("log-snr", 400, 25)
    got = composed(Damped(batch=8, anchors=3), sets, at, u, jax.random.key(5))
    assert_close(got, damped_sum(sets, at, u, min(8, count)), 1e-4)


@pytest.mark.false_failure(1e-8)
def test_the_error_of_a_batch_shrinks_with_the_cloud():
    # The differences' do, and with them their batches' error: in proportion to the width, as s_j is nearly linear there.
    # 200 batches: an sd has a standard error of 5%, the ratio of two 7% at most, and the bounds are at 5.8: 1e-8.
    rule, sets, at = Damped(batch=8, anchors=1), observed("bimodal", 40, rows=40), level(0.7)

    @jax.jit
    def noise(u):
        return jax.lax.map(lambda key: rule.score(sets)(u, at, key), jax.random.split(KEY, 200), batch_size=100).std(0).mean()

    narrow, wide = (float(noise(0.3 + width * cloud(2))) for width in (0.01, 0.1))
    assert 0.066 < narrow / wide < 0.15


@pytest.mark.parametrize("count", [5, 6])
def test_damped_is_diffused_when_a_batch_holds_all(count):
    sets, u, at = observed("bimodal", count, rows=count), cloud(2), levels("log-snr", 400, 25)
    got, expected = composed(Damped(batch=5), sets, at, u), composed(Diffused(), sets, at, u)
    assert np.array_equal(got, expected) is (count == 5)


@pytest.mark.parametrize("count", [1, 4, 5, 6])
def test_padding_does_not_count_for_a_batch(count):
    # 5 sets and less fit into the batch, though their padding does not: the same program, and no noise.
    sets, u, at = observed("bimodal", count), cloud(2), levels("log-snr", 400, 25)
    one, other = (np.asarray(composed(Damped(batch=5), sets, at, u, jax.random.key(seed))) for seed in (0, 1))
    expected = np.asarray(composed(Diffused(), sets, at, u))
    if count <= 5:
        assert_close(one, expected, 1e-6)
        assert np.array_equal(one, other)
    else:
        assert np.abs(one - other).max() > 1e-3


def test_damped_sees_the_prior_alone_at_the_noisiest_level():
    # Up to what is left of 1,000 observations there, counted as 128: a pull of 128 √γ_T.
    x, sets = conjugate(1000)
    last = jax.tree.map(lambda v: v[-1], levels("log-snr"))
    got = np.asarray(composed(Damped(), sets, last, cloud(10)))
    np.testing.assert_allclose(got, -CLOUD, atol=128 * np.sqrt(float(last.gamma)) * (np.abs(x.mean(0)).max() + 1))


cluster = jax.jit(anchors, static_argnames="number")


@pytest.mark.false_failure(0)
@pytest.mark.parametrize("key", range(3))
def test_anchors_are_means(key):
    # Of what was nearest to the anchors of the step before: Lloyd's algorithm from the same draws, in float64.
    u = np.random.default_rng(2).standard_normal((256, 3)) * [1, 5, 0.01] + [0, 20, -3]
    centres = u[np.asarray(jax.random.choice(jax.random.key(key), 256, (8,), replace=False))]
    for _ in range(CLUSTERING_STEPS):
        members = np.argmin((((u[:, None] - centres) / u.std(0)) ** 2).sum(-1), axis=1)
        centres = np.stack([u[members == j].mean(0) for j in range(8)])
    ours, nearest = map(np.asarray, cluster(jnp.asarray(u, jnp.float32), 8, jax.random.key(key)))
    np.testing.assert_allclose(ours, centres, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(nearest, members)


@pytest.mark.false_failure(0)
@pytest.mark.parametrize("number", [1, 8])
def test_anchors_are_the_means_of_their_members(number):
    # So that a batch's error does not move the cloud as a whole where scores are linear.
    u = np.random.default_rng(2).standard_normal((256, 3)) * [1, 5, 0.01] + [0, 20, -3]
    centres, nearest = map(np.asarray, cluster(jnp.asarray(u, jnp.float32), number, KEY))
    means = np.stack([u[nearest == j].mean(0) for j in range(number)])
    np.testing.assert_allclose(centres, means, rtol=1e-4, atol=1e-4)


def test_an_anchor_without_members_stays():
    # All draws at two places, five anchors: most have nobody, and nothing is divided by zero.
    u = jnp.asarray(np.repeat([[0.0, 1.0], [2.0, 3.0]], 8, axis=0), jnp.float32)
    centres, nearest = map(np.asarray, cluster(u, 5, KEY))
    np.testing.assert_array_equal(centres[nearest], u)
    assert np.isfinite(centres).all()


# The last level


def test_reference_sd():
    for name, rule in RULES.items():
        expected = [1.0, 0.5, 0.01] if name == "tempered" else [1.0, 1.0, 1.0]
        assert [rule.reference_sd(k) for k in (1, 4, 10_000)] == expected, name


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("rule", SMALL)
@pytest.mark.parametrize("n", shortly([1, 8], 8))
def test_reference_sd_is_that_of_the_score_at_the_last_level(schedule, rule, n):
    # Up to what is left of the observations there: a pull of about n √γ_T.
    x, sets = conjugate(n)
    last = jax.tree.map(lambda v: v[-1], levels(schedule))
    got = composed(SMALL[rule], sets, last, cloud(10))
    left_over = 2 * n * np.sqrt(float(last.gamma)) * (np.abs(x).max() + 1)
    np.testing.assert_allclose(got, -CLOUD / SMALL[rule].reference_sd(n) ** 2, atol=left_over)
    assert left_over < 0.3 * n
