"""The paper's figures, from records: those for which there are any.

| name | what it shows | in the paper |
|---|---|---|
| budget_mmd2, budget_c2st | accuracy against budget, for each task and n | systematic evaluation; classifier two-sample test |
| n_mmd2, n_c2st | the same against n, for each task and budget | |
| sets_mmd2, sets_c2st | PF-NPSE against m, for each task and n | optimal trade-off; performance for different m |
| conservative | the score as a gradient or not | conservative parameterization |
| samplers | Langevin parameters and Algorithm 2 | Langevin sampler parameters |
| bimodal | draws as n grows | multimodal example |
| weinberg | densities given one and given five observations, for parameters from the prior | Weinberg demonstration |

("Compositional score modeling for simulation-based inference", Geffner, Papamakarios and Mnih, 2023.) Lines are means over
cells; bands, ± one standard deviation over trainings, of a training's mean. Squared MMD is on a scale of square roots, on which
small values can be told apart and those a little below 0, which an unbiased estimate has, can be shown.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from scorefold.app.bench.bench_plan import PAPER_SET_SIZE
from scorefold.app.bench.cloud_grid import Cloud, cloud_grid
from scorefold.app.bench.points import METRICS, PAPER_SAMPLER, Series, pick, points, series, values
from scorefold.app.bench.record import Record
from scorefold.report.canvas import figure_of, plain
from scorefold.report.kernel_density import marginal
from scorefold.report.palette import FRAME, INK, METHOD_COLOURS, OTHER_COLOUR, RED
from scorefold.report.words import TASK_LABELS

MARKERS = "osD^vPX*"
"""Shape and dash say the same as the colour."""
AXIS_TICKS = 8.5
"""Points: the panels are small."""
AXES = {"budget": "simulator budget", "n": "observations n", "m": "observations in a set, m"}
STUDY_BUDGET = 10_000
CROWDED_LINES = 5
"""From so many on, bands are fainter."""
ROOT_TICKS = (-0.05, -0.01, 0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)

Look = tuple[str, str, str]
"""Colour, marker, dash."""


def all_figures(records: Sequence[Record]) -> dict[str, Figure]:
    """Every figure there are records for, by name."""
    usual = [r for r in records if not r["cell"]["sampler"] and not r["cell"]["conservative"]]
    compared = [r for r in usual if r["cell"]["task"] not in SHOWN] or usual
    grid = [r for r in compared if r["cell"]["method"] != "pf-npse" or r["cell"]["m"] == PAPER_SET_SIZE]
    sized = [r for r in compared if r["cell"]["method"] in ("f-npse", "pf-npse") and r["cell"]["budget"] == STUDY_BUDGET]
    panels = [pick(sized, task=task, n=n) for task, n in product(values(sized, "task"), values(sized, "n"))]
    study = [r for panel in panels if len(values(panel, "m")) > 2 for r in panel]
    same = [r for r in grid if r["cell"]["setting"] == "paper" and r["cell"]["budget"] == STUDY_BUDGET]
    constrained = [r for r in records if r["cell"]["conservative"]]
    sampled = [r for r in records if r["cell"]["sampler"]]
    found: dict[str, Figure] = {}
    for metric in ("mmd2", "c2st"):
        if grid:
            found[f"budget_{metric}"] = lines(grid, "budget", "n", metric)
            found[f"n_{metric}"] = lines(grid, "n", "budget", metric)
        if study:
            found[f"sets_{metric}"] = lines(study, "m", "n", metric, _by_setting)
    if constrained:
        found["conservative"] = lines([*_beside(same, constrained), *constrained], "n", "budget", "mmd2")
    if sampled:
        beside = pick(_beside(same, sampled), method="pf-npse")
        found["samplers"] = lines([*beside, *sampled], "n", "budget", "mmd2", _by_sampler)
    for task, draw in SHOWN.items():
        shown = [r for r in pick(usual, task=task) if "draws" in r]
        if shown:
            found[task] = draw(shown)
    return found


def _beside(records: Sequence[Record], studied: Sequence[Record]) -> list[Record]:
    """Those of the tasks that were studied."""
    tasks = values(studied, "task")
    return [r for r in records if r["cell"]["task"] in tasks]


def _by_setting(record: Record) -> Series:
    return series(record)._replace(method="pf-npse", m=0)


def _by_sampler(record: Record) -> Series:
    return series(record)._replace(sampler=record["cell"]["sampler"] or PAPER_SAMPLER)


def lines(records: Sequence[Record], x: str, across: str, metric: str, line: Callable[[Record], Series] = series) -> Figure:
    """A metric against x: a row of panels for each task, a column for each value of `across`; of one value, a row of tasks."""
    tasks, columns = values(records, "task"), values(records, across)
    kinds = list(dict.fromkeys(line(r) for r in records))
    looks = {kind: _look(kind, kinds) for kind in kinds}
    flat = len(columns) == 1
    down, wide = (1, len(tasks)) if flat else (len(tasks), len(columns))
    figure = figure_of(1.2 + 2.3 * max(wide, 2), 0.9 + 2.0 * down + 0.22 * len(kinds) / max(wide, 2))
    grid = figure.subplots(down, wide, squeeze=False, sharex=True, sharey=False if flat else "row")
    for axes, (task, at) in zip(grid.flat, product(tasks, columns), strict=True):
        here = pick(records, task=task, **{across: at})
        for kind in kinds:
            own = {r["key"]: r for r in here if line(r) == kind}
            _line(axes, own, x, metric, looks[kind], 0.13 if len(kinds) < CROWDED_LINES else 0.08)
        axes.axhline(METRICS[metric][1], color=INK, lw=0.8, ls=(0, (1, 3)), zorder=1)
        _dress(axes, values(records, x))
        place, name, label = f"{'n' if across == 'n' else 'budget'} = {at:,}", TASK_LABELS.get(task, task), METRICS[metric][0]
        if flat or axes in grid[0]:
            axes.set_title(f"{name}\n{place}" if flat else place, fontsize=10, color=INK)
        if axes in grid[:, 0]:
            axes.set_ylabel(label if flat else f"{name}\n{label}", fontsize=9.5)
        if axes in grid[-1]:
            axes.set_xlabel(AXES[x], fontsize=9.5)
    for axes in grid.flat if metric == "mmd2" else ():
        _root_scale(axes)
    _legend(figure, kinds, looks, wide)
    return figure


def clouds(records: Sequence[Record]) -> Figure:
    """Draws of two parameters: a row for each method, a column for each n; the truth as a cross."""
    records = _first_data_set(records)
    kinds = values(records, "series")
    rows: dict[str, dict[int, Cloud]] = {kind.label: {} for kind in kinds}
    for record in records:
        cloud = Cloud(np.asarray(record["draws"]), [np.asarray(record["truth"])])
        rows[series(record).label].setdefault(record["cell"]["n"], cloud)
    return cloud_grid(rows, {kind.label: _look(kind, kinds)[0] for kind in kinds})


def densities(records: Sequence[Record]) -> Figure:
    """Smoothed draws of one parameter, given one observation and given all; a panel for each data set, the truth as a line."""
    kinds, seeds, sizes = values(records, "series"), values(records, "parameters")[:3], values(records, "n")
    looks = {sizes[0]: (INK, 1.2), sizes[-1]: (RED, 2.0)}
    figure = figure_of(1.0 + 2.6 * len(seeds), 0.9 + 1.9 * len(kinds))
    grid = figure.subplots(len(kinds), len(seeds), squeeze=False, sharex=True, sharey=True)
    for (row, kind), (column, seed) in product(enumerate(kinds), enumerate(seeds)):
        axes = grid[row, column]
        own = pick(records, series=kind, parameters=seed)
        for record in own:
            if record["cell"]["n"] in looks:
                colour, width = looks[record["cell"]["n"]]
                axes.plot(*marginal(np.asarray(record["draws"])[:, 0]), color=colour, lw=width)
        if own:
            axes.axvline(own[0]["truth"][0], color=FRAME, lw=1.0, zorder=0)
        axes.set(xlim=(0, 2), yticks=[])
        axes.set_ylim(bottom=0)
        plain(axes, ticks=AXIS_TICKS)
        axes.set_xlabel("θ" if row == len(kinds) - 1 else "")
        if column == 0:
            axes.set_ylabel(kind.label.replace(", ", "\n"), fontsize=9)
    drawn = [*((*look, f"n = {n}") for n, look in looks.items()), (FRAME, 1.0, "the parameter")]
    handles = [Line2D([], [], color=colour, lw=width, label=label) for colour, width, label in drawn]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


SHOWN = {"bimodal": clouds, "weinberg": densities}
"""Tasks that are there to be looked at."""


def _first_data_set(records: Sequence[Record]) -> list[Record]:
    first = records[0]["cell"]
    return pick(records, training=first["training"], parameters=first["parameters"])


def _line(axes: Axes, records: dict[str, Record], x: str, metric: str, look: Look, shade: float) -> None:
    found = points(list(records.values()), x, metric)
    if not found:
        return
    colour, marker, dash = look
    at, mean = np.array(list(found), float), np.array([p.mean for p in found.values()])
    spread = np.nan_to_num(np.array([p.spread for p in found.values()]))
    hollow = "white" if dash == "--" else colour
    axes.plot(at, mean, ls=dash, marker=marker, ms=4.5, mfc=hollow, mec=colour, color=colour, lw=1.5)
    top = np.minimum(mean + spread, 1.0) if metric == "c2st" else mean + spread
    if len(at) > 1:
        axes.fill_between(at, mean - spread, top, color=colour, alpha=shade, lw=0)
    else:
        axes.vlines(at, mean - spread, top, color=colour, alpha=0.25, lw=4)


def _look(kind: Series, kinds: Sequence[Series]) -> Look:
    """A colour and a marker for the method, a dash for the setting; where many differ in something else, a colour for each."""
    own = [one for one in kinds if (one.method, one.setting) == (kind.method, kind.setting)]
    many = len(own) > 2
    names = [*METHOD_COLOURS, ""]
    number = own.index(kind) if many else names.index(kind.method if kind.method in METHOD_COLOURS else "")
    dash = "-" if many or kind.conservative or kind.setting != "paper" else "--"
    return [*METHOD_COLOURS.values(), OTHER_COLOUR][number % len(names)], MARKERS[number % len(MARKERS)], dash


def _legend(figure: Figure, kinds: Sequence[Series], looks: dict[Series, Look], columns: int) -> None:
    handles = [
        Line2D([], [], color=c, marker=m, ls=d, ms=5, mfc="white" if d == "--" else c, mec=c, lw=1.5)
        for c, m, d in (looks[kind] for kind in kinds)
    ]
    labels = [kind.label.replace(" (m = 0)", "") for kind in kinds]
    fitting = int(figure.get_figwidth() / (0.45 + 0.065 * max(map(len, labels))))  # inches: of the line, of a letter
    columns = max(1, min(len(kinds), columns, fitting, 4))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def _dress(axes: Axes, at: Sequence[int]) -> None:
    axes.set_xscale("log")
    if len(at) == 1:
        axes.set_xlim(at[0] / 2, at[0] * 2)
    near = [x for i, x in enumerate(at) if i == 0 or np.log(x / at[i - 1]) > 0.08 * np.log(at[-1] / at[0])]
    axes.xaxis.set_major_locator(FixedLocator(near))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
    plain(axes, ticks=AXIS_TICKS)


def _root_scale(axes: Axes) -> None:
    """y as its signed square root, with a tick at 0 and others that are not too near each other."""
    row = axes.get_shared_y_axes().get_siblings(axes)
    low, high = _root(min(0.0, *(a.dataLim.y0 for a in row))), _root(max(0.0, *(a.dataLim.y1 for a in row)))
    axes.set_yscale("function", functions=(_root, lambda y: np.sign(y) * np.square(y)))
    margin = 0.05 * (high - low)
    axes.set_ylim(*(np.sign(y) * y**2 for y in (low - margin, high + margin)))
    kept: list[float] = []
    for tick in sorted(ROOT_TICKS, key=lambda tick: (tick != 0, -tick)):
        if low <= _root(tick) <= high and all(abs(_root(tick) - _root(other)) > (high - low) / 9 for other in kept):
            kept.append(tick)
    axes.yaxis.set_major_locator(FixedLocator(sorted(kept)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))


def _root(y: Any) -> Any:
    return np.sign(y) * np.sqrt(np.abs(y))
