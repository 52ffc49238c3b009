"""Names of outcomes: kept in simulations and stores, and refused before anything is simulated in vain."""

import numpy as np
import pytest
from scipy import stats

import scorefold as sf
from scorefold.errors import ScorefoldError

PRIOR = sf.Prior({"v": stats.norm(1, 1)})


def reaction(theta, rng):
    return np.array([rng.gamma(2.0), rng.random() < 0.5])


def test_in_memory_and_in_a_store(tmp_path):
    names = ("rt", "choice")
    assert sf.simulate(PRIOR, reaction, 100, x_names=names).x_names == names
    assert sf.simulate(PRIOR, reaction, 100, store=tmp_path / "s", workers=0, x_names=list(names)).x_names == names
    assert sf.Store.open(tmp_path / "s").simulations().x_names == names
    assert sf.simulate(PRIOR, reaction, 150, store=tmp_path / "s", workers=0).x_names == names, "of the store"
    with pytest.raises(ScorefoldError, match=r"x_names\s+in the store: rt, choice\s+now:\s+rt, answer"):
        sf.simulate(PRIOR, reaction, 150, store=tmp_path / "s", workers=0, x_names=("rt", "answer"))


def test_a_store_without_names_goes_on_with_names(tmp_path):
    sf.simulate(PRIOR, reaction, 100, store=tmp_path, workers=0)
    assert sf.simulate(PRIOR, reaction, 100, store=tmp_path, workers=0, x_names=("rt", "choice")).x_names == ("rt", "choice")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("rt",), r"x_names for the 2 numbers of an observation, as the simulator returns them; got 1: rt"),
        (("rt", "rt"), "expected different names"),
        (("rt", ""), "each a string with something in it"),
        ((1, 2), "each a string"),
        (7, "expected different names"),
    ],
)
def test_names_that_do_not_fit(unchecked, tmp_path, names, message):
    calls = []

    def counting(theta, rng):
        calls.append(1)
        return reaction(theta, rng)

    for where in ({}, {"store": tmp_path, "workers": 0}):
        with pytest.raises(ScorefoldError, match=message):
            sf.simulate(PRIOR, counting, 10_000, x_names=names, **where)
    assert len(calls) < 100, "refused as soon as the shape is known"
    assert not (tmp_path / "description.json").exists()


def test_one_name_for_one_number():
    assert sf.simulate(PRIOR, lambda theta, rng: rng.normal(), 100, x_names="score").x_names == ("score",)
