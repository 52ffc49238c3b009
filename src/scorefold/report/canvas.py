"""What all figures share: an empty figure, axes without ornament, a legend below, a check of what is drawn, PNG files."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser

from scorefold.disk import durable
from scorefold.disk.trouble import told
from scorefold.errors import ScorefoldError
from scorefold.report.letters import drawn
from scorefold.report.palette import FRAME, GRID, INK, ORANGE
from scorefold.shown import one_line


class Shown(Figure):
    """A figure that a notebook shows; without pyplot, which we do not load, it shows a plain one as words."""

    def _repr_png_(self) -> bytes:
        drawn = BytesIO()
        self.savefig(drawn, format="png", dpi=110, bbox_inches="tight", pad_inches=0.1, facecolor="white")
        return drawn.getvalue()


def figure_of(width: float, height: float, constrained: bool = True) -> Figure:
    """An empty one, of so many inches."""
    figure = Shown((width, height), facecolor="white", layout="constrained" if constrained else None)
    FigureCanvasAgg(figure)
    return figure


def plain(axes: Axes, title: str = "", ticks: float = 9.0) -> None:
    """Axes with a light grid and two spines; `ticks` is the size of their labels."""
    if title:
        axes.set_title(title, loc="left", fontsize=12, color=INK, pad=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(linewidth=0.8, color=FRAME)
    axes.tick_params(labelsize=ticks, width=0.8, color=FRAME)
    axes.grid(color=GRID, lw=0.7)
    axes.set_axisbelow(True)


def plain_text(name: object) -> str:
    """A name as a figure shows it, in one line: mathematics between dollars where it is some, and otherwise letter by letter.

    A legend leaves out what begins with an underscore, so a space goes before it. Letters that the font lacks are written as
    Python writes them (`letters.py`).
    """
    text = one_line(name)
    if "$" not in text or not _is_mathematics(text):
        text = drawn(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _is_mathematics(text: str) -> bool:
    if text.replace(r"\$", "").count("$") % 2:
        return False
    try:
        MathTextParser("agg").parse(text)
    except ValueError:
        return False
    return True


def legend_below(figure: Figure, columns: int, handles: list[Any] | None = None, labels: list[str] | None = None) -> None:
    """One legend under the whole figure, of what is labelled in it unless handles and labels are given."""
    given = {} if handles is None else {"handles": handles, "labels": labels}
    figure.legend(loc="outside lower left", ncols=columns, frameon=False, fontsize=9, **given)


def hold_within(axes: Axes, x: np.ndarray, y: np.ndarray, low: float, high: float) -> None:
    """Limit the vertical axis, so that a value far out does not squash the others; what lies beyond is marked at the edge."""
    axes.set_ylim(low, high)
    for out, edge, mark in ((y > high, high, "^"), (y < low, low, "v")):
        if out.any():
            axes.plot(x[out], np.full(out.sum(), edge), mark, color=ORANGE, ms=6, clip_on=False, zorder=6)
            farthest = np.flatnonzero(out)[np.abs(y[out] - edge).argmax()]
            axes.annotate(
                f"{y[farthest]:.3g}", (x[farthest], edge), (7, 0), textcoords="offset points", fontsize=8, va="center"
            )


def save(figure: Figure, path: str | Path) -> Path:
    """Write the figure as a PNG cropped to what is drawn, whole or not at all, making the folders on the way.

    Args:
        figure: What a function of `sf.plots` returned, or any other matplotlib figure.
        path: The file to write; one that is there is replaced.

    Returns:
        The path.

    Raises:
        StorageError: The file cannot be written; the message says why.

    Example:
        >>> import pathlib, tempfile, matplotlib.figure, scorefold as sf
        >>> sf.plots.save(matplotlib.figure.Figure(), pathlib.Path(tempfile.mkdtemp()) / "new" / "figure.png").name
        'figure.png'
    """
    path, drawn = Path(path), BytesIO()
    figure.savefig(drawn, format="png", dpi=150, bbox_inches="tight", pad_inches=0.1, facecolor="white")
    with told(f"write the figure {path}", "No file there is half-written."):
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.replace(path, drawn.getvalue())
    return path


def finite_array(name: str, values: Any, shape: tuple[int | None, ...], missing: bool = False) -> np.ndarray:
    """The values as finite floats (or NaN, if some are missing) of the expected shape, None standing for any length but 0."""
    array = np.asarray(values, dtype=float)
    fits = array.ndim == len(shape) and all(
        have == want or (want is None and have > 0) for have, want in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        raise ScorefoldError(f"expected {name} of shape ({wanted}); got {array.shape}")
    bad = int((~np.isfinite(array) & ~(np.isnan(array) & missing)).sum())
    if bad:
        raise ScorefoldError(f"expected finite {name}; got {bad} non-finite of {array.size} values. Drop them first.")
    return array
