"""What a method is: simulations in, posteriors out."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from scorefold.posterior.posterior import Posterior
from scorefold.simulation.simulations import Simulations


class Method(ABC):
    """A configured method. Abstract: every method has a final class, a frozen dataclass of its settings."""

    resumes: ClassVar[bool] = False
    """Whether `train` takes a checkpoint to go on from."""

    @abstractmethod
    def train(self, sims: Sequence[Simulations], seeds: Sequence[int], progress: bool) -> Sequence[Posterior]:
        """One posterior for each of the simulations, all of one shape; together as one program where that is cheaper."""
