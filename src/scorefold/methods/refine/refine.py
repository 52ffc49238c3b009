"""Refinement rounds: simulations where the posterior of one data set is.

A posterior of many observations can be a hundredth as wide as the prior, and no fit to simulations from the prior resolves it.
So each round proposes a region from the last draws (`propose.py`) and simulates there. Rounds before the last locate the
posterior by a straight line alone (`locate.py`), until the region is right where it is, or until the line finds the posterior
wider than the draws before did, so that a line is not enough. Then what is left of the budget is simulated there, and scores
are trained on the region's own N(0, I) space as if it were the prior's and composed exactly (`networks/tilt.py`). There an
observation is joined by what the start's scores say of it, where that helps (`summaries.py`). Observations are standardised
anew in every round. The sequential idea is that of "Sequential neural score estimation" (Sharrock, Simons, Liu and Beaumont,
2024); that composition needs no correction of the training objective is particular to many observations.

Earlier simulations are used again if they are distributed as the new proposal: all of them where the region stays the same,
else those that acceptance and rejection leaves. A region that was missed is left for a wider one next to it, on the side where
the draws went. Several modes are never located by a line, nor is there a region around one of them: what is left of the budget
goes to the prior as a whole, and a last round in which modes got lost or ran together does not count. Whether a network is
better than the Gaussian base alone unseen cases say: they stop its training, and decide what part of it is kept.
"""

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from scorefold import settings
from scorefold.errors import ScorefoldError, UntrustworthyDraws, closest
from scorefold.methods.refine.modes import Split, deepest_valley
from scorefold.methods.refine.refined import RefinedPosterior, Round, draw_in_region
from scorefold.methods.refine.region import Fit, around, fit_of, moved, pooled, propose, step
from scorefold.methods.refine.score_summaries import Summaries, summarised
from scorefold.methods.refine.straight_line import likest, locate
from scorefold.posterior.composed import ComposedPosterior
from scorefold.posterior.posterior import Made
from scorefold.prior.proposal import Proposal, whole
from scorefold.score.correction import Correction
from scorefold.simulation.simulate import SMALLEST_BUDGET, simulate
from scorefold.simulation.simulations import Simulations, split
from scorefold.train.training import Training

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
RUNNING = ("executor", "workers", "timeout", "memory", "max_failures")
"""Options of `simulate` that are passed on to it."""
OPTIONS = ("proposal", "sims", "training", "progress", "store")
SMALLEST_SHARE = 2 * SMALLEST_BUDGET
STEPS = 1_000
"""Of training in a round: within a small region the base is nearly the truth."""


