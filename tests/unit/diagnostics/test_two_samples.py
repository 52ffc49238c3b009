"""The two-sample diagnostics, against direct formulas, closed forms and scikit-learn.

Every seed is fixed, so a run on one machine always ends the same way. The false-failure rates in the comments
say how often a correct implementation would fail if the seeds were drawn anew.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import chi2, norm
from sklearn.model_selection import KFold, cross_val_score
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from scorefold.diagnostics.c2st import ADAM, Data, Training, _epoch, _initial_layers, c2st
from scorefold.diagnostics.mmd import _kernel_rows, _median_distance, squared_mmd
from scorefold.diagnostics.moments import mean_shift, sd_ratio
from scorefold.errors import ScorefoldError


def gaussian(seed, rows, dim, mean=0.0, sd=1.0):
    return mean + sd * np.random.default_rng(seed).normal(size=(rows, dim))


# Validation: one table for all four.

DIAGNOSTICS = [squared_mmd, c2st, mean_shift, sd_ratio]
GOOD = gaussian(0, 30, 3)
MISTAKES = {
    "one axis": (GOOD[:, 0], GOOD, "shape"),
    "three axes": (GOOD[None], GOOD, "shape"),
    "no parameters": (GOOD[:, :0], GOOD[:, :0], "shape"),
    "other dim": (GOOD[:, :2], GOOD, "same number of parameters"),
    "one row": (GOOD[:1], GOOD, "at least"),
    "nan": (GOOD, np.where(np.arange(30)[:, None] == 7, np.nan, GOOD), "1 of 30 rows"),
    "inf": (np.where(np.arange(30)[:, None] < 2, np.inf, GOOD), GOOD, "2 of 30 rows"),
    "words": ([["a", "b", "c"]] * 30, GOOD, "real numbers"),
    "ragged": ([[1.0, 2.0], [1.0]], GOOD, "real numbers"),
}


@pytest.mark.parametrize("diagnose", DIAGNOSTICS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_says_what_was_expected(diagnose, mistake):
    draws, reference, words = MISTAKES[mistake]
    with pytest.raises(ScorefoldError, match=f"expected .*{words}|expected .*got .*{words}"):
        diagnose(draws, reference)


def test_c2st_wants_twenty_rows():
    with pytest.raises(ScorefoldError, match="reference with at least 20 rows; got 19"):
        c2st(GOOD, GOOD[:19])


@pytest.mark.parametrize("diagnose", [c2st, mean_shift, sd_ratio])
def test_constant_reference_is_named(diagnose):
    constant = GOOD.copy()
    constant[:, 1] = 0.1  # the mean of thirty times 0.1 is not 0.1
    with pytest.raises(ScorefoldError, match="constant in column 1:"):
        diagnose(GOOD, constant)


def test_mmd_of_equal_draws_is_refused():
    with pytest.raises(ScorefoldError, match="median distance of 0"):
        squared_mmd(np.ones((5, 2)), np.ones((6, 2)))


@pytest.mark.false_failure(0)
@pytest.mark.parametrize("kind", [np.float32, np.float64, jnp.asarray, np.ndarray.tolist])
def test_takes_any_array_and_returns_plain_numbers(kind):
    draws, reference = kind(gaussian(1, 45, 2)), kind(gaussian(2, 60, 2))
    assert type(squared_mmd(draws, reference)) is float
    assert type(c2st(draws, reference)) is float
    for diagnose in (mean_shift, sd_ratio):
        assert type(diagnose(draws, reference)) is np.ndarray
        assert diagnose(draws, reference).shape == (2,)


# Moments.


@pytest.mark.false_failure(0)
def test_moments_of_a_moved_and_stretched_reference_are_exact():
    reference = gaussian(3, 50, 3)
    mean, sd = reference.mean(0), reference.std(0, ddof=1)
    draws = mean + (reference - mean) * [0.5, 1.0, 2.0] + sd * [0.0, -1.0, 3.0]
    np.testing.assert_allclose(mean_shift(draws, reference), [0.0, -1.0, 3.0], atol=1e-12)
    np.testing.assert_allclose(sd_ratio(draws, reference), [0.5, 1.0, 2.0], rtol=1e-12)


# Squared MMD.


def direct_mmd(x, y):
    """The definition, pair by pair in double precision."""
    pooled = [*x, *y]
    distances = [np.linalg.norm(p - q) for i, p in enumerate(pooled) for q in pooled[:i]]
    ell = np.median(distances)

    def kernel(p, q):
        return np.exp(-np.sum((p - q) ** 2) / (2 * ell**2))

    xx = [kernel(p, q) for i, p in enumerate(x) for j, q in enumerate(x) if i != j]
    yy = [kernel(p, q) for i, p in enumerate(y) for j, q in enumerate(y) if i != j]
    xy = [kernel(p, q) for p in x for q in y]
    return np.mean(xx) + np.mean(yy) - 2 * np.mean(xy)


@pytest.mark.parametrize(
    ("a", "b", "dim", "mean", "sd"),
    [(2, 3, 1, 0.0, 1.0), (40, 70, 3, 0.5, 1.0), (65, 64, 10, 0.0, 2.0), (30, 30, 2, 0.0, 1e-5)],
)
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_mmd_is_the_definition(a, b, dim, mean, sd, offset):
    x, y = offset + gaussian(4, a, dim, mean, sd), offset + gaussian(5, b, dim)
    assert squared_mmd(x, y) == pytest.approx(direct_mmd(x, y), abs=1e-6)


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize(("mean", "sd"), [(0.0, 1.0), (0.4, 1.0), (0.0, 2.0)])
def test_mmd_of_gaussians_is_the_closed_form(mean, sd):
    """E k(u, v) = (ℓ²/(ℓ²+s))^{d/2} e^{-|m|²/2(ℓ²+s)} where u - v ~ N(m, s I)."""
    n, dim = 2_000, 4
    x, y = gaussian(6, n, dim, mean, sd), gaussian(7, n, dim)
    pooled = np.concatenate([x, y])
    ell2 = np.median(pdist(pooled, "sqeuclidean"))

    def expected(m2, s):
        return (ell2 / (ell2 + s)) ** (dim / 2) * np.exp(-m2 / (2 * (ell2 + s)))

    population = expected(0, 2 * sd**2) + expected(0, 2) - 2 * expected(dim * mean**2, 1 + sd**2)
    # Over 40 fresh pairs the sd of estimate - population was 0.0002 without a difference and 0.0034 with one;
    # the tolerance is 6.5 of them.
    differs = mean > 0 or sd > 1
    assert squared_mmd(x, y) == pytest.approx(population, abs=0.022 if differs else 0.0013)


def test_mmd_far_apart_is_its_limit():
    """Just over half of all pairs of two equal clouds are across the gap, so ℓ → gap: 2 - 2e^{-1/2}."""
    x, y = gaussian(8, 300, 2, mean=1e5), gaussian(9, 300, 2)
    assert squared_mmd(x, y) == pytest.approx(2 - 2 * np.exp(-0.5), abs=1e-4)


def test_mmd_does_not_change_with_shift_turn_scale_or_order():
    x, y = gaussian(10, 60, 3, mean=0.7), gaussian(11, 80, 3)
    turn, _ = np.linalg.qr(gaussian(12, 3, 3))
    value = squared_mmd(x, y)
    assert squared_mmd(5 + 100 * x @ turn, 5 + 100 * y @ turn) == pytest.approx(value, abs=1e-6)
    assert squared_mmd(y, x) == pytest.approx(value, abs=1e-6)
    assert squared_mmd(x[::-1], y) == pytest.approx(value, abs=1e-6)


@pytest.mark.false_failure(1e-7)
def test_mmd_is_unbiased():
    values = [squared_mmd(gaussian(2 * s, 20, 2), gaussian(2 * s + 1, 20, 2)) for s in range(1_000, 1_400)]
    # Six standard errors. The biased estimate is 0.04 here, 28 of them.
    assert abs(np.mean(values)) < 6 * np.std(values, ddof=1) / np.sqrt(len(values))


@pytest.mark.false_failure(1e-7)
def test_mmd_median_over_a_subset_is_close_and_repeatable():
    x, y = gaussian(13, 3_000, 10), gaussian(14, 3_000, 10)
    subset = _median_distance(np.concatenate([x, y]))
    # |u - v|² ~ 2 χ²_10. Over 40 fresh seeds the sd was 0.56%: six of them.
    assert subset == pytest.approx(np.sqrt(2 * chi2.median(10)), rel=0.034)
    assert squared_mmd(x, y) == squared_mmd(x, y)


def test_mmd_never_holds_the_kernel_matrix():
    cloud = jax.ShapeDtypeStruct((10_000, 10), jnp.float32)
    memory = _kernel_rows.lower(cloud, cloud).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 30e6  # the whole matrix has 400e6


# C2ST.


def sklearn_c2st(draws, reference, seed):
    """The recipe of the benchmark, with at most 1,000 epochs."""
    mean, sd = reference.mean(0), reference.std(0, ddof=1)
    data = np.concatenate([(reference - mean) / sd, (draws - mean) / sd])
    label = np.repeat([0, 1], [len(reference), len(draws)])
    width = 10 * data.shape[1]
    classifier = MLPClassifier((width, width), activation="relu", max_iter=1_000, random_state=seed)
    folds = KFold(n_splits=5, shuffle=True, random_state=seed)
    with threadpool_limits(1):  # more threads than free cores wait for each other
        return cross_val_score(classifier, data, label, cv=folds, scoring="accuracy").mean()


def bimodal(seed, rows):
    """Two modes in the first parameter, with the mean and sd of N(0, I)."""
    draws = gaussian(seed, rows, 2, sd=np.array([0.3, 1.0]))
    side = np.random.default_rng(seed + 1).choice([-1, 1], rows)
    return draws + np.stack([side * np.sqrt(1 - 0.3**2), np.zeros(rows)], axis=1)


CASES = {
    "identical": (gaussian(20, 600, 2), gaussian(21, 600, 2)),
    "shifted": (gaussian(22, 200, 10, mean=2 / np.sqrt(10)), gaussian(23, 200, 10)),
    "wider": (gaussian(24, 300, 2, sd=2.0), gaussian(25, 300, 2)),
    "bimodal": (bimodal(26, 300), gaussian(28, 300, 2)),
}


@pytest.mark.false_failure(1e-6)
@pytest.mark.full
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("case", CASES)
def test_c2st_agrees_with_scikit_learn(case):
    draws, reference = CASES[case]
    # The larger sd of one run, theirs or ours, over 10 seeds on these clouds: 0.012 (identical), 0.014
    # (shifted), 0.007 (wider), 0.012 (bimodal). The difference of two means of three runs has √(2/3) of that,
    # so 0.07 is 6 of its sd or more.
    ours = np.mean([c2st(draws, reference, seed) for seed in range(3)])
    theirs = np.mean([sklearn_c2st(draws, reference, seed) for seed in range(3)])
    assert ours == pytest.approx(theirs, abs=0.07)
    if case == "identical":
        # Over 30 fresh pairs of clouds, one run had sd 0.020: six of them.
        assert ours == pytest.approx(0.5, abs=0.12)


@pytest.mark.false_failure(1e-6)
@pytest.mark.full
def test_c2st_stays_below_the_best_classifier():
    """Two Gaussians at distance |δ| = 2 are told apart at best with probability Φ(|δ|/2) = 0.841."""
    n, dim, pairs = 200, 10, 3
    accuracy = np.mean(
        [c2st(gaussian(seed, n, dim, mean=2 / np.sqrt(dim)), gaussian(seed + 100, n, dim)) for seed in range(300, 300 + pairs)]
    )
    best = norm.cdf(1)
    noise = np.sqrt(best * (1 - best) / (2 * n * pairs))
    # Over 24 fresh pairs the accuracy was 0.794 (the network overfits 320 rows), sd 0.024, 0.014 for three:
    # both ends are more than 5.5 of them away.
    assert best - 0.14 < accuracy < best + 3 * noise


def test_c2st_training_is_scikit_learns_step_by_step():
    """From the same weights, in the same order, with a short last batch: the loss of every epoch."""
    z, is_draw = gaussian(32, 250, 2), np.repeat([1.0, 0.0], 125)
    z[is_draw == 1] += 0.5
    order = np.random.default_rng(33).permutation(250)
    layers = _initial_layers(jax.random.key(0), 2)
    fold = Training(layers, ADAM.init(layers), jnp.asarray(jnp.inf), jnp.asarray(0))
    theirs = MLPClassifier((20, 20), shuffle=False).partial_fit(z, is_draw, classes=[0, 1])
    theirs.coefs_ = [np.array(weight, np.float64) for weight, _ in layers]
    theirs.intercepts_ = [np.array(bias, np.float64) for _, bias in layers]
    del theirs._optimizer  # begins anew from the weights above

    data = Data(jnp.asarray(z, jnp.float32), jnp.asarray(is_draw, jnp.float32))
    epoch = jax.jit(partial(_epoch, data, jnp.asarray(order)))
    # Later than this, single precision and Adam's ε (see ADAM) move the weights that have hardly a gradient.
    for _ in range(16):
        fold = epoch(fold, jnp.arange(250))
        theirs.partial_fit(z[order], is_draw[order], classes=[0, 1])
        assert float(fold.best) == pytest.approx(theirs.loss_, abs=2e-6)  # the loss falls in every epoch


def test_c2st_fold_stops_after_eleven_stale_epochs_and_freezes():
    layers = _initial_layers(jax.random.key(0), 1)
    data = Data(jnp.zeros((10, 1)), jnp.tile(jnp.array([0.0, 1.0]), 5))
    # No loss is below zero, so no epoch is better than a best of zero.
    fold = Training(layers, ADAM.init(layers), jnp.asarray(0.0), jnp.asarray(0))
    epoch = jax.jit(partial(_epoch, data, jnp.arange(10)))
    stale, weights = [], []
    for _ in range(13):
        fold = epoch(fold, jnp.arange(10))
        stale.append(int(fold.stale))
        weights.append(np.asarray(fold.layers[1][0]))
    assert stale == [*range(1, 12), 11, 11]
    assert not np.array_equal(weights[9], weights[10])
    assert np.array_equal(weights[10], weights[12])


@pytest.mark.false_failure(1e-6)
def test_c2st_initial_layers_fill_their_range():
    for weight, bias in _initial_layers(jax.random.key(1), 10)[:2]:
        bound = np.sqrt(6 / sum(weight.shape))
        assert np.abs(weight).max() <= bound
        assert np.abs(bias).max() <= bound
        # Uniform on ±bound, 1,000 or more weights: five standard errors of the variance, 0.9 / √1000 of it.
        assert np.var(weight) == pytest.approx(bound**2 / 3, rel=0.15)


@pytest.mark.false_failure(0)
def test_c2st_uses_the_first_rows_of_the_longer_cloud():
    draws, reference = gaussian(34, 90, 2), gaussian(35, 47, 2, mean=0.5)
    beyond = draws.copy()
    beyond[45:] += 1e3  # 47 rounded down to a multiple of five
    assert c2st(beyond, reference) == c2st(draws, reference) == c2st(draws[:45], reference)


@pytest.mark.false_failure(1e-6)
def test_c2st_depends_on_the_seed_only():
    draws, reference = gaussian(36, 45, 2), gaussian(37, 45, 2)
    assert c2st(draws, reference, seed=3) == c2st(draws, reference, seed=3)
    assert len({c2st(draws, reference, seed=seed) for seed in range(5)}) > 1


@pytest.mark.false_failure(1e-6)
def test_c2st_may_fall_below_one_half_and_reaches_one():
    # Each is below one half about half of the time: all 24 above it once in 10⁷.
    assert any(c2st(gaussian(s, 45, 2), gaussian(s + 100, 45, 2)) < 0.5 for s in range(200, 224))
    assert c2st(gaussian(60, 45, 2, mean=20.0), gaussian(61, 45, 2)) == 1.0


@pytest.mark.parametrize("distance", [1e7, 1e25, 1e45])
def test_c2st_tells_draws_that_ran_away(distance):
    assert c2st(gaussian(62, 45, 2, mean=distance), gaussian(63, 45, 2)) == 1.0
