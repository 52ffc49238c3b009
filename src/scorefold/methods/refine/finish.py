"""From what refinement tried to the posterior that it returns."""

import warnings
from collections.abc import Sequence
from dataclasses import replace

from scorefold.errors import ScorefoldWarning, UntrustworthyDraws
from scorefold.methods.refine.around_draws import Job
from scorefold.methods.refine.likelihood_rounds import likelihood_rounds
from scorefold.methods.refine.never_worse import Compared
from scorefold.methods.refine.refined import RefinedPosterior
from scorefold.methods.refine.round import Round, counted
from scorefold.methods.refine.shared import Shared
from scorefold.posterior.composed import ComposedPosterior
from scorefold.posterior.made import Made
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.summed import SummedPosterior
from scorefold.simulation.simulations import Simulations

NOT_COMPARED = Compared(0, (), "")


def refined_by_likelihoods(job: Job, known: Sequence[Simulations], shared: Shared) -> tuple[RefinedPosterior, Shared]:
    """What rounds of likelihoods made, and what they simulated."""
    made = likelihood_rounds(job, known, shared)
    start = job.start
    refined = RefinedPosterior(start.prior, start.shape, made.local, None, len(job.x), made.rounds, made.agreed, NOT_COMPARED)
    return refined, Shared(placed=made.made)


def finished(
    start: ComposedPosterior | SummedPosterior,
    tried: Sequence[tuple[str, RefinedPosterior]],
    kept: Posterior,
    compared: Compared,
) -> RefinedPosterior:
    """The one that is kept, with all that was spent; the start itself stands in it where that was better."""
    first = tried[0][1]
    chosen = kept if isinstance(kept, RefinedPosterior) else replace(first, local=start, summaries=None)
    last = chosen.rounds[-1]
    if kept is start:
        warnings.warn(f"refining made it no better: {compared}.", ScorefoldWarning, stacklevel=7)
    elif last.lost_mode:
        _say(last, "lost a mode", "The posterior before refinement is kept. ")
        chosen = replace(chosen, local=start, summaries=None)
    elif last.fit.missed:
        _say(last, "missed the posterior", "")
    elif gone := sum(one.vanished for one in chosen.rounds):
        warnings.warn(
            f"{counted(gone, 'mode')} of the draws that refinement began with vanished under a closer look; print the "
            "posterior to see in which round.",
            ScorefoldWarning,
            stacklevel=7,
        )
    return replace(chosen, compared=compared, made=_made(start.made, chosen.rounds, compared))


def _say(last: Round, what: str, kept: str) -> None:
    warnings.warn(
        f"the last round {what}: {last}. {kept}Refine with more rounds, or a larger budget.", UntrustworthyDraws, stacklevel=8
    )


def _made(before: Made | None, done: Sequence[Round], compared: Compared) -> Made | None:
    """Where it comes from: what the start came from, all rounds and the comparison."""
    if before is None:
        return None
    budget, failed = (sum(getattr(one, name) for one in done) for name in ("simulations", "failed"))
    return before._replace(budget=before.budget + budget + compared.simulations, failed=before.failed + failed)
