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

If the start has several modes, rounds of likelihoods take over (`likelihood_rounds.py`); and where the last round's network
counts for something, so that a line is not enough, a likelihood is fitted to the same simulations too. A part of the budget
then finds out which of them, and of the start, is the best for these observations (`never_worse.py`). Likelihoods know nothing
of embeddings, so with these everything is done by scores. Several data sets are refined one after the other, and share what was
simulated (`shared.py`).
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from scorefold import settings
from scorefold.errors import Interrupted, ScorefoldError, ScorefoldWarning, UntrustworthyDraws
from scorefold.methods.method import Method, train_as_far
from scorefold.methods.refine.around_draws import Job
from scorefold.methods.refine.cases import together
from scorefold.methods.refine.finish import NOT_COMPARED, finished, refined_by_likelihoods
from scorefold.methods.refine.likelihood_rounds import Fitting, agree, fit_in
from scorefold.methods.refine.mode_weights import modes_by_likelihood, modes_by_scores
from scorefold.methods.refine.never_worse import better, reserved
from scorefold.methods.refine.plan import check_made, check_plan, check_sampler_of, smallest_share
from scorefold.methods.refine.refined import RefinedPosterior, draw_in_region
from scorefold.methods.refine.region import NO_HELP, Fit, around, fit_of, moved, pooled, propose, step
from scorefold.methods.refine.round import Round, some_of
from scorefold.methods.refine.score_summaries import Summaries, summarised
from scorefold.methods.refine.shared import Shared, each
from scorefold.methods.refine.straight_line import likest, locate
from scorefold.posterior.composed import ComposedPosterior
from scorefold.posterior.modes import Split, deepest_valley
from scorefold.posterior.refining import Refining
from scorefold.posterior.summed import SummedPosterior
from scorefold.prior.proposal import Proposal, whole
from scorefold.progress import say
from scorefold.score.correction import Correction
from scorefold.simulation.simulate import simulate
from scorefold.simulation.simulations import Simulations, split
from scorefold.types import single_precision

DRAWS = 1_000
INFLATION = (16.0, 9.0)
"""In the first round, whose draws are the least to be trusted, and later."""
LOCATING = 0.5
"""Share of the budget for the rounds before the last, at most."""
FARTHEST_WIDER = 10.0
"""A line that is wider than the draws before is no help, unless it moves their mean by more of its own sd than this."""
WIDER_THAN_LIKEST = 2.0
"""A region around the simulations most like the observations is so many times as wide as they are."""
LINE_IS_ENOUGH = 0.3
"""The share of a network that unseen cases may let pass in a region where a line is."""
STEPS_IN_A_ROUND = 1_000
"""Of training in a round: within a small region the base is nearly the truth."""


class _Job(NamedTuple):
    """What does not change from round to round."""

    start: ComposedPosterior
    x: np.ndarray
    simulator: Callable[..., Any]
    plan: Refining
    known: list[tuple[Proposal, Simulations]]
    """The simulations that the start was trained on, if they were given."""
    likelihood: Method
    shared: Shared
    """What was simulated for other data sets."""

    @property
    def takes_likelihoods(self) -> bool:
        """They know nothing of embeddings."""
        return self.start.method.embedding is None

    @property
    def set_size(self) -> int:
        """As the start was trained."""
        return self.start.largest_set

    @property
    def share(self) -> int:
        """Simulator calls of a round before the last."""
        return max(smallest_share(self.set_size), int(LOCATING * self.plan.budget / max(self.plan.rounds - 1, 1)))


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
    calls: int
    """What the round may cost; fewer are fresh where others were simulated for another data set."""


