"""Stopped by Ctrl-C: what is done counts, if it is enough to say something."""

import numpy as np
import pytest
import scipy.stats

import scorefold as sf
from scorefold.errors import Interrupted, ScorefoldWarning
from scorefold.methods.abc import AbcPosterior

DRAW = AbcPosterior.draw
PRIOR = sf.Prior({"a": scipy.stats.norm(0, 1)})


def simulator(theta, rng):
    return rng.normal(theta)


@pytest.fixture(scope="module")
def sims():
    return sf.simulate(PRIOR, simulator, 1_000)


@pytest.fixture
def stopped_after(monkeypatch):
    """Ctrl-C in so many draws from now."""

    def stop(count):
        left = [count]

        def one(self, *how):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return DRAW(self, *how)

        monkeypatch.setattr(AbcPosterior, "draw", one)

    return stop


def test_draws_for_the_first_data_sets_are_kept(sims, stopped_after):
    posterior = sf.fit(sims, "abc")
    x = np.zeros((10, 1, 1))
    whole = posterior.sample_many(x, 20)
    stopped_after(7)
    with pytest.raises(Interrupted, match="after 7 of 10 data sets") as stopped:
        posterior.sample_many(x, 20)
    np.testing.assert_array_equal(stopped.value.draws.theta, whole.theta[:7])


def test_a_diagnosis_rests_on_the_data_sets_that_are_done(sims, stopped_after):
    posterior = sf.fit(sims, "abc")
    stopped_after(30)
    with pytest.warns(ScorefoldWarning, match="rests on the first 30 of 60 data sets"):
        found = sf.diagnose(posterior, simulator, n=1, sims=60, draws=20)
    assert len(found.truth) == 30
    for done in (5, 0):
        stopped_after(done)
        with pytest.raises(Interrupted, match=f"after {done} of 60 data sets, too few to say anything: 20 are needed"):
            sf.diagnose(posterior, simulator, n=1, sims=60, draws=20)


def test_a_comparison_rests_on_the_data_sets_that_are_done(sims, stopped_after):
    three = [sf.fit(sims, sf.ABC(accept=share)) for share in (0.1, 0.5, 0.9)]
    stopped_after(40 + 25)
    with pytest.warns(ScorefoldWarning, match="rests on the first 25 of 40 data sets"):
        found = sf.compare(three, simulator, n=1, sims=40, draws=20, names=["p", "q", "r"])
    assert found.used == 25
    assert found.refused == {"r": "drawing was interrupted before its turn."}
    stopped_after(25)
    with pytest.warns(ScorefoldWarning), pytest.raises(Interrupted, match="two posteriors to compare"):
        sf.compare(three, simulator, n=1, sims=40, draws=20)


def test_drawing_shows_a_bar_with_the_time_left(sims, capsys, monkeypatch):
    monkeypatch.setattr("scorefold.progress.SECONDS_A_LINE", 0.0)
    sf.diagnose(sf.fit(sims, "abc"), simulator, n=1, sims=30, draws=20, progress=True)
    said = capsys.readouterr().err
    assert "drawing: 15 of 30 (50%)" in said
    assert "left, 0 diverged" in said
