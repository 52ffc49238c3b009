"""A posterior for one data set: the scores of the region that refinement ended in (`refine.py`), and how it came there.

It is made of the region's posterior, a composed one like any other, the rounds with their regions, and the start, if the
region's scores see observations through it.
"""

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from scorefold.compose import Rule
from scorefold.errors import ScorefoldError, UntrustworthyDraws
from scorefold.methods.refine.never_worse import Compared
from scorefold.methods.refine.region import Fit, fit_of
from scorefold.methods.refine.round import Round
from scorefold.methods.refine.score_summaries import Summaries
from scorefold.posterior.check import Check
from scorefold.posterior.composed import ComposedPosterior, Composition
from scorefold.posterior.draws import AS_THE_METHOD_SAYS, Drawn, Options
from scorefold.posterior.made import Made
from scorefold.posterior.modes import Mode
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.rule_and_sampler import get_sampler
from scorefold.posterior.summed import SummedPosterior
from scorefold.posterior.trust import Disagreement, Doubts, Trust
from scorefold.prior import Prior
from scorefold.prior.proposal import GaussianProposal, whole
from scorefold.sample import Info, Sampler
from scorefold.train.training import History


class Refinement(NamedTuple):
    """How draws were made, and the rounds before."""

    composition: Composition | str
    """Of scores, or what drew from a likelihood."""
    rounds: tuple[Round, ...]
    simulations: int
    """Simulator calls of all rounds, and of the comparison with the start."""
    agreed: bool
    """The last two rounds agree to 0.2 sd in means and widths."""
    shift: float
    """How far the last round moved the means, in posterior sd."""
    widths: float
    """By what factor it changed the sds."""
    fit: Fit
    """How these draws lie in the region."""
    modes: tuple[Mode, ...] = ()
    """Of the last round, where there are several: centre, weight and its standard error."""

    def __repr__(self) -> str:
        rounds = [f"round {number}: {one}" for number, one in enumerate(self.rounds, 1)]
        return "\n".join([f"Refinement by {self.simulations:,} simulations; of its rounds {_agreement(self.agreed)}", *rounds])


