"""Clouds of draws in a plane, side by side: one row a method, one column a number of observations."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from scorefold.errors import ScorefoldError
from scorefold.report.canvas import figure_of
from scorefold.report.palette import BLUE, FRAME, INK, ORANGE
from scorefold.types import Float

PANEL_INCHES = 1.0
ROOM_AROUND = 1.15
"""The limits of all panels are so many times as far out as the draws of the first row, or the crosses."""


class Cloud(NamedTuple):
    """The draws of one panel, and where its crosses stand."""

    draws: Float[np.ndarray, "draws 2"]
    crosses: Sequence[np.ndarray] = ()
    """The true parameters, or several points."""


def cloud_grid(rows: Mapping[str, Mapping[int, Cloud]], colours: Mapping[str, str], shown: int = 250) -> Figure:
    """rows[label][n] is a panel, which may be missing; `shown` draws are points, in the row's colour (blue unless given)."""
    columns = sorted({n for row in rows.values() for n in row})
    for name, row in rows.items():
        for n, cloud in row.items():
            if np.ndim(cloud.draws) != 2 or np.shape(cloud.draws)[1] != 2:
                raise ScorefoldError(f"expected draws (count, 2) of {name} for n = {n}; got {np.shape(cloud.draws)}")
    reach = _reach(list(next(iter(rows.values())).values()))
    figure = figure_of(PANEL_INCHES * len(columns) + 1.2, PANEL_INCHES * len(rows) + 0.5)
    grid = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey=True)
    for i, (name, row) in enumerate(rows.items()):
        for j, n in enumerate(columns):
            axes = grid[i, j]
            if n in row:
                points = row[n].draws[:shown].T
                axes.plot(*points, "o", ms=1.8, mew=0, alpha=0.35, color=colours.get(name, BLUE), rasterized=True)
                for cross in row[n].crosses:
                    axes.plot(*cross, "+", ms=7, mew=1.3, color=ORANGE)
            axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xticks=[], yticks=[], aspect="equal")
            axes.spines[:].set(linewidth=0.8, color=FRAME)
            if i == 0:
                axes.set_title(f"n = {n}", fontsize=9, color=INK, pad=4)
        label = name.replace(", ", "\n")
        grid[i, 0].set_ylabel(label, fontsize=9, color=INK, rotation=0, ha="right", va="center", labelpad=8)
    return figure


def _reach(clouds: Sequence[Cloud]) -> float:
    """How far from 0 the panels go."""
    draws = np.concatenate([cloud.draws for cloud in clouds])
    crosses = [np.abs(cross).max() for cloud in clouds for cross in cloud.crosses]
    return ROOM_AROUND * float(max(np.quantile(np.abs(draws), 0.995), *crosses, 1e-9))
