"""What a method is: simulations in, posteriors out."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.refining import Refining
from scorefold.simulation.simulations import Simulations
from scorefold.train.checkpoint import Checkpoint, Stopped


class Method(ABC):
    """A configured method. Abstract: every method has a final class, a frozen dataclass of its settings."""

    resumes: ClassVar[bool] = False
    """Whether `train` takes a checkpoint to go on from."""

    @abstractmethod
    def train(
        self, sims: Sequence[Simulations], seeds: Sequence[int], progress: bool, checkpoint: Checkpoint | None = None
    ) -> Sequence[Posterior]:
        """One posterior for each of the simulations, all of one shape; together as one program where that is cheaper."""

    def bytes_kept(self, sims: Simulations) -> int:
        """How much of the simulations themselves a posterior keeps; nothing, unless it is made of them."""
        return 0

    def refine(
        self, start: Posterior, xs: list[np.ndarray], simulator: Callable[..., Any], sims: Simulations | None, plan: Refining
    ) -> Sequence[Posterior]:
        """What `Posterior.refine` does, for each data set; refused by methods that cannot."""
        raise ScorefoldError(
            f"expected a posterior of a likelihood or of composed scores to refine; got one of {type(self).__name__}. Fit with "
            "method='nle', 'f-npse' or 'pf-npse', and refine that."
        )


def train_as_far(method: Method, sims: Simulations, seed: int, progress: bool) -> tuple[Posterior, bool]:
    """The posterior, and whether its training came to an end: after Ctrl-C it has the best networks so far, and a warning says
    so.
    """
    try:
        return method.train([sims], [seed], progress)[0], True
    except Stopped as stopped:
        if stopped.so_far is None:
            raise
        warnings.warn(f"{stopped}: what follows rests on the best networks so far.", ScorefoldWarning, stacklevel=6)
        return method.train([sims], [seed], False, stopped.so_far)[0], False
