"""Charts as SVG text, for pages that need no script: points or lines over a logarithmic axis, in the page's own colours."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from scorefold.report.page import escaped

WIDTH, HEIGHT = 360, 272
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 22, 42
INSET = 14
"""Between the axes and the outermost points."""


class Look(NamedTuple):
    """How a line and its points are drawn."""

    colour: str
    shape: str
    hollow: bool = False


class Mark(NamedTuple):
    """A point, or several that a line joins."""

    look: Look
    x: Sequence[float]
    y: Sequence[float]
    words: Sequence[str]
    """What each of them is, for a pointer that rests on it and for those who do not see it."""


def marker(look: Look, x: float, y: float, size: float = 5.0) -> str:
    """One point."""
    style = f'fill="{"var(--paper)" if look.hollow else look.colour}" stroke="{look.colour}" stroke-width="2"'
    if look.shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" {style}/>'
    corners = {
        "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
        "triangle": ((0, -1.25), (1.2, 1), (-1.2, 1)),
        "diamond": ((0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)),
    }[look.shape]
    return f'<path d="M{"L".join(f"{x + size * a:.1f} {y + size * b:.1f}" for a, b in corners)}Z" {style}/>'


def key(look: Look) -> str:
    """A point for a legend."""
    return f'<svg class="key" width="18" height="16" viewBox="0 0 18 16" aria-hidden="true">{marker(look, 9.0, 8.0, 4.5)}</svg>'


class Axis(NamedTuple):
    """What an axis shows, and how far it goes."""

    label: str
    ticks: Sequence[float]
    ends: tuple[float, float] | None = None
    """Where it ends; None for the outermost ticks."""


def chart(marks: Sequence[Mark], label: str, x_axis: Axis, y_axis: Axis, perfect: float) -> str:
    """An SVG of points and lines over a logarithmic axis.

    Args:
        marks: What is drawn, the first at the bottom.
        label: What it shows, in words, for those who do not see it.
        x_axis: The logarithmic axis; the chart is as wide as its ticks.
        y_axis: The other axis.
        perfect: Where on the y axis a dotted line stands.

    Returns:
        The SVG's text.
    """
    low, high = math.log(min(x_axis.ticks)), math.log(max(x_axis.ticks))
    bottom, top = y_axis.ends or (min(y_axis.ticks), max(y_axis.ticks))

    def px(x: float) -> float:
        inner = WIDTH - LEFT - RIGHT - 2 * INSET
        return LEFT + INSET + inner * (0.5 if high == low else (math.log(x) - low) / (high - low))

    def py(y: float) -> float:
        return TOP + (top - y) / (top - bottom) * (HEIGHT - TOP - BOTTOM)

    parts, foot = [], HEIGHT - BOTTOM
    for tick in y_axis.ticks:
        at = f'y1="{py(tick):.1f}" y2="{py(tick):.1f}"'
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" {at}/>')
        parts.append(f'<text x="{LEFT - 7}" y="{py(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in x_axis.ticks:
        parts.append(f'<line class="axis" x1="{px(tick):.1f}" x2="{px(tick):.1f}" y1="{foot}" y2="{foot + 5}"/>')
        parts.append(f'<text x="{px(tick):.1f}" y="{foot + 18}" text-anchor="middle">{tick:,g}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{foot}" y2="{foot}"/>')
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 5}" text-anchor="middle">{escaped(x_axis.label)}</text>'
    )
    parts.append(f'<text x="{LEFT - 7}" y="{TOP - 8}" text-anchor="end">{escaped(y_axis.label)}</text>')
    level = f'y1="{py(perfect):.1f}" y2="{py(perfect):.1f}"'
    parts.append(f'<line class="perfect" x1="{LEFT}" x2="{WIDTH - RIGHT}" {level}/>')
    for mark in marks:
        if len(mark.x) > 1:
            path = "L".join(f"{px(x):.1f} {py(y):.1f}" for x, y in zip(mark.x, mark.y, strict=True))
            parts.append(f'<path d="M{path}" fill="none" stroke="{mark.look.colour}" stroke-width="1.8"/>')
    for mark in marks:
        for x, y, words in zip(mark.x, mark.y, mark.words, strict=True):
            parts.append(f"<g><title>{escaped(words)}</title>{marker(mark.look, px(x), py(y))}</g>")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escaped(label)}">{"".join(parts)}</svg>'
