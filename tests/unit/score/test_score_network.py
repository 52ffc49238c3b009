"""The score network and what surrounds it, against closed forms and plain loops.

Statistical comparisons use fixed seeds; on fresh ones the false-failure rate is stated at each of them.
"""

from functools import cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from scorefold.noise import CLEAN, Level, levels
from scorefold.score.correction import Correction
from scorefold.score.ensemble import SETS_EMBEDDED_TOGETHER, ScoreEnsemble
from scorefold.score.gaussian_base import SMALLEST_VARIANCE, GaussianBase, fit_gaussian_base
from scorefold.score.network import ScoreModel, ScoreNetwork, Shape, positional, residual_scale
from scorefold.score.standardize import KNEE, Standardize, fit_standardize
from scorefold.train.rows import bucket

DIM, X, LARGEST = 2, 3, 3
FORMS = {
    f"{'base' if base else 'no base'}, {'conservative' if conservative else 'free'}": (base, conservative)
    for base in (True, False)
    for conservative in (False, True)
}
LEVELS = levels("log-snr", 9)


def level(index: int) -> Level:
    return jax.tree.map(lambda v: v[index], LEVELS)


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


# Standardisation


def test_standardize_centres_and_scales_robustly():
    rng = np.random.default_rng(0)
    x = rng.normal([3.0, -50.0], [0.1, 20.0], size=(20_000, 2))
    clean = fit_standardize(x)
    # The median has standard error 1.25 σ/√n and the scale 1.17 σ/√n: 0.05 σ is over 5.5 of them, 4 times in 10⁸.
    assert (np.abs(clean.centre - np.array([3.0, -50.0])) < 0.05 * np.array([0.1, 20.0])).all()
    np.testing.assert_allclose(clean.scale, [0.1, 20.0], rtol=0.05)
    x[:100] = [1e9, -1e30]
    dirty = fit_standardize(x)
    np.testing.assert_allclose(dirty.scale, clean.scale, rtol=0.05)
    z = np.asarray(jax.vmap(dirty)(jnp.asarray(x, jnp.float32)))
    assert np.isfinite(z).all()
    assert (z[:100, 0] > KNEE).all()
    assert (z[:100, 1] < -KNEE).all()
    assert np.abs(z).max() < 100


@pytest.mark.parametrize("value", [0.0, 7.0, -1e6, 1e-12])
def test_a_constant_column_is_left_at_zero(value):
    x = np.column_stack([np.full(100, value), np.arange(100.0)])
    standardize = fit_standardize(x)
    assert standardize.scale[0] == np.float32(1e37)
    z = np.asarray(jax.vmap(standardize)(jnp.asarray(x, jnp.float32)))
    np.testing.assert_array_equal(z[:, 0], 0)
    assert z[:, 1].std() > 0.5


def test_a_mostly_constant_column_is_scaled_by_its_sd():
    x = np.zeros((100, 1))
    x[:20] = 10.0  # sd 4, interquartile range 0
    np.testing.assert_allclose(fit_standardize(x).scale, 4.0)


def test_standardize_is_odd_increasing_and_smooth_at_the_knee():
    standardize = Standardize(jnp.zeros(1), jnp.full(1, 2.0))
    of = jax.jit(jax.vmap(lambda z: standardize(2 * z[None])[0]))
    z = np.concatenate([np.linspace(-20, 20, 4001), np.logspace(1.5, 30, 100)]).astype(np.float32)
    y = np.asarray(of(z))
    assert (np.diff(y) > 0).all()
    np.testing.assert_array_equal(np.asarray(of(-z)), -y)
    inside = np.abs(z) <= KNEE
    np.testing.assert_array_equal(y[inside], z[inside])
    beyond = np.abs(z[~inside]) - KNEE
    np.testing.assert_allclose(np.abs(y[~inside]), KNEE + np.log1p(beyond), rtol=1e-6)
    step = 1e-2  # the slope is 1 on either side
    around = np.asarray(of(jnp.asarray([KNEE - step, KNEE, KNEE + step])))
    np.testing.assert_allclose(np.diff(around), step, rtol=1e-2)


