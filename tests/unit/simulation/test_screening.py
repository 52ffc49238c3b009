"""Simulations that failed are left out and counted; what cannot be trained on is refused before training."""

import numpy as np
import pytest
from scipy import stats

import scorefold as sf
from scorefold.errors import ScorefoldError, ScorefoldWarning

PRIOR = sf.Prior({"a": stats.norm(0, 1), "b": stats.uniform(-2, 4)})
BUDGET = 300


def base(theta, rng):
    return theta[[0, 1, 0]] + 0.3 * rng.standard_normal(3)


@pytest.fixture(scope="module")
def sims():
    return sf.simulate(PRIOR, base, BUDGET)


# Failed simulations


def failing(share):
    def simulator(theta, rng):
        x = base(theta, rng)
        return x * np.nan if rng.random() < share else x

    return simulator


@pytest.mark.false_failure(1e-6)
def test_failed_simulations_are_left_out_and_counted():
    with pytest.warns(ScorefoldWarning, match="left out"):
        sims = sf.simulate(PRIOR, failing(0.2), BUDGET, workers=sf.Workers(max_failures=0.5))
    assert 0.06 * BUDGET < sims.failed < 0.34 * BUDGET  # 6 sd of 60 ± 7
    assert len(sims.theta) == BUDGET - sims.failed
    assert np.isfinite(sims.x).all()


# Simulations that are none


def broken(sims, **changes):
    return sims._replace(**{name: change(getattr(sims, name)) for name, change in changes.items()})


def first_is(value):
    def change(array):
        array = np.array(array, np.float64)
        array.flat[0] = value
        return array

    return change


BROKEN = {
    "NaN in x": ({"x": first_is(np.nan)}, "finite θ and x"),
    "infinity in θ": ({"theta": first_is(np.inf)}, "finite θ and x"),
    "enormous x": ({"x": first_is(1e38)}, "within ±1e.37"),
    "fewer θ than x": ({"theta": lambda v: v[:-1]}, "expected θ"),
    "θ of another prior": ({"theta": lambda v: v[:, :1]}, "expected θ"),
    "no sizes": ({"sizes": lambda v: v[:0]}, "expected θ"),
    "sets that are too large": ({"sizes": lambda v: v + 1}, "1 to 1 observations"),
    "empty sets": ({"sizes": lambda v: v - 1}, "1 to 1 observations"),
    "words": ({"x": lambda v: v.astype(str)}, "as numbers"),
    "ragged lists": ({"theta": lambda v: (None, (None, None))}, "expected θ, x, sizes and origin as NumPy arrays; got tuple"),
    "lists": ({"x": lambda v: v.tolist()}, "as NumPy arrays; got ndarray, list"),
    "nothing": ({"theta": lambda v: None}, "expected θ"),
    "few": ({name: lambda v: v[:49] for name in ("theta", "x", "sizes", "origin")}, "at least 50 training cases"),
    "no features": ({"x": lambda v: v[..., :0]}, "at least one to an observation"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_cannot_be_trained_on(sims, unchecked, what):
    changes, message = BROKEN[what]
    with pytest.raises(ScorefoldError, match=message):
        sf.fit(broken(sims, **changes), sf.NPSE())
