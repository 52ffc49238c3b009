"""The figures of a diagnosis: rank-ECDF differences, coverage, TARP, contraction, and the observed data set's own.

Every band is simultaneous: all of a line, and all lines together, stay within it with probability 95 % if the posterior is
right. Lines that leave it are drawn in orange and named.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter
from scipy import stats

from scorefold.report.canvas import figure_of, finite_array, hold_within, legend_below, plain, plain_text
from scorefold.report.outcome_figures import are_drawn, outcomes
from scorefold.report.p_values import FALSE_ALARMS, passes
from scorefold.report.palette import BAND, BLUE, BLUE_LIGHT, BLUE_MID, GREY, INK, ORANGE
from scorefold.shown import observations

MOST_NAMED = 12
"""Numbers of an observation whose names fit below an axis."""
AXIS_END = 3.0
"""An axis reaches so many widths of the others for a single value, which is marked at its edge if it lies beyond."""
WIDEST_FIGURE = 9.0
"""Inches."""
CONFIDENCE = ("over-confident", "under-confident")
NEAR_POINTS = ("truth farther off than draws", "truth nearer than draws")
"""Sides of the diagonal: of coverage, and of TARP, where draws that are shifted may lie on either."""


def all_of(found: Any) -> dict[str, Figure]:
    """Every figure that the diagnosis has something for, by name."""
    data = f"{len(found.truth)} data sets of {observations(found.n)}"
    figures = {
        "ranks": rank_ecdf(found.sbc.uniformity, found.sbc.names, f"Ranks of the truth: {data}"),
        "coverage": coverage(found.coverage.uniformity, found.coverage.names, f"Central intervals, n = {found.n}"),
        "highest_density": coverage(
            found.highest_density.uniformity, found.highest_density.names, f"Highest-density regions, n = {found.n}"
        ),
        "tarp": coverage(found.tarp.uniformity, ("TARP",), f"TARP, n = {found.n}", NEAR_POINTS),
        "contraction": contraction(
            found.contraction.contraction, found.contraction.z, found.names, f"What was learned: {data}"
        ),
    }
    if found.observed is not None:
        figures["predictive"] = of_predictive(found.observed.posterior_predictive, "Posterior predictive")
        if found.observed.influence is not None:
            figures["influence"] = influence(
                found.observed.influence.distance,
                found.observed.misspecification.p_observations,
                "Pull of each observation",
                len(found.names),
            )
    return figures


def rank_ecdf(uniformity: Any, names: Sequence[str], title: str = "") -> Figure:
    """The empirical distribution of the ranks less the uniform one, each quantity a line, with the band."""
    at = np.concatenate([[0], uniformity.at, [1]])
    figure = figure_of(6.0, 3.9)
    axes = figure.add_subplot()
    low, high = (np.concatenate([[0], edge - uniformity.at, [0]]) for edge in (uniformity.low, uniformity.high))
    axes.fill_between(at, low, high, color=BAND, lw=0, label=_band_label(names), zorder=1)
    _lines(axes, at, uniformity, names, lambda seen: np.concatenate([[0], seen - uniformity.at, [0]]))
    axes.axhline(0, color=GREY, lw=0.8, zorder=2)
    axes.set(xlabel="rank of the truth among the draws", ylabel="share of ranks below, less uniform", xlim=(0, 1))
    reach = 1.1 * max(np.abs(uniformity.seen - uniformity.at).max(), np.abs(high).max(), np.abs(low).max())
    axes.set_ylim(-reach, reach)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    plain(axes, title)
    legend_below(figure, 3)
    return figure


def coverage(uniformity: Any, names: Sequence[str], title: str = "", sides: tuple[str, str] = CONFIDENCE) -> Figure:
    """Coverage against the level that was claimed, with the band; `sides` say what lies below the diagonal, and above."""
    at = np.concatenate([[0], uniformity.at, [1]])
    figure = figure_of(4.6, 4.9)
    axes = figure.add_subplot()
    low, high = (np.concatenate([[0], edge, [1]]) for edge in (uniformity.low, uniformity.high))
    axes.fill_between(at, low, high, color=BAND, lw=0, label=_band_label(names), zorder=1)
    axes.plot([0, 1], [0, 1], color=GREY, lw=0.8, zorder=2)
    _lines(axes, at, uniformity, names, lambda seen: np.concatenate([[0], seen, [1]]))
    axes.set(xlabel="probability claimed", ylabel="share of data sets where it held the truth", xlim=(0, 1), ylim=(0, 1))
    axes.set_aspect("equal")
    axes.text(0.97, 0.04, sides[0], ha="right", fontsize=9, color=GREY)
    axes.text(0.03, 0.94, sides[1], ha="left", fontsize=9, color=GREY)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    plain(axes, title)
    legend_below(figure, 2)
    return figure


def contraction(contracted: np.ndarray, z: np.ndarray, names: Sequence[str], title: str = "") -> Figure:
    """Each parameter's contraction (left) and z-score (right) over the data sets: median, half and 90 % of them."""
    dim = len(names)
    contracted, z = finite_array("contraction", contracted, (None, dim)), finite_array("z", z, (None, dim))
    figure = figure_of(6.4, 1.5 + 0.32 * dim)
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, values in ((left, contracted), (right, z)):
        low, q1, middle, q3, high = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
        place = np.arange(dim)
        axes.hlines(place, low, high, color=BLUE_MID, lw=1.4)
        axes.hlines(place, q1, q3, color=BLUE, lw=4)
        axes.plot(middle, place, "o", color="white", mec=BLUE, ms=5)
        axes.axvline(0.0, color=GREY, lw=0.8, zorder=1)
        plain(axes, title if axes is left else "")
    right.axvspan(-1.645, 1.645, color=BAND, lw=0, zorder=0)
    left.set_xlim(min(-0.02, float(np.quantile(contracted, 0.02))), 1.03)
    left.set_ylim(-0.6, dim - 0.4)
    left.set_yticks(np.arange(dim), [plain_text(name) for name in names])
    left.invert_yaxis()
    left.set_xlabel("contraction\n(0: as wide as the prior, 1: a point)")
    right.set_xlabel("z-score of the mean\n(grey: where 90 % should lie)")
    if isinstance(layout := figure.get_layout_engine(), ConstrainedLayoutEngine):
        layout.set(wspace=0.08)  # the last number on the left would touch the first on the right
    return figure