def refine(
    start: ComposedPosterior,
    x_obs: Any,
    simulator: Callable[..., Any],
    budget: int = 5_000,
    rounds: int = 6,
    seed: int = 0,
    *,
    proposal: str = "gaussian",
    sims: Simulations | None = None,
    training: Training | None = None,
    progress: bool = False,
    store: str | os.PathLike[str] | None = None,
    **running: Any,
) -> RefinedPosterior:
    """`budget` simulator calls: up to half of them in at most rounds - 1 rounds to locate the posterior, the others there.

    `sims` are the simulations that `start` was trained on, to be used again where they can be. With `store`, a folder, every
    round's simulations are kept in a store of their own there (round-1, round-2, …), and the same call made again after a kill
    goes on where it was. What else `running` may hold (executor, workers, timeout, memory, max_failures) is in `simulate`.
    """
    x = start.checked(x_obs)
    _check(start, budget, rounds, seed, sims)
    stores = None if store is None else settings.folder(store)
    if unknown := [name for name in running if name not in RUNNING]:
        raise ScorefoldError(f"refine has no option {unknown[0]!r}. {closest(unknown[0], [*OPTIONS, *RUNNING])}")
    own = start.method.training
    short = replace(own, steps=min(STEPS, own.steps))
    set_size = start.largest_set
    known = [] if sims is None else [(whole(start.prior.dim), split(sims, set_size))]
    earlier: list[tuple[Proposal, Simulations]] = []
    state, local, left = _start(start, x, seed), start, budget
    summaries: Summaries | None = None
    done: list[Round] = []
    region: Proposal | None = None
    stepped = False
    share = max(SMALLEST_SHARE, int(LOCATING * budget / max(rounds - 1, 1)))
    while not done or done[-1].locating:
        number = len(done) + 1
        fresh_region = region is None
        if region is None:
            region = state.region(proposal, INFLATION[min(number, 2) - 1])
        last = number == rounds or not fresh_region or state.several_modes or left < 2 * share
        calls = left if last else share
        numbers = np.random.SeedSequence([seed, number]).generate_state(3)
        kept = None if stores is None else stores / f"round-{number}"
        fresh = simulate(
            start.prior.proposing(region), simulator, calls, set_size, int(numbers[0]), progress, store=kept, **running
        )
        left -= calls
        cases = pooled(fresh, [*known, *earlier], region, int(numbers[1]))
        if last:
            method = replace(start.method, training=training or (short if region.narrow().size else own))
            unseen = pooled(fresh, earlier, region, int(numbers[1])) if known else cases
            if (joined := summarised(unseen, start, region)) is not None:
                cases, summaries = joined
            local = method.train([cases], [int(numbers[2])], progress)[0]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UntrustworthyDraws)
                drawn, fit = draw_in_region(local, summaries.join(x) if summaries else x, DRAWS, (seed, number), {})
            u = drawn.u
        else:
            w = locate(cases, region, x, start.choose_set_size(len(x))[0], DRAWS, seed)
            u, fit = region.from_w(w), fit_of(w, region)
            earlier.append((region, fresh))
        one = _round(state, u, fit, region, fresh, cases, local.ensemble.correction if last else None, locating=not last)
        done.append(one)
        if not stepped and one.widths > WIDER and one.shift < FARTHEST_WIDER:
            continue  # a line is not enough: on with the draws before and with the region around them
        # A region that was only stepped to is wide, and a line through it too poor to say that it is right.
        settled, stepped = fit.right and not stepped, one.locating and fit.missed
        if stepped and number == 1 and known:
            near = likest(known[0][1], x)
            state = state.stepping(near.mean(axis=0) + around(near, WIDER_THAN_LIKEST, INFLATION[1]))
        else:
            state = state.stepping(step(region, w, INFLATION[1], seed)) if stepped else state.after(u)
        if not settled:
            region = None
    return _refined(start, local, summaries, x, done, _made(start.made, seed, done))


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


def _check(start: ComposedPosterior, budget: int, rounds: int, seed: int, sims: Simulations | None) -> None:
    for name, value, least in (("rounds", rounds, 1), ("seed", seed, 0), ("budget", budget, 1)):
        settings.count(name, value, least)
    if budget < rounds * SMALLEST_SHARE:
        raise ScorefoldError(
            f"expected a budget of {SMALLEST_SHARE} simulator calls a round at least; got {budget:,} for {rounds} rounds"
        )
    if not start.prior.has_density:
        raise ScorefoldError("expected a prior with a known density to refine; got one from draws. Write it as a distribution.")
    if sims is not None and (not isinstance(sims, Simulations) or sims.prior != start.prior):
        raise ScorefoldError("expected the simulations that this posterior was trained on; got some from another prior")


def _round(
    state: "_State", u: np.ndarray, fit: Fit, region: Proposal, fresh: Simulations, cases: Simulations,
    correction: Correction | None, locating: bool,
) -> Round:  # fmt: skip
    """What came of a round."""
    shift, widths = moved(state.before, u)
    return Round(
        proposal=region,
        locating=locating,
        simulations=fresh.budget,
        failed=fresh.failed,
        cases=len(cases.theta),
        reused=len(cases.theta) - len(fresh.theta),
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
            drawn = start.draw(x, DRAWS, (seed, 0))
            u, usable = drawn.u, not drawn.info.diverged
        except ScorefoldError:
            usable = False
    if not usable:
        u = np.random.default_rng(seed).standard_normal((DRAWS, start.prior.dim))
    return _State(u, usable, deepest_valley(u), np.zeros(start.prior.dim))
