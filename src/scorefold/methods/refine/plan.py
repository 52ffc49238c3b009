"""What `refine` is asked for, checked before the first simulation."""

from pathlib import Path
from typing import Any

from scorefold import settings
from scorefold.errors import ScorefoldError, closest
from scorefold.methods.refine.region import KINDS
from scorefold.posterior.composed import ComposedPosterior
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.refining import Refining
from scorefold.posterior.rule_and_sampler import get_sampler
from scorefold.simulation.run import check_simulator
from scorefold.simulation.simulate import SMALLEST_BUDGET
from scorefold.simulation.simulations import FEWEST_CASES, Simulations
from scorefold.simulation.workers import as_workers
from scorefold.train.training import Training

SMALLEST_SHARE = 2 * SMALLEST_BUDGET
"""Simulator calls of a round, at least."""


def smallest_share(size: int) -> int:
    """Simulator calls of a round in sets of up to `size` observations, at least: some more than the fewest cases need."""
    return max(SMALLEST_SHARE, FEWEST_CASES * (size + 1))


def check_plan(start: Posterior, simulator: Any, plan: Refining, sims: Simulations | None, size: int) -> None:
    """Refuse what cannot work for any start, whose sets have up to `size` observations."""
    if plan.budget < plan.rounds * SMALLEST_SHARE:
        most = plan.budget // SMALLEST_SHARE
        fewer = f", or rounds={most}" if most else ""
        raise ScorefoldError(
            f"expected a budget of {SMALLEST_SHARE} simulator calls a round at least; got {plan.budget:,} for {plan.rounds} "
            f"rounds. Write budget={plan.rounds * SMALLEST_SHARE:_} or more{fewer}."
        )
    if plan.budget < smallest_share(size):
        raise ScorefoldError(
            f"expected a budget of {smallest_share(size):,} simulator calls at least, for a start with sets of up to {size} "
            f"observations; got {plan.budget:,}"
        )
    if plan.proposal not in KINDS:
        raise ScorefoldError(f"unknown proposal {plan.proposal!r:.60}. {closest(str(plan.proposal)[:60], list(KINDS))}")
    if plan.training is not None and not isinstance(plan.training, Training):
        raise ScorefoldError(f"expected training as an sf.Training, or None; got {plan.training!r:.60}")
    if not isinstance(plan.progress, bool):
        raise ScorefoldError(f"expected progress to be True or False; got {plan.progress!r:.60}")
    if plan.store is not None:
        refuse_file(settings.folder(plan.store))
    check_simulator(simulator, as_workers(plan.workers), bool(start.input_names))
    if not start.prior.has_density:
        raise ScorefoldError("expected a prior with a known density to refine; got one from draws. Write it as a distribution.")
    _check_simulations(start, sims)


def refuse_file(folder: Path) -> None:
    """A store is a folder, there or not."""
    if folder.exists() and not folder.is_dir():
        raise ScorefoldError(f"expected store to be a folder, there or not; {folder} is a file. Name another one.")


def _check_simulations(start: Posterior, sims: Simulations | None) -> None:
    """They may be those that the start was trained on."""
    if sims is None:
        return
    if not isinstance(sims, Simulations) or sims.prior != start.prior:
        raise ScorefoldError("expected the simulations that this posterior was trained on; got some from another prior")
    if sims.shape != start.shape or sims.input_names != start.input_names:
        raise ScorefoldError(
            f"expected the simulations that this posterior was trained on, observations of shape {start.shape}; got "
            f"{sims.shape}, from another simulator"
        )


def check_made(start: Posterior, made: Simulations) -> None:
    """Refuse a simulator whose observations are not of the start's shape."""
    if made.shape != start.shape:
        raise ScorefoldError(
            f"expected the simulator that this posterior was trained on, with observations of shape {start.shape}; got "
            f"{made.shape}"
        )


def check_sampler_of(start: ComposedPosterior, plan: Refining) -> None:
    """Refuse a start of composed scores whose sampler cannot follow the scores of a Gaussian proposal."""
    sampler = start.method.sampler
    if plan.proposal == "gaussian" and sampler is not None and get_sampler(sampler).reverses:
        raise ScorefoldError(
            f"expected a start with a Langevin sampler to refine with Gaussian proposals; got {sampler!r}, which reverses a "
            "diffusion, and the tilted score is not that of one. Refine start.using(sampler='self-tuned'), or with "
            "proposal='truncated'."
        )
