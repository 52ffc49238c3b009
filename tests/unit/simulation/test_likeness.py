"""Observations unlike anything simulated are noticed by x alone; those that are like it are not."""

import numpy as np
import pytest
from full import shortly
from numpy_peak import numpy_peak
from scipy import stats

import scorefold as sf
from scorefold.simulation.likeness import BINARY, CONSTANT, CONTINUOUS, COUNT, MOST_NUMBERS_SEEN, look, unlike

PRIOR = sf.Prior({"v": stats.norm(1, 1), "a": stats.uniform(0.5, 1.5)})


def reaction(theta, rng):
    """A reaction time in seconds, and a choice."""
    v, a = theta
    return np.array([0.2 + rng.gamma(2 * a, 0.3), rng.random() < 1 / (1 + np.exp(-v))])


def correlated(theta, rng):
    """Two numbers of the same mean and width that go together."""
    first = theta[0] + rng.normal()
    return np.array([first, 0.5 + 0.9 * first + 0.1 * rng.normal(), 7.0])


def simulated(simulator, names=None, budget=2_000, set_size=2):
    sims = sf.simulate(PRIOR, simulator, budget, set_size, seed=1)
    return look(sims._replace(x_names=names or ()))


REACTIONS = simulated(reaction, ("rt", "choice"))


def observed(simulator, n, seed):
    rng = np.random.default_rng([seed, 5])
    return np.stack([simulator(PRIOR.sample(1, seed)[0], rng) for _ in range(n)]).astype(float)


def test_kinds_are_recognised():
    assert REACTIONS.kind.tolist() == [CONTINUOUS, BINARY]
    counts = simulated(lambda theta, rng: np.array([rng.poisson(theta[1]), 3.0, -rng.poisson(9.0)]))
    assert counts.kind.tolist() == [COUNT, CONSTANT, CONTINUOUS]


@pytest.mark.false_failure(1e-5)
@pytest.mark.parametrize("simulator", shortly([reaction, correlated], reaction))
@pytest.mark.parametrize("n", shortly([1, 5, 100], 5))
def test_what_the_model_makes_is_like_its_simulations(simulator, n):
    seen = simulated(simulator)
    said = [unlike(seen, observed(simulator, n, seed)) for seed in range(40)]
    assert sum(map(bool, said)) <= 2, said  # by chance one of 40 is rare, and three are never there


def test_milliseconds():
    x = observed(reaction, 50, 0) * [1_000, 1]
    text = unlike(REACTIONS, x)
    assert "rt was simulated from 0.2" in text
    assert "choice was" not in text
    assert "Divided by 1,000, rt would be like them: look at the units" in text


def test_of_several_units_the_likeliest_is_said():
    """A contrast from 0 to 1 that comes in per cent would be in the simulated range divided by 1,000, too."""
    seen = simulated(lambda theta, rng: np.array([rng.uniform(), rng.normal()]), ("contrast", "rt"))
    x = np.random.default_rng(0).uniform(0, 100, size=(40, 1))
    assert "Divided by 100, contrast would" in unlike(seen, np.concatenate([x, x / 100], axis=1))


def test_a_number_around_zero_in_another_unit():
    """Divided by a million all of them are near zero, in the middle of what was simulated; this was the advice."""
    seen = simulated(lambda theta, rng: np.array([rng.normal()]), ("mood",))
    x = 1_000 * np.random.default_rng(0).normal(size=(30, 1))
    assert "Divided by 1,000, mood would" in unlike(seen, x)
    assert "Divided by 1,000, mood would" in unlike(seen, np.array([[700.0]]))


def test_swapped_columns():
    text = unlike(REACTIONS, observed(reaction, 50, 0)[:, ::-1])
    assert "choice was simulated as only 0 or 1, and is 0." in text
    assert "With rt and choice swapped they would be like them" in text


def test_a_transposed_array():
    seen = simulated(lambda theta, rng: np.array([0.0, 10.0, 20.0]) + rng.normal(size=3))
    x = np.array([0.0, 10.0, 20.0]) + np.random.default_rng(0).normal(size=(3, 3))
    assert not unlike(seen, x)
    assert "Transposed they would be like them" in unlike(seen, x.T)


def test_numbers_that_do_not_go_together():
    seen = simulated(correlated, ("p", "q", "r"))
    x = observed(correlated, 30, 3)
    assert not unlike(seen, x)
    apart = x.copy()
    apart[:, 1] = apart[::-1, 1] - 2 * np.sign(apart[:, 0])
    assert "p and q do not go together as simulated ones do" in unlike(seen, apart)


def test_a_count_that_is_none_and_a_constant_that_is_another():
    seen = simulated(lambda theta, rng: np.array([rng.poisson(3 * theta[1]), 3.0]), ("cases", "size"))
    assert not unlike(seen, np.array([[2.0, 3.0]]))
    assert "cases was simulated as whole numbers only, and is 2.5 here" in unlike(seen, np.array([[1.0, 3.0], [2.5, 3.0]]))
    assert "size was simulated from 3 to 3, and is 4 here" in unlike(seen, np.array([[1.0, 4.0]]))


def test_one_wild_observation_of_many_is_enough():
    x = observed(reaction, 200, 1)
    assert not unlike(REACTIONS, x)
    x[17, 0] = 900.0
    assert "to 900 here" in unlike(REACTIONS, x)


def test_images_have_ranges_too():
    seen = simulated(lambda theta, rng: rng.random((20, 20)), budget=200, set_size=1)
    assert seen.precision.size == 0
    assert not unlike(seen, np.random.default_rng(0).random((3, 400)))
    text = unlike(seen, 255 * np.random.default_rng(0).random((3, 400)))
    assert "and 3" in text
    assert "more numbers are out of their range" in text


def test_of_many_images_a_part_is_looked_at():
    """At all of them in double precision, this took 5.5 times as much as the images."""
    x = np.random.default_rng(3).normal(size=(16_000, 1, 32, 32)).astype(np.float32)
    first = sf.simulate(PRIOR, lambda theta, rng: theta, 100)
    count = len(x)
    sims = first._replace(
        theta=PRIOR.sample(count, seed=0), x=x, sizes=np.ones(count, int), origin=np.arange(count), budget=count, set_size=1
    )
    most, seen = numpy_peak(lambda: look(sims))
    assert most < 8 * 4 * MOST_NUMBERS_SEEN
    np.testing.assert_array_equal(seen.low, x.min(axis=0).ravel())
    np.testing.assert_array_equal(seen.high, x.max(axis=0).ravel())
