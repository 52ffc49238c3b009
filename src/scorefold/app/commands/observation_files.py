"""Observations in a file: a .npy array (n, …), or a .csv table with one observation in each row.

A table whose first row is not all numbers has names there; its columns are then matched by name, as those of a DataFrame are.
"""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scorefold.app.commands.usage import known
from scorefold.errors import ScorefoldError

if TYPE_CHECKING:
    import numpy as np

    from scorefold.simulation.columns import Columns

OBSERVATION_FORMATS = (".npy", ".csv")
OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def read_observations(path: Path, option: str) -> "np.ndarray | Columns":
    """The numbers in the file, with the names of its columns if it has some; a file that cannot be read is wrong usage of the
    option.
    """
    return known(option, lambda: read_numbers(path))


def read_numbers(path: Path) -> "np.ndarray | Columns":
    """The same; a ScorefoldError for a file that cannot be read."""
    import numpy as np

    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        if path.suffix == ".csv":
            return _table(path)
    except UnicodeDecodeError:
        raise ScorefoldError(f"{path} cannot be read: expected text in UTF-8; got other bytes. Save it as UTF-8.") from None
    except (OSError, ValueError, csv.Error) as error:
        error = getattr(error, "strerror", None) or error
        raise ScorefoldError(f"{path} cannot be read: {error}") from None
    raise ScorefoldError(f"expected a file that ends in {' or '.join(OBSERVATION_FORMATS)}; got {path}")


def _table(path: Path) -> "np.ndarray | Columns":
    import numpy as np

    from scorefold.simulation.columns import Columns

    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.reader(file, skipinitialspace=True) if any(cell.strip() for cell in row)]
    if not rows:
        raise ValueError("it is empty")
    _refuse_other_separators(rows)
    names = None if all(_is_number(cell) for cell in rows[0]) else tuple(cell.strip() for cell in rows[0])
    body = rows if names is None else rows[1:]
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise ValueError(f"expected {len(rows[0])} cells in every row, as in the first; row {number} has {len(row)}")
    if names is None:
        return np.array([[_value(cell) for cell in row] for row in body], float)
    if len(set(names)) != len(names) or not all(names):
        raise ValueError(f"expected a different name for each column; got {', '.join(names)}")
    columns = zip(*body, strict=True) if body else [()] * len(names)
    return Columns(names, tuple(_column(column) for column in columns))


def _refuse_other_separators(rows: list[list[str]]) -> None:
    for sign, words in OTHER_SEPARATORS.items():
        if all(sign in ",".join(row) for row in rows[:10]) and not _is_number(rows[0][0]):
            raise ValueError(f"expected commas between the columns; got {words}. Save it with commas, and points in numbers.")


def _column(cells: Any) -> Any:
    """Numbers where all cells are numbers or empty, and otherwise the words as they are, to be refused by the column's name."""
    import numpy as np

    return np.array([_value(cell) for cell in cells]) if all(map(_is_number, cells)) else np.array(cells, object)


def _is_number(cell: str) -> bool:
    try:
        _value(cell)
    except ValueError:
        return False
    return True


def _value(cell: str) -> float:
    """An empty cell is missing: NaN."""
    return float(cell) if cell.strip() else float("nan")
