"""Large arrays, in memory or mapped from a file, a few rows at a time."""

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

PIECE = 16 << 20
"""Bytes looked at together."""


def pieces(array: np.ndarray) -> Iterator[slice]:
    """All rows of an array, a few at a time, so that what is computed from them takes little memory."""
    step = max(1, PIECE // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        yield slice(start, start + step)
        let_go(array)


def let_go(array: np.ndarray) -> None:
    """Pages of a mapped file that were read or written need not stay in this process's memory; the file has them."""
    mode: str | None = None
    pages: Any = array
    while isinstance(pages, np.ndarray):
        mode, pages = getattr(pages, "mode", mode), pages.base
    if isinstance(pages, mmap.mmap) and mode in ("r", "r+", "w+"):  # not "c", whose changes the file does not have
        pages.madvise(mmap.MADV_DONTNEED)
