"""Refinement round by round: for each parameter where simulations were made, and where the draws came out.

The upper panel has the whole way, the lower one the scale of the last round, as regions may shrink a hundredfold; where they
hardly shrink, one panel is enough.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from scorefold.report.canvas import figure_of, legend_below, plain, plain_text
from scorefold.report.palette import BLUE, BLUE_MID, FRAME, INK, ORANGE

ASIDE, HALF_WIDTH = 0.19, 0.13
"""Of simulations and draws from the middle of their round, and half the width of either, in rounds."""
BEYOND_REGION = 0.15
"""Beyond the last region in the lower panel, as a part of it."""
NARROWS = 2.5
"""How many times the last round's scale the whole way must be for a panel of its own."""


class Step(NamedTuple):
    """The start, or a round."""

    label: str
    """Below it."""
    region: np.ndarray | None
    """Parameters (count, dim) like those that were simulated; None for the start."""
    draws: np.ndarray
    """(count, dim)"""


def rounds(steps: Sequence[Step], names: Sequence[str], title: str = "", truth: np.ndarray | None = None) -> Figure:
    """A column of panels for each parameter, with the start and the rounds from left to right."""
    views = 2 if any(_narrows(steps, k) for k in range(len(names))) else 1
    figure = figure_of(max(5.0, 0.8 + len(names) * max(2.4, 0.8 * len(steps))), 1.2 + 2.1 * views)
    panels = figure.subplots(views, len(names), squeeze=False, sharex="col")
    for k, name in enumerate(names):
        for axes in panels[:, k]:
            _draw(axes, steps, k, truth)
        panels[0, k].set_title(plain_text(name), loc="left", fontsize=11, color=INK)
        panels[-1, k].set_xticks(range(len(steps)), [step.label for step in steps], fontsize=8)
        if views == 2:
            panels[1, k].set_ylim(_last_scale(steps, k))
    if views == 2:
        panels[0, 0].set_ylabel("the whole way")
        panels[1, 0].set_ylabel("the last round's scale")
    if title:
        figure.suptitle(plain_text(title), x=0.01, ha="left", fontsize=12, color=INK)
    legend_below(figure, 3, *panels[0, 0].get_legend_handles_labels())
    return figure


def _draw(axes: Axes, steps: Sequence[Step], k: int, truth: np.ndarray | None) -> None:
    """One parameter: simulations as grey dots, draws as blue ones on their right, with the median and 90 %."""
    rng = np.random.default_rng(0)
    for place, step in enumerate(steps):
        if step.region is not None:
            values = step.region[:, k]
            across = place - ASIDE + rng.uniform(-1, 1, len(values)) * HALF_WIDTH
            label = "simulations" if place == 1 else None
            axes.plot(across, values, ".", color=FRAME, ms=2.5, zorder=2, label=label)
        values, middle = step.draws[:, k], place + ASIDE * (step.region is not None)
        axes.plot(middle + rng.uniform(-1, 1, len(values)) * HALF_WIDTH, values, ".", color=BLUE_MID, ms=2.5, zorder=3)
        ends, label = np.quantile(values, [0.05, 0.95]), "draws, their median and 90 %" if place == 0 else None
        axes.plot([middle, middle], ends, color=BLUE, lw=2, zorder=4, solid_capstyle="butt", label=label)
        axes.plot(middle, np.median(values), "o", color=BLUE, ms=5, mec="white", mew=0.8, zorder=5)
    if truth is not None:
        axes.axhline(truth[k], color=ORANGE, lw=1.2, zorder=1.5, label="truth")
    plain(axes)
    axes.grid(axis="x", visible=False)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlim(-0.6, len(steps) - 0.4)


def _reach(step: Step, k: int) -> tuple[float, float]:
    """The range of 95 % of the simulations and of all draws."""
    low, high = step.draws[:, k].min(), step.draws[:, k].max()
    if step.region is None:
        return low, high
    ends = np.quantile(step.region[:, k], [0.025, 0.975])
    return min(low, ends[0]), max(high, ends[1])


def _narrows(steps: Sequence[Step], k: int) -> bool:
    """Whether the last round is hard to see on the scale of all."""
    low, high = np.transpose([_reach(step, k) for step in steps])
    return bool(high.max() - low.min() > NARROWS * (high[-1] - low[-1]))


def _last_scale(steps: Sequence[Step], k: int) -> tuple[float, float]:
    low, high = _reach(steps[-1], k)
    return low - BEYOND_REGION * (high - low), high + BEYOND_REGION * (high - low)
