"""The figures of a diagnosis: what is in them, and that nothing is clipped or missing."""

import numpy as np
import pytest
from conjugate import world

from scorefold.diagnostics.coverage import coverage
from scorefold.diagnostics.sbc import sbc
from scorefold.errors import ScorefoldError
from scorefold.report import diagnosis_figures as figures
from scorefold.report.canvas import save
from scorefold.report.palette import ORANGE


def labels(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


@pytest.mark.parametrize("fault", ["", "narrow"])
def test_lines_outside_the_band_are_orange_and_named(fault, tmp_path):
    w = world(1, dim=8, fault=fault)
    found = sbc(w.truth, w.draws, w.names)
    figure = figures.rank_ecdf(found.uniformity, found.names, "ranks")
    colours = [line.get_color() for line in figure.axes[0].get_lines()]
    assert colours.count(ORANGE) == (found.p_values < 0.05).sum() == (8 if fault else 0)
    farthest = found.names[np.abs(found.uniformity.seen - found.uniformity.at).max(axis=1).argmax()]
    assert (farthest in labels(figure)) == bool(fault)
    assert ("2 more outside" if fault else "8 inside the band") in labels(figure)
    low, high = figure.axes[0].get_ylim()
    shown = np.concatenate([line.get_ydata() for line in figure.axes[0].get_lines()])
    assert low <= shown.min() <= shown.max() <= high
    assert save(figure, tmp_path / "ranks.png").stat().st_size > 10_000


def test_few_quantities_are_all_named():
    w = world(2)
    found = coverage(w.truth, w.draws, w.names)
    assert {"a", "b", "all together"} <= set(labels(figures.coverage(found.uniformity, found.names)))


@pytest.mark.false_failure(0)
def test_tarp_is_not_called_confident():
    """Draws that are too narrow, and shifted, were "under-confident" there, beside the verdict "over-confident"."""
    w = world(2)
    found = coverage(w.truth, w.draws, w.names)
    (axes,) = figures.coverage(found.uniformity, found.names, "", figures.NEAR_POINTS).axes
    assert [text.get_text() for text in axes.texts] == ["truth farther off than draws", "truth nearer than draws"]


def test_strange_statistics_and_observations_are_marked():
    replicated = np.random.default_rng(5).standard_normal((100, 2, 3))
    figure = figures.predictive(("mean", "sd"), np.zeros((2, 3)), replicated, np.array([[0.5, 0.5, 0.01], [1, 1, 1]]))
    assert "observed, p < 5 %" in labels(figure)
    quiet = figures.predictive(("mean", "sd"), np.zeros((2, 3)), replicated, np.ones((2, 3)))
    assert "observed, p < 5 %" not in labels(quiet)
    figure = figures.influence(np.array([0.1, 0.2, 3.0]), np.array([1, 1, 0.01]))
    assert labels(figure) == ["like simulated ones", "like none simulated", "95 %, if all count alike"]


def test_a_single_value_far_out_is_marked_and_does_not_squash_the_others():
    (axes,) = figures.influence(np.r_[np.full(20, 0.2), 90.0], np.ones(21), dim=2).axes
    assert axes.get_ylim()[1] < 3
    assert [text.get_text() for text in axes.texts] == ["90"]
    replicated = np.random.default_rng(5).standard_normal((100, 1, 3))
    (axes,) = figures.predictive(("mean",), np.array([[0.0, 1e6, 0.5]]), replicated, np.array([[1, 0.01, 1]])).axes
    assert axes.get_ylim()[1] < 30
    assert [text.get_text() for text in axes.texts] == ["1e+06"]


def test_contraction_shows_every_parameter():
    figure = figures.contraction(np.full((30, 2), 0.8), np.zeros((30, 2)), ("a", "b"))
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["a", "b"]


def test_the_numbers_under_two_panels_do_not_touch(tmp_path):
    z = np.linspace(-2.0, 2.0, 60)[:, None] * [1.05, 1.0]  # a number at the very end of the axis
    figure = figures.contraction(np.full((60, 2), 0.8), z, ("a", "b"))
    save(figure, tmp_path / "contraction.png")  # drawn, so that texts have places
    left, right = (
        [
            label.get_window_extent()
            for label in axes.get_xticklabels()
            if axes.get_xlim()[0] <= label.get_position()[0] <= axes.get_xlim()[1]
        ]
        for axes in figure.axes
    )
    apart = min(one.x0 for one in right) - max(one.x1 for one in left)
    assert apart > left[0].height


def test_shapes_are_checked():
    with pytest.raises(ScorefoldError, match="expected contraction of shape"):
        figures.contraction(np.zeros((30, 3)), np.zeros((30, 2)), ("a", "b"))
