"""An estimate before a drawing that takes long: true to what the sampler will do, and only where it was asked for."""

import numpy as np
import pytest
from untrained import untrained

import scorefold as sf
from scorefold.posterior import how_long
from scorefold.posterior.draws import Options
from scorefold.posterior.how_long import Effort, foretell
from scorefold.types import single_precision

X = np.random.default_rng(0).standard_normal((5, 2))


@pytest.fixture
def clock(monkeypatch):
    """A time that passes only when it is told to."""
    now = [0.0]
    monkeypatch.setattr(how_long.time, "perf_counter", lambda: now[0])
    return now


def taking(clock, first, then):
    """A piece of work that takes so long when it is compiled, and so long afterwards."""
    calls = []

    def piece():
        clock[0] += then if calls else first
        calls.append(1)

    return piece, calls


class Costs:
    """A posterior that costs so much."""

    def __init__(self, effort):
        self.own = effort

    def effort(self, x, draws, options):
        return self.own


def told(effort):
    foretell(Costs(effort), X, 1_000, Options())


def test_the_second_piece_is_timed_and_multiplied(capsys, clock):
    piece, _ = taking(clock, first=30.0, then=0.5)
    told(Effort(piece, least=200, most=1_000, otherwise="if it is hard"))
    said = "drawing: about 1:40 (minutes:seconds), once compiled; up to 8:20 if it is hard\n"
    assert capsys.readouterr().err == said


def test_what_is_soon_over_is_not_announced(capsys, clock):
    piece, _ = taking(clock, first=30.0, then=0.5)
    told(Effort(piece, least=20, most=119))
    told(None)
    foretell(object(), X, 1_000, Options())
    assert capsys.readouterr().err == ""


def test_scores_are_evaluated_at_every_level_and_step():
    posterior = untrained("f-npse").using(sampler=sf.samplers.SelfTuned(levels=10, steps=3, last=5))
    with single_precision():
        effort = posterior.effort(X, draws=3_000)
        scores = effort.piece().composed
    judged = scores.shape[1]
    clouds = 3 * 1_024
    assert effort.least == effort.most == clouds * (10 * 3 + 5) / judged
    assert scores.shape == (2, judged, 2)
    twice = posterior.using(sampler=sf.samplers.SelfTuned(levels=20, steps=3, last=5))
    assert twice.effort(X, 3_000).least == pytest.approx(effort.least * 65 / 35)


def test_a_likelihood_of_few_observations_costs_what_all_terms_do():
    posterior = untrained("nle").using(sampler="smc")
    few, many = posterior.effort(X, 1_000), posterior.effort(X, 8_000)
    assert few.most > few.least > 0
    assert many.least > few.least
    with single_precision():
        assert np.isfinite(few.piece().composed).all()


def test_of_many_observations_it_depends_on_whether_some_terms_will_do():
    x = np.random.default_rng(0).standard_normal((640, 2))
    effort = untrained("nle").using(sampler="smc").effort(x, 1_000)
    assert effort.least < effort.most / 10
    assert "all observations" in effort.otherwise


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("f-npse", Options(rule="jac")),
        ("f-npse", Options(given={"a": 0.0})),
        ("nle", Options(sampler="nuts")),
        ("npe", Options()),
    ],
)
def test_nothing_is_said_where_nothing_is_known(name, options):
    posterior = untrained(name)
    assert not hasattr(posterior, "effort") or posterior.effort(X, 1_000, options) is None


def test_sample_says_it_before_it_begins(capsys, monkeypatch):
    posterior = sf.fit(sf.simulate(untrained("f-npse").prior, lambda theta, rng: theta, 200), "abc")
    monkeypatch.setattr(type(posterior), "effort", lambda *args: Effort(lambda: None, 1e9, 1e9), raising=False)
    posterior.sample(np.zeros((1, 2)), 50, progress=True)
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("drawing: about ")
    assert said[1] == "drawing: begun"


def test_nothing_is_done_for_those_who_did_not_ask(capsys, monkeypatch):
    posterior = sf.fit(sf.simulate(untrained("f-npse").prior, lambda theta, rng: theta, 200), "abc")
    monkeypatch.setattr(type(posterior), "effort", lambda *args: pytest.fail("nobody asked"), raising=False)
    posterior.sample(np.zeros((1, 2)), 50)
    assert capsys.readouterr().err == ""
    posterior.sample([np.zeros((1, 2))] * 2, 50, progress=True)  # the bar of several data sets tells it
    assert "drawing: about" not in capsys.readouterr().err
