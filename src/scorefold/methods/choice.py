"""Which method to take, from the simulations alone: what `sf.fit` does unless it is told otherwise.

Errors of a score add up over n observations, while the posterior narrows. A likelihood is normalised, ∫ q(x|u) dx = 1, so
that the mean of its score over x, which is what adds up, is wrong only to second order in its own error. From the same
simulations it is the better answer for several observations, as long as it can be learned ("Sequential neural likelihood",
Papamakarios, Sterratt and Murray, 2019; `docs/accuracy.md` has the figures). A likelihood is taken where

- the prior has a density to multiply it with,
- cases are of one observation each, with no missing numbers, and hardly a simulation failed, of which a likelihood knows
  nothing,
- an observation is a plain vector of at most `MOST_OUTCOMES` outcomes, and
- x has a density or probabilities given θ: no number that is continuous but for some values, which would have both, and none
  that follows from the others.

Otherwise scores are composed, which need none of these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from scorefold.methods.method import Method
from scorefold.methods.nle import NLE
from scorefold.methods.npse import NPSE
from scorefold.posterior.posterior import Posterior
from scorefold.score.standardize import fit_standardize, standardized
from scorefold.shown import one_line
from scorefold.simulation.likeness import BINARY, COUNT, look
from scorefold.simulation.simulations import Simulations
from scorefold.train.checkpoint import Checkpoint

MOST_OUTCOMES = 32
CASES_LOOKED_AT = 10_000
"""Cases that are looked at."""
LARGEST_ATOM = 0.005
"""Share of the cases in which a continuous number may have its most frequent value."""
LEAST_LEFT = 1e-8
"""Variance along the direction in which numbers vary least together, where each has 1."""
MOST_FAILED_OF_ALL = 0.01
"""Share of the simulator calls."""


class Choice(NamedTuple):
    """A method that the simulations ask for, and why, in words that go on from "learning"."""

    method: Method
    why: str


@dataclass(frozen=True)
class Auto(Method):
    """A likelihood (`nle`) where one can be learned, else composed scores: what the simulations ask for."""

    resumes: ClassVar[bool] = True

    def train(
        self, sims: Sequence[Simulations], seeds: Sequence[int], progress: bool, checkpoint: Checkpoint | None = None
    ) -> Sequence[Posterior]:
        """Train by the method that the first of the simulations ask for, and give its posteriors."""
        return choose(sims[0]).method.train(sims, seeds, progress, checkpoint)


def choose(sims: Simulations) -> Choice:
    """Which method to take for some simulations: a likelihood where one can be learned, else composed scores (see the top of
    this file).

    Args:
        sims: The simulations; the first 10,000 cases are looked at.

    Returns:
        The method with its usual settings, and why.
    """
    reason = _without_likelihood(sims)
    if reason:
        return Choice(NPSE(set_size=1) if sims.set_size == 1 else NPSE(), f"composed scores, as {reason}")
    return Choice(NLE(), "a likelihood, as observations are vectors of few numbers that have one")


def _without_likelihood(sims: Simulations) -> str:
    """What speaks against a likelihood; empty if nothing does."""
    outcomes = int(np.prod(sims.shape)) - len(sims.input_names)
    if not sims.prior.has_density:
        return "the prior is known from draws only"
    if sims.set_size > 1:
        return "the simulations are in sets of observations"
    if sims.missing or sims.failed > MOST_FAILED_OF_ALL * sims.budget:
        return "numbers may be missing" if sims.missing else f"{sims.failed:,} of {sims.budget:,} simulations failed"
    if len(sims.shape) > 1 or outcomes > MOST_OUTCOMES:
        return f"an observation is {' × '.join(map(str, sims.shape))} numbers"
    x = np.asarray(sims.x[:CASES_LOOKED_AT], np.float64).reshape(min(len(sims.x), CASES_LOOKED_AT), -1)[:, :outcomes]
    kinds = look(sims).kind[:outcomes]
    whole = (kinds == BINARY) | (kinds == COUNT)
    names = sims.x_names or tuple(f"x{i}" for i in range(outcomes))
    varies = x.std(axis=0) > 0
    for i in np.flatnonzero(~whole & varies):
        if np.unique(x[:, i], return_counts=True)[1].max() > max(2, LARGEST_ATOM * len(x)):
            return f"{one_line(names[i])} has some of its values again and again, and others once"
    places = np.flatnonzero(varies & ~whole)
    follows = _following(x[:, places]) if len(places) > 1 else None
    return "" if follows is None else f"{one_line(names[places[follows]])} follows from the other numbers"


def _following(x: np.ndarray) -> int | None:
    """Which number follows from the others along a straight line; None if none does."""
    scaled = np.asarray(standardized(fit_standardize(x), x), np.float64)
    values, vectors = np.linalg.eigh(np.corrcoef(scaled, rowvar=False))
    return None if values[0] > LEAST_LEFT else int(np.abs(vectors[:, 0]).argmax())
