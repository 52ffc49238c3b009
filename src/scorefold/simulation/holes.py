"""Observations with holes: NaN as a number that was not observed.

Which numbers are missing in real observations is not known when a simulator runs, so training drops numbers at random: every
case is there `COPIES` times, once with all that was simulated, else with a share of each observation's numbers dropped that is
uniform from 0 to `MOST_DROPPED` (an observation keeps one number at least). Dropping does not look at the values: what is
learned is right where numbers are missing at random. Holes that the simulator itself makes may depend on anything, and are
learned as they are.

On the way from a simulator to training NaN means a failed simulation. So a hole travels as a number of its own, in memory and
in a store (`wrapped.py`); an observation of nothing but NaN has failed, with or without holes. Known inputs, which are
last in an observation, are never missing.
"""

from typing import Any

import numpy as np

from scorefold.errors import ScorefoldError
from scorefold.simulation.batched import Batched
from scorefold.simulation.pieces import pieces
from scorefold.simulation.simulations import Simulations
from scorefold.simulation.wrapped import HOLE, WithHoles, with_nan

COPIES = 3
MOST_DROPPED = 0.8
COPIED_BYTES = 4 << 30
"""Of all copies together, which are held in memory."""


def holed(simulator: Any, inputs: int = 0) -> Any:
    """A simulator that may return NaN for numbers that were not observed, as one whose results can travel.

    Args:
        simulator: A function of θ and rng, or an `sf.Batched` one.
        inputs: How many of an observation's last numbers are known inputs.

    Returns:
        The same simulator with the number `HOLE` in place of NaN; where all outcomes are NaN it has failed, and they stay.
    """
    if not isinstance(simulator, Batched):
        return WithHoles(simulator, inputs)

    def function(theta: Any, keys: Any) -> Any:
        import jax.numpy as jnp

        x = jnp.asarray(simulator.function(theta, keys), jnp.float32)
        holes = jnp.isnan(x)
        outcomes = holes.reshape(len(x), -1)
        nothing = outcomes[:, : outcomes.shape[1] - inputs].all(axis=1).reshape(-1, *[1] * (x.ndim - 1))
        return jnp.where(holes & ~nothing, HOLE, x)

    return Batched(function)


def opened(sims: Simulations) -> Simulations:
    """Simulations of a `holed` simulator, with NaN again where it put holes. The array is changed in place, as it may be mapped
    from a file.
    """
    for part in pieces(sims.x):  # which may be mapped from the disk
        sims.x[part] = with_nan(sims.x[part])
    return sims._replace(missing=True)


def dropped(sims: Simulations, seed: int) -> Simulations:
    """The cases to train on where numbers may be missing: each `COPIES` times, once whole, else with some of its numbers
    dropped at random.

    Args:
        sims: Simulations, with or without holes of their own.
        seed: Of what is dropped.

    Returns:
        The copies, one after the other, all with the parameters and the origin of their case.

    Raises:
        ScorefoldError: The copies would not fit in memory.
    """
    if COPIES * sims.x.nbytes > COPIED_BYTES:
        raise ScorefoldError(
            f"expected observations of at most {COPIED_BYTES // COPIES:,} bytes where numbers may be missing, as {COPIES} "
            f"copies are held in memory; got {sims.x.nbytes:,}. Train on fewer of them, or on summaries."
        )
    rng = np.random.default_rng([seed, 29])
    flat = np.array(sims.x.reshape(*sims.x.shape[:2], -1))
    parts, outcomes = [flat], flat.shape[2] - len(sims.input_names)
    for _ in range(COPIES - 1):
        rate = rng.uniform(0, MOST_DROPPED, (*flat.shape[:2], 1))
        drop = rng.uniform(size=flat.shape) < rate
        drop[..., outcomes:] = False
        there = ~np.isnan(flat[..., :outcomes])
        kept = np.where(there, rng.uniform(size=there.shape), -1).argmax(axis=2)
        np.put_along_axis(drop, kept[..., None], False, axis=2)
        parts.append(np.where(drop, np.float32(np.nan), flat))
    x = np.concatenate(parts)
    real = np.arange(sims.set_size) < np.tile(sims.sizes, COPIES)[:, None]
    x = np.where(real[..., None], x, np.float32(0)).reshape(-1, *sims.x.shape[1:])

    def again(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array] * COPIES)

    calls = None if sims.calls is None else again(sims.calls)
    return sims._replace(theta=again(sims.theta), x=x, sizes=again(sims.sizes), origin=again(sims.origin), calls=calls)


def filled(sims: Simulations) -> Simulations:
    """Simulations with the median of what was observed in place of holes, for looking at the range of numbers."""
    flat = sims.x.reshape(-1, int(np.prod(sims.shape, dtype=int)))
    holes = np.isnan(flat)
    if not holes.any():
        return sims
    some = np.where(holes.all(axis=0), 0, flat)
    middle = np.nanquantile(some, 0.5, axis=0, method="nearest")
    return sims._replace(x=np.where(holes, middle, flat).astype(np.float32).reshape(sims.x.shape))