# The Gaussian base

A = np.array([[1.0, 0.3], [-0.5, 0.8], [0.2, 0.6]])
B = np.array([0.5, -1.0, 2.0])
NOISE = np.array([0.5, 1.0, 0.8])  # variances


def conjugate(size):
    """W, c and R of u | x̄ for u ~ N(0, I), x_j = A u + B + noise, x̄ the mean of `size` of them."""
    precision = size / NOISE
    R = np.linalg.inv(np.eye(DIM) + A.T * precision @ A)
    W = R @ A.T * precision
    return W, -W @ B, R


def linear_cases(count, largest, seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, largest + 1, count)
    u = rng.standard_normal((count, DIM))
    x = (u @ A.T + B)[:, None] + rng.standard_normal((count, largest, X)) * np.sqrt(NOISE)
    x[np.arange(largest) >= sizes[:, None]] = 1e3  # padding, which must not count
    return x, sizes, u


@pytest.mark.parametrize("largest", [1, 3])
def test_base_recovers_the_conjugate_posterior(largest):
    x, sizes, u = linear_cases(20_000 * largest, largest, seed=1)
    base = fit_gaussian_base(x, sizes, u)
    for size in range(1, largest + 1):
        W, c, R = conjugate(size)
        count = (sizes == size).sum()
        inverse = np.linalg.inv(A @ A.T + np.diag(NOISE / size))  # of the covariance of x̄
        se_W = np.sqrt(np.outer(np.diag(R), np.diag(inverse)) / count)
        se_c = np.sqrt(np.diag(R) * (1 + B @ inverse @ B) / count)
        se_R = np.sqrt((np.outer(np.diag(R), np.diag(R)) + R**2) / count)
        vectors, variances = (np.asarray(v[size - 1], np.float64) for v in (base.vectors, base.variances))
        # 5.5 standard errors, 4 times in 10⁸; 44 comparisons: once in 600,000 seeds.
        assert (np.abs(base.weight[size - 1] - W) < 5.5 * se_W).all()
        assert (np.abs(base.offset[size - 1] - c) < 5.5 * se_c).all()
        assert (np.abs(vectors * variances @ vectors.T - R) < 5.5 * se_R).all()


@pytest.mark.false_failure(1e-7)
def test_large_sets_learn_from_small_ones():
    """Few sets of six: what all observations say together is nearer to the truth than least squares on those sets alone."""
    ratios = []
    for seed in range(20):
        x, sizes, u = linear_cases(120, 6, seed)
        W, c, _ = conjugate(6)
        alone = sizes == 6
        base = fit_gaussian_base(x, sizes, u)
        slope = np.linalg.lstsq(np.column_stack([np.ones(alone.sum()), x[alone].mean(axis=1)]), u[alone], rcond=None)[0]
        fresh = np.random.default_rng([seed, 1]).standard_normal((500, DIM)) @ A.T + B
        pooled = np.asarray(base.weight[5]) @ fresh.T + np.asarray(base.offset[5])[:, None] - (W @ fresh.T + c[:, None])
        single = slope[1:].T @ fresh.T + slope[0][:, None] - (W @ fresh.T + c[:, None])
        ratios.append(np.log(np.mean(pooled**2) / np.mean(single**2)))
    # Over 120 other seeds -1.03 ± 0.72, so the limit is 5.7 sd of a mean of 20 away.
    assert np.mean(ratios) < -0.1


def test_the_empty_set_is_the_prior():
    x, sizes, u = linear_cases(300, 2, seed=9)
    base = fit_gaussian_base(x, sizes, u, smallest=0)
    zero, two = jnp.asarray(0), jnp.asarray(2)
    np.testing.assert_array_equal(base.mean(jnp.ones(X), zero), np.zeros(DIM))
    np.testing.assert_allclose(base.matrix(1.0, CLEAN, zero), np.eye(DIM), atol=1e-6)
    without = fit_gaussian_base(x, sizes, u)
    np.testing.assert_allclose(base.mean(jnp.ones(X), two), without.mean(jnp.ones(X), two), rtol=1e-6)


