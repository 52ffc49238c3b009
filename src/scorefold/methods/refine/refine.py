"""Refinement rounds: simulations where the posterior of one data set is.

A posterior of many observations can be a hundredth as wide as the prior, and no fit to simulations from the prior resolves it.
So each round proposes a region from the last draws (`region.py`) and simulates there. Rounds before the last locate the
posterior by a straight line alone (`straight_line.py`), until the region is right where it is, or until the line finds the
posterior wider than the draws before did, so that a line is not enough. Then what is left of the budget is simulated there, and
scores are trained on the region's own N(0, I) space as if it were the prior's and composed exactly
(`compose/from_proposal.py`). There an observation is joined by what the start's scores say of it, where that helps
(`score_summaries.py`). Observations are standardised anew in every round. The sequential idea is that of "Sequential neural
score estimation" (Sharrock, Simons, Liu and Beaumont, 2024); that composition needs no correction of the training objective is
particular to many observations.

Earlier simulations are used again if they are distributed as the new proposal: all of them where the region stays the same,
else those that acceptance and rejection leaves. A region that was missed is left for a wider one next to it, on the side where
the draws went. Several modes are never located by a line, nor is there a region around one of them: what is left of the budget
goes to the prior as a whole, and a last round in which modes got lost or ran together does not count. Whether a network is
better than the Gaussian base alone unseen cases say: they stop its training, and decide what part of it is kept.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from scorefold import settings
from scorefold.errors import ScorefoldError, UntrustworthyDraws
from scorefold.methods.refine.modes import Split, deepest_valley
from scorefold.methods.refine.refined import RefinedPosterior, Round, draw_in_region
from scorefold.methods.refine.region import Fit, around, fit_of, moved, pooled, propose, step
from scorefold.methods.refine.score_summaries import Summaries, summarised
from scorefold.methods.refine.straight_line import likest, locate
from scorefold.posterior.composed import ComposedPosterior
from scorefold.posterior.made import Made
from scorefold.posterior.posterior import Refining
from scorefold.prior.proposal import Proposal, whole
from scorefold.score.correction import Correction
from scorefold.simulation.simulate import SMALLEST_BUDGET, simulate
from scorefold.simulation.simulations import Simulations, split
from scorefold.types import single_precision

DRAWS = 1_000
INFLATION = (16.0, 9.0)
"""In the first round, whose draws are the least to be trusted, and later."""
LOCATING = 0.5
"""Share of the budget for the rounds before the last, at most."""
WIDER, FARTHEST_WIDER = 0.2, 10.0
"""Log ratio of the sds from which on a line is thought worse than the draws before, unless it moves their mean by more of its
own sd than this."""
WIDER_THAN_LIKEST = 2.0
"""A region around the simulations most like the observations is so many times as wide as they are."""
AGREE = 0.2
"""Posterior sd: rounds whose means and widths differ by less agree."""
SMALLEST_SHARE = 2 * SMALLEST_BUDGET
STEPS = 1_000
"""Of training in a round: within a small region the base is nearly the truth."""


class _Job(NamedTuple):
    """What does not change from round to round."""

    start: ComposedPosterior
    x: np.ndarray
    simulator: Callable[..., Any]
    plan: Refining
    known: list[tuple[Proposal, Simulations]]
    """The simulations that the start was trained on, if they were given."""

    @property
    def set_size(self) -> int:
        """As the start was trained."""
        return self.start.largest_set

    @property
    def share(self) -> int:
        """Simulator calls of a round before the last."""
        return max(SMALLEST_SHARE, int(LOCATING * self.plan.budget / max(self.plan.rounds - 1, 1)))


class _Progress(NamedTuple):
    """Where refinement stands."""

    latest: "_State"
    left: int
    """Of the budget."""
    done: tuple[Round, ...] = ()
    earlier: tuple[tuple[Proposal, Simulations], ...] = ()
    region: Proposal | None = None
    """Where it is settled."""
    stepped: bool = False
    """The last round only says where to look next."""


class _Simulated(NamedTuple):
    """One round's simulations."""

    region: Proposal
    fresh: Simulations
    cases: Simulations
    """With those of earlier rounds that are distributed alike."""


