"""Where a posterior comes from."""

from typing import NamedTuple

from scorefold.simulation.likeness import Seen


class Made(NamedTuple):
    """Where a posterior comes from."""

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
