"""A corner plot: marginals on the diagonal and pairs below it."""

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from scorefold.errors import ScorefoldError
from scorefold.report.canvas import figure_of, finite_array, plain_text
from scorefold.report.kernel_density import marginal, span, surface
from scorefold.report.palette import BLUE, BLUE_LIGHT, BLUE_MID, FRAME, GREY, INK, ORANGE

Some = np.ndarray | None


class Look(NamedTuple):
    """How large things are in a corner plot: inches, points and counts."""

    panel: float
    font: float
    ticks: int
    mark: float
    slanted: bool = False


class Scale(NamedTuple):
    """One parameter's axis, the same wherever the parameter appears."""

    label: str
    low: float
    high: float
    ticks: np.ndarray
    tick_labels: list[str]


def corner(
    draws: np.ndarray,
    names: Sequence[str],
    reference: np.ndarray | None = None,
    truth: np.ndarray | None = None,
    title: str = "",
    prior: np.ndarray | None = None,
) -> Figure:
    """Marginals on the diagonal and pairs below it: the draws filled, the reference drawn over them in ink.

    All clouds are (draws, dim) and may differ in length; `truth` is (dim,). The limits hold the truth and the
    central 99.8 % of draws and reference; the prior's draws only add a line to each marginal.
    """
    dim = len(names)
    draws = _cloud("draws", draws, dim)
    reference = None if reference is None else _cloud("reference", reference, dim)
    prior = None if prior is None else _cloud("prior", prior, dim)
    truth = None if truth is None else finite_array("truth", truth, (dim,))[None]
    look = _look(dim)
    shown = [cloud for cloud in (draws, reference, truth) if cloud is not None]
    scales = [_scale(name, look, *(cloud[:, k] for cloud in shown)) for k, name in enumerate(names)]
    look = look._replace(slanted=any(_crowded(scale, look) for scale in scales))
    figure, grid = _triangle(dim, look, title)
    for row, column in ((i, j) for i in range(dim) for j in range(i + 1)):
        axes = figure.add_subplot(grid[row, column])
        if row == column:
            _draw_marginal(axes, *(_take(v, row) for v in (draws, reference, truth, prior)))
        else:
            _draw_pair(axes, look.mark, *(_take(v, [column, row]) for v in (draws, reference, truth)))
        _dress(axes, look, scales[column], scales[row], bottom=row == dim - 1, left=column == 0)
    figure.align_labels()
    fontsize = 11.0 if dim > 3 else 9.5
    _legend(figure, dim == 1, fontsize, reference is not None, prior is not None, truth is not None)
    return figure


def _cloud(name: str, values: Any, dim: int) -> np.ndarray:
    if dim == 0:
        raise ScorefoldError("expected one name per parameter; got none")
    cloud = finite_array(name, values, (None, dim))
    if len(cloud) < 2:
        raise ScorefoldError(f"expected at least 2 {name} to show a density; got {len(cloud)}")
    return cloud


def _take(cloud: Some, k: Any) -> Any:
    return None if cloud is None else cloud[:, k]


def _draw_marginal(axes: Axes, draws: np.ndarray, reference: Some, truth: Some, prior: Some) -> None:
    x, density = marginal(draws)
    axes.fill_between(x, density, color=BLUE_LIGHT, lw=0)
    axes.plot(x, density, color=BLUE, lw=1.2)
    top = density.max()
    for values, colour, lw in ((prior, GREY, 0.9), (reference, INK, 1.2)):
        if values is not None:
            x, density = marginal(values)
            axes.plot(x, density, color=colour, lw=lw)
            top = max(top, density.max())
    if truth is not None:
        axes.axvline(truth[0], color=ORANGE, lw=1.0)
    axes.set_ylim(0, 1.08 * top)


def _draw_pair(axes: Axes, mark: float, draws: np.ndarray, reference: Some, truth: Some) -> None:
    x, y, density, levels = surface(draws)
    axes.contourf(x, y, density, [*levels, 1.01 * density.max()], colors=[BLUE_LIGHT, BLUE_MID])
    axes.contour(x, y, density, levels[:1], colors=BLUE_MID, linewidths=0.6)  # shows however small the region
    if reference is not None:
        x, y, density, levels = surface(reference)
        axes.contour(x, y, density, levels, colors=INK, linewidths=[0.8, 1.1])
    if truth is not None:
        axes.axvline(truth[0, 0], color=ORANGE, lw=0.2 * mark)
        axes.axhline(truth[0, 1], color=ORANGE, lw=0.2 * mark)
        axes.plot(*truth.T, "s", color=ORANGE, ms=mark)


