"""Refinement by rounds of likelihoods: for posteriors with several modes, and for those of NLE.

A likelihood q(x|u) is that of the simulator wherever u came from, so that simulations of any proposal are fair cases for it
without a correction. Each round simulates at the latest draws, spread by twice what near draws differ by, so that every mode
gets simulations in proportion; fits q anew to all simulations so far; and draws by tempered clouds, which weigh the modes
(`sample/tempered.py`). Rounds end when two of them agree, or with the budget.

A part of the budget compares the last round with the start: parameters from the draws of both, n observations simulated for
each, and the energy score of either's draws, ES = E|X - θ*| - ½ E|X - X'| in posterior sd, lower for the better ("Strictly
proper scoring rules, prediction, and estimation", Gneiting and Raftery, 2007). The start is kept if it is better by more than
the standard error of the difference.

Reference: "Sequential neural likelihood", Papamakarios, Sterratt and Murray, 2019.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist, pdist

from scorefold.compose import Rule
from scorefold.errors import ScorefoldError, ScorefoldWarning, UntrustworthyDraws
from scorefold.methods.refine.region import moved
from scorefold.posterior.composed import ComposedPosterior
from scorefold.posterior.draws import AS_THE_METHOD_SAYS, Drawn, Options
from scorefold.posterior.posterior import Made, Posterior, Refining
from scorefold.posterior.summed import SummedPosterior
from scorefold.posterior.trust import Doubts, Trust
from scorefold.prior import Prior
from scorefold.sample import Sampler
from scorefold.simulation.replicate import replicate
from scorefold.simulation.simulations import Simulations, split

DRAWS = 1_000
MOST_ROUNDS = 3
"""Each trains anew."""
NEAR, SPREAD = 0.1, 2.0
"""The share of the draws that are near one of them, and how many times their differences it is moved by."""
FARTHEST = 5.0
"""Prior sd: no simulation is farther."""
AGREE = 0.2
"""As in `refine.py`."""
COMPARED, MOST_COMPARED, FEWEST_COMPARED = 0.1, 16, 8
"""The share of the budget for the comparison, and data sets in it."""
COMPARED_DRAWS = 100


class LikelihoodRound(NamedTuple):
    """What one round did."""

    simulations: int
    """Simulator calls, failed ones included."""
    failed: int
    cases: int
    """To train on, with those of earlier rounds."""
    shift: float
    """How far the means moved from the draws before, in posterior sd, root mean square."""
    widths: float
    """Mean log ratio of the sds after and before."""

    def __str__(self) -> str:
        return (
            f"{self.simulations:,} simulations, {self.cases:,} cases in all; means moved by {self.shift:.2f} sd, widths by a "
            f"factor {np.exp(self.widths):.2f}"
        )


class Compared(NamedTuple):
    """The refined posterior against its start, on data sets simulated from the draws of both."""

    datasets: int
    """0 where the budget was too small."""
    simulations: int
    gain: float
    """By how much the refined one's energy score is lower, mean, in posterior sd; and its standard error."""
    error: float

    @property
    def worse(self) -> bool:
        """The start is better."""
        return self.datasets > 0 and self.gain < -self.error

    def __str__(self) -> str:
        if not self.datasets:
            return "not compared with the start, for which the budget was too small"
        kept = "the start, which was better, is kept" if self.worse else "kept"
        return f"{kept}: energy score lower by {self.gain:.3f} ± {self.error:.3f} sd on {self.datasets} simulated data sets"


class LikelihoodRefinement(NamedTuple):
    """How draws were made, and the rounds before."""

    sampler: Any
    """What drew."""
    rounds: tuple[LikelihoodRound, ...]
    compared: Compared
    agreed: bool
    """The last two rounds agree to 0.2 sd in means and widths."""
    reason: str
    """Why by likelihoods."""