def of_predictive(check: Any, title: str = "") -> Figure:
    """A predictive check: outcomes one by one where some are binary or counts, else statistic by statistic."""
    if are_drawn(check.kinds):
        return outcomes(check.labels, check.kinds, check.x_obs, check.x, title)
    there = ~np.isnan(check.x_obs).all(axis=0)
    figure = predictive(check.names, check.observed, check.replicated, check.p_values, title, there)
    if 0 < len(check.x_names) <= MOST_NAMED:
        bottom = figure.axes[-1]
        bottom.set_xticks(np.arange(1, len(check.x_names) + 1), [plain_text(name) for name in check.x_names])
        bottom.set_xlabel("")
    return figure


def predictive(
    statistics: Sequence[str],
    observed: np.ndarray,
    replicated: np.ndarray,
    p_values: np.ndarray,
    title: str = "",
    there: np.ndarray | None = None,
) -> Figure:
    """For every statistic a panel: the replicated values of each number, the observed one, orange where p < 5 %.

    The place of a number that was never observed, where `there` is False, stays empty.
    """
    observed = finite_array("observed", observed, (len(statistics), None))
    numbers = observed.shape[1]
    replicated = finite_array("replicated", replicated, (None, len(statistics), numbers))
    width = min(max(4.2, 1.6 + 0.3 * numbers), WIDEST_FIGURE)
    thick, mark = min(7.0, 43 * (width - 1) / numbers), min(4.0, 30 * (width - 1) / numbers)
    figure = figure_of(width, 0.9 + 1.35 * len(statistics))
    panels = figure.subplots(len(statistics), 1, sharex=True, squeeze=False)[:, 0]
    shown = np.arange(numbers) if there is None else np.flatnonzero(there)
    place, by_statistic = shown + 1, zip(panels, statistics, observed, np.moveaxis(replicated, 1, 0), p_values, strict=True)
    for axes, name, *numbers_of_it in by_statistic:
        seen, values, p = (np.asarray(one)[..., shown] for one in numbers_of_it)
        low, q1, q3, high = np.quantile(values, [0.025, 0.25, 0.75, 0.975], axis=0)
        axes.vlines(place, low, high, color=BLUE_LIGHT, lw=thick, label="95 % of simulated data sets")
        axes.vlines(place, q1, q3, color=BLUE_MID, lw=thick, label="half of them")
        strange = p < FALSE_ALARMS
        axes.plot(place[~strange], seen[~strange], "o", color=INK, ms=mark, label="observed")
        axes.plot(place[strange], seen[strange], "D", color=ORANGE, ms=1.25 * mark)
        axes.set_ylabel(name)
        plain(axes, title if axes is panels[0] else "")
        axes.margins(y=0.12)
        _keep_readable(axes, place, seen, low, high)
    panels[-1].set_xlim(0.3, numbers + 0.7)
    panels[-1].xaxis.set_major_locator(MaxNLocator(12, integer=True))
    panels[-1].set_xlabel("number in the observation")
    figure.align_ylabels(panels)
    handles, labels = panels[0].get_legend_handles_labels()
    if np.any(np.asarray(p_values) < FALSE_ALARMS):
        handles.append(Line2D([], [], marker="D", color=ORANGE, ms=5, ls=""))
        labels.append("observed, p < 5 %")
    legend_below(figure, 2, handles, labels)
    return figure


