"""A diagnosis as a table for the terminal: what each parameter's calibration is, in numbers and in words."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from scorefold.report import diagnosis_rows
from scorefold.report.next_steps import after_diagnosis
from scorefold.report.page import Row, Words
from scorefold.shown import one_line


def table(summary: diagnosis_rows.Summary) -> Group:
    """Parameters, joint tests, what was left out, and the observed data set where there is one."""
    said = (diagnosis_rows.verdict(summary), diagnosis_rows.caveat(summary), diagnosis_rows.data_sets(summary))
    words = "".join(f"{one}\n" for one in said if one)
    parts: list[Any] = [
        Text(words, style="bold" if diagnosis_rows.is_good(summary) else "bold red"),
        grid(diagnosis_rows.QUANTITIES, diagnosis_rows.quantities(summary)),
        grid(("\njoint test", "\np", "\n"), diagnosis_rows.tests(summary)),
    ]
    if "observed" in summary:
        parts.append(grid(("\nthe observed data set", "\np", "\n"), diagnosis_rows.observed(summary)))
    parts.append(Text("\n" + "\n".join(after_diagnosis(summary))))
    return Group(*parts)


def grid(head: Sequence[str], rows: Iterable[Row]) -> Table:
    """A plain table; words that are bad news are red."""
    made = Table(*head, box=None, pad_edge=False, header_style="bold")
    made.columns[0].no_wrap = True
    for row in rows:
        made.add_row(*(_cell(cell) for cell in row))
    return made


def _cell(cell: str | Words) -> Text:
    """As it is written: a name with brackets is no markup, and one with a newline stays in its line."""
    return Text(cell.text, "" if cell.good else "red") if isinstance(cell, Words) else Text(one_line(cell))
