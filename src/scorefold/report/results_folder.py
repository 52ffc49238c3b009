"""What a run leaves in a folder: a summary in JSON, its figures, and the page made of both."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from scorefold.report.canvas import save

SUMMARY, DIAGNOSIS, COMPARISON, CHECK = "summary.json", "diagnosis.json", "comparison.json", "check.json"
PAGE = "report.html"


def write(
    out: Path,
    name: str,
    summary: dict[str, Any],
    figures: Mapping[str, Figure],
    page: Callable[[dict[str, Any], dict[str, bytes]], str],
) -> Path:
    """The page, which page(summary, pictures by name) gives, with the summary under its name and the figures beside it."""
    (out / name).write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n")
    pictures = {word: save(figure, out / f"{word}.png").read_bytes() for word, figure in figures.items()}
    target = out / PAGE
    target.write_text(page(summary, pictures), encoding="utf-8")
    return target
