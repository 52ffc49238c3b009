"""The picture of clouds side by side."""

import numpy as np
import pytest

from scorefold.app.bench.cloud_grid import Cloud, cloud_grid
from scorefold.errors import ScorefoldError

RNG = np.random.default_rng(0)
TRUTH = np.ones(2)
ROWS = {name: {n: Cloud(RNG.standard_normal((50, 2)), [TRUTH]) for n in (1, 2, 3)} for name in ("truth", "NLE")}


def test_a_panel_for_every_method_and_n():
    figure = cloud_grid(ROWS, {"truth": "#000000"}, shown=20)
    assert len(figure.axes) == 6
    assert [axes.get_title() for axes in figure.axes[:3]] == ["n = 1", "n = 2", "n = 3"]
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert [line.get_color() for line in (figure.axes[0].lines[0], figure.axes[3].lines[0])] == ["#000000", "#0072B2"]
    assert len(figure.axes[0].lines[0].get_xdata()) == 20


def test_a_missing_cloud_is_an_empty_panel():
    figure = cloud_grid({**ROWS, "NLE": {1: ROWS["NLE"][1]}}, {})
    assert [len(axes.lines) for axes in figure.axes] == [2, 2, 2, 2, 0, 0]


def test_draws_that_are_not_in_a_plane_are_refused(unchecked):
    with pytest.raises(ScorefoldError, match="of NLE for n = 2"):
        cloud_grid({**ROWS, "NLE": {**ROWS["NLE"], 2: Cloud(np.zeros((5, 3)))}}, {})
