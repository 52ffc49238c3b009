"""What is made for a terminal, as plain text and for a notebook."""

import io

from rich.console import Console, Group

LINE_LENGTH = 100
"""Letters in a line."""
IN_A_NOTEBOOK = "<pre style='white-space:pre;overflow-x:auto;line-height:normal;font-family:monospace'>{code}</pre>"
"""Styles of notebooks may take a font whose letters are not all as wide."""


def as_text(parts: Group) -> str:
    """Without colours, as `print` shows it."""
    return _printed(parts).export_text().rstrip()


def as_html(parts: Group) -> str:
    """The text as HTML, with colours; everything is escaped."""
    return _printed(parts).export_html(inline_styles=True, code_format=IN_A_NOTEBOOK)


def _printed(parts: Group) -> Console:
    console = Console(file=io.StringIO(), width=LINE_LENGTH, record=True, force_jupyter=False)
    console.print(parts)
    return console
