"""Columns by name: a DataFrame, or a file with a header, against the names that are expected.

A table is anything with `columns` and `to_numpy`, as the DataFrames of pandas and polars have, so that none of these libraries
is needed. Columns are found by their names. Refused, by name, are those that are missing, twice there, in another order than
expected (somebody has swapped them, or thinks that the order does not matter: both are worth a look) or text.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scorefold import settings
from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.shown import listed


class Columns(NamedTuple):
    """Named columns, as of a DataFrame or of a file with a header, whatever they came from. `columns_of` makes them."""

    names: tuple[str, ...]
    cells: tuple[Any, ...]
    """Of each column, something that holds its values."""


def is_table(value: Any) -> bool:
    """Whether a value has named columns: it is a `Columns`, or has `columns` and `to_numpy` as DataFrames of pandas and polars
    do.
    """
    return isinstance(value, Columns) or (hasattr(value, "columns") and hasattr(value, "to_numpy"))


def columns_of(value: Any) -> Columns:
    """The columns of a table.

    Args:
        value: A `Columns`, or a DataFrame.

    Returns:
        Its columns by name.

    Raises:
        ScorefoldError: Two columns have the same name.
    """
    if isinstance(value, Columns):
        return value
    names = tuple(str(name) for name in value.columns)
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ScorefoldError(f"expected each column once; got {listed(twice)} several times. Rename them.")
    return Columns(names, tuple(value[name] for name in value.columns))


def numbers(what: str, value: Any, names: Sequence[str] = ()) -> tuple[np.ndarray, tuple[str, ...]]:
    """A table's columns as numbers (rows, columns), and their names.

    Args:
        what: What to call the table in messages.
        value: A table.
        names: The columns that are expected, in this order; all that there are by default. Others beside them are left out,
            and a ScorefoldWarning says so.

    Returns:
        An array of float64, and the names of its columns.

    Raises:
        ScorefoldError: A column is missing, twice there, in another place than expected, or not of numbers.

    Example:
        >>> table = Columns(("rt", "choice"), ([0.5, 0.7], [1, 0]))
        >>> numbers("x_obs", table, ("rt", "choice"))[0].tolist()
        [[0.5, 1.0], [0.7, 0.0]]
        >>> numbers("x_obs", table, ("choice", "rt"))
        Traceback (most recent call last):
        scorefold.errors.ScorefoldError: expected the columns choice, rt of x_obs in this order; got rt, choice. If the names are right, change the order.
    """  # noqa: E501
    there = columns_of(value)
    wanted = tuple(names) or there.names
    if missing := [name for name in wanted if name not in there.names]:
        raise ScorefoldError(
            f"expected the columns {listed(wanted)} of {what}; {listed(missing)} {_is(missing)} missing. "
            f"There {_is(there.names)} {listed(there.names) or 'none'}."
        )
    order = tuple(name for name in there.names if name in wanted)
    if order != wanted:
        raise ScorefoldError(
            f"expected the columns {listed(wanted)} of {what} in this order; got {listed(order)}. If the names are right, "
            + ("change the order." if isinstance(value, Columns) else f"write {what}[{list(wanted)!r:.200}].")
        )
    if others := [name for name in there.names if name not in wanted]:
        warnings.warn(
            f"the columns {listed(others)} of {what} are not expected and are left out; used are {listed(wanted)}.",
            ScorefoldWarning,
            stacklevel=3,
        )
    cells = dict(zip(there.names, there.cells, strict=True))
    read = [_column(f"the column {name!r} of {what}", cells[name]) for name in wanted]
    return np.stack(read, axis=1) if read else np.zeros((0, 0)), wanted


def _column(what: str, cells: Any) -> np.ndarray:
    """One column; pandas' missing values become NaN."""
    values = cells.to_numpy() if hasattr(cells, "to_numpy") else cells
    try:
        column = settings.numbers(what, values)
    except ScorefoldError:
        words = [one for one in np.asarray(values, object).ravel() if isinstance(one, str)]
        shown = f"text such as {words[0]!r:.40}" if words else f"{np.asarray(values).dtype}"
        raise ScorefoldError(
            f"expected {what} to hold numbers; got {shown}. Write choices as 0 and 1, and leave identifiers out."
        ) from None
    if column.ndim != 1:
        raise ScorefoldError(f"expected {what} to hold one number in each row; got shape {column.shape}")
    return column


def _is(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"


def checked_names(names: Any, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Names for the numbers of an observation, if they fit.

    Args:
        names: One name or a list of them, as somebody gave them; None for none.
        shape: Of an observation.

    Returns:
        The names; none where none were given.

    Raises:
        ScorefoldError: There are more or fewer of them than numbers, or an observation is no list of numbers.
    """
    given = outcome_names(names)
    if given and len(shape) > 1:
        raise ScorefoldError(
            f"expected x_names only where an observation is a list of numbers; got observations of shape {shape}. Leave it out."
        )
    count = int(np.prod(shape))
    if given and len(given) != count:
        raise ScorefoldError(
            f"expected x_names for the {count} numbers of an observation, as the simulator returns them; got {len(given)}: "
            f"{listed(given)}."
        )
    return given


def joined_names(x_names: tuple[str, ...], input_names: tuple[str, ...], shape: tuple[int, ...]) -> tuple[str, ...]:
    """The names of all numbers of an observation whose last ones are known inputs.

    Args:
        x_names: Of the outcomes; they are numbered where only the inputs have names.
        input_names: Of the inputs; none where there are none.
        shape: Of an observation, inputs included.

    Returns:
        The names, those of inputs last; none where neither has any.

    Raises:
        ScorefoldError: Names do not fit the shape, or an outcome and an input have the same.
    """
    if not input_names:
        return checked_names(x_names, shape)
    outcomes = int(np.prod(shape)) - len(input_names)
    names = checked_names(x_names, (outcomes,)) or tuple(f"x[{i}]" for i in range(outcomes))
    if twice := sorted(set(names) & set(input_names)):
        raise ScorefoldError(f"expected outcomes and inputs with different names; got {listed(twice)} for both. Rename one.")
    return (*names, *input_names)


def outcome_names(names: Any) -> tuple[str, ...]:
    """The names of outcomes, before it is known how many there should be; None for none."""
    return () if names is None else settings.names("outcome (x_names)", [names] if isinstance(names, str) else names)
