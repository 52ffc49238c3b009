"""A simulator whose NaN are numbers that were not observed, on its way through processes and files, where NaN is a failure.

A hole travels as the number `HOLE`, which no observation has. Workers' children import this module, so it imports nothing
heavy.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

HOLE = 9.87e36
"""In single precision below the largest number that an observation may have."""


@dataclass(frozen=True)
class WithHoles:
    """A plain simulator, the last numbers of whose observations may be known inputs."""

    simulator: Any
    inputs: int = 0

    def __call__(self, theta: Any, rng: Any) -> np.ndarray:
        """One observation; with nothing but holes it has failed."""
        x = np.array(self.simulator(theta, rng), np.float64)
        holes = np.isnan(x)
        return x if holes.reshape(-1)[: x.size - self.inputs].all() else np.where(holes, HOLE, x)


def with_nan(x: np.ndarray) -> np.ndarray:
    """Observations in single precision with NaN for holes."""
    return np.where(x == np.float32(HOLE), np.float32(np.nan), x)