@dataclass(frozen=True, repr=False)
class RefinedPosterior(Posterior):
    """A posterior for one data set and its neighbourhood: it knows only the region where that data set's posterior is."""

    prior: Prior
    shape: tuple[int, ...]
    local: ComposedPosterior | SummedPosterior
    """Of the last round that counts, in its proposal's own space; the start where no round counts."""
    summaries: Summaries | None
    """What it sees of an observation besides the observation."""
    n: int
    """In the data set that it is for."""
    rounds: tuple[Round, ...]
    agreed: bool
    compared: Compared
    """With the start, and with what else was tried."""
    made: Made | None = None
    beside: Disagreement | None = None
    """Between the straight line that draws are made by and the network that was trained beside it; None where there is none, or
    where the comparison has ruled that network out.
    """

    kind: ClassVar[str] = "refined"
    options: ClassVar[tuple[str, ...]] = ("rule", "sampler", "set_size", "prior", "given")

    @property
    def method(self) -> Any:  # type: ignore[override]
        """The settings of the region's posterior."""
        return self.local.method

    @property
    def history(self) -> History | None:  # type: ignore[override]
        """How its training went."""
        return self.local.history

    def fault(self) -> str:
        """Parts that do not belong together."""
        if not self.rounds or self.n < 1:
            return "there should be observations, and a round at least"
        local, region, dim = self.local, self.local.prior.proposal, self.prior.dim
        if local.prior != (self.prior if region is None else self.prior.proposing(region)):
            return "the region's prior should be the prior, proposed from"
        if self.summaries is None:
            return "" if local.shape == self.shape else "the region's observations should be of the same shape"
        start = self.summaries.start
        joined = local.shape == (math.prod(self.shape) + dim,) and start.shape == self.shape and start.prior == self.prior
        return "" if joined and region is not None else "a start, its region and their observations should belong together"

    def using(self, *, rule: str | Rule | None = None, sampler: str | Sampler | None = None) -> "RefinedPosterior":
        """As `Posterior.using` says."""
        local = self.local.using(rule=rule, sampler=sampler)
        assert isinstance(local, ComposedPosterior | SummedPosterior)
        return replace(self, local=local)

    def draw(self, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options = AS_THE_METHOD_SAYS) -> Drawn:
        """As before; draws outside the region are not to be trusted, and it says so."""
        seen = x if self.summaries is None else self.summaries.join(x)
        drawn, fit = draw_in_region(self.local, seen, draws, seed, options)
        last = self.rounds[-1]
        if fit.missed:
            warnings.warn(
                f"{fit.far:.1%} of the draws lie far outside the region that was simulated, or their mean is at its edge. This "
                f"posterior was refined for one data set of n = {self.n} observations: refine again for another "
                "one, or with more rounds.",
                UntrustworthyDraws,
                stacklevel=4,
            )
            info: Any = drawn.info
            drawn = drawn._replace(info=info._replace(converged=jnp.array(False) if isinstance(info, Info) else False))
        spent = sum(one.simulations for one in self.rounds) + self.compared.simulations
        refinement = Refinement(
            drawn.how, self.rounds, spent, self.agreed, last.shift, float(np.exp(last.widths)), fit, last.modes
        )
        return drawn._replace(how=refinement)

    def doubts(self, x: np.ndarray, u: np.ndarray, seed: tuple[int, int], options: Options) -> Doubts:
        """As the region's posterior has them, in its own space, and what the comparison with the start found.

        Members that are one straight line do not differ, however wrong that line is. So it is held against the network that
        was trained beside it, unless that one is surely worse; without one, or another comparison, nothing is known.
        """
        own, seen = self._checkable(x)
        line_alone = isinstance(own, SummedPosterior) and not self.rounds[-1].gate
        if line_alone and self.beside is None and not self.compared.judged:
            return Doubts("a straight line has no members that could disagree, and it was not compared with the start")
        doubts = own.doubts(seen, self._own_space(u), seed, _for_region(own, options))
        if self.beside is not None and not isinstance(doubts.disagreement, str):
            doubts = doubts._replace(disagreement=self.beside)
        return doubts._replace(found_off=self.compared.off)

    def corrected(self, check: Check) -> "RefinedPosterior":
        """As `Posterior.corrected` says."""
        local = self.local.corrected(check)
        return replace(self, local=local)

    def _checkable(self, x: np.ndarray) -> tuple[ComposedPosterior | SummedPosterior, np.ndarray]:
        return self.local, x if self.summaries is None else self.summaries.join(x)

    def _own(self, x: np.ndarray, options: Options) -> tuple[Any, np.ndarray, Options]:
        own, seen = self._checkable(x)
        return own, seen, _for_region(own, options)

    def _own_space(self, u: np.ndarray) -> np.ndarray:
        region = self.local.prior.proposal
        return u if region is None else region.to_w(u)

    def warn_of(self, trust: Trust) -> None:
        """Rounds that do not agree, and draws that are not to be trusted."""
        last = self.rounds[-1]
        if not self.agreed:
            warnings.warn(
                f"the last two rounds of refinement do not agree: the last one moved the means by {last.shift:.2f} posterior "
                f"sd and the widths by a factor {np.exp(last.widths):.2f}. Refine with a larger budget, or check with "
                "posterior.check(x_obs, simulator).",
                UntrustworthyDraws,
                stacklevel=4,
            )
        if trust.bad:
            warnings.warn(f"the draws are {trust}.", UntrustworthyDraws, stacklevel=4)

    def facts(self) -> list[tuple[str, str]]:
        """As of any posterior, and how its rounds went."""
        rounds = [(f"round {i}", f"{one}") for i, one in enumerate(self.rounds, 1)]
        valid = f"for one data set of n = {self.n} and its neighbourhood, not for any other"
        agreed = _agreement(self.agreed)
        return [("valid", valid), *Posterior.facts(self), *rounds, ("rounds", agreed), ("compared", f"{self.compared}")]


def _agreement(agreed: bool) -> str:
    return "the last two agree" if agreed else "the last two do not agree yet"


def draw_in_region(
    local: ComposedPosterior | SummedPosterior,
    x: np.ndarray,
    draws: int,
    seed: tuple[int, int],
    options: Options = AS_THE_METHOD_SAYS,
) -> tuple[Drawn, Fit]:
    """Draws of u, and how they lie in the region."""
    proposal = local.prior.proposal or whole(local.prior.dim)
    drawn = local.draw(x, draws, seed, _for_region(local, options))
    return drawn._replace(u=proposal.from_w(drawn.u)), fit_of(drawn.u, proposal)


def _for_region(local: ComposedPosterior | SummedPosterior, options: Options) -> Options:
    """The options, with a sampler that a tilted score can be followed by."""
    if isinstance(local, SummedPosterior):
        for word in ("rule", "set_size"):
            if getattr(options, word) is not None:
                raise ScorefoldError(f"expected no {word} for a posterior that was refined by a likelihood; leave it out")
        return options
    if not isinstance(local.prior.proposal, GaussianProposal):
        return options
    sampler = options.sampler or local.method.sampler or "self-tuned"  # also for one set, which could else be reversed
    if get_sampler(sampler).reverses:
        raise ScorefoldError(
            f"expected a Langevin sampler for a posterior refined with Gaussian proposals; got {sampler!r}, which "
            "reverses a diffusion, and the tilted score is not that of one. Use 'self-tuned', or proposal='truncated'."
        )
    return options._replace(sampler=sampler)
