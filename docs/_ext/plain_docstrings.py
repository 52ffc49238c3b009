"""Docstrings and signatures as they read well here.

A shape such as (draws, *shape) is no emphasis, `docs/trust.md` is a link, and types lose their modules.
"""

import re
from typing import Any

STAR = re.compile(r"(?<![\w*\\`])\*(?=\w)")
PAGE = re.compile(r"`docs/([\w/]+)\.md`")
ARRAY_LIKE = re.compile(r"[~\w.]*_Buffer \| .*?\[complex \| bytes \| str\]")
QUALIFIED = re.compile(r"~?\b(?:\w+\.)+(?=[A-Za-z_])")


def escape(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Put a backslash before stars that begin a word, and links in the place of pages' names."""
    lines[:] = [line if line.lstrip().startswith((">>>", "...")) else _plain(line) for line in lines]


def _plain(line: str) -> str:
    return PAGE.sub(r":doc:`/\1`", STAR.sub(r"\\*", line))


def shorten(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """NumPy's `ArrayLike` is that; in a class `compose.gauss.Gauss` is `Gauss`, and a default made for each object `...`."""
    if not signature:
        return None
    signature = ARRAY_LIKE.sub("ArrayLike", signature)
    if what != "class":
        return signature, returns
    return QUALIFIED.sub("", signature).replace("~", "").replace("<factory>", "..."), returns


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", escape, priority=900)
    app.connect("autodoc-process-signature", shorten)
    return {"parallel_read_safe": True}
