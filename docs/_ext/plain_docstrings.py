"""Docstrings are written for `help()`: a shape such as (draws, *shape) is no emphasis."""

import re
from typing import Any

STAR = re.compile(r"(?<![\w*\\`])\*(?=\w)")


def escape(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Put a backslash before stars that begin a word."""
    lines[:] = [line if line.lstrip().startswith((">>>", "...")) else STAR.sub(r"\\*", line) for line in lines]


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", escape, priority=900)
    return {"parallel_read_safe": True}
