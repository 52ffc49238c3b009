"""The figures of a report: a corner plot, the training curves, the sampler's health.

A density is a histogram smoothed with a Gaussian kernel, of bandwidth h = 1.06 s n^(-1/5) along a line and
s n^(-1/6) in a plane ("Density estimation for statistics and data analysis", Silverman, 1986). Here s is
the standard deviation or, where that is smaller, the standard deviation of the Gaussian whose densest
quarter is as wide as that of the draws: the distance between two modes must not blur them. In a plane the
kernel is sheared along a strong correlation, and h shrinks further where the draws fill less area than
independent Gaussians of the same s would: a ridge must not fatten. Where draws are sparse the kernel is
wider; where they end abruptly it is reflected, so that a marginal that meets a hard bound keeps its edge.

The region of probability p is {θ : density(θ) ≥ c}, with c the (1-p)-quantile of the density over the draws
("Computing and graphing highest density regions", Hyndman, 1996), so it holds a share p of the draws.
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import (
    LogFormatterMathtext,
    LogLocator,
    MaxNLocator,
    NullLocator,
    ScalarFormatter,
    StrMethodFormatter,
)
from scipy.ndimage import gaussian_filter

from scorefold.errors import ScorefoldError

# After Okabe and Ito's palette, which colour-blind readers can tell apart.
BLUE, BLUE_MID, BLUE_LIGHT = "#0072B2", "#64A9D3", "#C3DFEF"
ORANGE, INK, GREY, FRAME = "#D55E00", "#1A1A1A", "#8C8C8C", "#B0B0B0"

REGIONS = (0.9, 0.5)
DENSEST_QUARTER = 0.6373  # width of the densest quarter of N(0, 1)
HARD = 0.6  # at a bound half of the first values span half of their range; in a Gaussian tail, 0.8 of it
RIDGE = 0.6  # along a ridge y is this narrow about its line on x, and x has no modes this narrow
SPARSE = 1.8  # how much wider the kernel is where draws are sparse

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
    truth = None if truth is None else _checked("truth", truth, (dim,))[None]
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


def training_curve(
    train: np.ndarray, validation: np.ndarray, kept: np.ndarray, epochs_a_round: int = 1, title: str = ""
) -> Figure:
    """Loss against epoch: each member faint, their mean strong, the weights that were kept circled.

    `train` is (members, rounds); `validation`, (members, rounds + 1), starts before training; `kept` indexes the latter.
    """
    train = _checked("train", train, (None, None))
    members, rounds = train.shape
    validation = _checked("validation", validation, (members, rounds + 1))
    kept = _checked("kept", kept, (members,)).astype(int)
    if kept.min() < 0 or kept.max() > rounds:
        raise ScorefoldError(f"expected kept rounds as indices from 0 to {rounds}; got {kept.tolist()}")
    figure = _figure(5.6, 3.5)
    axes = figure.add_subplot()
    epoch = epochs_a_round * np.arange(rounds + 1)
    lines = ((epoch[1:], train, BLUE, "training"), (epoch, validation, ORANGE, "validation"))
    for x, loss, colour, label in lines:
        if members > 1:
            axes.plot(x, loss.T, color=colour, lw=0.7, alpha=0.3)
        axes.plot(x, loss.mean(0), color=colour, lw=1.8, label=label + (", mean" if members > 1 else ""))
    best = validation[np.arange(members), kept]
    axes.plot(epoch[kept], best, "o", ms=5, mfc="white", mec=ORANGE, mew=1.3, label="kept", zorder=5)
    axes.set(xlabel="epoch", ylabel="loss", ylim=_loss_limits(np.concatenate([train, validation[:, 1:]])))
    axes.set_ylim(top=max(axes.get_ylim()[1], best.max()))
    axes.set_xlim(-0.02 * epoch[-1], 1.02 * epoch[-1])
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.legend(frameon=False, fontsize=9)
    _plain(axes, title)
    return figure


def sampler_health(gamma: np.ndarray, step: np.ndarray, q: np.ndarray, stein: np.ndarray, title: str = "") -> Figure:
    """Step size, information identity q and Stein identity at each level, in the order the sampler runs.

    The horizontal axis is the noise in units of the signal, √(1-γ)/√γ, falling from left to right. Both
    identities are 1 where the draws follow the score.
    """
    gamma = _checked("gamma", gamma, (None,))
    step, q, stein = (_checked(name, v, gamma.shape) for name, v in (("step", step), ("q", q), ("stein", stein)))
    if not ((gamma > 0) & (gamma < 1)).all():
        raise ScorefoldError(f"expected 0 < gamma < 1; got {gamma.min():g} to {gamma.max():g}")
    noise = 0.5 * np.log10((1 - gamma) / gamma)
    order = np.argsort(-noise)
    figure = _figure(5.6, 5.0)
    panels = figure.subplots(3, 1, sharex=True)
    rows = (("step size", step), ("information\nidentity q", q), ("Stein\nidentity", stein))
    for axes, (label, values) in zip(panels, rows, strict=True):
        axes.plot(noise[order], values[order], color=BLUE, lw=1.4, marker="o", ms=2.5)
        axes.set_ylabel(label)
        _plain(axes, title if axes is panels[0] else "")
    for axes in panels[1:]:
        axes.axhline(1.0, color=ORANGE, lw=1.0, ls=(0, (4, 3)), zorder=1)
    _log_axis(panels[0], step)
    _log_axis(panels[1], q, about=1.0)
    low, high = min(0.9, stein.min()), max(1.1, stein.max())
    panels[2].set_ylim(low - 0.1 * (high - low), high + 0.1 * (high - low))
    panels[2].yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    panels[2].set_xlabel(r"$\log_{10}$ of the noise level $\sqrt{1-\gamma}\,/\sqrt{\gamma}$")
    panels[2].invert_xaxis()
    figure.align_ylabels(panels)
    return figure


def save(figure: Figure, path: str | Path) -> Path:
    """Write the figure as a PNG cropped to what is drawn, making the folders on the way."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", dpi=150, bbox_inches="tight", pad_inches=0.1, facecolor="white")
    return path


