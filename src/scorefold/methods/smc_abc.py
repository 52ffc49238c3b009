"""Sequential Monte Carlo ABC: a population of parameters whose simulations come ever nearer to the observations.

N parameters are drawn from the prior, each simulates a set as large as the observed one, and the nearest αN are kept; their
farthest distance is the tolerance ε. Round after round, (1-α) N new ones are proposed, u* = u_j + e with j drawn by weight
and e ~ N(0, 2C), C the weighted covariance of those kept, and simulated; of old and new together the nearest αN are kept. A
new one's weight is

    w* = N(u* | 0, I) / Σ_j w_j N(u* | u_j, 2C),

so that the weighted population follows the posterior given a distance below ε. It ends when fewer than 5 % of a round's new
ones came below the last ε, or when the budget of simulator calls is spent: a set of n costs n calls.

All of it takes place in the N(0, I) space. The distance is between means and, for n > 1, log sds of the features (where there
are known inputs, also of their products with each input), each in units of its sd over the first population. Draws are picked
by weight; by default they are moved along a regression line first (`abc.py`).

References: "Approximate Bayesian computation scheme for parameter inference and model selection in dynamical systems", Toni,
Welch, Strelkowa, Ipsen and Stumpf, 2009; this variant: "Adaptive approximate Bayesian computation for complex models",
Lenormand, Jabot and Deffuant, 2013. Libraries for it (pyABC) bring a database and a scheduler of their own; this is all that
is needed here.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from scorefold import settings
from scorefold.errors import Interrupted, ScorefoldError, ScorefoldWarning, UntrustworthyDraws
from scorefold.methods.abc import adjusted, epanechnikov, moments
from scorefold.posterior.draws import Draws
from scorefold.posterior.observations import within_reach
from scorefold.prior import Prior
from scorefold.progress import say
from scorefold.shown import brief
from scorefold.simulation.calls import repeat
from scorefold.simulation.inputs import Inputs, inputs_from
from scorefold.simulation.replicate import replicate
from scorefold.simulation.workers import Workers, as_workers

KEPT_OF_A_ROUND = 0.5
"""α"""
LEAST_PROGRESS = 0.05
"""The share of new ones below the last tolerance at which it ends."""
SMALLEST_ROUND = 100
ROUNDS_OF_A_BUDGET = 10
"""A budget is cut into about so many rounds."""
FEWEST_EFFECTIVE = 50
"""Draws that the weights of a settled population are worth."""


class SmcInfo(NamedTuple):
    """How the population moved."""

    tolerances: np.ndarray
    """ε after every round"""
    acceptance: np.ndarray
    """The share of each round's new ones that came below the ε before it"""
    calls: int
    """Simulator calls made."""
    effective: float
    """What the weights leave of the number kept."""
    converged: bool
    """It ended because new ones hardly came nearer, not because the budget was spent, with weights worth 50 or more."""
    diverged: bool

    def __repr__(self) -> str:
        return brief(self)


class Population(NamedTuple):
    """Parameters, their summaries' distance and their weights."""

    u: np.ndarray
    summaries: np.ndarray
    distance: np.ndarray
    log_weight: np.ndarray

    def nearest(self, count: int) -> "Population":
        """The first so many by distance."""
        order = np.argsort(self.distance, kind="stable")[:count]
        return Population(*(part[order] for part in self))

    def weights(self) -> np.ndarray:
        """Normalised."""
        return np.exp(self.log_weight - logsumexp(self.log_weight))


def smc_abc(
    prior: Prior,
    simulator: Callable[..., Any],
    x_obs: Any,
    budget: int,
    draws: int = 1_000,
    seed: int | None = 0,
    *,
    adjust: bool = True,
    workers: int | Workers | None = None,
    inputs: Any = None,
    progress: bool = False,
) -> Draws:
    """Draw by sequential Monte Carlo ABC: no training, the simulator is called for this data set alone.

    Take it to check another method on a cheap simulator; it needs far more simulator calls for the same accuracy.

    Args:
        prior: a prior with a known density.
        simulator: `simulator(theta, rng) -> x`, or a `Batched` one.
        x_obs: the observations, (n, …).
        budget: simulator calls at most; a set of n observations costs n of them. About a tenth goes into each round.
        draws: how many draws.
        seed: of parameters, simulations and draws.
        adjust: move what was kept along a regression line to the observed summaries.
        workers: who runs the simulator, as in `sf.simulate`; a set in which a simulation failed is as far away as can be.
        inputs: the known inputs of the observations, an array (n, inputs) or a DataFrame; every simulated set has the same, and
            `simulator(theta, rng, inputs)` gets them.
        progress: show a bar for every round, and the tolerance.

    Returns:
        `Draws`; their `info` says how the population moved.

    Raises:
        ScorefoldError: for a prior known by draws only, a budget that is too small, or arguments of the wrong kind.
        Interrupted: on Ctrl-C in the first round; later the draws rest on the rounds that are complete, and a warning says so.

    Example:
        >>> import numpy as np
        >>> import scorefold as sf
        >>> from scipy import stats
        >>> prior = sf.Prior({"a": stats.norm(0, 1)})
        >>> simulator = lambda theta, rng: theta + rng.standard_normal(1)
        >>> sf.smc_abc(prior, simulator, np.array([[0.3]]), budget=2_000, draws=50).theta.shape
        (50, 1)
    """
    started = time.perf_counter()
    budget, draws = settings.count("budget", budget, SMALLEST_ROUND), settings.count("draws", draws, 1)
    seed, x, known = settings.seed(seed), _checked(prior, simulator, x_obs), inputs_from(inputs, None)
    size = _round_size(budget, len(x), known)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(5,)))
    compare = _Comparison(prior, simulator, x, seed, as_workers(workers), None if known is None else known.table, progress)
    kept, path = _approach(compare, size, budget, rng)
    weights = _by_distance(kept)
    info = _info(path, weights, compare.failed)
    moved = adjusted(kept.u, kept.summaries, compare.seen, weights) if adjust else kept.u
    theta = prior.from_normal(moved[rng.choice(len(moved), draws, p=weights)])
    how = f"a population of {len(kept.u)}, {len(path.tolerances)} rounds"
    given: dict[str, Any] = {} if known is None else {"inputs": known.table, "input_names": known.names}
    return Draws(theta, prior.names, info, len(x), how, time.perf_counter() - started, **given)


