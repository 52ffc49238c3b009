"""Tables of which `make test` tries a part, and `make test-full` all."""

import pytest


def shortly(rows, *short):
    """All rows of a table; those that are not named are marked `full`."""
    rows = list(rows)
    unknown = [row for row in short if row not in rows]
    assert not unknown, f"expected rows of {rows}; got {unknown}"
    return [
        row if row in short else pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=pytest.mark.full)
        for row in rows
    ]