def refine(
    start: ComposedPosterior, x: np.ndarray, simulator: Callable[..., Any], sims: Simulations | None, plan: Refining
) -> RefinedPosterior:
    """Rounds that locate the posterior, and a last one that trains where it is; see `Posterior.refine`."""
    _check(start, plan, sims)
    size = start.largest_set
    job = _Job(start, x, simulator, plan, [] if sims is None else [(whole(start.prior.dim), split(sims, size))])
    at = _Progress(_start(start, x, plan.seed), plan.budget)
    while True:
        number = len(at.done) + 1
        last = number == plan.rounds or at.region is not None or at.latest.several_modes or at.left < 2 * job.share
        numbers = np.random.SeedSequence([plan.seed, number]).generate_state(3)
        region = at.region or at.latest.region(plan.proposal, INFLATION[min(number, 2) - 1])
        fresh = _simulate(job, region, at.left if last else job.share, number, int(numbers[0]))
        made = _Simulated(region, fresh, pooled(fresh, [*job.known, *at.earlier], region, int(numbers[1])))
        if last:
            with single_precision():
                return _trained(job, at, made, numbers)
        at = _located(job, at, made)


def _simulate(job: _Job, region: Proposal, calls: int, number: int, seed: int) -> Simulations:
    plan, prior = job.plan, job.start.prior.proposing(region)
    kept = None if plan.store is None else settings.folder(plan.store) / f"round-{number}"
    size, how = job.set_size, {"workers": plan.workers, "progress": plan.progress}
    if (inputs := job.start.inputs_of(job.x)) is not None:
        # Inputs do not depend on θ: simulations with others can be pooled with these.
        how |= {"inputs": inputs, "input_names": job.start.input_names}
    return split(simulate(prior, job.simulator, calls, size, seed, store=kept, **how), size)


def _located(job: _Job, at: _Progress, made: _Simulated) -> _Progress:
    """A round before the last: where the posterior is, by a straight line."""
    region, seed = made.region, job.plan.seed
    w = locate(made.cases, region, job.x, job.start.choose_set_size(len(job.x))[0], DRAWS, seed)
    u, fit = region.from_w(w), fit_of(w, region)
    one = _round(at.latest, u, fit, made, correction=None, locating=True)
    earlier, done, left = (*at.earlier, (region, made.fresh)), (*at.done, one), at.left - made.fresh.budget
    if not at.stepped and one.widths > WIDER and one.shift < FARTHEST_WIDER:
        # A line is not enough: on with the draws before and with the region around them.
        return at._replace(earlier=earlier, done=done, left=left, region=region)
    # A region that was only stepped to is wide, and a line through it too poor to say that it is right.
    settled, stepped = fit.right and not at.stepped, fit.missed
    if stepped and len(done) == 1 and job.known:
        near = likest(job.known[0][1], job.x)
        latest = at.latest.stepping(near.mean(axis=0) + around(near, WIDER_THAN_LIKEST, INFLATION[1]))
    else:
        latest = at.latest.stepping(step(region, w, INFLATION[1], seed)) if stepped else at.latest.after(u)
    return _Progress(latest, left, done, earlier, region if settled else None, stepped)


def _trained(job: _Job, at: _Progress, made: _Simulated, numbers: np.ndarray) -> RefinedPosterior:
    """The last round: scores trained on the region's own space, and what they say."""
    start, plan, own = job.start, job.plan, job.start.method.training
    short = replace(own, steps=min(STEPS, own.steps))
    method = replace(start.method, training=plan.training or (short if made.region.narrow().size else own))
    unseen = pooled(made.fresh, [*at.earlier], made.region, int(numbers[1])) if job.known else made.cases
    summaries: Summaries | None = None
    if (joined := summarised(unseen, start, made.region)) is not None:
        made, summaries = made._replace(cases=joined[0]), joined[1]
    local = method.train([made.cases], [int(numbers[2])], plan.progress)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyDraws)
        seen = summaries.join(job.x) if summaries else job.x
        drawn, fit = draw_in_region(local, seen, DRAWS, (plan.seed, len(at.done) + 1))
    done = [*at.done, _round(at.latest, drawn.u, fit, made, local.ensemble.correction, locating=False)]
    return _refined(start, local, summaries, job.x, done, _made(start.made, plan.seed, done))