def _by_distance(kept: Population) -> np.ndarray:
    """The weights of a population, the nearer ones more."""
    weights = kept.weights() * epanechnikov(kept.distance)
    return weights / weights.sum()


def _round_size(budget: int, n: int, inputs: Inputs | None) -> int:
    """Sets of n observations in a round; a ScorefoldError where the budget has not even one, or inputs are not theirs."""
    if inputs is not None and (inputs.table is None or len(inputs.table) != n):
        raise ScorefoldError(f"expected inputs as a table with a row for each of the {n} observations")
    size = max(SMALLEST_ROUND, budget // (n * ROUNDS_OF_A_BUDGET))
    if size * n > budget:
        raise ScorefoldError(
            f"expected a budget of at least {size * n:,} calls, for {size} sets of {n} observations; got {budget:,}. "
            "Raise the budget, or use a method that learns from single observations, such as method='f-npse'."
        )
    return size


class _Path(NamedTuple):
    """How the population came nearer."""

    tolerances: np.ndarray
    acceptance: np.ndarray
    calls: int
    ended: bool
    """New ones hardly came nearer; else the budget was spent, or it was interrupted."""
    interrupted: bool


def _approach(compare: "_Comparison", size: int, budget: int, rng: np.random.Generator) -> tuple[Population, _Path]:
    """Round after round, until new ones hardly come nearer or the budget is spent."""
    n = len(compare.x)
    u = rng.standard_normal((size, compare.prior.dim))
    compare.say(f"round 1: at most {budget:,} simulator calls in all")
    kept = compare.populate(u, np.zeros(size)).nearest(max(SMALLEST_ROUND // 2, int(KEPT_OF_A_ROUND * size)))
    tolerances, acceptance, calls = [kept.distance[-1]], [], size * n
    new, ended, interrupted = size - len(kept.u), False, False
    while not ended and calls + new * n <= budget:
        u, log_weight = _proposals(kept, new, rng)
        spent = f"{calls:,} of at most {budget:,} simulator calls made"
        compare.say(f"round {len(tolerances) + 1}: {spent}, tolerance {tolerances[-1]:.3g}")
        try:
            fresh = compare.populate(u, log_weight)
        except Interrupted:
            interrupted = True
            break
        acceptance.append(float(np.mean(fresh.distance < tolerances[-1])))
        both = Population(*(np.concatenate(pair) for pair in zip(kept, fresh, strict=True)))
        kept = both.nearest(len(kept.u))
        tolerances.append(kept.distance[-1])
        calls += new * n
        ended = acceptance[-1] < LEAST_PROGRESS
    return kept, _Path(np.array(tolerances), np.array(acceptance), calls, ended, interrupted)


def _info(path: _Path, weights: np.ndarray, failed: int) -> SmcInfo:
    """How the population moved; warnings where it has not settled, and of failed simulations."""
    effective = float(1 / np.sum(weights**2))
    info = SmcInfo(*path[:3], effective, path.ended and effective >= FEWEST_EFFECTIVE, False)
    if not info.converged:
        why = "the budget was spent while it still came nearer. Raise the budget"
        if path.ended:
            why = f"its weights are worth {info.effective:.0f} draws. Raise the budget"
        elif path.interrupted:
            why = f"it was interrupted, and the draws rest on the {len(path.tolerances)} rounds that are complete"
        warnings.warn(f"the population has not settled: {why}.", UntrustworthyDraws, stacklevel=3)
    if failed:
        warnings.warn(
            f"{failed:,} of {info.calls:,} simulations failed; their data sets were counted as unlike the observed one.",
            ScorefoldWarning,
            stacklevel=3,
        )
    return info


class _Comparison:
    """Simulates sets and compares them with the observed one; the first population sets the scale."""

    def __init__(
        self,
        prior: Prior,
        simulator: Callable[..., Any],
        x: np.ndarray,
        seed: int,
        workers: Workers,
        inputs: np.ndarray | None = None,
        progress: bool = False,
    ):
        self.prior, self.simulator, self.x, self.seed, self.workers = prior, simulator, x, seed, workers
        self.inputs, self.progress = inputs, progress
        self.failed = 0
        self.round, self.scale = 0, None

    def say(self, words: str) -> None:
        """Where it stands, for those who asked."""
        say(words, self.progress)

    def populate(self, u: np.ndarray, log_weight: np.ndarray) -> Population:
        """Simulate a set for every u; one with a value that is not finite is as far as can be."""
        n = len(self.x)
        seed = int(np.random.SeedSequence(self.seed, spawn_key=(6, self.round)).generate_state(1, np.uint64)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ScorefoldWarning)  # all rounds' failures are counted and said at the end
            calls = repeat(self.prior.from_normal(u), n, seed, self.inputs)
            x = replicate(calls, self.simulator, self.workers, self.progress)
        x = x.reshape(len(u), n, -1)[..., : None if self.inputs is None else -self.inputs.shape[1]]
        self.failed += int(np.isnan(x).any(axis=2).sum())
        if x.shape[2] != self.x.shape[1]:
            raise ScorefoldError(
                f"expected x_obs with {x.shape[2]} numbers an observation, as the simulator gives; got {self.x.shape[1]}"
            )
        bad = ~np.isfinite(x).all(axis=(1, 2))
        if self.scale is None:
            if bad.mean() > 0.5:
                raise ScorefoldError(
                    f"expected mostly finite simulations; {bad.mean():.0%} of the sets are not. Narrow the prior."
                )
            flat = x[~bad].reshape(-1, x.shape[2])
            self.centre, self.width = np.median(flat, axis=0), np.maximum(flat.std(axis=0), 1e-12)
            self.scale = np.maximum(self._moments(x[~bad]).std(axis=0), 1e-9)
            self.seen = self._moments(self.x[None])[0] / self.scale
        self.round += 1
        x = np.where(bad[:, None, None], self.centre, x)
        summaries = self._moments(x) / self.scale
        distance = np.where(bad, np.inf, np.sqrt(np.mean((summaries - self.seen) ** 2, axis=1)))
        return Population(u, summaries, distance, log_weight)

    def _moments(self, x: np.ndarray) -> np.ndarray:
        """The features and, with inputs, their products with each input, which tell how outcomes change with it."""
        z = (x - self.centre) / self.width
        if self.inputs is None:
            return moments(z)
        by = (self.inputs - self.inputs.mean(axis=0)) / np.maximum(self.inputs.std(axis=0), 1e-12)
        products = z[..., :, None] * by[:, None, :]
        return moments(np.concatenate([z, products.reshape(*z.shape[:2], -1)], axis=2))


def _proposals(kept: Population, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """New u around those kept, and their log weights."""
    weights, dim = kept.weights(), kept.u.shape[1]
    centred = kept.u - weights @ kept.u
    covariance = 2 * (centred.T * weights) @ centred + 1e-12 * np.eye(dim)
    root = np.linalg.cholesky(covariance)
    u = kept.u[rng.choice(len(kept.u), count, p=weights)] + rng.standard_normal((count, dim)) @ root.T
    white = np.linalg.solve(root, (u[:, None] - kept.u[None]).reshape(-1, dim).T).T.reshape(count, len(kept.u), dim)
    proposal = logsumexp(np.log(weights + 1e-300) - np.sum(white**2, axis=2) / 2, axis=1) - np.log(np.diag(root)).sum()
    # The factors (2π)^{-dim/2} of both densities cancel; the first population, drawn from the prior, has weight one.
    return u, -np.sum(u**2, axis=1) / 2 - proposal


def _checked(prior: Prior, simulator: Any, x_obs: Any) -> np.ndarray:
    if not isinstance(prior, Prior) or not callable(simulator):
        raise ScorefoldError(
            f"expected an sf.Prior and a simulator to call; got {type(prior).__name__}, {type(simulator).__name__}"
        )
    if not prior.has_density:
        raise ScorefoldError(
            "expected a prior with a known density for SMC-ABC, whose weights need it; got one from draws. Use method='abc', "
            "which needs draws only, or write the prior down as a distribution."
        )
    x = settings.numbers("x_obs", x_obs)
    if x.ndim == 0 or len(x) == 0 or not np.isfinite(x).all():
        raise ScorefoldError(f"expected finite observations (n, …) with n ≥ 1; got shape {x.shape}. For one write x_obs[None].")
    within_reach(x)
    return x.reshape(len(x), -1)
