"""Several data sets refined one after the other: what was simulated for one serves those after it, where their regions overlap.

Scores need cases distributed as their own proposal. So a data set whose draws lie well within a region that there is already
takes that region for its own, with all its simulations; else those of others are thinned by acceptance and rejection. For a
likelihood any simulation in its frame is a fair case. A round that finds k such cases makes k simulations fewer.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from scorefold import settings
from scorefold.errors import Interrupted, ScorefoldError
from scorefold.methods.refine.plan import smallest_share
from scorefold.methods.refine.refined import RefinedPosterior
from scorefold.methods.refine.region import acceptance, fit_of
from scorefold.posterior.refining import Refining
from scorefold.prior import Prior
from scorefold.prior.proposal import Proposal
from scorefold.simulation.simulations import Simulations

CENTRAL = 2.0
"""Sd of a frame, within which a likelihood's simulations lie."""


class Shared(NamedTuple):
    """What was simulated for other data sets."""

    proposed: tuple[tuple[Proposal, Simulations], ...] = ()
    """From regions."""
    placed: tuple[Simulations, ...] = ()
    """At draws, spread: for likelihoods only."""

    def with_those(self, other: "Shared") -> "Shared":
        """Both together."""
        return Shared(self.proposed + other.proposed, self.placed + other.placed)

    @property
    def everything(self) -> list[Simulations]:
        """As a likelihood takes it."""
        return [*(one for _, one in self.proposed), *self.placed]

    def region_for(self, u: np.ndarray) -> Proposal | None:
        """The region that draws u (draws, dim) lie well within, the one with the most simulations; None where there is none."""
        fitting = [(len(sims.theta), i) for i, (own, sims) in enumerate(self.proposed) if _well_within(u, own)]
        return self.proposed[max(fitting)[1]][0] if fitting else None

    def left_to_make(self, calls: int, region: Proposal, size: int) -> int:
        """Of so many simulator calls in a region, in sets of up to `size` observations for scores."""
        found = sum(float((acceptance(sims, own, region) * sims.sizes).sum()) for own, sims in self.proposed)
        return _fewer(calls, int(found), size)

    def left_to_place(self, calls: int, frame: Proposal, prior: Prior) -> int:
        """Of so many simulator calls in a frame for a likelihood."""
        places = [frame.to_w(prior.to_normal(sims.theta)) for sims in self.everything]
        return _fewer(calls, sum(int((np.abs(w) < CENTRAL).all(axis=1).sum()) for w in places), 1)


def _well_within(u: np.ndarray, region: Proposal) -> bool:
    """Not in the prior as a whole, in which all draws are."""
    return bool(region.narrow().size) and fit_of(region.to_w(u), region).right


def _fewer(calls: int, found: int, size: int) -> int:
    return max(min(calls, smallest_share(size)), calls - found)


One = Callable[[np.ndarray, Refining, Shared], tuple[RefinedPosterior, Shared]]
"""Refine one data set, given what was simulated for others: the posterior, and what was simulated for it."""


def each(xs: Sequence[np.ndarray], plan: Refining, one: One) -> list[RefinedPosterior]:
    """Refine every data set; the first as if it were alone."""
    found: list[RefinedPosterior] = []
    shared = Shared()
    for number, x in enumerate(xs):
        try:
            refined, made = one(x, _own(plan, number, len(xs)), shared)
        except KeyboardInterrupt as stop:
            raise _interrupted(stop, found, len(xs), plan) from None
        except ScorefoldError as error:
            if found:
                error.posteriors = found
                error.add_note(f"{_those(found, len(xs))} of this error.")
            raise
        found.append(refined)
        shared = shared.with_those(made)
    return found


def _interrupted(stop: KeyboardInterrupt, found: list[RefinedPosterior], count: int, plan: Refining) -> Interrupted:
    """What is kept, in words and in the exception."""
    said = [f"{str(stop).removesuffix('.') or 'refining was interrupted'}."]
    if "kept" not in said[0]:  # where it was simulating, it has said so
        lost = "A store (store=folder) would have kept the simulations of its rounds."
        kept = f"The simulations of its rounds are kept in {plan.store}, and the same call continues."
        said.append(lost if plan.store is None else kept)
    if found:
        said.append(f"{_those(found, count)} of this exception.")
    error = Interrupted(" ".join(said))
    error.posteriors = found or None
    return error


def _those(found: list[RefinedPosterior], count: int) -> str:
    return f"The posteriors of the first {len(found)} of {count} data sets are in the attribute `posteriors`"


def _own(plan: Refining, number: int, count: int) -> Refining:
    """The plan of one of several data sets, with a seed and a store of its own."""
    if number:
        plan = plan._replace(seed=int(np.random.SeedSequence([plan.seed, 103, number]).generate_state(1)[0]))
    if plan.store is None or count == 1:
        return plan
    return plan._replace(store=settings.folder(plan.store) / f"data-set-{number + 1}")
