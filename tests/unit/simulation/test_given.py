"""`sf.Simulations(prior, theta, x)`: simulations that somebody has already, checked like those made here."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from numpy_peak import numpy_peak
from scipy import stats

import scorefold as sf
from scorefold.errors import ScorefoldError, ScorefoldWarning

pandas = pytest.importorskip("pandas")

PRIOR = sf.Prior({"a": stats.norm(0, 1), "b": stats.uniform(-2, 4)})
THETA = PRIOR.sample(200, seed=1)
X = THETA[:, [0, 1, 0]] + 0.3 * np.random.default_rng(0).standard_normal((200, 3))


def test_arrays_become_what_simulate_returns():
    def simulator(theta, rng):
        return theta[[0, 1, 0]] + rng.standard_normal(3)

    made = sf.simulate(PRIOR, simulator, 200, seed=3)
    own = sf.Simulations(PRIOR, made.theta, made.x[:, 0])
    for name in ("theta", "x", "sizes", "origin"):
        np.testing.assert_array_equal(getattr(own, name), getattr(made, name))
        assert getattr(own, name).dtype == getattr(made, name).dtype
    assert (own.set_size, own.budget, own.failed, own.shape) == (1, 200, 0, (3,))


def test_sets_of_different_lengths():
    rng = np.random.default_rng(0)
    sets = [rng.normal(size=(1 + i % 4, 3)) for i in range(200)]
    sims = sf.Simulations(PRIOR, THETA, sets, sets=True)
    assert sims.x.shape == (200, 4, 3)
    assert sims.budget == sum(map(len, sets))
    for i in (0, 1, 6, 199):
        np.testing.assert_array_equal(sims.x[i, : sims.sizes[i]], sets[i].astype(np.float32))
        assert not sims.x[i, sims.sizes[i] :].any()


def test_scalar_observations_and_one_parameter():
    prior = sf.Prior({"a": stats.norm(0, 1)})
    theta = prior.sample(60, seed=0)
    assert sf.Simulations(prior, theta[:, 0], theta[:, 0]).shape == ()


def test_data_frames_are_matched_by_name_and_name_the_outcomes():
    theta = pandas.DataFrame({"a": THETA[:, 0], "b": THETA[:, 1]})
    sims = sf.Simulations(PRIOR, theta, pandas.DataFrame(X, columns=["rt", "choice", "size"]))
    assert sims.x_names == ("rt", "choice", "size")
    np.testing.assert_array_equal(sims.theta, THETA)
    assert "x 3 (rt, choice, size)" in repr(sims)


class Frame:
    """A table of another library."""

    def __init__(self, **columns):
        self.columns, self._columns = list(columns), columns

    def __getitem__(self, name):
        return self._columns[name]

    def to_numpy(self):
        return np.stack(list(self._columns.values()), axis=1)


def test_any_table_with_columns_will_do():
    sims = sf.Simulations(PRIOR, Frame(a=THETA[:, 0], b=THETA[:, 1]), Frame(y=X[:, 0]))
    assert sims.x_names == ("y",)
    assert sims.shape == (1,)


def test_what_is_not_finite_is_left_out_and_counted():
    x = X.copy()
    x[[3, 7], 1] = np.nan, np.inf
    with pytest.warns(ScorefoldWarning, match="2 of 200 observations hold NaN"):
        sims = sf.Simulations(PRIOR, THETA, x)
    assert (len(sims.theta), sims.failed, sims.budget) == (198, 2, 200)
    np.testing.assert_array_equal(sims.theta, np.delete(THETA, [3, 7], axis=0))
    np.testing.assert_array_equal(sims.x[:, 0], np.delete(x, [3, 7], axis=0).astype(np.float32))


def test_a_set_loses_only_the_observation_that_failed():
    sets = [np.ones((2, 3)) for _ in range(200)]
    sets[5] = np.array([[np.nan] * 3, [2.0] * 3])
    sets[6] = np.full((2, 3), np.nan)
    with pytest.warns(ScorefoldWarning, match="3 of 400"):
        sims = sf.Simulations(PRIOR, THETA, sets, sets=True)
    assert len(sims.theta) == 199
    assert sims.sizes[5] == 1
    assert sims.x[5].tolist() == [[2.0] * 3, [0.0] * 3]


REFUSED = {
    "another prior": (lambda: sf.Simulations("prior", THETA, X), "expected a scorefold.Prior; got str"),
    "theta on its side": (lambda: sf.Simulations(PRIOR, THETA.T, X), r"got \(2, 200\). Transposed it would fit: write theta.T"),
    "half of it missing": (
        lambda: sf.Simulations(PRIOR, THETA, np.where(X < 0, np.nan, X)),
        "not observed, write missing=True",
    ),
    "one parameter": (lambda: sf.Simulations(PRIOR, THETA[:, :1], X), r"\(cases, 2\), with the columns a, b; got \(200, 1\)"),
    "outside": (lambda: sf.Simulations(PRIOR, THETA + np.array([0, 9]), X), "expected 'b' finite and within the support"),
    "swapped": (lambda: sf.Simulations(PRIOR, Frame(b=THETA[:, 1], a=THETA[:, 0]), X), "columns a, b of theta in this order"),
    "missing": (lambda: sf.Simulations(PRIOR, Frame(a=THETA[:, 0], c=THETA[:, 1]), X), "b is missing. There are a, c"),
    "text": (
        lambda: sf.Simulations(PRIOR, THETA, Frame(rt=X[:, 0], choice=np.array(["left"] * 200, object))),
        "the column 'choice' of x to hold numbers; got text such as 'left'",
    ),
    "fewer": (lambda: sf.Simulations(PRIOR, THETA, X[:-1]), "each of the 200 rows of theta; got 199"),
    "few": (lambda: sf.Simulations(PRIOR, THETA[:49], X[:49]), "at least 50 training cases; got 49"),
    "shapes": (lambda: sf.Simulations(PRIOR, THETA, [X[:1], X[:1, :2]] * 100, sets=True), "observations of one shape"),
    "words": (lambda: sf.Simulations(PRIOR, THETA, ["a"] * 200), "expected x to be numbers"),
    "mostly NaN": (lambda: sf.Simulations(PRIOR, THETA, X * np.nan), "200 of 200 hold NaN"),
    "too few names": (lambda: sf.Simulations(PRIOR, THETA, X, x_names=("rt",)), "3 numbers of an observation"),
    "a name twice": (lambda: sf.Simulations(PRIOR, THETA, X, x_names=("rt", "rt", "x")), "expected different names"),
    "names of an image": (
        lambda: sf.Simulations(PRIOR, THETA, X[:, :, None], x_names=("a", "b", "c")),
        "only where an observation is a list of numbers",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_belong_together_is_refused(unchecked, what):
    make, message = REFUSED[what]
    with pytest.raises(ScorefoldError, match=message):
        make()


@pytest.mark.false_failure(1e-5)
def test_theta_that_are_not_draws_from_the_prior_are_said():
    narrow = np.random.default_rng(0).uniform(-0.5, 0.5, size=(200, 2))
    with pytest.warns(ScorefoldWarning, match="not look like draws from the prior: a, b are distributed otherwise"):
        sf.Simulations(PRIOR, narrow, X)


def test_they_can_be_copied_and_sent():
    sims = sf.Simulations(PRIOR, THETA, X, x_names=("p", "q", "r"))
    for same in (copy.copy(sims), pickle.loads(pickle.dumps(sims))):
        np.testing.assert_array_equal(same.x, sims.x)
        assert same.x_names == sims.x_names
        assert isinstance(same, sf.Simulations)


# Memory

IMAGES = np.random.default_rng(2).normal(size=(4_000, 64, 64)).astype(np.float32)


@pytest.mark.parametrize("failed", [0, 40])
def test_images_are_copied_once_and_in_single_precision(failed):
    """In double precision, all at once, it took 8.5 times as much as the images."""
    images, theta = IMAGES.copy(), PRIOR.sample(len(IMAGES), seed=0)
    images[100 : 100 + failed, 3, 4] = np.inf
    with warnings.catch_warnings(action="ignore", category=ScorefoldWarning):
        most, sims = numpy_peak(lambda: sf.Simulations(PRIOR, theta, images))
    assert most < 1.8 * images.nbytes
    good = np.isfinite(images).all(axis=(1, 2))
    np.testing.assert_array_equal(sims.x[:, 0], images[good])
    np.testing.assert_array_equal(sims.theta, theta[good])
    assert sims.failed == failed
    assert not np.shares_memory(sims.x, images)