# What comes in


def _checked(name: str, values: Any, shape: tuple[int | None, ...]) -> np.ndarray:
    """The values as finite floats of the expected shape, None standing for any length but 0."""
    array = np.asarray(values, dtype=float)
    fits = array.ndim == len(shape) and all(
        have == want or (want is None and have > 0) for have, want in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        raise ScorefoldError(f"expected {name} of shape ({wanted}); got {array.shape}")
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        raise ScorefoldError(f"expected finite {name}; got {bad} non-finite of {array.size} values. Drop them first.")
    return array


def _cloud(name: str, values: Any, dim: int) -> np.ndarray:
    if dim == 0:
        raise ScorefoldError("expected one name per parameter; got none")
    cloud = _checked(name, values, (None, dim))
    if len(cloud) < 2:
        raise ScorefoldError(f"expected at least 2 {name} to show a density; got {len(cloud)}")
    return cloud


def _take(cloud: Some, k: Any) -> Any:
    return None if cloud is None else cloud[:, k]


# Densities


def _core(values: np.ndarray) -> tuple[float, float]:
    """The ends of the central 99.8 %, which never hold the first or the last of 20 values or more."""
    cut = -(-values.size // 1000) if values.size >= 20 else 0
    ordered = np.sort(values)
    return float(ordered[cut]), float(ordered[values.size - 1 - cut])


def _span(*clouds: np.ndarray) -> tuple[float, float]:
    """The core of all the clouds and a margin."""
    lows, highs = zip(*map(_core, clouds), strict=True)
    low, high = min(lows), max(highs)
    margin = max(0.08 * (high - low), 1e-6 * abs(low), 1e-12)
    return low - margin, high + margin


def _spread(values: np.ndarray) -> float:
    """The s of the bandwidth rules."""
    ordered = np.sort(values)
    quarter = max(values.size // 4, min(values.size - 1, 8))
    densest = float((ordered[quarter:] - ordered[:-quarter]).min())
    return min(float(values.std()), densest / DENSEST_QUARTER)


def _support(values: np.ndarray, h: float) -> tuple[float, float]:
    """From the first to the last value in the span, and on by 6 h at an end that is not a hard bound."""
    low, high = _span(values)
    if h <= 0:
        return low, high
    ordered = np.sort(values[(low <= values) & (values <= high)])
    below = 0.0 if _is_hard(ordered) else 6 * h
    above = 0.0 if _is_hard(-ordered[::-1]) else 6 * h
    return float(ordered[0] - below), float(ordered[-1] + above)


def _is_hard(ordered: np.ndarray) -> bool:
    """Whether the values begin abruptly: in a tail the first few lie apart, at a bound they lie close."""
    few = max(20, ordered.size // 10)
    if 4 * few > ordered.size:
        return False
    return bool(ordered[few // 2] - ordered[0] <= HARD * (ordered[few] - ordered[0]))


def _smooth(counts: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Counts through a reflected kernel of h cells, and a wider one where they are fewer than average."""
    sharp, wide = (gaussian_filter(counts, np.maximum(k * h, 1.0), truncate=3) for k in (1.0, SPARSE))
    trust = np.minimum(wide / np.average(wide, weights=counts), 1.0)
    mixed = trust * sharp + (1 - trust) * wide
    return mixed * (counts.sum() / mixed.sum())


def _marginal(values: np.ndarray, bins: int = 512) -> tuple[np.ndarray, np.ndarray]:
    """A smooth density along a line, with a zero at either end of its support."""
    h = 1.06 * _spread(values) * values.size**-0.2
    low, high = _support(values, h)
    counts, edges = np.histogram(values, bins, (low, high))
    width = (high - low) / bins
    density = _smooth(counts.astype(float), np.array([h / width])) / (values.size * width)
    return _ringed(edges), np.pad(density, 1)


def _slope(pair: np.ndarray) -> float:
    """The slope of y on x along a ridge, otherwise 0: two modes one above the other are no ridge."""
    spans = np.array([_span(values) for values in pair.T])
    x, y = pair[((spans[:, 0] <= pair) & (pair <= spans[:, 1])).all(1)].T
    if x.size < 20 or _spread(x) <= RIDGE * x.std():
        return 0.0
    slope = float(np.mean((x - x.mean()) * (y - y.mean())) / x.var())
    return slope if _spread(y - slope * x) < RIDGE * _spread(y) else 0.0


def _surface(pair: np.ndarray, bins: int = 128) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A smooth density over a mesh, zero all round its support, and the level at the edge of each region."""
    slope = _slope(pair)
    pair = np.stack([pair[:, 0], pair[:, 1] - slope * pair[:, 0]], axis=1)
    s = np.array([_spread(values) for values in pair.T])
    h = s * len(pair) ** (-1 / 6)
    supports = [_support(values, width) for values, width in zip(pair.T, h, strict=True)]
    counts, *edges = np.histogram2d(pair[:, 0], pair[:, 1], bins, supports)
    cell = np.array([(high - low) / bins for low, high in supports])
    usual = max(2 * np.pi * np.log(2) * s.prod(), 1e-300)  # area where two Gaussians exceed their mean density
    shrink = 1.0
    for _ in range(3):
        density = _smooth(counts, shrink * h / cell)
        filled = np.sum(density >= np.average(density, weights=counts)) * cell.prod()
        shrink = min(1.0, float(np.sqrt(filled / usual)))
    at_draws = np.repeat(density.ravel(), counts.ravel().astype(int))
    levels = np.quantile(at_draws, 1 - np.array(REGIONS))
    # The bounds bind where draws coincide: there is still a dot, and the levels still rise.
    levels = np.minimum(levels, density.max() * np.array([0.8, 0.95])) * [0.999, 1.0]
    x, y = np.meshgrid(_ringed(edges[0]), _ringed(edges[1]))
    return x, y + slope * x, np.pad(density, 1).T, levels


def _ringed(edges: np.ndarray) -> np.ndarray:
    """The middles of the bins, and the two outer edges."""
    return np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])


# Panels


def _draw_marginal(axes: Axes, draws: np.ndarray, reference: Some, truth: Some, prior: Some) -> None:
    x, density = _marginal(draws)
    axes.fill_between(x, density, color=BLUE_LIGHT, lw=0)
    axes.plot(x, density, color=BLUE, lw=1.2)
    top = density.max()
    for values, colour, lw in ((prior, GREY, 0.9), (reference, INK, 1.2)):
        if values is not None:
            x, density = _marginal(values)
            axes.plot(x, density, color=colour, lw=lw)
            top = max(top, density.max())
    if truth is not None:
        axes.axvline(truth[0], color=ORANGE, lw=1.0)
    axes.set_ylim(0, 1.08 * top)


def _draw_pair(axes: Axes, mark: float, draws: np.ndarray, reference: Some, truth: Some) -> None:
    x, y, density, levels = _surface(draws)
    axes.contourf(x, y, density, [*levels, 1.01 * density.max()], colors=[BLUE_LIGHT, BLUE_MID])
    axes.contour(x, y, density, levels[:1], colors=BLUE_MID, linewidths=0.6)  # shows however small the region
    if reference is not None:
        x, y, density, levels = _surface(reference)
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
    low, high = _span(*clouds)
    pad = 0.04 * (high - low)
    ticks = np.asarray(MaxNLocator(look.ticks, steps=[1, 2, 5, 10], min_n_ticks=3).tick_values(low, high))
    ticks = ticks[(ticks > low + pad) & (ticks < high - pad)]
    formatter = ScalarFormatter(useMathText=False)
    formatter.set_powerlimits((-3, 4))
    formatter.create_dummy_axis()
    cast(Any, formatter.axis).set_view_interval(low, high)
    tick_labels = formatter.format_ticks(list(ticks))
    label = name if "$" in name else _wrapped(name, int(look.panel * 90 / look.font))
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
    figure = _figure(width, height, constrained=False)
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


# Plain figures


def _figure(width: float, height: float, constrained: bool = True) -> Figure:
    figure = Figure((width, height), facecolor="white", layout="constrained" if constrained else None)
    FigureCanvasAgg(figure)
    return figure


def _plain(axes: Axes, title: str = "") -> None:
    axes.set_title(title, loc="left", fontsize=12, color=INK, pad=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(linewidth=0.8, color=FRAME)
    axes.tick_params(labelsize=9, width=0.8, color=FRAME)
    axes.grid(color="#EBEBEB", lw=0.7)
    axes.set_axisbelow(True)


def _loss_limits(loss: np.ndarray) -> tuple[float, float]:
    """All losses, except that the fall over the first tenth of the epochs may leave through the top."""
    late = loss[:, loss.shape[1] // 10 :]
    low = float(loss.min())
    high = min(float(loss.max()), float(late.max()) + float(late.max() - low))
    margin = max(0.05 * (high - low), 1e-6 * abs(low), 1e-12)
    return low - margin, high + margin


def _log_axis(axes: Axes, values: np.ndarray, about: float | None = None) -> None:
    """A logarithmic axis, a factor of 2 about a value at least; what is not positive falls out below."""
    positive = values[values > 0]
    if positive.size == 0:
        return
    about = float(np.median(positive)) if about is None else about
    low, high = 0.8 * min(about / 2, positive.min()), 1.25 * max(about * 2, positive.max())
    wide = high / low > 100
    axes.set_yscale("log", nonpositive="clip")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(subs=[1.0] if wide else [1.0, 2.0, 5.0], numticks=6))
    axes.yaxis.set_major_formatter(LogFormatterMathtext() if wide else StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
