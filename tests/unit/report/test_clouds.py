"""The picture of clouds side by side."""

import numpy as np
import pytest

from scorefold.errors import ScorefoldError
from scorefold.report.clouds import clouds

RNG = np.random.default_rng(0)
ROWS = {name: {n: RNG.standard_normal((50, 2)) for n in (1, 2, 3)} for name in ("truth", "NLE")}


def test_a_panel_for_every_method_and_n():
    figure = clouds(ROWS, [1.0, 1.0])
    assert len(figure.axes) == 6
    assert [axes.get_title() for axes in figure.axes[:3]] == ["n = 1", "n = 2", "n = 3"]
    assert len({axes.get_xlim() for axes in figure.axes}) == 1


def test_draws_that_are_missing_or_not_in_a_plane_are_refused():
    for bad in ({1: ROWS["NLE"][1]}, {**ROWS["NLE"], 2: np.zeros((5, 3))}):
        with pytest.raises(ScorefoldError, match="of NLE for n = 2"):
            clouds({**ROWS, "NLE": bad}, [1.0, 1.0])
