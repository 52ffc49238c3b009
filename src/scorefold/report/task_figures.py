"""What a task's simulator produces over its prior, as one picture.

Observations that are series over time are drawn as lines, with the region that holds nine tenths of the values at each
time; one number becomes a histogram, two a scatter, and more a box for each number (quartiles, and the central 90 %).
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scorefold.errors import ScorefoldError
from scorefold.report.canvas import figure_of, plain
from scorefold.report.palette import BLUE, BLUE_LIGHT, INK, ORANGE

SINGLE_LINES = 40
"""Simulations drawn as lines; the region is of all of them."""


def prior_predictive(x: np.ndarray, series: Sequence[tuple[str, Sequence[float], bool]] = (), title: str = "") -> Figure:
    """Simulations x (simulations, features); `series` has a label, the times and whether the axis is logarithmic."""
    x, lengths = _checked(x, series)
    panels = max(len(series), 1)
    square = not series and x.shape[1] == 2
    figure = figure_of(4.6, 4.6) if square else figure_of(6.4, 0.8 + 2.6 * panels if series else 3.9)
    axes = figure.subplots(panels, 1, squeeze=False)[:, 0]
    if series:
        for panel, part, (label, times, logarithmic) in zip(
            axes, np.split(x, np.cumsum(lengths)[:-1], axis=1), series, strict=True
        ):
            _draw_series(panel, part, np.asarray(times), label, logarithmic)
        axes[-1].set_xlabel("time")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    else:
        (_draw_histogram, _draw_scatter)[x.shape[1] - 1](axes[0], x) if x.shape[1] <= 2 else _draw_boxes(axes[0], x)
    for panel in axes:
        plain(panel)
    axes[0].set_title(title, loc="left", fontsize=11, color=INK, pad=10)
    figure.align_ylabels(axes)
    return figure


def _checked(x: np.ndarray, series: Sequence[tuple[str, Sequence[float], bool]]) -> tuple[np.ndarray, list[int]]:
    """The finite simulations, and how many numbers each series has."""
    x = np.asarray(x, float)
    if x.ndim != 2 or len(x) < 2 or x.shape[1] == 0:
        raise ScorefoldError(f"expected at least two simulations, one per row; got an array of shape {x.shape}")
    x = x[np.isfinite(x).all(1)]
    if len(x) < 2:
        raise ScorefoldError(f"expected at least two finite simulations; got {len(x)}. Narrow the prior.")
    lengths = [len(times) for _, times, _ in series]
    if series and sum(lengths) != x.shape[1]:
        raise ScorefoldError(f"expected {sum(lengths)} numbers an observation, as the series have; got {x.shape[1]}")
    return x, lengths


def _draw_series(axes: Axes, x: np.ndarray, times: np.ndarray, label: str, logarithmic: bool) -> None:
    low, middle, high = np.quantile(x, [0.05, 0.5, 0.95], axis=0)
    axes.fill_between(times, low, high, color=BLUE_LIGHT, lw=0, label="90 % of simulations", zorder=1)
    axes.plot(times, x[:SINGLE_LINES].T, color=BLUE, lw=0.6, alpha=0.45, zorder=2)
    axes.plot([], [], color=BLUE, lw=0.8, label="single simulations")
    axes.plot(times, middle, color=ORANGE, lw=1.8, label="median", zorder=3)
    axes.set_ylabel(label)
    axes.set_xlim(times[0], times[-1])
    if logarithmic:
        axes.set_yscale("log")
        axes.minorticks_off()
        floor, top = np.quantile(x[x > 0], [0.01, 0.995])
        axes.set_ylim(floor / 2, top * 2)
    else:
        axes.set_ylim(bottom=min(0, x.min()))


def _draw_histogram(axes: Axes, x: np.ndarray) -> None:
    axes.hist(x[:, 0], bins=int(np.clip(np.sqrt(len(x)), 10, 40)), density=True, color=BLUE_LIGHT, edgecolor=BLUE, lw=0.5)
    axes.set_xlabel("x")
    axes.set_ylabel("density over the prior")


def _draw_scatter(axes: Axes, x: np.ndarray) -> None:
    axes.plot(*x.T, "o", ms=2.5, color=BLUE, alpha=0.35, mew=0)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel("$x_1$")
    axes.set_ylabel("$x_2$")


def _draw_boxes(axes: Axes, x: np.ndarray) -> None:
    axes.boxplot(
        x,
        whis=(5, 95),
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": BLUE_LIGHT, "edgecolor": BLUE, "linewidth": 0.8},
        whiskerprops={"color": BLUE, "linewidth": 0.8},
        capprops={"color": BLUE, "linewidth": 0.8},
        medianprops={"color": ORANGE, "linewidth": 1.6},
    )
    axes.set_xlabel("number in the observation")
    axes.set_ylabel("x")
