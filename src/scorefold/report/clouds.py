"""Clouds of draws in a plane, side by side: one row a method, one column a number of observations."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from scorefold.errors import ScorefoldError

BLUE, ORANGE, INK, FRAME, GREY = "#0072B2", "#D55E00", "#1A1A1A", "#B0B0B0", "#6B6B6B"
PANEL = 1.0
SHOWN = 300
"""Draws of a cloud that are drawn as points."""


def clouds(rows: Mapping[str, Mapping[int, np.ndarray]], truth: Sequence[float], sides: Sequence[np.ndarray] = ()) -> Figure:
    """rows[label][n] (draws, 2); crosses at `sides`, by default at the truth. All panels share the first row's limits."""
    names, columns = list(rows), sorted(next(iter(rows.values())))
    for name, row in rows.items():
        for n in columns:
            if n not in row or np.ndim(row[n]) != 2 or np.shape(row[n])[1] != 2:
                raise ScorefoldError(f"expected draws (count, 2) of {name} for n = {n}; got {np.shape(row.get(n, ()))}")
    first = np.concatenate([rows[names[0]][n] for n in columns])
    reach = 1.15 * max(np.quantile(np.abs(first), 0.995), np.abs(np.asarray(truth)).max())
    figure = Figure((PANEL * len(columns) + 1.0, PANEL * len(names) + 0.5), facecolor="white")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(names), len(columns), squeeze=False, sharex=True, sharey=True)
    figure.subplots_adjust(left=0.14, right=0.99, bottom=0.02, top=0.95, wspace=0.06, hspace=0.06)
    for i, name in enumerate(names):
        for j, n in enumerate(columns):
            axes, colour = grid[i, j], GREY if i == 0 else BLUE
            axes.plot(*rows[name][n][:SHOWN].T, "o", ms=1.8, mew=0, alpha=0.35, color=colour, rasterized=True)
            for side in sides if len(sides) else [np.asarray(truth)]:
                axes.plot(*side, "+", ms=7, mew=1.3, color=ORANGE)
            axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xticks=[], yticks=[], aspect="equal")
            axes.spines[:].set(linewidth=0.8, color=FRAME)
            if i == 0:
                axes.set_title(f"n = {n}", fontsize=9, color=INK, pad=4)
        grid[i, 0].set_ylabel(name, fontsize=9, color=INK, rotation=0, ha="right", va="center", labelpad=8)
    return figure
