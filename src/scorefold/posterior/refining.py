"""What `Posterior.refine` is asked for."""

import os
from typing import Any, NamedTuple

from scorefold.train.training import Training


class Refining(NamedTuple):
    """What `refine` is asked for, as its arguments say."""

    budget: int
    rounds: int
    seed: int
    proposal: str
    training: Training | None
    store: str | os.PathLike[str] | None
    workers: Any
    progress: bool