def _made(before: Made | None, seed: int, done: list[Round]) -> Made | None:
    """Where it comes from: what the start came from, and all rounds."""
    if before is None:
        return None
    budget, failed = (sum(getattr(one, name) for one in done) for name in ("simulations", "failed"))
    return before._replace(seed=seed, budget=before.budget + budget, failed=before.failed + failed)


def _refined(
    start: ComposedPosterior,
    local: ComposedPosterior,
    summaries: Summaries | None,
    x: np.ndarray,
    done: list[Round],
    made: Made | None,
) -> RefinedPosterior:
    """The last round, or what there was before if that does not count."""
    last = done[-1]
    if not last.counts:
        warnings.warn(
            f"the last round {'lost a mode' if last.lost_mode else 'missed the posterior'}: {last}. "
            + ("The posterior before refinement is kept. " if last.lost_mode else "")
            + "Refine with more rounds, or a larger budget.",
            UntrustworthyDraws,
            stacklevel=4,
        )
    agreed = last.counts and last.shift < AGREE and abs(last.widths) < AGREE
    kept, joined = (start, None) if last.lost_mode else (local, summaries)
    return RefinedPosterior(start.prior, start.shape, kept, joined, len(x), tuple(done), agreed, made)


def _check(start: ComposedPosterior, plan: Refining, sims: Simulations | None) -> None:
    if plan.budget < plan.rounds * SMALLEST_SHARE:
        raise ScorefoldError(
            f"expected a budget of {SMALLEST_SHARE} simulator calls a round at least; got {plan.budget:,} for {plan.rounds} "
            "rounds"
        )
    if plan.store is not None:
        settings.folder(plan.store)
    if not start.prior.has_density:
        raise ScorefoldError("expected a prior with a known density to refine; got one from draws. Write it as a distribution.")
    if sims is not None and (not isinstance(sims, Simulations) or sims.prior != start.prior):
        raise ScorefoldError("expected the simulations that this posterior was trained on; got some from another prior")


def _round(state: "_State", u: np.ndarray, fit: Fit, made: _Simulated, correction: Correction | None, locating: bool) -> Round:
    """What came of a round."""
    shift, widths = moved(state.before, u)
    return Round(
        proposal=made.region,
        locating=locating,
        simulations=made.fresh.budget,
        failed=made.fresh.failed,
        cases=len(made.cases.theta),
        reused=len(made.cases.theta) - len(made.fresh.theta),
        gate=float(locating is False) if correction is None else float(np.asarray(correction.gate).mean()),
        fit=fit,
        several_modes=state.several_modes,
        lost_mode=state.several_modes and not (state.valley.keeps(u) and deepest_valley(u).separate),
        shift=shift,
        widths=widths,
    )


class _State(NamedTuple):
    """The latest draws."""

    before: np.ndarray
    usable: bool
    valley: Split
    disagreement: np.ndarray
    """How far the mean moved."""

    @property
    def several_modes(self) -> bool:
        """Whether a line through them all would be wrong."""
        return self.usable and self.valley.separate

    def region(self, kind: str, inflation: float) -> Proposal:
        """The next one."""
        if not self.usable or self.several_modes:
            return whole(len(self.disagreement))
        return propose(kind, self.before, inflation, self.disagreement)

    def stepping(self, u: np.ndarray) -> "_State":
        """With draws that only say where to look next."""
        return _State(u, True, deepest_valley(u), np.zeros(u.shape[1]))

    def after(self, u: np.ndarray) -> "_State":
        """With new draws."""
        moved = u.mean(axis=0) - self.before.mean(axis=0) if self.usable else np.zeros(u.shape[1])
        return _State(u, True, deepest_valley(u), moved)


def _start(start: ComposedPosterior, x: np.ndarray, seed: int) -> _State:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyDraws)  # to be mended
        try:
            with single_precision():
                drawn = start.draw(x, DRAWS, (seed, 0))
            u, usable = drawn.u, not drawn.info.diverged
        except ScorefoldError:
            usable = False
    if not usable:
        u = np.random.default_rng(seed).standard_normal((DRAWS, start.prior.dim))
    return _State(u, usable, deepest_valley(u), np.zeros(start.prior.dim))
