"""What one round of refinement did, as numbers and in words."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scorefold.methods.refine.region import Fit
from scorefold.posterior.modes import Mode
from scorefold.prior.proposal import GaussianProposal, Proposal
from scorefold.shown import listed
from scorefold.types import Float

KEPT = 200
"""Draws of a round that are kept for figures."""
NARROW = 0.999
"""The variance below which a region is narrower than the prior."""
FARTHEST_END = 4.0
"""Prior sd: where a box that does not end is taken to end."""


class Round(NamedTuple):
    """What one round did."""

    proposal: Proposal
    engine: str
    """ "line", a straight line alone, in closed form; "scores", a network's; or "likelihood", a flow's."""
    simulations: int
    """Simulator calls, failed ones included."""
    failed: int
    cases: int
    """To train on, with the reused ones."""
    reused: int
    gate: float
    """Share of the network that unseen cases let pass: mean over levels, or 0 or 1 of a likelihood; 0 is the line alone."""
    fit: Fit
    several_modes: bool
    """In the draws that the region was proposed from."""
    lost_mode: bool
    shift: float
    """How far the means moved from the draws before, in posterior sd, root mean square."""
    widths: float
    """Mean log ratio of the sds after and before."""
    before: Float[np.ndarray, "kept dim"] | None = None
    """Some of the draws that the region was proposed from, in the space where the prior is N(0, I)."""
    after: Float[np.ndarray, "kept dim"] | None = None
    """Some of the round's own."""
    modes: tuple[Mode, ...] = ()
    """Of the round's own draws, where they are several."""
    vanished: int = 0
    """Modes of the draws before that a likelihood has no weight for."""
    placed: bool = False
    """Simulations were made around the draws before, wherever these are; else in the region."""

    @property
    def counts(self) -> bool:
        """The draws lie where the simulations were, and no mode was lost."""
        return not (self.fit.missed or self.lost_mode)

    def __str__(self) -> str:
        made = f"{self.simulations:,} simulations {'around the draws before' if self.placed else where(self.proposal)}"
        if self.failed:
            made += f", {self.failed:,} of them failed"
        if self.reused:
            made += f", and {self.reused:,} earlier cases"
        said = [f"{made}: {self._learned()} moved the means by {self.shift:.2f} sd and the widths by a factor {self._factor}"]
        if self.fit.missed:
            said.append("the posterior is not where the simulations were (missed)")
        if self.lost_mode:
            said.append("it lost a mode")
        if self.vanished:
            said.append(f"{counted(self.vanished, 'mode')} of the draws before vanished")
        if self.modes:
            said.append(f"{counted(len(self.modes), 'mode')} of weight {weighed(self.modes)}")
        return "; ".join(said)

    def _learned(self) -> str:
        if self.engine == "likelihood":
            return "a likelihood" if self.gate else "a likelihood of the straight line alone"
        if self.engine == "line":
            return "a straight line"
        return f"scores, with {self.gate:.0%} of the network," if self.gate > 0.005 else "scores of the straight line alone"

    @property
    def _factor(self) -> str:
        return f"{np.exp(self.widths):.2f}"


def where(proposal: Proposal) -> str:
    """A region in words, as wide as its sd are in prior sd, in the geometric mean over the directions that it narrows."""
    axes = proposal.narrow()
    if not axes.shape[1]:
        return "from the prior"
    if isinstance(proposal, GaussianProposal):
        variances = np.linalg.eigvalsh(proposal.root @ proposal.root.T)
        wide = f"{np.exp(np.log(variances[variances < NARROW]).mean() / 2):.2g} prior sd"
    else:
        low, high = np.clip([proposal.low, proposal.high], -FARTHEST_END, FARTHEST_END)
        wide = f"{np.exp(np.log((high - low) @ axes).mean()):.2g} prior sd from end to end"
    every = "" if axes.shape[1] == len(axes) else f" in {axes.shape[1]} of {len(axes)} directions"
    return f"in a region {wide} wide{every}"


def weighed(modes: Sequence[Mode]) -> str:
    """Their weights in percent, with errors where these are known."""
    return listed(
        [f"{100 * one.weight:.0f}" + ("" if one.error is None else f" ± {100 * one.error:.0f}") + " %" for one in modes]
    )


def counted(number: int, word: str) -> str:
    """One or several of something."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def some_of(u: np.ndarray) -> np.ndarray:
    """KEPT of the draws, spread over all of them."""
    return np.asarray(np.resize(u[:: max(len(u) // KEPT, 1)], (KEPT, u.shape[1])), np.float32)
