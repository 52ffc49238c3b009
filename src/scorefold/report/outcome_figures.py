"""Observed outcomes against replicated data sets, each number drawn as what it is.

A binary number and a count are bars: the share of each value. A continuous number is a histogram and, if there is one binary
number (a choice), one histogram for each of its values, so that reaction times are shown by choice. Shares and histograms are
those of whole data sets; the band holds 95 % of the replicated ones, bin by bin. They
are shares of all observations: a number that is missing (NaN) is in no bar and no bin.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from scorefold.report.canvas import figure_of, finite_array, legend_below, plain, plain_text
from scorefold.report.palette import BLUE, BLUE_LIGHT, INK, ORANGE
from scorefold.shown import one_line

MOST_BARS = 30
FEWEST_BINS, MOST_BINS = 6, 24
"""Of a histogram: about two for each root of the number of observations, as more of them are empty."""
MOST_PANELS = 8
"""More are not drawn one by one."""


class _Panel(NamedTuple):
    """One number, perhaps only where the choice has a value."""

    label: str
    observed: np.ndarray
    """(n,) NaN where it does not count"""
    replicated: np.ndarray
    """(replicates, n)"""
    bars: bool


def are_drawn(kinds: Sequence[str]) -> bool:
    """Whether outcomes of these kinds are drawn one by one: where some are binary or counts, and there are not too many."""
    return len(kinds) <= MOST_PANELS and any(kind in ("binary", "count") for kind in kinds)


def outcomes(
    names: Sequence[str], kinds: Sequence[str], observed: np.ndarray, replicated: np.ndarray, title: str = ""
) -> Figure:
    """A panel for each number that varies, and for a continuous one by choice a panel for each choice.

    Args:
        names: Of the numbers.
        kinds: Of the numbers: constant, binary, count or continuous.
        observed: (n, numbers), NaN where one is missing.
        replicated: (replicates, n, numbers), data sets simulated from posterior draws.
        title: Above the figure.

    Returns:
        A matplotlib figure.
    """
    observed = finite_array("observed", observed, (None, len(names)), missing=True)
    replicated = finite_array("replicated", replicated, (None, len(observed), len(names)), missing=True)
    panels = _panels(names, kinds, observed, replicated)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = figure_of(max(4.2, 3.0 * columns), 0.9 + 2.1 * rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        (_bars if panel.bars else _histogram)(axes, panel)
        axes.set_xlabel(plain_text(panel.label))
        axes.set_ylim(bottom=0)
        plain(axes, title if axes is grid[0] else "")
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    every = [axes.get_legend_handles_labels() for axes in grid[: len(panels)]]
    named = {label: handle for handles, labels in every for handle, label in zip(handles, labels, strict=True)}
    legend_below(figure, columns + 1, list(named.values()), list(named))
    return figure


def _panels(names: Sequence[str], kinds: Sequence[str], observed: np.ndarray, replicated: np.ndarray) -> list[_Panel]:
    choices = [j for j, kind in enumerate(kinds) if kind == "binary"]
    found = []
    for j, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        x, others = observed[:, j], replicated[..., j]
        values = _values(x, others)
        if kind == "constant":
            continue
        if kind == "continuous" and len(choices) == 1:
            by, other_by = observed[:, choices[0]], replicated[..., choices[0]]
            for value in _values(by, other_by):
                label = f"{one_line(name)}, where {one_line(names[choices[0]])} = {value:g}"
                found.append(
                    _Panel(label, np.where(by == value, x, np.nan), np.where(other_by == value, others, np.nan), False)
                )
        else:
            found.append(_Panel(one_line(name), x, others, kind != "continuous" and len(values) <= MOST_BARS))
    return found


def _values(observed: np.ndarray, replicated: np.ndarray) -> np.ndarray:
    """What there is."""
    values = np.unique(np.concatenate([observed, replicated.ravel()]))
    return values[~np.isnan(values)]


def _bars(axes: Axes, panel: _Panel) -> None:
    values = _values(panel.observed, panel.replicated)
    shares = (panel.replicated[:, :, None] == values).mean(axis=1)
    seen = (panel.observed[:, None] == values).mean(axis=0)
    low, middle, high = np.quantile(shares, [0.025, 0.5, 0.975], axis=0)
    width = 0.7 * (np.diff(values).min() if len(values) > 1 else 1.0)
    axes.bar(values, high - low, width, low, color=BLUE_LIGHT, label="95 % of simulated data sets")
    axes.hlines(middle, values - width / 2, values + width / 2, color=BLUE, lw=1.2, label="half of them are below")
    _marks(axes, values, seen, low, high)
    axes.set_ylabel("share")
    if len(values) <= 12:
        axes.set_xticks(values, [f"{value:g}" for value in values])


def _histogram(axes: Axes, panel: _Panel) -> None:
    together = np.concatenate([panel.observed, panel.replicated.ravel()])
    low_end, high_end = np.nanquantile(together, [0.001, 0.999])
    n = panel.observed.size
    bins = int(np.clip(2 * np.sqrt(n), FEWEST_BINS, MOST_BINS))
    edges = np.linspace(low_end, high_end if low_end < high_end else low_end + 1.0, bins + 1)
    inside = [np.clip(one[np.isfinite(one)], edges[0], edges[-1]) for one in (panel.observed, *panel.replicated)]
    counts = np.stack([np.histogram(one, edges)[0] for one in inside]) / n
    low, middle, high = np.quantile(counts[1:], [0.025, 0.5, 0.975], axis=0)
    axes.stairs(high, edges, baseline=low, fill=True, color=BLUE_LIGHT, label="95 % of simulated data sets")
    axes.stairs(middle, edges, color=BLUE, lw=1.2, label="half of them are below")
    _marks(axes, (edges[1:] + edges[:-1]) / 2, counts[0], low, high)
    axes.set_ylabel("share in each bin")
    axes.xaxis.set_major_locator(MaxNLocator(5))


def _marks(axes: Axes, place: np.ndarray, seen: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    out = (seen < low) | (seen > high)
    said = "observed, out of these" if out.any() else "_"  # with this one it is not in the legend
    axes.plot(place[~out], seen[~out], "o", color=INK, ms=3.5, label="observed")
    axes.plot(place[out], seen[out], "D", color=ORANGE, ms=4.5, label=said)