def predictions(base, x_mean):
    return np.asarray(jax.vmap(lambda x: base.mean(x, jnp.asarray(1)))(jnp.asarray(x_mean, jnp.float32)))


def test_collinear_and_constant_columns_do_no_harm():
    x, sizes, u = linear_cases(500, 1, seed=2)
    x_mean = x[:, 0]
    wide = np.column_stack([x_mean, x_mean, x_mean.sum(axis=1), np.full(500, 3.0), 1e-9 * x_mean[:, 0]])
    narrow_base, wide_base = (fit_gaussian_base(x[:, None], sizes, u) for x in (x_mean, wide))
    np.testing.assert_allclose(predictions(wide_base, wide), predictions(narrow_base, x_mean), atol=0.01)
    np.testing.assert_allclose(wide_base.variances, narrow_base.variances, rtol=0.02)


def calibration(cases, features, seed=3):
    """Mean squared error on fresh cases, whole and in units of what the base itself expects."""
    rng = np.random.default_rng([seed, 1])
    x, sizes, u = linear_cases(cases + 1000, 1, seed)
    x_mean = np.column_stack([x[:, 0], rng.standard_normal((len(u), features - X))])
    base = fit_gaussian_base(x_mean[:cases, None], sizes[:cases], u[:cases])
    missed = u[cases:] - predictions(base, x_mean[cases:])
    whitened = missed @ np.asarray(base.vectors[0]) / np.sqrt(base.variances[0])
    assert np.isfinite(missed).all()
    return np.mean(missed**2), np.mean(whitened**2)


# Over 300 other seeds for each row, at worst: error 0.81 ± 0.06, log of the calibration 0.9 ± 0.5 and 1.3 ± 0.5. The limits
# are 7 standard deviations away; a base that interpolates has an error of 1 to 7 and a calibration of 10⁶.
@pytest.mark.parametrize(("cases", "features"), [(100, 5), (100, 50), (30, 30), (30, 100)])
def test_many_features_do_no_harm(cases, features):
    error, calibrated = calibration(cases, features)
    assert error < 1.3  # the prior alone has 1
    assert calibrated < 100  # 1 where the base knows exactly how wrong it is


@pytest.mark.parametrize("cases", [0, 1, 2])
def test_a_set_size_with_hardly_any_cases_does_no_harm(cases):
    """With m = 30 and 1,000 calls every size has two cases on average, and some have none."""
    x, _, u = linear_cases(200, 2, seed=4)
    sizes = np.where(np.arange(200) < cases, 2, 1)
    base = fit_gaussian_base(np.where(np.arange(2)[:, None] < sizes[:, None, None], x, 0.0), sizes, u)
    assert all(np.isfinite(v).all() for v in jax.tree.leaves(base))
    assert (base.variances[1] > 0.01).all()


def test_variances_stay_within_their_bounds():
    """Also where x says everything (R = 0) or nothing (R = I)."""
    rng = np.random.default_rng(5)
    u = rng.standard_normal((300, 1))
    ones = np.ones(300, int)
    known, unknown = (fit_gaussian_base(x[:, None], ones, u) for x in (3 * u, rng.standard_normal((300, 1))))
    np.testing.assert_allclose(known.variances, SMALLEST_VARIANCE)
    np.testing.assert_allclose(known.weight, 1 / 3, rtol=1e-4)
    assert 0.5 < unknown.variances[0, 0] <= 1  # sd 0.08 below 1: never
    assert jnp.abs(unknown.weight).max() < 0.4  # sd 0.06: 3 times in 10¹¹


def some_base(sizes=LARGEST, seed=6):
    rng = np.random.default_rng(seed)
    vectors = np.stack([np.linalg.qr(rng.standard_normal((DIM, DIM)))[0] for _ in range(sizes)])
    return GaussianBase(
        normal(seed, sizes, DIM, X),
        normal(seed + 1, sizes, DIM),
        jnp.asarray(vectors, jnp.float32),
        jnp.asarray(rng.uniform(0.05, 0.9, (sizes, DIM)), jnp.float32),
    )


