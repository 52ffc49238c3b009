"""Many observations for given parameters: simulated data sets for calibration and for predictive checks."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from scorefold.errors import Interrupted, ScorefoldError, ScorefoldWarning
from scorefold.simulation.calls import Calls
from scorefold.simulation.failures import Guard
from scorefold.simulation.holes import holed
from scorefold.simulation.inputs import joined
from scorefold.simulation.outcome import OK
from scorefold.simulation.run import Memory, check_simulator, count_done, run, source_of
from scorefold.simulation.workers import Workers, as_workers
from scorefold.simulation.wrapped import with_nan


def replicate(
    calls: Calls,
    simulator: Callable[..., Any],
    workers: int | Workers | None = None,
    progress: bool = False,
    missing: bool = False,
) -> np.ndarray:
    """Simulate data sets of one size for given parameters, as calibration and predictive checks need them.

    Args:
        calls: What to simulate, by `repeat(theta, n, seed)`: n observations for each row of θ.
        simulator: As in `sf.simulate`. It gets the inputs of each observation where the calls have some, and they are the
            observation's last numbers.
        workers: Who runs the simulator, and the fraction of failures that is allowed, as in `sf.simulate`.
        progress: Whether to show a bar.
        missing: Whether NaN of the simulator's are numbers that were not observed, and stay; otherwise they are failures.

    Returns:
        x (rows, n, *shape), all of an observation NaN where its simulation failed, which a warning counts.

    Raises:
        SimulatorError: More failed than is allowed. Its `x` has the first data sets, as many as are complete.
        Interrupted: On Ctrl-C, with the same as its `x`.
    """
    n, inputs, workers = calls.set_size, calls.inputs_each, as_workers(workers)
    check_simulator(simulator, workers, bool(inputs))
    simulator = joined(simulator, calls.theta.shape[1]) if inputs else simulator
    simulator = holed(simulator, inputs) if missing else simulator
    place, guard = Memory(calls), Guard(workers.max_failures, calls.describe)
    with source_of(simulator, calls.seed, workers, stored=False) as source:
        try:
            run(source, place, guard, progress)
        except KeyboardInterrupt:
            raise _interrupted(place, n) from None
        except ScorefoldError as error:
            if rows := _complete(place, n):
                error.x = _data_sets(place, rows, n)
                error.add_note(f"The first {rows:,} data sets of {n} are in the attribute `x` of this error.")
            raise
    if guard.failed:
        warnings.warn(guard.sentence("and are NaN"), ScorefoldWarning, stacklevel=2)
    return _data_sets(place, len(calls.theta), n)


def as_far_as_made(simulate: Callable[[], np.ndarray], fewest: int) -> np.ndarray:
    """Simulate data sets or, after Ctrl-C, go on with the first of them if they are enough; then a ScorefoldWarning says so.

    Args:
        simulate: Makes all data sets, by `replicate`.
        fewest: How many are enough.

    Returns:
        (data sets, n, *shape)

    Raises:
        Interrupted: There are fewer; or Ctrl-C came once more.
    """
    try:
        return simulate()
    except Interrupted as stopped:
        if stopped.x is None or len(stopped.x) < fewest:
            raise
        warnings.warn(
            f"simulating was interrupted: what follows rests on the first {len(stopped.x):,} data sets. Ctrl-C once more ends "
            "it.",
            ScorefoldWarning,
            stacklevel=4,
        )
        made: np.ndarray = stopped.x
        return made


def _interrupted(place: Memory, n: int) -> Interrupted:
    rows = _complete(place, n)
    done = f"simulating was interrupted after {count_done(place):,} of {place.calls.budget:,} simulations"
    if not rows:
        return Interrupted(f"{done}, which are lost")
    stopped = Interrupted(f"{done}; the first {rows:,} data sets of {n} are in the attribute `x` of this exception")
    stopped.x = _data_sets(place, rows, n)
    return stopped


def _complete(place: Memory, n: int) -> int:
    """How many data sets there are before the first that is not complete: those after it would be the ones that were quick."""
    return min((start for start, _ in place.missing()), default=place.calls.budget) // n


def _data_sets(place: Memory, rows: int, n: int) -> np.ndarray:
    """The first so many, NaN where a number is missing or a simulation failed."""
    x = with_nan(place.x[: rows * n]).astype(np.float64)
    x[place.statuses()[: rows * n] != OK] = np.nan
    return x.reshape(rows, n, *x.shape[1:])
