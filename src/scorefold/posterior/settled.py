"""What is said when a sampler of composed scores did not settle."""

import warnings
from collections.abc import Sequence

import jax
import numpy as np

from scorefold.errors import Diverged, UntrustworthyDraws
from scorefold.sample import Info


def merge(infos: Sequence[Info]) -> Info:
    """One Info for several clouds."""
    stacked = jax.tree.map(lambda *v: np.stack(v), *infos)
    mean = jax.tree.map(lambda v: v.mean(axis=0), stacked)
    return mean._replace(diverged=bool(stacked.diverged.any()), converged=bool(stacked.converged.all()))


def warn(info: Info, u: np.ndarray, sets: int) -> None:
    """Say so when the draws are not to be trusted; refuse to go on when they are not numbers."""
    seen = f"q = {info.q[-1]:.3g}, Stein identity {info.stein[-1]:.3g} (both 1 when healthy), drift {info.drift[-1]:.3g} sd"
    advice = (
        "The trained score is wrong there, or the observations are unlike any simulation. Simulate more, or compare a few of "
        "the observations with prior predictive simulations."
    )
    if not np.isfinite(u).all():
        raise Diverged(f"the sampler diverged for {sets} sets: draws are not finite; {seen}. {advice}")
    if info.diverged:
        warnings.warn(
            f"draws ran away, beyond 15 prior sd, or have no score; {seen}. {advice}", UntrustworthyDraws, stacklevel=5
        )
    elif not info.converged:
        warnings.warn(f"the sampler has not settled: {seen}. {advice}", UntrustworthyDraws, stacklevel=5)
