"""Simulations that are larger than the memory they may take, in the small."""

import scorefold as sf
from scorefold import tasks
from scorefold.simulation.store import store
from scorefold.train import training_set

TASK = tasks.get("gaussian")
CALLS = 4_000
PART = 400 * 2 * 40
"""Bytes of 400 cases of two observations, as many as are held and as a block has."""

TRAINING = sf.Training(members=2, steps=200, batch=64, learning_rates=(5e-3,), average=0.98)


def leave_little_memory(patch):
    """So little that everything streams."""
    patch.setattr(store, "IN_MEMORY", 0)
    patch.setattr(training_set, "BYTES_IN_MEMORY", 2 * PART)
    patch.setattr(training_set, "HELD_SHARE", 2)


def simulations(path):
    """Sets of up to two observations, in a store."""
    sims = sf.simulate(TASK.prior, TASK.simulator, CALLS, set_size=2, store=path)
    assert training_set.is_streamed([sims])
    return sims