def refine(
    start: ComposedPosterior,
    xs: Sequence[np.ndarray],
    simulator: Callable[..., Any],
    sims: Simulations | None,
    plan: Refining,
    likelihood: Method,
) -> list[RefinedPosterior]:
    """A posterior for each data set; see `Posterior.refine`.

    `likelihood` is an NLE, for several modes and where a straight line is not enough.
    """
    size = start.largest_set
    check_plan(start, simulator, plan, sims, size)
    check_sampler_of(start, plan)
    known: list[tuple[Proposal, Simulations]] = [] if sims is None else [(whole(start.prior.dim), split(sims, size))]

    def one(x: np.ndarray, plan: Refining, shared: Shared) -> tuple[RefinedPosterior, Shared]:
        calls = reserved(plan, size)
        job = _Job(start, x, simulator, plan._replace(budget=plan.budget - calls), known, likelihood, shared)
        tried, made = _tried(job)
        kept, compared = better(start, tried, x, simulator, calls, plan)
        return finished(start, tried, kept, compared), made

    return each(xs, plan, one)


def _tried(job: _Job) -> tuple[list[tuple[str, RefinedPosterior]], Shared]:
    """Rounds by scores or by likelihoods, and what was simulated in them."""
    at = _Progress(_start(job.start, job.x, job.plan.seed), job.plan.budget, earlier=job.shared.proposed)
    if not (at.latest.several_modes and job.takes_likelihoods):
        return _by_scores(job, at)
    refined, made = refined_by_likelihoods(_for_likelihoods(job), [one for _, one in job.known], job.shared)
    return [("a likelihood", refined)], made


def _for_likelihoods(job: _Job) -> Job:
    """What their rounds want to know of it."""
    return Job(job.start, job.x, job.simulator, job.plan, job.likelihood)


def _by_scores(job: _Job, at: _Progress) -> tuple[list[tuple[str, RefinedPosterior]], Shared]:
    """Rounds that locate the posterior, and a last one that trains where it is."""
    plan = job.plan
    while True:
        number = len(at.done) + 1
        last = number == plan.rounds or at.region is not None or at.latest.several_modes or at.left < 2 * job.share
        numbers = np.random.SeedSequence([plan.seed, number]).generate_state(3)
        region = at.region or _shared_region(job, at) or at.latest.region(plan.proposal, INFLATION[min(number, 2) - 1])
        calls = at.left if last else job.share
        wanted = job.shared.left_to_make(calls, region, job.set_size)
        say(f"round {number} of at most {plan.rounds}: {calls:,} of {plan.budget:,} simulations", plan.progress)
        fresh, whole_round = _simulate(job, region, wanted, number, int(numbers[0]))
        last = last or not whole_round
        made = _Simulated(region, fresh, pooled(fresh, [*job.known, *at.earlier], region, int(numbers[1])), calls)
        if last:
            own = (*at.earlier[len(job.shared.proposed) :], (region, fresh))
            with single_precision():
                return _trained(job, at, made, numbers), Shared(proposed=own)
        at = _located(job, at, made)


def _shared_region(job: _Job, at: _Progress) -> Proposal | None:
    """One that another data set was simulated in, where the latest draws lie well within it."""
    latest = at.latest
    return job.shared.region_for(latest.before) if latest.usable and not latest.several_modes and not at.stepped else None


def _simulate(job: _Job, region: Proposal, calls: int, number: int, seed: int) -> tuple[Simulations, bool]:
    """A round's simulations, and whether these are all; after Ctrl-C, without a store, those that are done."""
    plan, prior = job.plan, job.start.prior.proposing(region)
    kept = None if plan.store is None else settings.folder(plan.store) / f"round-{number}"
    size, how = job.set_size, {"workers": plan.workers, "progress": plan.progress}
    if (inputs := job.start.inputs_of(job.x)) is not None:
        # Inputs do not depend on θ: simulations with others can be pooled with these.
        how |= {"inputs": inputs, "input_names": job.start.input_names}
    try:
        made = simulate(prior, job.simulator, calls, size, seed, store=kept, **how)
    except Interrupted as stopped:
        if stopped.simulations is None:
            raise
        some: Simulations = stopped.simulations
        warnings.warn(
            f"simulating was interrupted: round {number} is the last, with {some.budget:,} of its {calls:,} simulations.",
            ScorefoldWarning,
            stacklevel=5,
        )
        return split(some, size), False
    check_made(job.start, made)
    return split(made, size), True


