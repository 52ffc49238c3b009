"""A simulator with known inputs as a function of θ and rng, like any other.

Workers' children import this module, so it imports nothing heavy.
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
