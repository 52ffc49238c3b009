"""Simulators with known inputs, and simulators of which numbers may be missing, as functions of θ and rng like any other.

NaN is a failure on its way through processes and files. A hole, a number that was not observed, travels there as the number
`HOLE`, which no observation has. Workers' children import this module, so it imports nothing heavy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scorefold import settings
from scorefold.errors import ScorefoldError


@dataclass(frozen=True)
class WithInputs:
    """Takes θ with the inputs behind it, and returns the outcomes with the inputs behind them."""

    simulator: Callable[..., Any]
    dim: int

    def __call__(self, both: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One observation."""
        theta, inputs = both[: self.dim].copy(), both[self.dim :].copy()
        x = settings.numbers("an observation", self.simulator(theta, rng, inputs))
        refuse_arrays(x.shape)
        return np.concatenate([x.reshape(-1), both[self.dim :]])


def refuse_arrays(shape: tuple[int, ...]) -> None:
    """Inputs go with outcomes that are numbers in a row: series and images have no place for them."""
    if len(shape) > 1:
        raise ScorefoldError(
            f"expected a number or a list of numbers as the outcome of a simulator with inputs; got shape {shape}. Return "
            "summaries of it, or a flat array."
        )


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
