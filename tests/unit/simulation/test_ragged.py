"""Series of different lengths, and masked numbers, where numbers may be missing."""

import numpy as np
import pytest
from scipy import stats
from untrained import untrained

import scorefold as sf
from scorefold.errors import ScorefoldError
from scorefold.simulation.ragged import is_ragged, longest, padded

PRIOR = sf.Prior({"a": stats.norm(0, 1)})
NAN = np.nan


def test_series_are_padded_at_their_ends():
    series = [[1.0, 2.0], [3.0], np.array([4.0, 5.0, 6.0])]
    assert is_ragged(series)
    assert longest(series) == 3
    np.testing.assert_array_equal(padded(series, 4), [[1, 2, NAN, NAN], [3, NAN, NAN, NAN], [4, 5, 6, NAN]])
    pairs = padded([np.ones((1, 2)), np.ones((3, 2))], 3)
    assert pairs.shape == (2, 3, 2)
    assert np.isnan(pairs).sum() == 4
    with pytest.raises(ScorefoldError, match=r"at most 2 numbers.* got one of 3"):
        padded(series, 2)


@pytest.mark.parametrize(
    "other", [1.0, [1.0, 2.0], "ab", [np.ones((1, 2)), np.ones((2, 3))], [1.0, [2.0]], np.ones((3, 2)), []]
)
def test_what_is_not_ragged(other):
    assert not is_ragged(other)


@pytest.mark.parametrize("sets", [False, True])
def test_simulations_of_series_that_differ_in_length(sets):
    rng = np.random.default_rng(0)
    theta = PRIOR.sample(60, 0)
    series = [rng.normal(size=1 + i % 4).tolist() for i in range(60)]
    # A set may have series of one length that is not that of another set.
    x = [[one, one] if i % 2 else [one] for i, one in enumerate(series)] if sets else series
    sims = sf.Simulations(PRIOR, theta, x, sets=sets, missing=True)
    assert sims.shape == (4,)
    for i, one in enumerate(series):
        np.testing.assert_array_equal(sims.x[i, 0, : len(one)], np.float32(one))
        assert np.isnan(sims.x[i, 0, len(one) :]).all()
    with pytest.raises(ScorefoldError, match=r"expected (x to be numbers|observations of one shape)"):
        sf.Simulations(PRIOR, theta, x, sets=sets)


def test_masked_numbers_are_missing():
    x = np.ma.masked_less(np.random.default_rng(0).normal(size=(60, 3)), -1)
    sims = sf.Simulations(PRIOR, PRIOR.sample(60, 0), x, missing=True)
    assert np.isnan(sims.x[:, 0]).sum() == x.mask.sum() > 0
    posterior = untrained("nle, missing numbers")
    np.testing.assert_array_equal(posterior.checked(x[:5]), np.ma.filled(x[:5], NAN))


@pytest.mark.filterwarnings("ignore::scorefold.errors.UntrustworthyDraws")  # by networks of random numbers
@pytest.mark.full
def test_observations():
    posterior = untrained("missing numbers")
    short = [[0.1, 0.2], [0.1, 0.2, 0.3]]
    np.testing.assert_array_equal(posterior.checked(short), [[0.1, 0.2, NAN], [0.1, 0.2, 0.3]])
    assert [draws.n for draws in posterior.sample([short, short[1:]], 20)] == [2, 1]
    assert posterior.sample_many([short, short], 20).theta.shape == (2, 20, 2)
    with pytest.raises(ScorefoldError, match="at most 3 numbers"):
        posterior.checked([[0.1], [0.1, 0.2, 0.3, 0.4]])
    with pytest.raises(ScorefoldError, match=r"got \(1, 2\).*padded with NaN"):
        posterior.checked([[0.1, 0.2]])


def test_observations_of_nothing_and_of_infinity_are_refused():
    posterior = untrained("missing numbers")
    with pytest.raises(ScorefoldError, match=r"1 of 2 have none \(first: x_obs\[1\]\)"):
        posterior.checked([[0.1, NAN, NAN], [NAN] * 3])
    with pytest.raises(ScorefoldError, match="finite numbers, or NaN where one is missing; 1 of 1"):
        posterior.checked([[0.1, np.inf, NAN]])


def test_without_missing_numbers_they_are_refused():
    posterior = untrained("f-npse")
    with pytest.raises(ScorefoldError, match="expected x_obs to be numbers"):
        posterior.checked([[0.1, 0.2], [0.1]])
    with pytest.raises(ScorefoldError, match="without masked values"):
        posterior.checked(np.ma.masked_array([[0.1, 0.2]], [[True, False]]))
