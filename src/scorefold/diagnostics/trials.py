"""Trials of a posterior: data sets whose true parameters are known, with the posterior's draws given each of them.

S times, θ* is drawn from the prior, n observations are simulated from it, and the posterior is drawn given these. S data sets
of n observations cost S × n simulator calls and no training. Data sets whose simulation failed or whose draws diverged are left
out and counted.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from scorefold import settings
from scorefold.diagnostics.ranks import FEWEST_RANKED
from scorefold.errors import Interrupted, ScorefoldError, ScorefoldWarning, UntrustworthyDraws
from scorefold.posterior.draws import ManyDraws
from scorefold.posterior.posterior import Posterior
from scorefold.simulation.calls import repeat
from scorefold.simulation.replicate import as_far_as_made, replicate
from scorefold.simulation.workers import Workers
from scorefold.types import Float


class Plan(NamedTuple):
    """How much to simulate and draw."""

    n: int
    """Observations in every data set."""
    sims: int
    """Data sets."""
    draws: int
    """Posterior draws for each of them."""
    seed: int
    fewest: int
    """Data sets that must be left to say anything."""
    inputs: np.ndarray | None = None
    """(n, inputs), known ones that every data set has; by default they are drawn as they were simulated."""
    holes: np.ndarray | None = None
    """(n, numbers), which are missing in every data set, where the simulator makes no holes of its own."""


class Trials(NamedTuple):
    """The data sets that can be used, and how many could not."""

    truth: Float[np.ndarray, "datasets dim"]
    """The parameters that each data set was simulated from."""
    x: Float[np.ndarray, "datasets n numbers"]
    draws: Float[np.ndarray, "datasets draws dim"]
    failed: int
    """Left out, since a simulation was not finite."""
    diverged: int
    """Left out, since the draws diverged."""
    unconverged: int
    """Used, although the sampler's checks did not pass."""
    seconds: float
    """Of drawing."""


class DataSets(NamedTuple):
    """Simulated data sets whose true parameters are known."""

    truth: Float[np.ndarray, "datasets dim"]
    x: np.ndarray
    """(data sets, n, *shape)"""
    failed: int
    """Left out, since a simulation was not finite."""
    seed: int
    """Of the draws given them."""


def checked_plan(n: int, sims: int, draws: int, seed: int | None, fewest: int) -> Plan:
    """A plan for simulated data sets, if it is large enough to say anything.

    Args:
        n: Observations in a data set.
        sims: Data sets.
        draws: Posterior draws given each, FEWEST_RANKED or more.
        seed: Of everything; None takes a fresh one, and says which.
        fewest: Data sets that are needed at least.

    Returns:
        The plan.

    Raises:
        ScorefoldError: One of them is too small, or no whole number.
    """
    n, sims, draws = (settings.count(*one) for one in (("n", n, 1), ("sims", sims, fewest), ("draws", draws, FEWEST_RANKED)))
    return Plan(n, sims, draws, settings.seed(seed), fewest)