def diffused_covariance(base, size, gamma):
    row = 0 if len(base.weight) == 1 else size - 1
    vectors = np.asarray(base.vectors[row], np.float64)
    return gamma * (vectors * np.asarray(base.variances[row], np.float64)) @ vectors.T + (1 - gamma) * np.eye(DIM)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.999, 1.0])
@pytest.mark.parametrize("power", [-1.0, -0.5, 0.5, 1.0])
@pytest.mark.parametrize("base", [some_base(), some_base(1)], ids=["three sizes", "one size"])
def test_times_is_the_matrix_power(base, power, gamma):
    v = normal(7, DIM)
    for size in range(1, LARGEST + 1):
        values, vectors = np.linalg.eigh(diffused_covariance(base, size, gamma))
        wanted = vectors * values**power @ vectors.T @ np.asarray(v, np.float64)
        result = base.times(v, power, CLEAN._replace(gamma=gamma, noise=1 - gamma), jnp.asarray(size))
        np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=1e-5)


# One network


STANDARDIZE = Standardize(normal(8, X), 0.5 + jnp.abs(normal(9, X)))


def some_shape(form, largest=LARGEST):
    with_base, conservative = FORMS[form]
    return Shape(DIM, X, largest, width=8, depth=2, conservative=conservative, base=with_base)


def model_of(network):
    return ScoreModel(network, STANDARDIZE, some_base(network.shape.largest_set) if network.shape.base else None)


@cache
def some_model(form, largest=LARGEST, seed=10):
    """Every array is noise, so that nothing is zero by construction."""
    like = eqx.filter_eval_shape(ScoreNetwork, some_shape(form, largest), key=jax.random.key(0))
    leaves, tree = jax.tree.flatten(like)
    return model_of(jax.tree.unflatten(tree, [normal([seed, i], *v.shape) for i, v in enumerate(leaves)]))


DRAWS, SETS = 5, 2 * SETS_EMBEDDED_TOGETHER
U = normal(11, DRAWS, DIM)
SIZES = 1 + np.arange(SETS) % LARGEST


def some_sets(largest=LARGEST):
    return normal(12, SETS, largest, X)


@eqx.filter_jit
def parts(model, at, x, sizes, u=U):
    """The scores (sets, draws, dim), one by one, and the base's share of them."""

    def one(u, x, size):
        embedded = model.embed(x, size)
        return model(u, at, embedded), model.base_score(u, at, embedded)

    return jax.vmap(jax.vmap(one, in_axes=(0, None, None)), in_axes=(None, 0, 0))(u, x, sizes)


def scores(model, at, x, sizes):
    return np.asarray(parts(model, at, x, jnp.asarray(sizes, jnp.int32))[0], np.float64)


def fresh_model(form):
    return model_of(ScoreNetwork(some_shape(form), key=jax.random.key(19)))


@pytest.mark.parametrize("form", FORMS)
def test_a_fresh_network_adds_nothing_to_a_base(form):
    whole, base = parts(fresh_model(form), level(4), some_sets(), jnp.asarray(SIZES, jnp.int32))
    assert (whole == base).all() == FORMS[form][0]


