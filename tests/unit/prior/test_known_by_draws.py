"""Priors known from draws only: several kinds of draws × a battery of properties; then every refusal.

Nothing is left to chance: seeds are fixed and no comparison is statistical.
"""

import hashlib
import json

import numpy as np
import pytest
from scipy import stats

import scorefold as sf
from scorefold.errors import ScorefoldError
from scorefold.prior import Prior
from scorefold.prior.codec import restore

INF = np.inf
COUNT = 500


def some_draws(dim, count=COUNT, seed=0):
    """Correlated and not Gaussian."""
    rng = np.random.default_rng(seed)
    y = rng.standard_normal((count, dim)) @ (np.eye(dim) + 0.5 * np.tri(dim, k=-1)).T
    return y + 0.3 * np.sin(2 * y) + np.arange(dim)


def some_bounded(count=COUNT):
    y = some_draws(4, count)
    return np.column_stack([y[:, 0], 2 + np.exp(y[:, 1]), -1 - np.exp(-y[:, 2]), 10 + 3 * stats.norm.cdf(y[:, 3] / 2 - 1.5)])


NAMES = ["a", "b", "c", "d"]
BOUNDS = {"d": (10, 13), "b": (2, INF), "c": (-INF, -1)}
POSITIVE = {"theta_0": (0, INF), "theta_1": (0, INF)}
GIVEN = {
    "one parameter": (some_draws(1, 100), None, None),
    "unbounded": (some_draws(3), ["x", "y", "z"], None),
    "float32": (some_draws(3).astype(np.float32), None, None),
    "far from 0": (1e6 + 1e-2 * some_draws(2), None, None),
    "bounded": (some_bounded(), NAMES, BOUNDS),
    "bounded, many": (some_bounded(3000), NAMES, BOUNDS),
    "positive, over decades": (np.exp(20 * some_draws(2)), None, POSITIVE),
    "close to a bound": (1e-6 * np.exp(some_draws(1)), None, {"theta_0": (0, 1e3)}),
}
every_prior = pytest.mark.parametrize("key", GIVEN)


def make(key):
    return Prior.from_draws(*GIVEN[key])


@every_prior
def test_draws_are_white_in_the_space_of_the_map(key):
    prior = make(key)
    u = prior.draws_normal
    assert prior.has_density is False
    assert u.shape == GIVEN[key][0].shape
    np.testing.assert_allclose(u.mean(axis=0), 0, atol=1e-7)
    np.testing.assert_allclose(u.T @ u / len(u), np.eye(prior.dim), atol=1e-7)
    np.testing.assert_allclose(prior.from_normal(u), GIVEN[key][0], rtol=1e-9)


@every_prior
def test_map_and_inverse_agree(key):
    prior = make(key)
    grid = np.linspace(-6, 6, 121)
    u = np.stack([np.roll(grid, 37 * i) for i in range(prior.dim)], axis=-1)
    u *= 6 / np.maximum(np.linalg.norm(u, axis=1, keepdims=True), 6)
    theta = prior.from_normal(u)
    np.testing.assert_allclose(prior.to_normal(theta), u, rtol=0, atol=1e-6)
    batch = u[:120].reshape(10, 12, prior.dim)
    np.testing.assert_array_equal(prior.from_normal(batch), theta[:120].reshape(batch.shape))
    np.testing.assert_array_equal(prior.from_normal(u[3]), theta[3])


@every_prior
def test_nothing_leaves_the_bounds_and_everything_is_finite(key):
    prior = make(key)
    low, high = prior.bounds.T
    far = np.concatenate([np.eye(prior.dim) * size for size in (1e300, -1e300, 40, -40, 8, -8)])
    theta = prior.from_normal(far)
    assert np.isfinite(theta).all()
    assert (low <= theta).all()
    assert (theta <= high).all()
    assert np.isfinite(prior.to_normal(theta)).all()