def simulate_data_sets(
    posterior: Posterior,
    simulator: Callable[..., Any],
    plan: Plan,
    workers: int | Workers | None = None,
    progress: bool = False,
) -> DataSets:
    """Simulate data sets with parameters from the posterior's prior.

    Args:
        posterior: Whose prior, and whose known inputs.
        simulator: The one that it was trained on.
        plan: How many data sets of how many observations.
        workers: Who runs the simulator, as in `sf.simulate`.
        progress: Whether to show a bar.

    Returns:
        The data sets with their true parameters, without those in which a simulation failed.

    Raises:
        ScorefoldError: Observations have another shape than the posterior's, or too few data sets are left.
    """
    # A seed of its own: with the seed of training, these would be the parameters that were trained on.
    seed = int(np.random.SeedSequence(plan.seed, spawn_key=(9,)).generate_state(1, np.uint64)[0] >> np.uint64(1))
    truth = posterior.prior.sample(plan.sims, seed)
    inputs = plan.inputs
    if inputs is None and (drawn := posterior.simulated_inputs(plan.sims * plan.n, seed)) is not None:
        inputs = drawn.reshape(plan.sims, plan.n, -1)
    calls = repeat(truth, plan.n, seed, inputs)
    x = as_far_as_made(partial(replicate, calls, simulator, workers, progress, posterior.missing), plan.fewest)
    truth = truth[: len(x)]
    if x.shape[2:] != posterior.shape:
        raise ScorefoldError(f"expected the simulator trained on, with observations {posterior.shape}; got {x.shape[2:]}")
    simulated = ~np.isnan(x.reshape(*x.shape[:2], -1)).all(axis=2).any(axis=1)  # some numbers may be missing, but not all
    _enough(simulated, plan.fewest, "gave finite observations")
    kept = x[simulated]
    if plan.holes is not None and not np.isnan(kept).any():
        kept = np.where(plan.holes.reshape(x.shape[1:]), np.nan, kept)
    return DataSets(truth[simulated], kept, int(np.sum(~simulated)), seed)


def run_trials(
    posterior: Posterior,
    simulator: Callable[..., Any],
    plan: Plan,
    workers: int | Workers | None = None,
    progress: bool = False,
) -> Trials:
    """Simulate the data sets of a plan and draw from the posterior given each.

    Args:
        posterior: The posterior.
        simulator: The one that it was trained on.
        plan: How many data sets, observations and draws.
        workers: Who runs the simulator, as in `sf.simulate`.
        progress: Whether to show bars.

    Returns:
        True parameters, data sets and draws, without data sets whose draws diverged.

    Raises:
        ScorefoldError: Too few data sets are left.
        Interrupted: Ctrl-C came before there were enough of them.
    """
    truth, x, failed, seed = simulate_data_sets(posterior, simulator, plan, workers, progress)
    many = drawn_as_far(partial(sample_quietly, posterior, x, plan.draws, seed, progress), plan)
    truth, x = truth[: len(many.theta)], x[: len(many.theta)]
    used = ~many.diverged
    _enough(used, plan.fewest, "had draws that did not diverge")
    return Trials(
        truth=truth[used],
        x=x[used].astype(np.float64).reshape(used.sum(), plan.n, -1),
        draws=many.theta[used],
        failed=failed,
        diverged=int(many.diverged.sum()),
        unconverged=int(np.sum(~many.converged & used)),
        seconds=many.seconds,
    )


def drawn_as_far(draw: Callable[[], ManyDraws], plan: Plan) -> ManyDraws:
    """All draws or, after Ctrl-C, those for the first data sets, if these are enough to say something; a warning says so."""
    try:
        return draw()
    except KeyboardInterrupt as stopped:
        many: ManyDraws | None = getattr(stopped, "draws", None)
        if many is None or len(many.theta) < plan.fewest:
            done = 0 if many is None else len(many.theta)
            raise Interrupted(
                f"drawing was interrupted after {done} of {plan.sims} data sets, too few to say anything: {plan.fewest} are "
                "needed"
            ) from None
        warnings.warn(
            f"drawing was interrupted: what follows rests on the first {len(many.theta)} of {plan.sims} data sets.",
            ScorefoldWarning,
            stacklevel=4,
        )
        return many


def sample_quietly(posterior: Posterior, x: np.ndarray, draws: int, seed: int, progress: bool = False) -> ManyDraws:
    """`posterior.sample_many` without its warning: who calls this counts the data sets and reports them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyDraws)
        return posterior.sample_many(x, draws, seed, progress=progress)


def _enough(good: np.ndarray, fewest: int, what: str) -> None:
    if good.sum() < fewest:
        raise ScorefoldError(
            f"expected at least {fewest} data sets that {what}; got {good.sum()} of {len(good)}. Simulate more data sets, or "
            "narrow the prior."
        )
