"""Many observations for given parameters: simulated data sets for calibration and for predictive checks."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from scorefold import settings
from scorefold.errors import Interrupted, ScorefoldWarning
from scorefold.simulation.calls import repeat
from scorefold.simulation.failures import Guard
from scorefold.simulation.inputs import joined
from scorefold.simulation.outcome import OK
from scorefold.simulation.run import count_done, run
from scorefold.simulation.sources.choose import check, source_of
from scorefold.simulation.store.memory import Memory
from scorefold.simulation.workers import Workers, as_workers


def replicate(
    theta: np.ndarray,
    simulator: Callable[..., Any],
    n: int,
    seed: int | None,
    workers: int | Workers | None = None,
    progress: bool = False,
    inputs: np.ndarray | None = None,
) -> np.ndarray:
    """x (rows, n, *shape): n observations for each row of θ (rows, dim), NaN where a simulation failed.

    With known `inputs`, (n, inputs) the same for all rows or (rows, n, inputs), the simulator gets those of each observation,
    and they are the observation's last numbers.

    Observation j of row i is simulation i n + j of the seed. `workers` is that of `sf.simulate`: who runs the simulator, and
    the fraction of failures beyond which a SimulatorError is raised. Fewer failures are counted in a warning.
    """
    n, seed = settings.count("n", n, 1), settings.seed(seed)
    workers = as_workers(workers)
    check(simulator, workers, inputs is not None)
    calls = repeat(np.asarray(theta, np.float64), n, seed, inputs)
    simulator = simulator if inputs is None else joined(simulator, calls.theta.shape[1])
    place, guard = Memory(calls), Guard(workers.max_failures, calls.describe)
    with source_of(simulator, calls.seed, workers, stored=False) as source:
        try:
            run(source, place, guard, progress)
        except KeyboardInterrupt:
            raise Interrupted(
                f"simulating was interrupted after {count_done(place):,} of {calls.budget:,} simulations, which are lost"
            ) from None
    x = place.x.astype(np.float64)
    if guard.failed:
        x[place.statuses() != OK] = np.nan
        warnings.warn(guard.sentence("and are NaN"), ScorefoldWarning, stacklevel=2)
    return x.reshape(len(theta), n, *x.shape[1:])
