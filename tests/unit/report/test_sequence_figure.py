"""The posterior as observations are added: what is in the figure, and that nothing is clipped."""

import numpy as np

from scorefold.report import sequence_figure
from scorefold.report.canvas import save
from scorefold.report.sequence_figure import sequence


def labels(figure):
    return {text.get_text() for legend in figure.legends for text in legend.get_texts()}


def test_a_line_for_each_number_of_observations(tmp_path):
    rng = np.random.default_rng(3)
    clouds = [rng.standard_normal((200, 3)) / np.sqrt(n) for n in (1, 4, 16)]
    prior = rng.standard_normal((300, 3))
    figure = sequence(clouds, (1, 4, 16), ("a", "b", "c"), "sequence", np.zeros(3), prior)
    assert len(figure.axes) == 3
    assert labels(figure) == {"prior", "n = 1", "n = 4", "n = 16", "truth"}
    assert len(figure.axes[0].get_lines()) == 5
    save(figure, tmp_path / "sequence.png")


def test_a_reference_that_is_narrower_is_not_clipped():
    rng = np.random.default_rng(5)
    figure = sequence([rng.standard_normal((200, 1))], [1], ["a"], references=[0.1 * rng.standard_normal((200, 1))])
    (axes,) = figure.axes
    assert max(line.get_ydata().max() for line in axes.get_lines()) <= axes.get_ylim()[1]


def test_many_parameters_are_cut_off():
    clouds = [np.random.default_rng(4).standard_normal((50, 15))]
    figure = sequence(clouds, [1], [f"p{k}" for k in range(15)])
    assert sum(axes.get_visible() for axes in figure.axes) == sequence_figure.SHOWN_PARAMETERS
