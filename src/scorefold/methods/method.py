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
    """A configured method: simulations in, posteriors out. Abstract: every method has a final class, a frozen dataclass of its
    settings.

    To add one, write `train`, and `refine` if it can be; CONTRIBUTING says what else there is to do. `fit` checks what comes
    in, and says of every posterior where it comes from.
    """

    resumes: ClassVar[bool] = False
    """Whether `train` takes a checkpoint to go on from."""

    @abstractmethod
    def train(
        self, sims: Sequence[Simulations], seeds: Sequence[int], progress: bool, checkpoint: Checkpoint | None = None
    ) -> Sequence[Posterior]:
        """Train on several simulations of one shape, together as one program where that is cheaper.

        Args:
            sims: The simulations, checked by `fit`.
            seeds: A seed for each of them.
            progress: Whether to show how training goes.
            checkpoint: Where the training's state is kept, for methods that resume. Default None: nowhere.

        Returns:
            One posterior for each of the simulations, without `made`, which is `fit`'s affair.

        Raises:
            Stopped: Training was interrupted; it has the best networks so far.
        """

    def bytes_kept(self, sims: Simulations) -> int:
        """How much of the simulations themselves a posterior keeps; nothing, unless it is made of them."""
        return 0

    def refine(
        self, start: Posterior, xs: list[np.ndarray], simulator: Callable[..., Any], sims: Simulations | None, plan: Refining
    ) -> Sequence[Posterior]:
        """What `Posterior.refine` does: posteriors for single data sets, from simulations near each.

        Args:
            start: The posterior to begin with.
            xs: The observations (n, features) of each data set, checked.
            simulator: The one that the posterior was trained on.
            sims: The simulations that it was trained on, to be used again; None where they are not there.
            plan: Budget, rounds and whatever else was asked for.

        Returns:
            A posterior for each data set.

        Raises:
            ScorefoldError: The method cannot refine.
        """
        raise ScorefoldError(
            f"expected a posterior of a likelihood or of composed scores to refine; got one of {type(self).__name__}. Fit with "
            "method='nle', 'f-npse' or 'pf-npse', and refine that."
        )


def train_as_far(train: Callable[..., Any], sims: Simulations, seed: int, progress: bool) -> tuple[Posterior, bool]:
    """Train on one set of simulations and, after Ctrl-C, go on with the best networks so far; then a ScorefoldWarning says so.

    Args:
        train: The `train` of a configured method.
        sims: The simulations.
        seed: Of the training.
        progress: Whether to show how training goes.

    Returns:
        The posterior, and whether its training came to an end.

    Raises:
        Stopped: It was interrupted before there was any network to go on with.
    """
    try:
        return train([sims], [seed], progress)[0], True
    except Stopped as stopped:
        if stopped.so_far is None:
            raise
        warnings.warn(f"{stopped}: what follows rests on the best networks so far.", ScorefoldWarning, stacklevel=6)
        return train([sims], [seed], False, stopped.so_far)[0], False