@pytest.mark.parametrize("index", [0, 4, 8])
def test_the_base_alone_is_the_diffused_gaussian_score(index):
    model, at, x = fresh_model("base, free"), level(index), some_sets()
    gamma, result = float(at.gamma), scores(model, at, x, SIZES)
    for j, size in enumerate(SIZES):
        z = np.asarray(jax.vmap(STANDARDIZE)(x[j]), np.float64)[:size].mean(axis=0)
        mean = np.asarray(model.base.weight[size - 1]) @ z + np.asarray(model.base.offset[size - 1])
        off = np.asarray(U, np.float64) - np.sqrt(gamma) * mean
        wanted = -np.linalg.solve(diffused_covariance(model.base, size, gamma), off.T).T
        np.testing.assert_allclose(result[j], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_the_order_of_a_set_and_its_padding_do_not_matter(form):
    model, at, x = some_model(form), level(3), some_sets()
    twos, threes = (scores(model, at, x, np.full(SETS, size)) for size in (2, 3))
    np.testing.assert_allclose(scores(model, at, x[:, ::-1], np.full(SETS, 3)), threes, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(scores(model, at, x.at[:, 2].set(1e6), np.full(SETS, 2)), twos)
    assert np.abs(threes - twos).max() > 0.1


def test_a_set_means_the_same_whatever_it_is_padded_to():
    model, x = some_model("base, free"), some_sets()[0]
    tight, padded = (model.embed(x[:length], jnp.asarray(2)) for length in (2, 3))
    np.testing.assert_allclose(padded.join, tight.join, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(padded.mean, tight.mean, rtol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_only_the_conservative_form_is_a_gradient(form):
    model, x, sizes = some_model(form), some_sets()[:1], jnp.asarray([2], jnp.int32)
    jacobian = jax.jit(jax.vmap(jax.jacfwd(lambda u: parts(model, level(2), x, sizes, u[None])[0][0, 0])))
    jacobians = np.asarray(jacobian(normal(18, 20, DIM)))
    asymmetry = np.abs(jacobians[:, 0, 1] - jacobians[:, 1, 0]) / np.abs(jacobians).max(axis=(1, 2))
    if FORMS[form][1]:
        assert asymmetry.max() < 1e-4
    else:
        assert asymmetry.max() > 0.01


def test_outputs_are_noise_without_a_base_and_of_order_one_with_it():
    at = level(2)
    np.testing.assert_allclose(residual_scale(at, True), np.sqrt(at.gamma), rtol=1e-6)
    np.testing.assert_allclose(residual_scale(at, False), -1 / np.sqrt(1 - at.gamma), rtol=1e-5)


def test_positional_tells_every_level_from_every_other():
    codes = np.asarray(jax.vmap(lambda t: positional(t, 8))(levels("log-snr", 400).t))
    distance = np.linalg.norm(codes[:, None] - codes, axis=-1) + 10 * np.eye(400)
    assert distance.min() > 1e-2
    assert np.abs(codes).max() <= 1


def test_shapes_are_checked():
    with pytest.raises(TypeCheckError):
        STANDARDIZE(jnp.zeros((2, X)))


# The ensemble's total against the plain sum

MEMBERS = 2


class Problem(NamedTuple):
    ensemble: ScoreEnsemble
    x: jax.Array
    sizes: np.ndarray


def some_correction():
    t = jnp.asarray([1.0, 4.0, 9.0])
    return Correction(t, jnp.asarray([0.2, 0.5, 0.9]), normal(30, 3, DIM), normal(31, 3, DIM, DIM))


@cache
def some_problem(form, largest):
    members = [some_model(form, largest, seed) for seed in range(20, 20 + MEMBERS)]
    network = jax.tree.map(lambda *v: jnp.asarray(np.stack(v)), *(m.network for m in members))
    control = None if largest == 1 else some_correction()
    ensemble = ScoreEnsemble(network, STANDARDIZE, members[0].base, control)
    # A partition has sets of two sizes at most, which follow each other.
    return Problem(ensemble, some_sets(largest), np.minimum(np.maximum(SIZES, 2), largest))


TRACES = []


@eqx.filter_jit
def traced_total(ensemble, x, sizes, count, at):
    TRACES.append(None)
    return ensemble.embed(x, sizes, count).total(U, at)


def total(problem, at, count, length=SETS, garbage=0.0):
    """Of the first `count` sets, padded to `length` with sets full of garbage."""
    x = np.full((length, *problem.x.shape[1:]), garbage, np.float32)
    x[:count] = problem.x[:count]
    sizes = np.full(length, problem.sizes[:count].min(), np.int32)
    sizes[:count] = problem.sizes[:count]
    return np.asarray(traced_total(problem.ensemble, jnp.asarray(x), jnp.asarray(sizes), jnp.asarray(count, jnp.int32), at))


def plain_total(problem, at, count):
    """Σ_j (base + gate · mean of the residuals - b), from the scores of each set, draw and member by itself."""
    control, summed = problem.ensemble.correction, np.zeros((DRAWS, DIM))
    gate = 1.0 if control is None else float(control.gate_at(at.t))
    for member in range(MEMBERS):
        network = jax.tree.map(lambda v, m=member: jnp.asarray(np.asarray(v)[m]), problem.ensemble.network)
        model, sizes = problem.ensemble.member(network), jnp.asarray(problem.sizes, jnp.int32)
        whole, base = (np.asarray(part, np.float64) for part in parts(model, at, problem.x, sizes))
        for j in range(count):
            summed += (base[j] + gate * (whole[j] - base[j])) / MEMBERS
    return summed if control is None else summed - count * np.asarray(control.mean_at(U, at.t))


def assert_close(result, wanted):
    np.testing.assert_allclose(result, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("form", "largest", "sizes"),
    [
        *((form, 1, "ones") for form in FORMS if FORMS[form][0]),  # without control
        *(pytest.param(form, 3, "ones", marks=pytest.mark.full) for form in FORMS),
        *(pytest.param(form, 3, "mixed", marks=() if FORMS[form][0] else pytest.mark.full) for form in FORMS),
    ],
)
def test_total_is_the_sum_over_sets_of_the_mean_over_members(form, largest, sizes):
    problem = some_problem(form, largest)
    if sizes == "ones":
        problem = problem._replace(sizes=np.ones_like(problem.sizes))
    for index, count in ((0, 1), (4, SETS_EMBEDDED_TOGETHER), (8, SETS_EMBEDDED_TOGETHER + 3), (3, SETS)):
        assert_close(total(problem, level(index), count), plain_total(problem, level(index), count))


def test_total_does_not_depend_on_the_padding():
    problem, count = some_problem("base, free", 3), 3
    wanted = total(problem, level(3), count)
    for length in (SETS, 2 * SETS):
        assert_close(total(problem, level(3), count, length, garbage=1e4), wanted)


def test_total_of_one_padded_set_is_its_score():
    problem = some_problem("base, free", 1)
    assert_close(total(problem, level(3), count=1, length=1), plain_total(problem, level(3), count=1))


def test_a_new_number_of_sets_within_a_bucket_does_not_recompile():
    problem, before = some_problem("base, free", 1), len(TRACES)
    results = [total(problem, level(3), count) for count in (9, 12, 16)]
    assert {bucket(count) for count in (9, 12, 16)} == {SETS}
    assert len(TRACES) <= before + 1
    assert np.ptp(np.stack(results), axis=0).min() > 0


def test_buckets_are_few_and_not_much_too_large():
    for count in [*range(1, 2000), *(2**k + d for k in range(11, 25) for d in (-1, 0, 1))]:
        size = bucket(count)
        assert count <= size < 2 * count or count == size == 1
        assert size & (size - 1) == 0
        assert size % min(SETS_EMBEDDED_TOGETHER, size) == 0


# Correction


def test_control_is_linear_between_its_knots_and_constant_beyond():
    control = some_correction()
    u = normal(32, 4, DIM)
    for t, weights in {
        1.0: (1, 0, 0),
        2.5: (0.5, 0.5, 0),
        4.0: (0, 1, 0),
        8.0: (0, 0.2, 0.8),
        9.0: (0, 0, 1),
    }.items():
        gate, offset, slope = (np.tensordot(weights, v, 1) for v in (control.gate, control.offset, control.slope))
        np.testing.assert_allclose(control.gate_at(jnp.asarray(t)), gate, rtol=1e-5)
        np.testing.assert_allclose(control.mean_at(u, jnp.asarray(t)), offset + u @ slope.T, rtol=1e-4, atol=1e-5)
    for outside, end in ((0.0, 1.0), (99.0, 9.0)):
        assert control.gate_at(jnp.asarray(outside)) == control.gate_at(jnp.asarray(end))


def test_control_mean_is_affine_in_u():
    control, t = some_correction(), jnp.asarray(3.0)
    u, v = normal(33, 4, DIM), normal(34, 4, DIM)
    sides = [control.mean_at(w, t) for w in (2 * u - v, u, v)]
    np.testing.assert_allclose(sides[0], 2 * sides[1] - sides[2], atol=1e-5)
