"""Run a simulator on parameters drawn from the prior.

Without further wishes a plain simulator runs in this process and its results stay in memory; the first exception is passed on.
With a store, workers, an executor or a timeout it runs in isolated worker processes (`engine.py`), where whatever happens is a
status of one simulation. Batched simulators always run here. Simulation i's random stream is a pure function of (seed, i), and
with it simulation i (`one.py`, `compiled.py`).
"""

import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scorefold import settings
from scorefold.errors import ScorefoldError, ScorefoldWarning, SimulatorError
from scorefold.prior import Prior
from scorefold.progress import track
from scorefold.simulation.batched import Batched
from scorefold.simulation.outcome import LARGEST, rounded, stream
from scorefold.simulation.run import Order, Source, fill
from scorefold.simulation.simulations import LARGEST_BUDGET, Simulations, gather, plan
from scorefold.simulation.sources import engine
from scorefold.simulation.sources.compiled import Compiled, run_batch
from scorefold.types import new_key

SMALLEST_BUDGET = 100
MOST_BYTES = 2**63 - 1
BATCH = 10_000
MAX_FAILURES = 0.5


def simulate(
    prior: Prior,
    simulator: Callable[..., Any],
    budget: int,
    set_size: int = 1,
    seed: int = 0,
    progress: bool = False,
    *,
    store: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    timeout: float | None = None,
    memory: int | None = None,
    max_failures: float = MAX_FAILURES,
) -> Simulations:
    """Call `simulator(theta, rng) -> x` (or a `Batched` one) `budget` times on draws from the prior.

    With `set_size` m > 1 every parameter draw gets a set of 1 … m observations, as PF-NPSE and NPSE need.

    `store` is a folder that keeps every simulation as soon as it is done; called again, also with a larger budget, the run
    continues. `workers` local processes (by default one to a core; 0: none, in this process) or an `executor` of any kind run
    the simulator, each call at most `timeout` seconds and `memory` bytes. Calls that fail are left out, and more than a
    fraction of `max_failures` stops the run.
    """
    _check(prior, simulator, budget, set_size, seed)
    path = None if store is None else settings.folder(store)
    _check_workers(simulator, executor, workers, timeout, memory, max_failures)
    planned = plan(prior, int(budget), int(set_size), int(seed))
    if len(planned.theta) < SMALLEST_BUDGET / 2:
        raise ScorefoldError(
            f"expected a budget for at least {SMALLEST_BUDGET // 2} training cases; {budget:,} simulator calls in sets of "
            f"up to {set_size} make {len(planned.theta)}. Raise the budget or lower set_size."
        )
    first_bad, how = None, ""
    if all(wish is None for wish in (store, executor, workers, timeout, memory)):
        theta = planned.theta[planned.case]
        x = run_here(simulator, theta, seed, progress)
        sims = gather(prior, planned, x, set_size, seed)
        if sims.failed:
            good = rounded(x)[1]
            how = "gave numbers that do not fit in single precision" if np.isfinite(x[~good]).all() else "gave NaN or infinity"
            first_bad = theta[good.argmin()]
    else:
        order = Order(prior, simulator, planned, int(set_size), int(seed))
        most = None if memory is None else min(int(memory), MOST_BYTES)
        with _source(order, executor, workers, timeout, most) as source:
            sims, how = fill(order, source, path, max_failures, progress)
    if len(sims.theta) < SMALLEST_BUDGET / 2:
        raise SimulatorError(
            f"expected a simulator that mostly returns finite observations; {sims.failed:,} of {budget:,} calls {how}. "
            f"Try it by hand on θ = {planned.theta[0]}, narrow the prior, or take logarithms of numbers beyond ±{LARGEST:.0e}."
        )
    if sims.failed > max_failures * budget and first_bad is not None:
        raise SimulatorError(
            f"expected at most a fraction {max_failures:g} (max_failures) of simulations to fail; {sims.failed:,} of "
            f"{budget:,} {how}, the first on θ = {first_bad}. Mend the simulator, narrow the prior or raise max_failures."
        )
    if sims.failed:
        warnings.warn(
            f"{sims.failed:,} of {budget:,} simulations {how} and were left out. The posterior is then the one "
            "given that the simulation succeeds.",
            ScorefoldWarning,
            stacklevel=2,
        )
    return sims


@contextmanager
def _source(
    order: Order, executor: Executor | None, workers: int | None, timeout: float | None, memory: int | None
) -> Iterator[Source]:
    """Where simulations come from."""
    if isinstance(order.simulator, Batched):
        yield Compiled(order.simulator, order.seed, order.prior.dim)
    elif workers == 0:
        yield engine.InProcess(order.simulator, order.seed)
    elif executor is not None:
        yield engine.Isolated(_pickled(order.simulator), order.seed, executor, workers, timeout, memory)
    else:
        pool = engine.LocalPool(workers or _cores())
        try:
            yield engine.Isolated(_pickled(order.simulator), order.seed, pool, workers, timeout, memory)
        finally:
            pool.shutdown()