@dataclass(frozen=True, repr=False)
class RefinedLikelihood(Posterior):
    """A posterior for one data set and its neighbourhood, by a likelihood fitted to simulations there."""

    prior: Prior
    shape: tuple[int, ...]
    local: SummedPosterior | ComposedPosterior
    """The last round's, or the start where that was better."""
    n: int
    """In the data set that it is for."""
    rounds: tuple[LikelihoodRound, ...]
    compared: Compared
    agreed: bool
    reason: str
    made: Made | None = None

    kind: ClassVar[str] = "refined-likelihood"
    options: ClassVar[tuple[str, ...]] = ("sampler",)

    @property
    def method(self) -> Any:  # type: ignore[override]
        """The settings of what draws."""
        return self.local.method

    @property
    def history(self) -> Any:  # type: ignore[override]
        """How its training went."""
        return self.local.history

    def fault(self) -> str:
        """Parts that do not belong together."""
        if not self.rounds or self.n < 1:
            return "there should be observations, and a round at least"
        same = self.local.prior == self.prior and self.local.shape == self.shape
        return "" if same else "the prior and the shape of observations should be those of what draws"

    def using(self, *, rule: str | Rule | None = None, sampler: str | Sampler | None = None) -> "RefinedLikelihood":
        """As `Posterior.using` says."""
        local = self.local.using(rule=rule, sampler=sampler)
        assert isinstance(local, SummedPosterior | ComposedPosterior)
        return replace(self, local=local)

    def draw(self, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options = AS_THE_METHOD_SAYS) -> Drawn:
        """By the last round's likelihood, or the start."""
        drawn = self.local.draw(x, draws, seed, options)
        how = LikelihoodRefinement(drawn.how, self.rounds, self.compared, self.agreed, self.reason)
        return drawn._replace(how=how)

    def doubts(self, x: np.ndarray, u: np.ndarray, seed: tuple[int, int], options: Options) -> Doubts:
        """As what draws has them."""
        return self.local.doubts(x, u, seed, options)

    def _checkable(self, x: np.ndarray) -> tuple[SummedPosterior | ComposedPosterior, np.ndarray]:
        return self.local, x

    def warn_of(self, trust: Trust) -> None:
        """Rounds that do not agree, and draws that are not to be trusted."""
        last = self.rounds[-1]
        if not (self.agreed or self.compared.worse):
            warnings.warn(
                f"the last two rounds of refinement do not agree: the last one moved the means by {last.shift:.2f} posterior "
                f"sd and the widths by a factor {np.exp(last.widths):.2f}. Refine with a larger budget.",
                UntrustworthyDraws,
                stacklevel=4,
            )
        if trust.bad:
            warnings.warn(f"the draws are {trust}.", UntrustworthyDraws, stacklevel=4)

    def facts(self) -> list[tuple[str, str]]:
        """As of any posterior, and how its rounds went."""
        rounds = [(f"round {i}", f"{one}") for i, one in enumerate(self.rounds, 1)]
        valid = f"for one data set of n = {self.n} and its neighbourhood, not for any other"
        agreed = "the last two agree" if self.agreed else "the last two do not agree yet"
        why = ("refined by", f"likelihoods, as {self.reason}")
        return [("valid", valid), *Posterior.facts(self), why, *rounds, ("rounds", agreed), ("compared", f"{self.compared}")]


