"""Never worse than a start by NLE: data sets simulated where the posterior is say which likelihood is the best there.

Judged by the same data sets are the start, the likelihood of the last round and, where that has a network, the straight line
that the network starts from. Each says which of some draws a data set came from (`posterior/contrast.py`): draws of the start,
as far as they lie in the last round's frame, of the last round and of the one before. The one that tells it best is kept, and
the start unless another one is better by more than a standard error. Data sets have as many observations as the one that
refinement is for, or as many as the budget has room for, and then lie farther apart.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.density.mean_terms import MeanTerms
from scorefold.errors import Interrupted, ScorefoldWarning
from scorefold.methods.refine.around_draws import Job, drawn_by, spread
from scorefold.methods.refine.likelihood_rounds import agree
from scorefold.methods.refine.mode_weights import modes_by_likelihood
from scorefold.methods.refine.never_worse import Compared, Judged, squared
from scorefold.methods.refine.refined import RefinedPosterior
from scorefold.methods.refine.region import FAR, fit_of, moved
from scorefold.methods.refine.round import some_of
from scorefold.posterior.check import Simulating, simulated_sets
from scorefold.posterior.contrast import Told, summed_terms, told
from scorefold.posterior.modes import vanished
from scorefold.posterior.summed import SummedPosterior
from scorefold.posterior.trust import by_draws
from scorefold.prior.proposal import Proposal, whole
from scorefold.types import Float, single_precision

NAMES = ("the start", "a likelihood", "a straight line")
FEWEST_SETS = 30
PLACES = 256
"""That a data set may have come from, at least."""
FEWEST_DRAWS = 20
"""In the frame, for a round's to be among the places."""
RULED_OUT = 2.0
"""Standard errors."""
FARTHEST_APART = 2.0
"""Times as far from each other as draws, at most, where data sets are smaller than the one that refinement is for."""


