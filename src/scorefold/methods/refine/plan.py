"""What `refine` is asked for, checked before the first simulation."""

from scorefold import settings
from scorefold.errors import ScorefoldError, closest
from scorefold.methods.refine.region import KINDS
from scorefold.posterior.composed import ComposedPosterior
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.refining import Refining
from scorefold.posterior.rule_and_sampler import get_sampler
from scorefold.simulation.simulate import SMALLEST_BUDGET
from scorefold.simulation.simulations import Simulations

SMALLEST_SHARE = 2 * SMALLEST_BUDGET
"""Simulator calls of a round, at least."""


def check_plan(start: Posterior, plan: Refining, sims: Simulations | None) -> None:
    """Refuse what cannot work for any start."""
    if plan.budget < plan.rounds * SMALLEST_SHARE:
        raise ScorefoldError(
            f"expected a budget of {SMALLEST_SHARE} simulator calls a round at least; got {plan.budget:,} for {plan.rounds} "
            f"rounds. Write budget={plan.rounds * SMALLEST_SHARE:_} or more"
            + (f", or rounds={most}." if (most := plan.budget // SMALLEST_SHARE) > 0 else ".")
        )
    if plan.proposal not in KINDS:
        raise ScorefoldError(f"unknown proposal {plan.proposal!r:.60}. {closest(str(plan.proposal)[:60], list(KINDS))}")
    if plan.store is not None:
        settings.folder(plan.store)
    if not start.prior.has_density:
        raise ScorefoldError("expected a prior with a known density to refine; got one from draws. Write it as a distribution.")
    if sims is not None and (not isinstance(sims, Simulations) or sims.prior != start.prior):
        raise ScorefoldError("expected the simulations that this posterior was trained on; got some from another prior")


def check_sampler_of(start: ComposedPosterior, plan: Refining) -> None:
    """Refuse a start of composed scores whose sampler cannot follow the scores of a Gaussian proposal."""
    sampler = start.method.sampler
    if plan.proposal == "gaussian" and sampler is not None and get_sampler(sampler).reverses:
        raise ScorefoldError(
            f"expected a start with a Langevin sampler to refine with Gaussian proposals; got {sampler!r}, which reverses a "
            "diffusion, and the tilted score is not that of one. Refine start.using(sampler='self-tuned'), or with "
            "proposal='truncated'."
        )
