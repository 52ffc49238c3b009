"""Where rounds of likelihoods simulate: around draws, each moved by what draws near it differ by.

The first draws are the start's. Where its members say that it may be s posterior sd off, they are drawn from
p(u) ∏_j q(x_j|u)^{1 / (1 + s²)}, which is wider by the factor √(1 + s²): as wide as the posterior and that error together, and
with modes that the start gives too little weight.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from scorefold import settings
from scorefold.errors import ScorefoldError, UntrustworthyDraws
from scorefold.methods.refine.plan import check_made
from scorefold.posterior.draws import AS_THE_METHOD_SAYS, Drawn, Options
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.refining import Refining
from scorefold.posterior.summed import SummedPosterior
from scorefold.posterior.trust import expected_shift
from scorefold.prior import Prior
from scorefold.prior.known_by_draws import FEWEST_DRAWS, FEWEST_DRAWS_EACH
from scorefold.simulation.simulate import simulate
from scorefold.simulation.simulations import Simulations
from scorefold.types import single_precision

DRAWS = 1_000
NEIGHBOURS, SPREAD = 0.1, 2.0
"""The share of the draws that are near one of them, and how many times their differences it is moved by."""
FARTHEST = 5.0
"""Prior sd: no simulation is farther."""
WIDE_ENOUGH = 0.9
"""The power above which the start's own draws are wide enough."""


class Job(NamedTuple):
    """What does not change from round to round."""

    start: Posterior
    x: np.ndarray
    simulator: Callable[..., Any]
    plan: Refining
    method: Any
    """An NLE."""


def first_draws(start: Posterior, x: np.ndarray, seed: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The start's, and draws as wide as it may be off."""
    u, _ = drawn_by(start, x, seed)
    if not isinstance(start, SummedPosterior):
        return u, u
    with warnings.catch_warnings(), single_precision():
        warnings.simplefilter("ignore", UntrustworthyDraws)
        shift = expected_shift(start.doubts(x, u, seed, AS_THE_METHOD_SAYS))
        power = 1.0 if shift is None else float(1 / (1 + np.mean(shift**2)))
    if power > WIDE_ENOUGH:
        return u, u
    return u, drawn_by(start, x, seed, options=AS_THE_METHOD_SAYS._replace(power=power))[0]


def spread(u: np.ndarray, count: int, seed: int, times: float = SPREAD) -> np.ndarray:
    """Where to simulate: draws (draws, dim) picked at random, each moved by so many times what two of the draws near it differ
    by.
    """
    rng = np.random.default_rng(seed)
    white = (u - u.mean(axis=0)) / np.maximum(u.std(axis=0), 1e-12)
    some = max(2, int(NEIGHBOURS * len(u)))
    near = np.argpartition(cdist(white, white), some, axis=1)[:, :some]
    picked = rng.integers(len(u), size=count)
    pairs = near[picked[:, None], rng.integers(some, size=(count, 2))]
    off = (u[pairs[:, 0]] - u[pairs[:, 1]]) / np.sqrt(2)
    there: np.ndarray = np.clip(u[picked] + times * off, -FARTHEST, FARTHEST)
    return there


def drawn_by(
    posterior: Posterior, x: np.ndarray, seed: tuple[int, int], draws: int = DRAWS, options: Options = AS_THE_METHOD_SAYS
) -> tuple[np.ndarray, int]:
    """Draws in the posterior's own space, of its N(0, I) where there are none to be used; and in how many clouds in turn."""
    with warnings.catch_warnings(), single_precision():
        warnings.simplefilter("ignore", UntrustworthyDraws)  # to be mended
        try:
            drawn: Drawn = posterior.draw(x, draws, seed, options)
            if not drawn.info.diverged:
                return drawn.u, getattr(drawn.info, "clouds", 1)
        except ScorefoldError:
            pass
    return np.random.default_rng(seed).standard_normal((draws, posterior.prior.dim)), 1


def simulated_around(job: Job, u: np.ndarray, calls: int, number: int, seed: int) -> Simulations:
    """One observation at each of so many places around draws u; a store knows them as draws of a prior."""
    plan, prior = job.plan, job.start.prior
    count = max(calls, FEWEST_DRAWS, FEWEST_DRAWS_EACH * prior.dim)
    places = Prior.from_draws(prior.from_normal(spread(u, count, seed)), prior.names)
    kept = None if plan.store is None else settings.folder(plan.store) / f"round-{number}"
    how: dict[str, Any] = {"workers": plan.workers, "progress": plan.progress}
    if (inputs := job.start.inputs_of(job.x)) is not None:
        how |= {"inputs": inputs, "input_names": job.start.input_names}
    made = simulate(places, job.simulator, calls, 1, seed, store=kept, **how)
    check_made(job.start, made)
    return made._replace(prior=prior)