def best_likelihood(
    start: SummedPosterior, refined: RefinedPosterior, job: Job, calls: int
) -> tuple[SummedPosterior | RefinedPosterior, Compared]:
    """The best one for the job's observations, and why; the refined one where there are no calls to compare by."""
    local = refined.local
    assert isinstance(local, SummedPosterior)
    nothing = Compared(0, (), NAMES[1])
    alone = line_alone(local) if refined.rounds[-1].gate else None
    if not calls:  # a network that nothing was compared with may be noise; but one line does not have several modes
        if alone is None or (refined.rounds[-1].modes and not local.modes):
            return refined, nothing
        return _by_line(refined, alone, job), nothing
    region = local.prior.proposal or whole(start.prior.dim)
    size = min(len(job.x), max(1, calls // FEWEST_SETS))
    u = _places(refined, region, max(PLACES, calls // size), np.sqrt(len(job.x) / size), job.plan.seed)
    how = Simulating(job.simulator, calls, job.plan.seed + 31, job.plan.workers, job.plan.progress, start.inputs_of(job.x))
    try:
        x = simulated_sets(start.prior.from_normal(u[: calls // size]), size, how, np.random.default_rng(how.seed), FEWEST_SETS)
    except (Interrupted, KeyboardInterrupt):
        warnings.warn("the comparison with the start was interrupted: the refinement is kept.", ScorefoldWarning, stacklevel=4)
        return refined, nothing
    right = np.isfinite(x).all(axis=(1, 2))
    if right.sum() < FEWEST_SETS:
        return refined, nothing._replace(simulations=calls)
    u, x = np.concatenate([u[: len(x)][right], u[len(x) :]]), x[right]
    with single_precision():
        found = [told(summed_terms(start, x, u), u)]
        found += [told(summed_terms(one, x, region.to_w(u)), u) for one in (local, alone) if one is not None]
    judged = tuple(_judged(name, one, np.sqrt(len(job.x) / size)) for name, one in zip(NAMES, found, strict=False))
    missed = refined.rounds[-1].fit.missed  # then the simulations were not where its draws are, and say nothing of them
    best = 0 if missed and np.isfinite(found[0].loss).all() else best_of([one.loss for one in found])
    compared = Compared(calls, judged, NAMES[best])
    if best == NAMES.index("a straight line"):
        assert alone is not None
        line = _by_line(refined, alone, job)
        return (replace(line, beside=None) if worse(found[1].loss, found[2].loss) else line), compared
    return (start, refined)[best], compared


def best_of(losses: Sequence[Float[np.ndarray, " sets"]]) -> int:
    """The one of least mean loss; the first, which is the start, unless another one is better by more than a standard error."""
    best = min(range(len(losses)), key=lambda i: float(losses[i].mean()))
    return best if worse(losses[0], losses[best], errors=1.0) else 0


def worse(loss: Float[np.ndarray, " sets"], other: Float[np.ndarray, " sets"], errors: float = RULED_OUT) -> bool:
    """Whether a likelihood is worse than another one by more than so many standard errors; by default it is then ruled out, and
    tells nothing of the other one's error.
    """
    if not np.isfinite(loss).all():
        return True
    more = loss - other
    return bool(more.mean() > errors * more.std(ddof=1) / np.sqrt(len(more)))


def line_alone(local: SummedPosterior) -> SummedPosterior | None:
    """The same likelihood with networks that add nothing; None where there is no line."""
    terms: Any = local.terms
    if not isinstance(terms, MeanTerms) or terms.line is None:
        return None
    return replace(local, terms=replace(terms, network=jax.tree.map(jnp.zeros_like, terms.network)))


def _by_line(refined: RefinedPosterior, alone: SummedPosterior, job: Job) -> RefinedPosterior:
    """The last round with its straight line in place of the network, which says how far off the line may be."""
    last = refined.rounds[-1]
    w, clouds = drawn_by(alone, job.x, (job.plan.seed, len(refined.rounds)))
    after = last.proposal.from_w(w)
    assert last.before is not None
    shift, widths = moved(last.before, after)
    modes, gone = modes_by_likelihood(alone, job.x, w, after, clouds), vanished(last.before, after)
    one = last._replace(
        gate=0.0, fit=fit_of(w, last.proposal), shift=shift, widths=widths, after=some_of(after), modes=modes, vanished=gone
    )
    rounds = (*refined.rounds[:-1], one)
    theta = [job.start.prior.from_normal(np.asarray(u, np.float64)) for u in (one.after, last.after)]
    beside = by_draws(np.stack(theta), np.mean(theta, axis=(0, 1)), theta[0].std(axis=0))
    return replace(refined, local=alone, rounds=rounds, agreed=len(rounds) > 1 and agree(one), beside=beside)


def _places(refined: RefinedPosterior, region: Proposal, count: int, apart: float, seed: int) -> np.ndarray:
    """Of the start's draws that lie in the frame, the last round's and those before it, as many of each, in turn."""
    rounds = refined.rounds
    sources = [np.asarray(u, np.float64) for u in (rounds[0].before, rounds[-1].before, rounds[-1].after)]
    within = [one[(np.abs(region.to_w(one)) < FAR).all(axis=1)] for one in sources]
    usable = [one for one in within if len(one) >= FEWEST_DRAWS] or [sources[-1]]
    wider = np.sqrt(min(apart, FARTHEST_APART) ** 2 - 1)
    each = [spread(one, -(-count // len(usable)), seed + i, wider) for i, one in enumerate(usable)]
    return np.stack(each, axis=1).reshape(-1, region.to_w(sources[-1]).shape[1])[:count]


def _judged(name: str, found: Told, more: float) -> Judged:
    """For more observations than the data sets had: an error that is the same for all of them shifts the mean so many times as
    many posterior sd.
    """
    if not np.isfinite(found.loss).all():
        return Judged(name, float("inf"), 0.0)
    shift = more * found.shift, more * found.shift_error
    return Judged(name, *squared(shift, (found.log_width, found.log_width_error)))
