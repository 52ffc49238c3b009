"""A comparison as a table for the terminal."""

from rich.console import Group
from rich.text import Text

from scorefold.report import comparison_rows
from scorefold.report.diagnosis_table import grid


def table(summary: comparison_rows.Summary) -> Group:
    """The verdict, a line for each posterior, and how to read them."""
    return Group(
        Text(f"{comparison_rows.verdict(summary)}\n", style="bold"),
        grid(comparison_rows.COLUMNS, comparison_rows.rows(summary)),
        Text(f"\n{comparison_rows.data_sets(summary)} {comparison_rows.READING}"),
    )
