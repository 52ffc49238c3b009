"""Tables of which `make test` tries a part, and `make test-full` all."""

import pytest


def shortly(rows, *short):
    """All rows of a table, for `parametrize`; those that are not named are marked `full`."""
    rows = list(rows)
    unknown = [row for row in short if row not in rows]
    assert not unknown, f"expected rows of {rows}; got {unknown}"

    def param(row):
        values = row if isinstance(row, tuple) else (row,)
        return pytest.param(*values, marks=() if row in short else pytest.mark.full)

    return [param(row) for row in rows]
