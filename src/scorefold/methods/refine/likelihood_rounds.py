"""Rounds of likelihoods: refinement where the posterior has several modes, and for a start by NLE.

A likelihood q(x|u) is that of the simulator wherever u came from, so simulations of any proposal are fair cases for it. Each
round simulates around the latest draws (`around_draws.py`); fits q to all simulations so far that lie in a frame around these
draws (`cases.py`); and draws by tempered clouds (`sample/tempered.py`).

A frame is a Gaussian proposal u = m + A w around draws, and q is learned as a function of w, which is of order one however
narrow the posterior is. It starts from a straight line fitted in the frame (`density/line.py`), which within a small region is
nearly the truth, and enough to find the next frame: only the last round trains a network, and one whose line would make the
draws wider than they were. Where the draws have several modes, each goes its own way until then, in a frame of its own and with
an equal share of the draws: how much it weighs is not known before it is where it belongs. In the last round one likelihood,
with a line around each mode (`density/mode_lines.py`), weighs them. Whether its network is any better than the lines, data sets
that it did not see decide (`told_apart.py`). The tilt from N(0, I) in w to the prior counts like one more observation
(`compose/from_proposal.py`).

Reference: "Sequential neural likelihood", Papamakarios, Sterratt and Murray, 2019.
"""

import warnings
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from scorefold.errors import ScorefoldWarning
from scorefold.methods.method import train_as_far
from scorefold.methods.refine.around_draws import DRAWS, Job, drawn_by, first_draws, simulated_around
from scorefold.methods.refine.cases import FRAME, fewest, near_modes, nearest, together
from scorefold.methods.refine.mode_weights import modes_by_likelihood
from scorefold.methods.refine.region import NO_HELP, fit_of, moved_within_modes, propose
from scorefold.methods.refine.round import Round, some_of
from scorefold.methods.refine.shared import Shared
from scorefold.posterior.modes import Mode, count_of, divided, vanished, which_of
from scorefold.posterior.summed import SummedPosterior
from scorefold.prior.proposal import Proposal
from scorefold.progress import say, step
from scorefold.simulation.simulations import Simulations, split
from scorefold.types import single_precision

MOST_ROUNDS = 3
FEWEST_DRAWN, FEWEST_CASES = 250, 50
"""Of a mode: draws, and simulations that a line is fitted to."""
FEWEST_KEPT = 20
"""Draws of a mode that is not lost."""
AGREE = 0.2
"""Posterior sd: rounds whose means and widths differ by less agree."""


class Likelihoods(NamedTuple):
    """What rounds of likelihoods made."""

    local: SummedPosterior
    """The last round's, in its frame."""
    rounds: tuple[Round, ...]
    agreed: bool
    made: tuple[Simulations, ...]
    """Every round's."""


def likelihood_rounds(job: Job, known: Sequence[Simulations], shared: Shared) -> Likelihoods:
    """Spend the plan's budget in rounds; `known` are simulations that there are already."""
    start, x, plan = job.start, job.x, job.plan
    rounds, left = min(plan.rounds, MOST_ROUNDS), plan.budget
    with step("drawing", plan.progress):
        begun, before = first_draws(start, x, (plan.seed, 0))
    there = [split(one, 1) for one in (*known, *shared.everything)]
    made: list[Simulations] = []
    done: list[Round] = []
    last: _Last | None = None
    previous: Fitting | None = None
    for number in range(1, rounds + 1):
        seeds = np.random.SeedSequence([plan.seed, 101, number - 1]).generate_state(2)
        calls = left // (rounds - number + 1)
        left -= calls
        frame = propose("gaussian", before, FRAME, np.zeros(before.shape[1]))
        say(f"round {number} of {rounds}: {calls:,} of {plan.budget:,} simulations", plan.progress)
        try:
            wanted = shared.left_to_place(calls, frame, start.prior)
            made.append(simulated_around(job, before, wanted, number, int(seeds[0])))
            fitting = Fitting(frame, together([*there, *made]), before, int(seeds[1]))
            if number == rounds:
                last = _weighed(fitting, job, (plan.seed, number), network=True)
                fitted, after = last.fitted, last.after
            else:
                fitted, after = _moved_on(fitting, job, (plan.seed, number))
        except KeyboardInterrupt:
            if previous is None:
                raise
            _say_interrupted(len(done))
            last = _weighed(previous, job, (plan.seed, number), network=False)
            done[-1] = _round(previous.frame, made[len(done) - 1], last.fitted, previous.before, last.after)
            break
        done.append(_round(frame, made[-1], fitted, before, after))
        before, previous = after, fitting
    assert last is not None
    done[-1] = done[-1]._replace(modes=last.modes, vanished=vanished(begun, last.after))
    return Likelihoods(last.fitted.local, tuple(done), len(done) > 1 and agree(done[-1]), tuple(made))


def _say_interrupted(done: int) -> None:
    warnings.warn(
        f"round {done + 1} was interrupted: the refinement rests on the rounds before, {done} of them.",
        ScorefoldWarning,
        stacklevel=5,
    )


