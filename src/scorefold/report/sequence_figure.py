"""The posterior as observations are added: the marginals of each parameter, light to dark."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from scorefold.report.canvas import figure_of, legend_below, plain, plain_text
from scorefold.report.kernel_density import marginal
from scorefold.report.palette import BLUE_RAMP, GREY, INK, ORANGE

SHOWN_PARAMETERS = 12
DOTTED, DASHED = (0, (1, 1.2)), (0, (4, 2))


def sequence(clouds: Sequence[np.ndarray], counts: Sequence[int], names: Sequence[str], title: str = "",
             truth: np.ndarray | None = None, prior: np.ndarray | None = None,
             references: Sequence[np.ndarray] = ()) -> Figure:  # fmt: skip
    """Draws given more and more observations, one panel for each parameter (the first twelve); references are dotted."""
    shown = min(len(names), SHOWN_PARAMETERS)
    columns = min(shown, 4)
    rows = -(-shown // columns)
    figure = figure_of(0.4 + max(2.3 * columns, 5.6), 0.9 + (1.7 if columns > 2 else 2.2) * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    ramp = LinearSegmentedColormap.from_list("observations", list(BLUE_RAMP))
    shades = [ramp(k / max(len(clouds) - 1, 1)) for k in range(len(clouds))]
    for k, axes in enumerate(panels[:shown]):
        lines = [
            (np.asarray(cloud, float)[:, k], shade, f"n = {n}") for cloud, n, shade in zip(clouds, counts, shades, strict=True)
        ]
        for cloud, shade in zip(references, shades, strict=False):
            axes.plot(*marginal(np.asarray(cloud, float)[:, k]), color=shade, lw=1.2, ls=DOTTED)
        _draw_panel(axes, lines, None if prior is None else prior[:, k], None if truth is None else float(truth[k]))
        axes.set_xlabel(plain_text(names[k]))
    for axes in panels[shown:]:
        axes.set_visible(False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, color=INK)
    handles, labels = panels[0].get_legend_handles_labels()
    if len(references):
        handles.append(Line2D([], [], color=INK, lw=1.2, ls=DOTTED))
        labels.append("the true posterior")
    legend_below(figure, 6 if columns > 2 else 5, handles, labels)
    return figure


def _draw_panel(axes: Axes, lines: list[tuple[np.ndarray, Any, str]], prior: np.ndarray | None, truth: float | None) -> None:
    """One parameter: its draws as (values, colour, label), the prior dashed, the truth as a line."""
    if prior is not None:
        axes.plot(*marginal(prior), color=GREY, lw=1.0, ls=DASHED, label="prior")
    for values, shade, label in lines:
        axes.plot(*marginal(values), color=shade, lw=1.5, label=label)
    if truth is not None:
        axes.axvline(truth, color=ORANGE, lw=1.0, label="truth")
    everything = [values for values, _, _ in lines] + ([] if prior is None else [prior])
    spans = [np.quantile(values, [0.001, 0.999]) for values in everything]
    axes.set_xlim(min(s[0] for s in spans), max(s[1] for s in spans))
    axes.set_ylim(bottom=0)
    plain(axes)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(4))