@every_prior
def test_sample_gives_every_draw_once_a_round(key):
    prior, given = make(key), np.asarray(GIVEN[key][0], np.float64)
    count = len(given)
    drawn = prior.sample(2 * count + 7, seed=3)
    rounds = drawn[:count], drawn[count : 2 * count]
    for one in rounds:
        np.testing.assert_array_equal(np.sort(one, axis=0), np.sort(given, axis=0))
    assert (rounds[0] != rounds[1]).any()
    assert (rounds[0] != given).any()
    assert len(np.unique(drawn[2 * count :], axis=0)) == 7


@every_prior
def test_a_longer_run_starts_with_the_shorter_one(key):
    prior = make(key)
    long = prior.sample(2 * COUNT, seed=3)
    for count in (0, 1, 7, 99, 100, 101, COUNT, COUNT + 1):
        np.testing.assert_array_equal(prior.sample(count, seed=3), long[:count])
    assert (prior.sample(50, seed=4) != long[:50]).any()


def test_draws_are_described_by_number_and_fingerprint():
    theta = some_bounded(3000)
    description = Prior.from_draws(theta, NAMES, BOUNDS).describe()
    assert "draws" not in description
    assert description["count"] == 3000
    assert description["sha256"] == hashlib.sha256(theta.astype("<f8").tobytes()).hexdigest()
    again = restore(description)
    for call in (lambda: again.sample(1, seed=0), lambda: again.draws_normal):
        with pytest.raises(ScorefoldError, match=r"only their number, 3000.*Prior\.from_draws"):
            call()
    assert len(json.dumps(description)) < 2000


def test_the_map_is_the_one_written_down():
    theta = some_bounded()
    y = np.column_stack(
        [theta[:, 0], np.log(theta[:, 1] - 2), -np.log(-1 - theta[:, 2]), stats.norm.ppf((theta[:, 3] - 10) / 3)],
    )
    white = np.linalg.solve(np.linalg.cholesky(np.cov(y.T, ddof=0)), (y - y.mean(axis=0)).T).T
    np.testing.assert_allclose(Prior.from_draws(theta, NAMES, BOUNDS).draws_normal, white, atol=1e-6)


def test_draws_of_a_uniform_become_nearly_normal():
    theta = (np.arange(2000) + 0.5)[:, None] / 2000
    u = Prior.from_draws(theta, bounds={"theta_0": (0, 1)}).draws_normal[:, 0]
    np.testing.assert_allclose(u, stats.norm.ppf(theta[:, 0]), atol=0.01)


def test_names_and_bounds():
    prior = sf.Prior.from_draws(some_bounded(), NAMES, BOUNDS)
    assert prior.names == tuple(NAMES)
    assert prior.dim == 4
    np.testing.assert_array_equal(prior.bounds, [[-INF, INF], [2, INF], [-INF, -1], [10, 13]])
    assert make("one parameter").names == ("theta_0",)


def test_repr_reads_well():
    assert repr(make("bounded")) == "Prior(a, b in (2, inf), c in (-inf, -1), d in (10, 13) ~ 500 draws)"


def test_equality_is_by_name_bound_and_draw():
    prior, theta = make("bounded"), some_bounded()
    assert prior == make("bounded")
    assert prior != Prior.from_draws(theta, ["a", "b", "c", "e"], {"b": (2, INF), "c": (-INF, -1), "e": (10, 13)})
    assert prior != Prior.from_draws(theta, NAMES, {**BOUNDS, "d": (10, 14)})
    assert prior != Prior.from_draws(theta[::-1], NAMES, BOUNDS)


def test_the_given_array_is_copied():
    theta = some_draws(2)
    prior = Prior.from_draws(theta)
    before = prior.sample(5, seed=0)
    theta[:] = 0
    prior.sample(5, seed=0)[:] = 0
    np.testing.assert_array_equal(prior.sample(5, seed=0), before)


def test_other_priors_are_gaussian():
    prior = Prior({"a": stats.gamma(2)})
    assert prior.has_density is True
    assert Prior(stats.multivariate_normal([0, 0], np.eye(2))).has_density is True
    with pytest.raises(ScorefoldError, match="expected a prior from draws"):
        _ = prior.draws_normal


def test_a_parameter_at_its_bound_is_mapped():
    prior = make("bounded")
    at_bound = prior.to_normal([[0, 2, -2, 11], [0, 3, -1, 11], [0, 3, -2, 10], [0, 3, -2, 13], [0, 3, -2, np.float32(13)]])
    assert np.isfinite(at_bound).all()
    assert np.abs(at_bound).max() <= 40


