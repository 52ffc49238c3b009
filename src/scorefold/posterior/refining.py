"""What `Posterior.refine` is asked for."""

import os
from typing import Any, NamedTuple

from scorefold.train.training import Training


class Refining(NamedTuple):
    """What `refine` is asked for, as its arguments say, checked: budget, rounds, seed, the form of a region, training, where
    simulations are kept and who makes them.
    """

    budget: int
    rounds: int
    seed: int
    proposal: str
    training: Training | None
    store: str | os.PathLike[str] | None
    workers: Any
    progress: bool
