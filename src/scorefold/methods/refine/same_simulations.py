"""Never worse than a start by NLE: simulations where the posterior is say whether a refined likelihood is better than it.

Both are judged by the same simulations, around the first and the last draws of refinement as far as these lie in the last
frame, and by how far their scores are off there (`score_error.py`). What is hard to simulate is hard for both, so a small
difference is seen that two checks of their own (`never_worse.py`) would not see. The start is kept if it is better by more than
a standard error of the difference; and where both are too far off to be trusted, if it is better at all. A start has seen the
whole prior, and what is wrong in a small region is wrong without a bound outside of it.
"""

import warnings

import numpy as np

from scorefold.errors import ScorefoldWarning
from scorefold.methods.refine.likelihood_rounds import Job, simulated_around
from scorefold.methods.refine.modes import within_modes
from scorefold.methods.refine.never_worse import Compared, Judged
from scorefold.methods.refine.refined import RefinedPosterior
from scorefold.methods.refine.region import FAR
from scorefold.methods.refine.score_error import difference, score_error, scores_at, steps
from scorefold.posterior.check import FEWEST_SETS
from scorefold.posterior.summed import SummedPosterior
from scorefold.posterior.trust import SHIFTS
from scorefold.prior.proposal import Proposal, whole
from scorefold.types import single_precision

NAMES = ("the start", "a likelihood")


def better_likelihood(
    start: SummedPosterior, refined: RefinedPosterior, job: Job, calls: int
) -> tuple[SummedPosterior | RefinedPosterior, Compared]:
    """The better one for the job's observations, and why; the refined one where there are no calls to compare by."""
    local = refined.local
    assert isinstance(local, SummedPosterior)
    nothing = Compared(0, (), NAMES[1])
    if not calls:
        return refined, nothing
    region, dim = local.prior.proposal or whole(start.prior.dim), start.prior.dim
    after, places = _places(refined, region)
    try:
        made = simulated_around(job._replace(plan=job.plan._replace(store=None)), places, calls, 0, job.plan.seed + 31)
    except KeyboardInterrupt:
        warnings.warn("the comparison with the start was interrupted: the refinement is kept.", ScorefoldWarning, stacklevel=4)
        return refined, nothing
    u = start.prior.to_normal(made.theta)
    if len(u) < FEWEST_SETS:
        return refined, nothing._replace(simulations=calls)
    w, x = region.to_w(u), made.x.reshape(len(u), -1)
    root = (region.from_w(np.eye(dim)) - region.from_w(np.zeros((1, dim)))).T  # u = m + A w
    covariance = within_modes(after)
    step = steps(len(w), np.linalg.cholesky(covariance), job.plan.seed)
    with single_precision():
        both = scores_at(start, x, u, step, root), scores_at(local, x, w, step)
    errors = [score_error(scores, w, covariance, len(job.x)) for scores in both]
    worse, chance = difference(both[1], both[0], w, covariance, len(job.x))
    constant = min(errors, key=lambda one: one.value).information
    judged = tuple(Judged(name, one.value + constant, one.chance) for name, one in zip(NAMES, errors, strict=True))
    both_far = min(one.error for one in judged) > SHIFTS[1] ** 2
    kept = int(not worse > (0.0 if both_far else chance))
    return (start, refined)[kept], Compared(calls, judged, NAMES[kept])


def _places(refined: RefinedPosterior, region: Proposal) -> tuple[np.ndarray, np.ndarray]:
    """The last draws in the frame's own space; and where to simulate, in the prior's: at them and, in the frame, the first."""
    first, last = (np.asarray(u, np.float64) for u in (refined.rounds[0].before, refined.rounds[-1].after))
    within = (np.abs(region.to_w(first)) < FAR).all(axis=1)
    return region.to_w(last), np.concatenate([first[within], last])
