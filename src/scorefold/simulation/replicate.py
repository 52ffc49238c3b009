"""Many observations for given parameters: simulated data sets for calibration and for predictive checks."""

from collections.abc import Callable
from typing import Any

import numpy as np

from scorefold import settings
from scorefold.errors import ScorefoldError
from scorefold.simulation.simulate import run_here


def replicate(theta: np.ndarray, simulator: Callable[..., Any], n: int, seed: int, progress: bool = False) -> np.ndarray:
    """x (rows, n, *shape): n observations for each row of θ (rows, dim), NaN and infinities included.

    The random stream of observation j of row i depends on (seed, i n + j) alone.
    """
    if not callable(simulator):
        raise ScorefoldError(f"expected a simulator(theta, rng) -> x that can be called; got {type(simulator).__name__}")
    settings.count("n", n, 1)
    settings.count("seed", seed, 0)
    calls = np.repeat(np.asarray(theta, np.float64), n, axis=0)
    x = run_here(simulator, calls, seed, progress)
    return x.reshape(len(theta), n, *x.shape[1:])
