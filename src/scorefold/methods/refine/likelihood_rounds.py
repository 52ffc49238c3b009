"""Rounds of likelihoods: refinement where the posterior has several modes, and for a start by NLE.

A likelihood q(x|u) is that of the simulator wherever u came from, so simulations of any proposal are fair cases for it. Each
round simulates at the latest draws, every one moved by what draws near it differ by, so that every mode gets simulations in
proportion; fits q to all simulations so far that lie in a frame around these draws; and draws by tempered clouds, which
weigh the modes (`sample/tempered.py`).

The frame is a Gaussian proposal u = m + A w around the draws, and q is learned as a function of w, which is of order one
however narrow the posterior is. It starts from a straight line fitted in the frame (`density/line.py`), which within a small
region is nearly the truth, and enough to find the next frame: only the last round trains a network. Where the draws have
several modes there is a line around each of them (`density/mode_lines.py`), and cases far from all of them do not count; with
binary numbers or counts there is one line, and every round trains a network. Whether the network is any better than the line,
data sets that it did not see decide (`told_apart.py`). The tilt from N(0, I) in w to the prior counts like one more observation
(`compose/from_proposal.py`).

Reference: "Sequential neural likelihood", Papamakarios, Sterratt and Murray, 2019.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import cdist

from scorefold import settings
from scorefold.density.coordinates import at
from scorefold.density.mode_lines import MOST_MODES, ModePlaces, places_of
from scorefold.errors import ScorefoldError, ScorefoldWarning, UntrustworthyDraws
from scorefold.methods.method import train_as_far
from scorefold.methods.refine.mode_weights import modes_by_likelihood
from scorefold.methods.refine.modes import count_of, divided, vanished, which_of
from scorefold.methods.refine.plan import check_made
from scorefold.methods.refine.region import fit_of, moved, propose, round_number
from scorefold.methods.refine.round import Round, some_of
from scorefold.methods.refine.shared import Shared
from scorefold.posterior.draws import Drawn
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.refining import Refining
from scorefold.posterior.summed import SummedPosterior
from scorefold.prior import Prior
from scorefold.prior.known_by_draws import FEWEST_DRAWS, FEWEST_DRAWS_EACH
from scorefold.prior.proposal import Proposal
from scorefold.progress import say, step
from scorefold.simulation.simulate import simulate
from scorefold.simulation.simulations import Simulations, split
from scorefold.types import single_precision

DRAWS = 1_000
MOST_ROUNDS = 3
NEAR, SPREAD = 0.1, 2.0
"""The share of the draws that are near one of them, and how many times their differences it is moved by."""
FARTHEST = 5.0
"""Prior sd: no simulation is farther."""
FRAME, EDGE = 4.0, 4.0
"""The frame's covariance over the draws', and how far out in it cases count, in sd along every axis; also of a mode's place."""
ENOUGH = 2
"""Cases of a mode, for each number that its line makes of one case or is given, for it to have a line."""
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


class Job(NamedTuple):
    """What does not change from round to round."""

    start: Posterior
    x: np.ndarray
    simulator: Callable[..., Any]
    plan: Refining
    method: Any
    """An NLE."""


def likelihood_rounds(job: Job, known: Sequence[Simulations], shared: Shared) -> Likelihoods:
    """Spend the plan's budget in rounds; `known` are simulations that there are already."""
    start, x, plan = job.start, job.x, job.plan
    rounds, left = min(plan.rounds, MOST_ROUNDS), plan.budget
    with step("drawing", plan.progress):
        before, _ = drawn_by(start, x, (plan.seed, 0))
    there = [split(one, 1) for one in (*known, *shared.everything)]
    made: list[Simulations] = []
    done: list[Round] = []
    for number in range(1, rounds + 1):
        seeds = np.random.SeedSequence([plan.seed, 101, number - 1]).generate_state(2)
        calls = left // (rounds - number + 1)
        left -= calls
        frame = propose("gaussian", before, FRAME, np.zeros(before.shape[1]))
        say(f"round {number} of {rounds}: {calls:,} of {plan.budget:,} simulations", plan.progress)
        try:
            wanted = shared.left_to_place(calls, frame, start.prior)
            made.append(simulated_around(job, before, wanted, number, int(seeds[0])))
            fitted = fit_in(frame, [*there, *made], job, Fitting(int(seeds[1]), number == rounds, before))
            with step("drawing", plan.progress):
                w, clouds = drawn_by(fitted.local, x, (plan.seed, number))
        except KeyboardInterrupt:
            if not done:
                raise
            _say_interrupted(len(done))
            break
        local, after = fitted.local, frame.from_w(w)
        one = _round(frame, made[-1], fitted, w, before, after)
        modes = modes_by_likelihood(local, x, w, after, clouds)
        done.append(one._replace(modes=modes, vanished=vanished(before, after)))
        before = after
    return Likelihoods(local, tuple(done), len(done) > 1 and agree(done[-1]), tuple(made))


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
    """How a likelihood is fitted."""

    seed: int
    last: bool
    """For good, and not only to find the next frame."""
    before: np.ndarray
    """The draws (draws, dim) around which simulations were made."""


