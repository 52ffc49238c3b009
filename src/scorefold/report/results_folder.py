"""What a run leaves in a folder: a summary in JSON, its figures, and the page made of both."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from scorefold.disk import durable
from scorefold.disk.trouble import told
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
    """The page, which page(summary, pictures by name) gives, with the summary under its name and the figures beside it.

    The folder is made if need be. What is wrong with it is a `StorageError`.
    """
    text = json.dumps(summary, indent=2, allow_nan=False) + "\n"
    with told(f"write results into {out}", "No file there is half-written."):
        out.mkdir(parents=True, exist_ok=True)
        durable.replace(out / name, text.encode())
    pictures = {word: save(figure, out / f"{word}.png").read_bytes() for word, figure in figures.items()}
    return write_page(out / PAGE, page(summary, pictures))


def write_page(target: Path, text: str) -> Path:
    """A page of its own, whole or not at all."""
    with told(f"write the page {target}", "No file there is half-written."):
        target.parent.mkdir(parents=True, exist_ok=True)
        durable.replace(target, text.encode())
    return target
