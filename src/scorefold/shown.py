"""What people see of an object: names in one line, small tables as text and as HTML for notebooks.

Names are the user's own and may hold anything: brackets, quotes, newlines, markup. `one_line` writes what cannot be printed as
Python would (`\\n`), and nothing of it is ever read as markup.
"""

import html
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

MOST_LISTED = 8
FIRST = ("converged", "diverged")
"""What matters of a record."""


def one_line(name: object) -> str:
    """A name in one line: what cannot be printed, such as a newline or an escape, is written as Python writes it.

    >>> one_line("two" + chr(10) + "lines"), one_line("β [mm]")
    ('two\\\\nlines', 'β [mm]')
    """
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in str(name))


def listed(names: Sequence[object], most: int = MOST_LISTED) -> str:
    """Names with commas between them, the first few of many.

    >>> listed(["a", "b"]), listed(range(20), most=3)
    ('a, b', '0, 1, 2, … (20 in all)')
    """
    if len(names) <= most:
        return ", ".join(map(one_line, names))
    return f"{', '.join(map(one_line, names[:most]))}, … ({len(names):,} in all)"


def observations(n: int) -> str:
    """So many of them, in words.

    >>> observations(1), observations(2_000)
    ('1 observation', '2,000 observations')
    """
    return "1 observation" if n == 1 else f"{n:,} observations"


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns under their heads, the first to the left and the others to the right.

    >>> print(text_table(("parameter", "mean"), [("v", "0.5"), ("drift", "-1.25")]))
    parameter   mean
    v            0.5
    drift      -1.25
    """
    cells = [[one_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    lines = []
    for first, *rest in cells:
        right = [" " * (width - _width(cell)) + cell for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([first + " " * (widths[0] - _width(first)), *right]).rstrip())
    return "\n".join(lines)


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str] = ()) -> str:
    """The same for a notebook, with a title above and notes below; everything is escaped.

    Without a head it is a list of words, not of numbers, and all of it is to the left.
    """
    style = [f"style='padding:2px 10px;text-align:{side}'" for side in ("left", "right" if head else "left")]
    top = "".join(f"<th {style[k > 0]}>{html.escape(cell)}</th>" for k, cell in enumerate(head))
    body = "".join(
        "<tr>" + "".join(f"<td {style[k > 0]}>{html.escape(one_line(cell))}</td>" for k, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    below = "".join(f"<div>{html.escape(note)}</div>" for note in notes)
    above = f"<thead><tr>{top}</tr></thead>" if head else ""
    return f"<div><strong>{html.escape(title)}</strong><table>{above}<tbody>{body}</tbody></table>{below}</div>"


def _width(text: str) -> int:
    """Places on a terminal: East Asian letters take two, marks that join the letter before none."""
    return sum(0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def brief(record: Any) -> str:
    """A NamedTuple in a few lines at most: what matters first, and of an array only how many values there are, and the last.

    >>> from collections import namedtuple
    >>> brief(namedtuple("Info", "step converged")([0.5, 0.25], True))
    'Info(converged: True; step: 2 values, the last 0.25)'
    """
    found = sorted(record._asdict().items(), key=lambda one: one[0] not in FIRST)
    parts = "; ".join(f"{name}: {_brief_value(value)}" for name, value in found if value is not None)
    return f"{type(record).__name__}({parts})"


def _brief_value(value: Any) -> str:
    """A number as it is, many as their count and the last one."""
    shape = tuple(getattr(value, "shape", (len(value),) if isinstance(value, list | tuple | dict) else ()))
    if not shape:
        return f"{value:.4g}" if isinstance(value, float) else f"{value}"[:80]
    if len(shape) > 1 or isinstance(value, dict):
        return f"{'×'.join(map(str, shape))} values"
    try:
        return f"{shape[0]:,} values, the last {float(value[-1]):.4g}"
    except (TypeError, ValueError, IndexError):  # words, nothing at all, or numbers that a compiler does not know yet
        return f"{shape[0]:,} values"