GOOD = some_draws(2)
NAN = np.where(np.arange(COUNT)[:, None] < 3, [np.nan, 1.0], GOOD)
REFUSED = {
    "too few": (lambda: Prior.from_draws(GOOD[:99]), "at least 100 draws for 2 parameters; got 99"),
    "too few for so many": (lambda: Prior.from_draws(some_draws(20, 150)), "at least 200 draws for 20"),
    "one axis": (lambda: Prior.from_draws(GOOD[:, 0]), r"got shape \(500,\).*theta\[:, None\]"),
    "three axes": (lambda: Prior.from_draws(GOOD[None]), r"\(count, dim\)"),
    "no parameters": (lambda: Prior.from_draws(np.zeros((500, 0))), r"got shape \(500, 0\)"),
    "not numbers": (lambda: Prior.from_draws([["a", "b"]] * 500), "expected draws to be numbers"),
    "ragged": (lambda: Prior.from_draws([[1.0], [1.0, 2.0]] * 500), "expected draws to be numbers"),
    "NaN": (lambda: Prior.from_draws(NAN), "finite draws; got 3 of 500"),
    "infinite": (lambda: Prior.from_draws(np.where(NAN == 1, INF, GOOD)), "finite draws; got 3 of 500"),
    "constant": (lambda: Prior.from_draws(GOOD * [1, 0] + 7), "'theta_1' that vary; got 7 in all"),
    "collinear": (lambda: Prior.from_draws(GOOD @ [[1, 2], [0, 0]]), "positive definite.*combinations of others"),
    "huge": (lambda: Prior.from_draws(1e200 * GOOD), "squares float64 can hold"),
    "same name twice": (lambda: Prior.from_draws(GOOD, ["a", "a"]), "2 different names"),
    "too few names": (lambda: Prior.from_draws(GOOD, ["a"]), "2 different names"),
    "outside": (
        lambda: Prior.from_draws(some_bounded(), NAMES, {**BOUNDS, "d": (11, 13)}),
        r"'d' between its bounds, 11 to 13, and not on them; got 1.*of 500 draws\)\. Widen",
    ),
    "on the bound": (
        lambda: Prior.from_draws(np.where(NAN == 1, 0, np.exp(GOOD)), bounds=POSITIVE),
        r"'theta_1' between.*got 0 \(3 of 500",
    ),
    "unknown bound": (lambda: Prior.from_draws(GOOD, bounds={"theta_2": (0, 1)}), "got 'theta_2'. Did you mean"),
    "bounds in the wrong order": (lambda: Prior.from_draws(GOOD, bounds={"theta_0": (1, 0)}), "low < high"),
    "bounds with NaN": (lambda: Prior.from_draws(GOOD, bounds={"theta_0": (np.nan, 9)}), "low < high"),
    "one bound": (lambda: Prior.from_draws(GOOD, bounds={"theta_0": 3.0}), r"as \(low, high\)"),
    "three bounds": (lambda: Prior.from_draws(GOOD, bounds={"theta_0": (1, 2, 3)}), r"as \(low, high\)"),
    "density": (lambda: make("unbounded").log_prob(np.zeros(3)), "with a known density; got one from draws"),
    "theta outside": (lambda: make("bounded").to_normal([0, 3, -2, 13.1]), r"'d' .*10 to 13; got 13\.1"),
    "theta NaN": (lambda: make("bounded").to_normal([np.nan, 3, -2, 12]), "'a' finite"),
    "u NaN": (lambda: make("bounded").from_normal([np.nan, 0, 0, 0]), "NaN in 1 of 4"),
    "wrong shape": (lambda: make("bounded").from_normal(np.zeros((5, 3))), r"\(\.\.\., 4\).*\(5, 3\)"),
    "negative count": (lambda: make("bounded").sample(-1, seed=0), "count to be a whole number ≥ 0"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("key", REFUSED)
def test_refused_with_advice(key):
    call, message = REFUSED[key]
    with pytest.raises(ScorefoldError, match=message):
        call()
