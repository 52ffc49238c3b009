"""Outcomes are drawn as what they are: bars for choices and counts, histograms by choice for reaction times."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle, StepPatch

from scorefold.diagnostics.predictive import predictive
from scorefold.errors import ScorefoldError
from scorefold.report import diagnosis_figures
from scorefold.report.canvas import save
from scorefold.report.outcome_figures import are_drawn, outcomes

RNG = np.random.default_rng(0)


def reactions(*shape, slower=0.0):
    choice = (RNG.random(shape) < 0.7).astype(float)
    return np.stack([0.2 + slower * choice + RNG.gamma(2.0, 0.2, shape), choice], axis=-1)


def labels(figure):
    return [axes.get_xlabel() for axes in figure.axes if axes.get_visible()]


def test_reaction_times_by_choice_and_bars_of_choices(tmp_path):
    found = predictive(reactions(100), reactions(50, 100))._replace(x_names=("rt", "choice"))
    assert found.kinds == ("continuous", "binary")
    figure = diagnosis_figures.of_predictive(found, "Posterior predictive")
    assert labels(figure) == ["rt, where choice = 0", "rt, where choice = 1", "choice"]
    assert [any(isinstance(one, StepPatch) for one in axes.patches) for axes in figure.axes[:3]] == [True, True, False]
    bars = [one for one in figure.axes[2].patches if isinstance(one, Rectangle)]
    assert len(bars) == 2
    low, high = bars[1].get_y(), bars[1].get_y() + bars[1].get_height()
    assert 0.5 < low < 0.7 < high < 0.9
    assert save(figure, tmp_path / "outcomes.png").stat().st_size > 5_000


def test_missing_numbers_are_in_no_bar_and_no_bin():
    x_obs = reactions(100)
    x_obs[::2, 1], x_obs[:50, 0] = np.nan, np.nan
    found = predictive(x_obs, reactions(50, 100))._replace(x_names=("rt", "choice"))
    figure = diagnosis_figures.of_predictive(found)
    assert labels(figure) == ["rt, where choice = 0", "rt, where choice = 1", "choice"]
    shares = [line for line in figure.axes[2].lines if line.get_marker() in ("o", "D")]
    assert sum(line.get_ydata().sum() for line in shares) == pytest.approx(0.5), "half of the choices were seen"
    with_infinity = np.where(np.isnan(x_obs), np.inf, x_obs)
    with pytest.raises(ScorefoldError, match="expected finite observed; got 100 non-finite"):
        outcomes(("rt", "choice"), ("continuous", "binary"), with_infinity, reactions(50, 100))


def test_the_place_of_a_number_that_was_never_observed_is_empty():
    x_obs = RNG.normal(size=(30, 3))
    x_obs[:, 1] = np.nan
    figure = diagnosis_figures.of_predictive(predictive(x_obs, RNG.normal(size=(40, 30, 3))))
    for axes in figure.axes:
        seen = np.concatenate([line.get_xdata() for line in axes.lines if line.get_marker() in ("o", "D")])
        assert sorted(seen) == [1, 3]


def test_what_is_out_of_the_band_is_orange():
    figure = outcomes(("rt", "choice"), ("continuous", "binary"), reactions(200, slower=3.0), reactions(60, 200))
    orange = [line for line in figure.axes[1].lines if line.get_marker() == "D"]
    assert sum(len(line.get_xdata()) for line in orange) > 3
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said == ["95 % of simulated data sets", "half of them are below", "observed", "observed, out of these"]
    within = outcomes(("choice",), ("binary",), np.tile([0.0, 1.0], 20)[:, None], np.tile([0.0, 1.0], (30, 20))[..., None])
    assert "observed, out of these" not in [text.get_text() for text in within.legends[0].get_texts()]


def test_counts_are_bars_and_large_ones_a_histogram():
    few, many = RNG.poisson(2.0, (40, 30)), RNG.poisson(500.0, (40, 30))
    x = np.stack([few, many], axis=-1).astype(float)
    figure = outcomes(("cases", "size"), ("count", "count"), x[0], x[1:])
    assert not any(isinstance(one, StepPatch) for one in figure.axes[0].patches)
    assert any(isinstance(one, StepPatch) for one in figure.axes[1].patches)


@pytest.mark.parametrize(("n", "bins"), [(4, 6), (49, 14), (1_000, 24)])
def test_bins_are_as_many_as_observations_can_fill(n, bins):
    """Of twelve observations in 24 bins most are empty, and so was the figure."""
    figure = outcomes(("rt", "choice"), ("continuous", "binary"), reactions(n), reactions(20, n))
    (band, _) = (one for one in figure.axes[0].patches if isinstance(one, StepPatch))
    assert len(band.get_data().values) == bins


@pytest.mark.parametrize(
    ("kinds", "drawn"),
    [
        (("continuous",) * 2, False),
        (("continuous", "binary"), True),
        (("count",), True),
        (("constant", "continuous"), False),
        (("binary",) * 9, False),
    ],
)
def test_which_outcomes_are_drawn_one_by_one(kinds, drawn):
    assert are_drawn(kinds) is drawn


def test_continuous_outcomes_keep_their_statistics_under_their_names():
    found = predictive(RNG.normal(size=(30, 2)), RNG.normal(size=(40, 30, 2)))._replace(x_names=("5$ bill", "right"))
    figure = diagnosis_figures.of_predictive(found)
    assert len(figure.axes) == 5
    assert [one.get_text() for one in figure.axes[-1].get_xticklabels()] == [r"5\$ bill", "right"]
