"""What all figures share: colours, sizes checked, axes without ornament, PNG files."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from scorefold.errors import ScorefoldError

# After Okabe and Ito's palette, which colour-blind readers can tell apart.
BLUE, BLUE_MID, BLUE_LIGHT = "#0072B2", "#64A9D3", "#C3DFEF"
ORANGE, INK, GREY, FRAME = "#D55E00", "#1A1A1A", "#8C8C8C", "#B0B0B0"


def figure_of(width: float, height: float, constrained: bool = True) -> Figure:
    """An empty one, of so many inches."""
    figure = Figure((width, height), facecolor="white", layout="constrained" if constrained else None)
    FigureCanvasAgg(figure)
    return figure


def plain(axes: Axes, title: str = "") -> None:
    """Axes with a light grid and two spines."""
    axes.set_title(title, loc="left", fontsize=12, color=INK, pad=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(linewidth=0.8, color=FRAME)
    axes.tick_params(labelsize=9, width=0.8, color=FRAME)
    axes.grid(color="#EBEBEB", lw=0.7)
    axes.set_axisbelow(True)


def save(figure: Figure, path: str | Path) -> Path:
    """Write the figure as a PNG cropped to what is drawn, making the folders on the way."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", dpi=150, bbox_inches="tight", pad_inches=0.1, facecolor="white")
    return path


def checked(name: str, values: Any, shape: tuple[int | None, ...]) -> np.ndarray:
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