def _dress(axes: Axes, look: Look, across: Scale, up: Scale, bottom: bool, left: bool) -> None:
    """Limits, ticks, frame; names and numbers only along the outside."""
    axes.set_xlim(across.low, across.high)
    axes.set_xticks(across.ticks, across.tick_labels if bottom else [""] * len(across.ticks))
    if across is up:
        axes.set_yticks([])
        axes.spines[["left", "right", "top"]].set_visible(False)
    else:
        axes.set_ylim(up.low, up.high)
        axes.set_yticks(up.ticks, up.tick_labels if left else [""] * len(up.ticks))
    if bottom:
        axes.set_xlabel(across.label, fontsize=look.font + 1.5)
    if bottom and look.slanted:
        for label in axes.get_xticklabels():
            label.set(rotation=45, ha="right", rotation_mode="anchor")
    if left and across is not up:
        axes.set_ylabel(up.label, fontsize=look.font + 1.5)
    axes.tick_params(labelsize=look.font, length=2.5, width=0.7, color=FRAME)
    axes.spines[:].set(linewidth=0.7, color=FRAME)


def _look(dim: int) -> Look:
    if dim == 1:
        return Look(panel=3.4, font=9.0, ticks=6, mark=3.5)
    if dim <= 3:
        return Look(panel=2.3, font=9.0, ticks=5, mark=3.5)
    if dim <= 6:
        return Look(panel=1.7, font=8.5, ticks=4, mark=3.5)
    return Look(panel=1.05, font=6.5, ticks=4, mark=2.5)


def _scale(name: str, look: Look, *clouds: np.ndarray) -> Scale:
    """Limits over all the clouds, and round ticks; what the ticks share goes on a line under the name."""
    low, high = span(*clouds)
    pad = 0.04 * (high - low)
    ticks = np.asarray(MaxNLocator(look.ticks, steps=[1, 2, 5, 10], min_n_ticks=3).tick_values(low, high))
    ticks = ticks[(ticks > low + pad) & (ticks < high - pad)]
    formatter = ScalarFormatter(useMathText=False)
    formatter.set_powerlimits((-3, 4))
    formatter.create_dummy_axis()
    cast(Any, formatter.axis).set_view_interval(low, high)
    tick_labels = formatter.format_ticks(list(ticks))
    text = plain_text(name)
    label = text if "$" in text else _wrapped(text, int(look.panel * 90 / look.font))
    formatter.set_useMathText(True)
    shared = formatter.get_offset()
    return Scale(f"{label}\n({shared})" if shared else label, low, high, ticks, tick_labels)


def _wrapped(name: str, width: int) -> str:
    """The name in lines of at most `width` letters, broken after spaces and underscores where it can be."""
    return textwrap.fill(name.replace("_", "_ "), width).replace("_ ", "_")


def _crowded(scale: Scale, look: Look) -> bool:
    """Whether the tick labels, set level, would fill most of the panel's width."""
    letters = sum(len(label) for label in scale.tick_labels)
    return letters * 0.65 * look.font / 72 > 0.7 * look.panel


def _triangle(dim: int, look: Look, title: str) -> tuple[Figure, GridSpec]:
    """A figure whose margins are fixed in inches; `save` crops or grows it to what is drawn."""
    left, right, bottom, top = 0.8, 0.15, 0.75, 0.2 + 0.3 * bool(title) + 0.3 * (dim == 1)
    wide, tall = (1.4, 0.8) if dim == 1 else (1.0, 1.0)
    width = wide * look.panel * dim + left + right
    height = tall * look.panel * dim + bottom + top
    figure = figure_of(width, height, constrained=False)
    edges = {
        "left": left / width,
        "right": 1 - right / width,
        "bottom": bottom / height,
        "top": 1 - top / height,
    }
    if title:
        figure.text(left / width, 1 - 0.12 / height, title, fontsize=12, ha="left", va="top", color=INK)
    return figure, GridSpec(dim, dim, figure, **edges, wspace=0.06, hspace=0.06)


def _legend(figure: Figure, lone: bool, fontsize: float, reference: bool, prior: bool, truth: bool) -> None:
    """One legend for the figure: in the empty triangle, or above a lone panel."""
    regions = tuple(Patch(facecolor=colour, edgecolor="none") for colour in (BLUE_LIGHT, BLUE_MID))
    entries: list[tuple[Any, str, bool]] = [
        (Patch(facecolor=BLUE_LIGHT, edgecolor=BLUE) if lone else regions, "draws", True),
        (Line2D([], [], color=INK, lw=1.3), "reference", reference),
        (Line2D([], [], color=GREY, lw=1.0), "prior", prior),
        (Line2D([], [], color=ORANGE, lw=1.0, marker="" if lone else "s", ms=3.5), "truth", truth),
    ]
    first, last = figure.axes[0].get_position(), figure.axes[-1].get_position()
    beside = {
        "loc": "upper right",
        "bbox_to_anchor": (last.x1, first.y1),
        "title": "regions of 90 % and 50 %",
    }
    above = {"loc": "lower left", "bbox_to_anchor": (first.x0, first.y1), "ncols": 4, "borderaxespad": 0.2}
    figure.legend(
        [handle for handle, _, present in entries if present],
        [label for _, label, present in entries if present],
        **(above if lone else beside),  # type: ignore[arg-type]
        alignment="left",
        frameon=False,
        fontsize=fontsize,
        title_fontsize=fontsize - 1,
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0)},
    )
