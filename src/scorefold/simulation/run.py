"""Run a simulator on parameters drawn from the prior.

Simulation i's random stream is a pure function of (seed, i): `np.random.default_rng(SeedSequence(seed, spawn_key=(2, i)))`
for a plain simulator, `jax.random.fold_in(new_key(seed), i)` for a batched one.
"""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.errors import ScorefoldError, ScorefoldWarning, SimulatorError
from scorefold.prior import Prior
from scorefold.progress import track
from scorefold.simulation.batched import Batched
from scorefold.simulation.cases import Simulations, gather, plan
from scorefold.types import new_key

SMALLEST_BUDGET = 100
BATCH = 10_000


def simulate(
    prior: Prior,
    simulator: Callable[..., Any],
    budget: int,
    set_size: int = 1,
    seed: int = 0,
    progress: bool = False,
) -> Simulations:
    """Call `simulator(theta, rng) -> x` (or a `Batched` one) `budget` times on draws from the prior.

    With `set_size` m > 1 every parameter draw gets a set of 1 … m observations, as PF-NPSE and NPSE need.
    """
    _check(prior, simulator, budget, set_size, seed)
    planned = plan(prior, budget, set_size, seed)
    if len(planned.theta) < SMALLEST_BUDGET / 2:
        raise ScorefoldError(
            f"expected a budget for at least {SMALLEST_BUDGET // 2} training cases; {budget:,} simulator calls in sets of "
            f"up to {set_size} make {len(planned.theta)}. Raise the budget or lower set_size."
        )
    theta = planned.theta[planned.case]
    if isinstance(simulator, Batched):
        x = _run_batched(simulator, theta, seed, progress)
    else:
        x = _run_plain(simulator, theta, seed, progress)
    sims = gather(prior, planned, x, set_size, seed)
    if len(sims.theta) < SMALLEST_BUDGET / 2:
        raise SimulatorError(
            f"expected a simulator that mostly returns finite observations; {sims.failed:,} of {budget:,} calls gave NaN or "
            f"infinity. Try it by hand on θ = {theta[0]}, or narrow the prior."
        )
    if sims.failed:
        warnings.warn(
            f"{sims.failed:,} of {budget:,} simulations gave NaN or infinity and were left out. The posterior is then the one "
            "given that the simulation succeeds.",
            ScorefoldWarning,
            stacklevel=2,
        )
    return sims


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
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            why = " Fewer simulations cannot be split into training and validation." if name == "budget" else ""
            raise ScorefoldError(f"expected {name} to be a whole number ≥ {least}; got {value!r}.{why}")


def _run_batched(simulator: Batched, theta: np.ndarray, seed: int, progress: bool) -> np.ndarray:
    root = new_key(int(seed))
    make_keys = jax.jit(jax.vmap(lambda i: jax.random.fold_in(root, i)))
    function = jax.jit(simulator.function)
    parts = []
    for start in track(range(0, len(theta), BATCH), "simulating", progress):
        stop = min(start + BATCH, len(theta))
        # The last batch is padded, so that one compiled shape serves all of them.
        rows = np.minimum(np.arange(start, start + min(BATCH, len(theta))), len(theta) - 1)
        try:
            x = np.asarray(function(jnp.asarray(theta[rows], jnp.float32), make_keys(jnp.asarray(rows))), np.float64)
        except Exception as error:
            raise SimulatorError(
                f"the batched simulator failed on θ of shape {theta[rows].shape}: {type(error).__name__}: {error}"
            ) from error
        if x.ndim == 0 or len(x) != len(rows):
            raise SimulatorError(
                f"expected the batched simulator to return one observation per row, ({len(rows)}, …); got shape {x.shape}"
            )
        parts.append(x[: stop - start])
    return np.concatenate(parts)


def _run_plain(simulator: Callable[..., Any], theta: np.ndarray, seed: int, progress: bool) -> np.ndarray:
    x = None
    for i in track(range(len(theta)), "simulating", progress):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2, i)))
        try:
            one = np.asarray(simulator(theta[i].copy(), rng), np.float64)
        except Exception as error:
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
