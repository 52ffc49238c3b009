"""Observations in a file: a .npy array (n, …), or a .csv table with one observation in each row."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    import numpy as np

OBSERVATION_FORMATS = (".npy", ".csv")


def read_observations(path: Path, option: str) -> "np.ndarray":
    """The numbers in the file; a file that cannot be read is wrong usage of the option."""
    import numpy as np

    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        if path.suffix == ".csv":
            return np.genfromtxt(path, delimiter=",", ndmin=2, skip_header=_headers(path), encoding="utf-8")
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path} cannot be read: {error}", param_hint=option) from None
    raise typer.BadParameter(f"expected a file that ends in {' or '.join(OBSERVATION_FORMATS)}; got {path}", param_hint=option)


def _headers(path: Path) -> int:
    """1 if the first line holds names."""
    with path.open(encoding="utf-8") as file:
        first = file.readline().split(",")
    try:
        [float(word) for word in first]
    except ValueError:
        return 1
    return 0