def _pickled(simulator: Callable[..., Any]) -> bytes:
    import cloudpickle

    try:
        return cloudpickle.dumps(simulator)
    except Exception as error:
        raise SimulatorError(
            "expected a simulator that can be sent to a worker process; it cannot be pickled "
            f"({type(error).__name__}: {error}). Open files, locks and connections inside of it, or run it in this process "
            "with workers=0."
        ) from error


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check(prior: Prior, simulator: object, budget: int, set_size: int, seed: int) -> None:
    if not isinstance(prior, Prior):
        raise ScorefoldError(f"expected a scorefold.Prior; got {type(prior).__name__}. Build one with sf.Prior({{...}}).")
    if not callable(simulator):
        raise ScorefoldError(f"expected a simulator(theta, rng) -> x that can be called; got {type(simulator).__name__}")
    for name, value, least in (
        ("budget", budget, SMALLEST_BUDGET),
        ("set_size", set_size, 1),
        ("seed", seed, 0),
    ):
        if not settings.fits(value, int) or value < least:
            why = " Fewer simulations cannot be split into training and validation." if name == "budget" else ""
            raise ScorefoldError(f"expected {name} to be a whole number ≥ {least}; got {value!r:.80}.{why}")
    if max(budget, set_size) > LARGEST_BUDGET:
        raise ScorefoldError(
            f"expected budget and set_size up to {LARGEST_BUDGET:,}; got {budget:,} and {set_size:,}. Use several stores, with "
            "a seed each."
        )


def _check_workers(
    simulator: object,
    executor: object,
    workers: int | None,
    timeout: float | None,
    memory: int | None,
    max_failures: float,
) -> None:
    """That the wishes can be had together."""
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise ScorefoldError(
            f"expected a concurrent.futures.Executor, such as Dask's Client(...).get_executor(); got {type(executor).__name__}"
        )
    if workers is not None and (not settings.fits(workers, int) or workers < 0):
        raise ScorefoldError(f"expected workers to be a whole number ≥ 0, 0 for none but this process; got {workers!r:.80}")
    for name, value in (("timeout", timeout), ("memory", memory)):
        if value is not None and not (settings.fits(value, float) and value > 0):
            raise ScorefoldError(
                f"expected {name} to be a positive number of {'bytes' if name == 'memory' else 'seconds'}; got {value!r:.80}"
            )
    if not settings.fits(max_failures, float) or not 0 <= max_failures <= 1:
        raise ScorefoldError(f"expected max_failures to be a fraction from 0 to 1; got {max_failures!r:.80}")
    here = (
        "a batched simulator" if isinstance(simulator, Batched) else "workers=0" if workers == 0 and executor is None else None
    )
    if here and (executor is not None or workers or timeout is not None or memory is not None):
        raise ScorefoldError(
            "expected executor, workers, timeout and memory only for simulators that run in worker processes; got them with "
            f"{here}, which is for this process. Leave them out."
        )
    if workers == 0 and executor is not None:
        raise ScorefoldError("expected an executor or workers=0, which is this process; got both. Leave one out.")


def run_here(simulator: Callable[..., Any], theta: np.ndarray, seed: int, progress: bool = False) -> np.ndarray:
    """x (rows, *shape), one observation for each row of θ, NaN and infinities included; the first exception is passed on."""
    if isinstance(simulator, Batched):
        return _run_batched(simulator, theta, seed, progress)
    return _run_plain(simulator, theta, seed, progress)


def _run_batched(simulator: Batched, theta: np.ndarray, seed: int, progress: bool) -> np.ndarray:
    root = new_key(int(seed))
    make_keys = jax.jit(jax.vmap(lambda i: jax.random.fold_in(root, i)))
    function = jax.jit(simulator.function)
    parts = []
    for start in track(range(0, len(theta), BATCH), "simulating", progress):
        stop = min(start + BATCH, len(theta))
        # The last batch is padded, so that one compiled shape serves all of them.
        rows = np.minimum(np.arange(start, start + min(BATCH, len(theta))), len(theta) - 1)
        x = run_batch(function, theta[rows], make_keys(jnp.asarray(rows)))
        parts.append(x[: stop - start])
    return np.concatenate(parts)


def _run_plain(simulator: Callable[..., Any], theta: np.ndarray, seed: int, progress: bool) -> np.ndarray:
    x = None
    for i in track(range(len(theta)), "simulating", progress):
        try:
            one = settings.numbers("an observation", simulator(theta[i].copy(), stream(int(seed), i)))
        except (Exception, SystemExit) as error:
            raise SimulatorError(
                f"the simulator failed on simulation {i}, θ = {theta[i]}: {type(error).__name__}: {error}"
            ) from error
        if x is None:
            x = np.empty((len(theta), *one.shape))
        if one.shape != x.shape[1:]:
            raise SimulatorError(
                f"expected every observation to have the shape of the first, {x.shape[1:]}; simulation {i} gave {one.shape} "
                f"for θ = {theta[i]}. Return arrays of one fixed shape."
            )
        x[i] = one
    assert x is not None
    return x
