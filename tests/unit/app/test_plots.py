"""The figures a user can call: what is in them, and what they refuse."""

import dataclasses

import conjugate
import numpy as np
import pytest
import untrained
from exact_posteriors import Analytic, simulator

import scorefold as sf
from scorefold.app import plots
from scorefold.errors import ScorefoldError
from scorefold.sample import Info

X = conjugate.world(0, datasets=1).x[0]
DRAWS = [Analytic().sample(X[:n], draws=200, seed=n) for n in (1, 4, 8)]

BEFORE = np.random.default_rng(0).standard_normal((7, 2)).astype(np.float32)


def words(figure):
    return {text.get_text() for legend in figure.legends for text in legend.get_texts()}


def test_pairs():
    figure = plots.pairs(DRAWS[-1], reference=DRAWS[-1], truth=[0.0, 0.0], prior=True)
    assert len(figure.axes) == 3
    assert {"draws", "reference", "truth", "prior"} <= words(figure)


def test_a_sequence():
    figure = plots.sequence(DRAWS, truth=[0.0, 0.0], references=[one.theta for one in DRAWS], prior=True)
    assert words(figure) == {"prior", "n = 1", "n = 4", "n = 8", "truth", "the true posterior"}
    assert len(figure.axes[0].get_lines()) == 1 + 3 + 3 + 1


def test_predictive(tmp_path):
    figure = plots.predictive(DRAWS[-1], simulator)
    assert [axes.get_ylabel() for axes in figure.axes] == ["mean", "sd", "5 %", "median", "95 %"]
    assert plots.save(figure, tmp_path / "new" / "predictive.png").stat().st_size > 5_000


def test_many_numbers_stay_on_one_sheet():
    x = np.random.default_rng(0).standard_normal((3, 200))
    drawn = sf.Draws(np.zeros((30, 1)), ("a",), DRAWS[0].info, 3, None, 0.0, x)
    figure = plots.predictive(drawn, lambda theta, rng: rng.standard_normal(200))
    assert figure.get_size_inches()[0] < 10


def test_the_sampler():
    levels = np.linspace(0.1, 0.9, 5)
    info = Info(levels, levels, levels, levels, levels, np.array(False), np.array(True))
    drawn = sf.Draws(np.zeros((30, 1)), ("a",), info, 3, None, 0.0)
    assert len(plots.sampler(drawn).axes) == 4


def test_rounds():
    posterior = untrained.refined("refined")
    kept = [one._replace(before=BEFORE, after=BEFORE / 50) for one in posterior.rounds]
    figure = plots.rounds(dataclasses.replace(posterior, rounds=tuple(kept)), truth=[0.5, 0.5], title="$ rounds")
    assert len(figure.axes) == 4  # both parameters, as a whole and on the last round's scale
    assert words(figure) == {"simulations", "draws, their median and 90 %", "truth"}
    assert [text.get_text() for text in figure.axes[2].get_xticklabels()] == ["start", "1\nline", "2\nscores"]
    one = plots.rounds(dataclasses.replace(posterior, rounds=tuple(kept)), parameters=[posterior.prior.names[1]])
    assert [axes.get_title(loc="left") for axes in one.axes if axes.get_title(loc="left")] == [posterior.prior.names[1]]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: plots.pairs(np.zeros((5, 2))), "expected the draws that posterior.sample returns; got ndarray"),
        (lambda: plots.sequence([]), "at least one number of observations"),
        (lambda: plots.sequence(DRAWS, references=[DRAWS[0]]), "a reference for each of 3 draws, or none; got 1"),
        (lambda: plots.rounds(Analytic()), "expected what posterior.refine returns; got Analytic"),
        (lambda: plots.rounds(untrained.refined("refined")), "a model of an older version"),
        (lambda: plots.training(Analytic()), "expected a posterior with a history of training"),
        (lambda: plots.sampler(DRAWS[0]), "draws of composed scores"),
        (lambda: plots.predictive(DRAWS[0], 3), "expected a simulator"),
    ],
)
def test_what_cannot_be_drawn_is_refused(unchecked, call, says):
    with pytest.raises(ScorefoldError, match=says):
        call()
