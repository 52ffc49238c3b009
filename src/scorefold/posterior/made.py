"""Where a posterior comes from."""

from collections.abc import Sequence
from typing import NamedTuple

from scorefold.simulation.likeness import Seen

UNFINISHED = (
    "this posterior is not finished: it holds the best networks of a training that was stopped. Let the training go on "
    "(scorefold fit --resume, or sf.fit with the same checkpoint) before you rely on its draws."
)


class Made(NamedTuple):
    """Where a posterior comes from: seeds, counts of simulations, versions of packages, and what the simulated observations
    look like.
    """

    seed: int
    """Of training."""
    simulation_seed: int
    budget: int
    """Simulator calls."""
    failed: int
    """Of them."""
    packages: dict[str, str]
    """Versions that trained it."""
    seen: Seen | None = None
    """What the simulated observations look like, and their names."""
    finished: bool = True
    """Training came to its end; False of the best so far of one that was stopped."""

    def recognised(self) -> Sequence[str]:
        """Outcomes that are binary or counts, in words."""
        return () if self.seen is None else self.seen.recognised()

    def trained_on(self) -> str:
        """How much was simulated, in words."""
        failed = f", {self.failed:,} of them failed" if self.failed else ""
        return f"{self.budget:,} simulator calls{failed}; seed {self.seed}"