def fit_in(frame: Proposal, simulated: Sequence[Simulations], job: Job, how: Fitting) -> Fitted:
    """A likelihood of w from all simulations in a frame; where the draws before have several modes, from those near one."""
    prior, method = job.start.prior, job.method
    inside = _nearest(_together(simulated), frame, prior)
    cases, places = inside, None
    several = count_of(divided(how.before)) > 1
    if several and method.may_have_modes(inside):
        cases, places = _near_modes(inside, frame.to_w(how.before))
    with single_precision():
        if not how.last and (places is not None or not several):
            return Fitted(method.line(cases, how.seed, places), len(cases.theta), False)
        local, _ = train_as_far(partial(method.train, places=places), cases, how.seed, job.plan.progress)
    assert isinstance(local, SummedPosterior)
    return Fitted(local, len(cases.theta), True)


def _near_modes(cases: Simulations, before: np.ndarray) -> tuple[Simulations, ModePlaces | None]:
    """The cases near a mode of the draws, and where these are; all of them where only one mode has enough for a line."""
    found, w = divided(before), cases.prior.to_normal(cases.theta)
    labels = which_of(found, before)
    modes = list(range(min(count_of(found), MOST_MODES)))
    while len(modes) > 1:
        places = places_of(before, labels, modes, FRAME)
        v = np.asarray(at(places, jnp.asarray(w, jnp.float32)))
        own, far = v[:, : len(modes)].argmax(axis=1), np.abs(v[:, len(modes) :]).max(axis=1)
        count = np.bincount(own[far < EDGE], minlength=len(modes))
        enough = count >= ENOUGH * (1 + before.shape[1] + cases.x.shape[2])
        if enough.all():
            return _those(cases, far), places
        modes = [mode for mode, kept in zip(modes, enough, strict=True) if kept]
    return cases, None


def spread(u: np.ndarray, count: int, seed: int, times: float = SPREAD) -> np.ndarray:
    """Where to simulate: draws (draws, dim) picked at random, each moved by so many times what two of the draws near it differ
    by.
    """
    rng = np.random.default_rng(seed)
    white = (u - u.mean(axis=0)) / np.maximum(u.std(axis=0), 1e-12)
    some = max(2, int(NEAR * len(u)))
    near = np.argpartition(cdist(white, white), some, axis=1)[:, :some]
    picked = rng.integers(len(u), size=count)
    pairs = near[picked[:, None], rng.integers(some, size=(count, 2))]
    off = (u[pairs[:, 0]] - u[pairs[:, 1]]) / np.sqrt(2)
    there: np.ndarray = np.clip(u[picked] + times * off, -FARTHEST, FARTHEST)
    return there


def drawn_by(posterior: Posterior, x: np.ndarray, seed: tuple[int, int]) -> tuple[np.ndarray, int]:
    """Draws in the posterior's own space, of its N(0, I) where there are none to be used; and in how many clouds in turn."""
    with warnings.catch_warnings(), single_precision():
        warnings.simplefilter("ignore", UntrustworthyDraws)  # to be mended
        try:
            drawn: Drawn = posterior.draw(x, DRAWS, seed)
            if not drawn.info.diverged:
                return drawn.u, getattr(drawn.info, "clouds", 1)
        except ScorefoldError:
            pass
    return np.random.default_rng(seed).standard_normal((DRAWS, posterior.prior.dim)), 1


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


def _together(parts: Sequence[Simulations]) -> Simulations:
    """All of them as one, cases of one parameter draw still together."""
    starts = np.cumsum([0, *(int(part.origin.max()) + 1 for part in parts[:-1])])
    origin = np.concatenate([part.origin + start for part, start in zip(parts, starts, strict=True)])
    theta, x, sizes = (np.concatenate([getattr(part, name) for part in parts]) for name in ("theta", "x", "sizes"))
    return parts[-1]._replace(theta=theta, x=x, sizes=sizes, origin=origin, budget=len(theta), failed=0, calls=None)


def _nearest(sims: Simulations, frame: Proposal, prior: Prior) -> Simulations:
    """The cases that lie in a frame, as if they were from it."""
    far = np.abs(frame.to_w(prior.to_normal(sims.theta))).max(axis=1)
    return _those(sims._replace(prior=prior.proposing(frame)), far)


def _those(sims: Simulations, far: np.ndarray) -> Simulations:
    """The cases that are not too far out; as many as `round_number` says, the outermost left out."""
    inside = np.sort(np.argsort(far, kind="stable")[: round_number(int((far < EDGE).sum()))])
    theta, x, sizes, origin = (getattr(sims, name)[inside] for name in ("theta", "x", "sizes", "origin"))
    return sims._replace(theta=theta, x=x, sizes=sizes, origin=origin)


def _round(frame: Proposal, fresh: Simulations, fitted: Fitted, w: np.ndarray, before: np.ndarray, after: np.ndarray) -> Round:
    (shift, widths), cases = moved(before, after), fitted.cases
    return Round(
        proposal=frame, engine="likelihood", simulations=fresh.budget, failed=fresh.failed, cases=cases,
        reused=max(cases - len(fresh.theta), 0), gate=float(fitted.network), fit=fit_of(w, frame), several_modes=False,
        lost_mode=False, shift=shift, widths=widths, before=some_of(before), after=some_of(after), placed=True,
    )  # fmt: skip