def agree(one: Round) -> bool:
    """With the draws before."""
    return one.counts and one.shift < AGREE and abs(one.widths) < AGREE


class Fitted(NamedTuple):
    """A likelihood of w."""

    local: SummedPosterior
    cases: int
    """That it was fitted to."""
    network: bool
    """Whether its network counts; else it is the straight line alone, or one for every mode."""


class Fitting(NamedTuple):
    """What a likelihood is fitted to."""

    frame: Proposal
    simulated: Simulations
    """All of them."""
    before: np.ndarray
    """The draws (draws, dim) around which the latest were made."""
    seed: int


def fit_in(fitting: Fitting, job: Job, network: bool = True) -> Fitted:
    """A likelihood of w from all simulations in a frame; where the draws before have several modes, from those near one."""
    frame, simulated, before, seed = fitting
    inside = nearest(simulated, frame, job.start.prior)
    cases, places = inside, None
    if count_of(divided(before)) > 1 and job.method.may_have_modes(inside):
        cases, places = near_modes(inside, frame.to_w(before))
    with single_precision():
        if network:
            local, _ = train_as_far(partial(job.method.train, places=places), cases, seed, job.plan.progress)
        else:
            local = job.method.line(cases, seed, places)
    assert isinstance(local, SummedPosterior)
    return Fitted(local, len(cases.theta), network)


class _Last(NamedTuple):
    """What the last round found."""

    fitted: Fitted
    after: np.ndarray
    """Its draws."""
    modes: tuple[Mode, ...]


def _weighed(fitting: Fitting, job: Job, seed: tuple[int, int], network: bool) -> _Last:
    """One likelihood of all modes, which weighs them."""
    fitted = fit_in(fitting, job, network)
    with step("drawing", job.plan.progress):
        w, clouds = drawn_by(fitted.local, job.x, seed)
    after = fitting.frame.from_w(w)
    return _Last(fitted, after, modes_by_likelihood(fitted.local, job.x, w, after, clouds))


def _moved_on(fitting: Fitting, job: Job, seed: tuple[int, int]) -> tuple[Fitted, np.ndarray]:
    """Where every mode is, by a line; where that knows less than the draws before, a line is not enough, and a network says."""
    fitted, after = _each_mode_moved_on(fitting, job)
    if moved_within_modes(fitting.before, after)[1] < NO_HELP:
        return fitted, after
    found = _weighed(fitting, job, seed, network=True)
    return found.fitted, _with_every_mode(fitting.before, found.after)


def _with_every_mode(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """As many draws of each mode as of any other; of one that got lost, those before."""
    modes = divided(before)
    count, old, new = count_of(modes), which_of(modes, before), which_of(modes, after)
    if count == 1:
        return after
    rows = np.arange(max(len(after) // count, FEWEST_DRAWN))
    each = [after[new == mode] if (new == mode).sum() >= FEWEST_KEPT else before[old == mode] for mode in range(count)]
    return np.concatenate([own[rows % len(own)] for own in each])


def _each_mode_moved_on(fitting: Fitting, job: Job) -> tuple[Fitted, np.ndarray]:
    """Where each mode of the draws before is by a line in a frame of its own; the last line, which finds the next frame only.

    A mode with too few simulations for a line stays where it is.
    """
    frame, simulated, before, seed = fitting
    found = divided(before)
    labels, count = which_of(found, before), count_of(found)
    number, parts, fitted = max(DRAWS // count, FEWEST_DRAWN), [], None
    for mode in range(count):
        own = before[labels == mode]
        place = frame if count == 1 else propose("gaussian", own, FRAME, np.zeros(own.shape[1]))
        cases = nearest(simulated, place, job.start.prior)
        if count > 1 and len(cases.theta) < max(fewest(cases), FEWEST_CASES):
            parts.append(own[np.arange(number) % len(own)])
            continue
        with single_precision(), step("drawing", job.plan.progress):
            local = job.method.line(cases, seed)
            w, _ = drawn_by(local, job.x, (seed, mode), number)
        fitted = Fitted(local, len(cases.theta) + (0 if fitted is None else fitted.cases), False)
        parts.append(place.from_w(w))
    return fitted or fit_in(fitting, job, network=False), np.concatenate(parts)


def _round(frame: Proposal, fresh: Simulations, fitted: Fitted, before: np.ndarray, after: np.ndarray) -> Round:
    (shift, widths), cases = moved_within_modes(before, after), fitted.cases
    return Round(
        proposal=frame, engine="likelihood", simulations=fresh.budget, failed=fresh.failed, cases=cases,
        reused=max(cases - len(fresh.theta), 0), gate=float(fitted.network), fit=fit_of(frame.to_w(after), frame),
        several_modes=False, lost_mode=False, shift=shift, widths=widths, before=some_of(before), after=some_of(after),
        placed=True,
    )  # fmt: skip
