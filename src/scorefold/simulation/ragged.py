"""Series of different lengths as one array, where numbers may be missing: NaN stands after the end of each (`holes.py`).

Masked numbers are missing ones, too.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from scorefold import settings
from scorefold.errors import ScorefoldError


def is_ragged(series: Any) -> bool:
    """Whether these are arrays or lists of numbers that differ in length and in nothing else."""
    return len(_lengths(series)) > 1


def longest(series: Any) -> int:
    """The length of the longest; 0 where these are no series."""
    return max(_lengths(series), default=0)


def padded(series: Any, length: int) -> Any:
    """Series as an array (n, length, …), with NaN after the end of each; what are no series as it is.

    Args:
        series: An array or a list of arrays.
        length: Of the longest that there can be.

    Returns:
        float64, or what came.

    Raises:
        ScorefoldError: One of them is longer.
    """
    lengths = _lengths(series)
    if not lengths:
        return series
    if max(lengths) > length:
        raise ScorefoldError(
            f"expected series of at most {length:,} numbers, as the longest that was simulated; got one of {max(lengths):,}. "
            "Simulate longer ones, or cut it."
        )
    each = [np.asarray(settings.numbers("a series", one), np.float64) for one in series]
    found = np.full((len(each), length, *each[0].shape[1:]), np.nan)
    for row, one in zip(found, each, strict=True):
        row[: len(one)] = one
    return found


def unmasked(values: Any) -> Any:
    """An array with NaN for masked numbers; what is no masked array as it is."""
    return np.ma.filled(values.astype(np.float64), np.nan) if isinstance(values, np.ma.MaskedArray) else values


def _lengths(series: Any) -> set[int]:
    """The lengths of series that may stand in one array; none where they may not."""
    if isinstance(series, np.ndarray) and series.dtype != object:
        return {series.shape[1]} if series.ndim > 1 and len(series) else set()
    if not isinstance(series, Sequence | np.ndarray) or isinstance(series, str):
        return set()
    try:
        shapes = {np.shape(one) for one in series}
    except ValueError:  # ragged themselves
        return set()
    return {shape[0] for shape in shapes} if () not in shapes and len({shape[1:] for shape in shapes}) == 1 else set()
