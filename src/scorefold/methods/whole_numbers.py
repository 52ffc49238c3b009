"""Which numbers of observations are binary or counts, and their values: from all simulations, as `simulation/likeness.py` sees
them."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from scorefold.density.cells import Lattice
from scorefold.simulation.likeness import BINARY, COUNT, look
from scorefold.simulation.simulations import Simulations

MOST_WHOLE = 64
"""Each has a network of its own. Where there are more, all numbers are taken for continuous."""
LARGEST_WHOLE = 2.0**20
"""Whole numbers in single precision cannot be told from others where they are large; nor need they be."""


def lattices_of(sims: Sequence[Simulations]) -> list[Lattice | None]:
    """One for each of the simulations, of the numbers that are binary or counts in all of them; None where none are.

    Where numbers may be missing, all are taken for continuous.
    """
    if sims[0].missing:
        return [None] * len(sims)
    looks = [look(one) for one in sims]
    outcomes = len(looks[0].kind) - len(sims[0].input_names)
    low, high = np.stack([one.low for one in looks]), np.stack([one.high for one in looks])
    kinds = np.stack([one.kind for one in looks])
    small = np.maximum(np.abs(low), np.abs(high)) < LARGEST_WHOLE
    whole = (((kinds == BINARY) | (kinds == COUNT)) & small).all(axis=0)[:outcomes]
    places = np.flatnonzero(whole)
    if not 0 < len(places) <= MOST_WHOLE:
        return [None] * len(sims)
    order = np.concatenate([places, np.flatnonzero(~whole)])
    step = np.where(kinds == BINARY, high - low, 1.0)
    return [_lattice(order, *(part[i, places] for part in (low, step, high))) for i in range(len(sims))]


def _lattice(order: np.ndarray, *values: np.ndarray) -> Lattice:
    return Lattice(jnp.asarray(order, jnp.int32), *(jnp.asarray(part, jnp.float32) for part in values))