def _keep_readable(axes: Axes, place: np.ndarray, seen: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """An observed value may not make the simulated ones a line: the axis ends a few of their widths away."""
    bottom, top = float(low.min()), float(high.max())
    room = AXIS_END * max(top - bottom, 1e-9 * max(abs(top), abs(bottom), 1e-300))
    if seen.max() > top + room or seen.min() < bottom - room:
        reach = [max(bottom - room, min(seen.min(), bottom)), min(top + room, max(seen.max(), top))]
        edge = 0.08 * (reach[1] - reach[0])
        hold_within(axes, place, seen, reach[0] - edge, reach[1] + edge)


def influence(distance: np.ndarray, p_observations: np.ndarray, title: str = "", dim: int = 1) -> Figure:
    """How far leaving each observation out would move the posterior mean; orange where it is like none simulated.

    Where all is Gaussian and each of n observations counts alike, n times the squared distance is about χ² with `dim` degrees
    of freedom: the band holds all of them with probability 95 %.
    """
    distance = finite_array("distance", distance, (None,))
    strange = finite_array("p_observations", p_observations, distance.shape) < FALSE_ALARMS
    figure = figure_of(6.0, 3.3)
    axes = figure.add_subplot()
    place = np.arange(len(distance))
    for which, colour, label in ((~strange, BLUE, "like simulated ones"), (strange, ORANGE, "like none simulated")):
        if which.any():
            axes.vlines(place[which], 0, distance[which], color=colour, lw=1.2)
            axes.plot(place[which], distance[which], "o", color=colour, ms=4, label=label)
    usual = float(np.sqrt(stats.chi2.ppf((1 - FALSE_ALARMS) ** (1 / len(place)), dim) / len(place)))
    axes.axhspan(0, usual, color=BAND, lw=0, zorder=0, label="95 %, if all count alike")
    axes.set(xlabel="observation", ylabel="shift of the posterior mean, in sd")
    others = np.partition(distance, -2)[-2] if len(distance) > 1 else distance[0]
    hold_within(axes, place, distance, 0.0, max(1.3 * usual, min(1.1 * float(distance.max()), AXIS_END * float(others))))
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    plain(axes, title)
    legend_below(figure, 2)
    return figure


def _lines(axes: Axes, at: np.ndarray, uniformity: Any, names: Sequence[str], shape: Any) -> None:
    """One line each: those that leave the band in orange, the farthest with their names, the others in blue."""
    reach = np.abs(uniformity.seen - uniformity.at).max(axis=1)
    bad = sorted((k for k, p in enumerate(uniformity.p_values) if not passes(p)), key=lambda k: -reach[k])
    good = [k for k in range(len(names)) if k not in bad]
    styles = ["-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), (0, (9, 2, 1, 2, 1, 2)), (0, (2, 1))]
    few = len(names) <= len(styles)
    for colour, some, others in ((BLUE, good, "{} inside the band"), (ORANGE, bad, "{} more outside")):
        named = len(some) if few else len(styles) if colour == ORANGE else 0
        for i, k in enumerate(some):
            own = i < named
            label = plain_text(names[k]) if own else others.format(len(some) - named) if i == named else None
            style: Any = styles[i] if own else "-"
            axes.plot(at, shape(uniformity.seen[k]), color=colour, lw=1.4 if own else 0.8, ls=style,
                      alpha=1.0 if own else 0.6, label=label, zorder=4 if colour == ORANGE else 3)  # fmt: skip


def _band_label(names: Sequence[str]) -> str:
    return "95 % of right posteriors" + (", all lines together" if len(names) > 1 else "")