def _located(job: _Job, at: _Progress, made: _Simulated) -> _Progress:
    """A round before the last: where the posterior is, by a straight line."""
    region, seed = made.region, job.plan.seed
    w = locate(made.cases, region, job.x, job.start.choose_set_size(len(job.x))[0], DRAWS, seed)
    u, fit = region.from_w(w), fit_of(w, region)
    one = _round(at.latest, u, fit, made, correction=None, engine="line")
    earlier, done, left = (*at.earlier, (region, made.fresh)), (*at.done, one), at.left - made.calls
    if not at.stepped and one.widths > NO_HELP and one.shift < FARTHEST_WIDER:
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


def _trained(job: _Job, at: _Progress, made: _Simulated, numbers: np.ndarray) -> list[tuple[str, RefinedPosterior]]:
    """The last round: scores trained on the region's own space and, where a line is not enough, a likelihood."""
    start, plan, own = job.start, job.plan, job.start.method.training
    short = replace(own, steps=min(STEPS_IN_A_ROUND, own.steps))
    method = replace(start.method, training=plan.training or (short if made.region.narrow().size else own))
    unseen = pooled(made.fresh, [*at.earlier], made.region, int(numbers[1])) if job.known else made.cases
    summaries: Summaries | None = None
    cases = made.cases
    if (joined := summarised(unseen, start, made.region)) is not None:
        cases, summaries = joined
    local, to_the_end = train_as_far(method.train, cases, int(numbers[2]), plan.progress)
    assert isinstance(local, ComposedPosterior)
    tried = [("scores", _last_round(job, at, made._replace(cases=cases), local, summaries))]
    if to_the_end and tried[0][1].rounds[-1].gate > LINE_IS_ENOUGH and job.takes_likelihoods:
        simulated = [split(one, 1) for _, one in (*job.known, *at.earlier)] + [*job.shared.placed, split(made.fresh, 1)]
        fitting = Fitting(made.region, together(simulated), at.latest.before, int(numbers[2]))
        other = fit_in(fitting, _for_likelihoods(job))
        by_it = _last_round(job, at, made, other.local, None)
        last = by_it.rounds[-1]._replace(gate=float(other.network))
        tried.append(("a likelihood", replace(by_it, rounds=(*by_it.rounds[:-1], last))))
    return tried


def _last_round(
    job: _Job, at: _Progress, made: _Simulated, local: ComposedPosterior | SummedPosterior, summaries: Summaries | None
) -> RefinedPosterior:
    """What scores or a likelihood in the region say."""
    start, plan = job.start, job.plan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyDraws)
        seen = summaries.join(job.x) if summaries else job.x
        drawn, fit = draw_in_region(local, seen, DRAWS, (plan.seed, len(at.done) + 1))
    if isinstance(local, ComposedPosterior):
        one = _round(at.latest, drawn.u, fit, made, local.ensemble.correction, "scores")
        one = one._replace(modes=modes_by_scores(drawn.u))
    else:
        own, clouds = made.region.to_w(drawn.u), getattr(drawn.info, "clouds", 1)
        one = _round(at.latest, drawn.u, fit, made, None, "likelihood")
        one = one._replace(modes=modes_by_likelihood(local, job.x, own, drawn.u, clouds))
    done = (*at.done, one)
    return RefinedPosterior(start.prior, start.shape, local, summaries, len(job.x), done, agree(one), NOT_COMPARED)


def _round(state: "_State", u: np.ndarray, fit: Fit, made: _Simulated, correction: Correction | None, engine: str) -> Round:
    """What came of a round."""
    shift, widths = moved(state.before, u)
    return Round(
        proposal=made.region,
        engine=engine,
        simulations=made.fresh.budget,
        failed=made.fresh.failed,
        cases=len(made.cases.theta),
        reused=len(made.cases.theta) - len(made.fresh.theta),
        gate=float(engine != "line") if correction is None else float(np.asarray(correction.gate).mean()),
        fit=fit,
        several_modes=state.several_modes,
        lost_mode=state.several_modes and not (state.valley.keeps(u) and deepest_valley(u).separate),
        shift=shift,
        widths=widths,
        before=some_of(state.before),
        after=some_of(u),
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