def refine_by_likelihoods(
    start: SummedPosterior | ComposedPosterior,
    x: np.ndarray,
    simulator: Callable[..., Any],
    sims: Simulations | None,
    plan: Refining,
    method: Any,
    reason: str,
) -> RefinedLikelihood:
    """Rounds of likelihoods for observations x (n, features), from a start; arguments have been checked.

    Args:
        start: What the first round's simulations are drawn by.
        x: The observations.
        simulator: The one that the start was trained on.
        sims: The simulations that the start was trained on, if they are given.
        plan: As `Posterior.refine` was asked.
        method: An NLE, which is trained in every round.
        reason: Why by likelihoods, in words.

    Returns:
        The last round's posterior, or the start's where it is better, with what the rounds did.
    """
    compared = min(MOST_COMPARED, int(COMPARED * plan.budget) // len(x))
    compared = compared if compared >= FEWEST_COMPARED else 0
    left, rounds = plan.budget - compared * len(x), min(plan.rounds, MOST_ROUNDS)
    known = [] if sims is None else [split(sims, 1)]
    first = before = _drawn(start, x, (plan.seed, 0))
    done: list[LikelihoodRound] = []
    while len(done) < rounds:
        seeds = np.random.SeedSequence([plan.seed, len(done) + 1]).generate_state(2)
        calls = left // (rounds - len(done))
        known.append(_simulated(start, spread(before, calls, int(seeds[0])), simulator, int(seeds[0]), plan))
        left -= calls
        cases = _together(known)
        local = method.train([cases], [int(seeds[1])], plan.progress)[0]
        after = _drawn(local, x, (plan.seed, len(done) + 1))
        one = LikelihoodRound(known[-1].budget, known[-1].failed, len(cases.theta), *moved(before, after))
        done, before = [*done, one], after
        if len(done) > 1 and one.shift < AGREE and abs(one.widths) < AGREE:
            break
    agreed = len(done) > 1 and done[-1].shift < AGREE and abs(done[-1].widths) < AGREE
    score = _compare(start, local, (first, before), len(x), compared, simulator, plan)
    if score.worse:
        warnings.warn(f"refining made it no better: {score}.", ScorefoldWarning, stacklevel=5)
    kept = start if score.worse else local
    made = _made(start.made, plan.seed, done, score)
    return RefinedLikelihood(start.prior, start.shape, kept, len(x), tuple(done), score, agreed, reason, made)


def spread(u: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Where to simulate: draws (draws, dim) picked at random, each moved by what two of the draws near it differ by."""
    rng = np.random.default_rng(seed)
    white = (u - u.mean(axis=0)) / np.maximum(u.std(axis=0), 1e-12)
    near = np.argpartition(cdist(white, white), max(2, int(NEAR * len(u))), axis=1)[:, : max(2, int(NEAR * len(u)))]
    picked = rng.integers(len(u), size=count)
    pairs = near[picked[:, None], rng.integers(near.shape[1], size=(count, 2))]
    off = (u[pairs[:, 0]] - u[pairs[:, 1]]) / np.sqrt(2)
    moved_by: np.ndarray = np.clip(u[picked] + SPREAD * off, -FARTHEST, FARTHEST)
    return moved_by


def _drawn(posterior: Posterior, x: np.ndarray, seed: tuple[int, int]) -> np.ndarray:
    """Draws u; of the prior where there are none to be used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyDraws)  # to be mended
        try:
            drawn = posterior.draw(x, DRAWS, seed)
            if not drawn.info.diverged:
                return drawn.u
        except ScorefoldError:
            pass
    return np.random.default_rng(seed).standard_normal((DRAWS, posterior.prior.dim))


def _simulated(start: Posterior, u: np.ndarray, simulator: Callable[..., Any], seed: int, plan: Refining) -> Simulations:
    """One observation at each u."""
    theta = start.prior.from_normal(u)
    x = replicate(theta, simulator, 1, seed, plan.workers, plan.progress).astype(np.float32)
    good = np.isfinite(x.reshape(len(x), -1)).all(axis=1)
    origin = np.arange(int(good.sum()))
    sizes = np.ones(len(origin), np.int64)
    failed = int((~good).sum())
    # Not `Simulations(…)`, which expects draws of the prior.
    return Simulations._make((start.prior, theta[good], x[good], sizes, 1, len(u), failed, seed, origin, (), None, ()))


def _together(parts: list[Simulations]) -> Simulations:
    """All of them as one, cases of one parameter draw still together."""
    starts = np.cumsum([0, *(int(part.origin.max()) + 1 for part in parts[:-1])])
    origin = np.concatenate([part.origin + start for part, start in zip(parts, starts, strict=True)])
    theta, x, sizes = (np.concatenate([getattr(part, name) for part in parts]) for name in ("theta", "x", "sizes"))
    budget, failed = (sum(getattr(part, name) for part in parts) for name in ("budget", "failed"))
    return parts[-1]._replace(theta=theta, x=x, sizes=sizes, origin=origin, budget=budget, failed=failed, calls=None)


def _compare(
    start: Posterior,
    refined: Posterior,
    draws: tuple[np.ndarray, np.ndarray],
    n: int,
    datasets: int,
    simulator: Callable[..., Any],
    plan: Refining,
) -> Compared:
    """Energy scores of both on data sets of n observations from the draws of both."""
    if not datasets:
        return Compared(0, 0, float("nan"), float("nan"))
    rng = np.random.default_rng([plan.seed, 29])
    own = [some[rng.choice(len(some), -(-datasets // 2), replace=False)] for some in draws]
    truth = np.concatenate(own)[:datasets]
    x = replicate(start.prior.from_normal(truth), simulator, n, int(rng.integers(2**31)), plan.workers, plan.progress)
    x = x.reshape(datasets, n, -1)
    good, sd = np.isfinite(x).all(axis=(1, 2)), draws[1].std(axis=0)
    scores = []
    for posterior in (start, refined):
        u = posterior.draw_many(x[good], COMPARED_DRAWS, [(plan.seed, i) for i in range(int(good.sum()))])[0]
        # Draws that are not numbers are as bad as the prior's.
        u = np.where(np.isfinite(u), u, rng.standard_normal(u.shape))
        apart = np.linalg.norm((u - truth[good][:, None]) / sd, axis=2).mean(axis=1)
        scores.append(apart - np.array([pdist(one / sd).mean() for one in u]) / 2)
    gain = scores[0] - scores[1]
    error = float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else float("inf")
    return Compared(int(good.sum()), datasets * n, float(gain.mean()) if len(gain) else 0.0, error)


def _made(before: Made | None, seed: int, done: list[LikelihoodRound], compared: Compared) -> Made | None:
    """Where it comes from: what the start came from, all rounds and the comparison."""
    if before is None:
        return None
    budget = before.budget + sum(one.simulations for one in done) + compared.simulations
    return before._replace(seed=seed, budget=budget, failed=before.failed + sum(one.failed for one in done))
