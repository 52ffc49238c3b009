"""What the start's scores say of one observation, as more columns of it.

In a small region all that x says of u is its score ∇_u log p(x|u) at the region's centre c ("Generalized massive optimal data
compression", Alsing and Wandelt, 2018), and the networks of the start, trained on simulations from the prior, know that
roughly. So x is joined by

    s(x) = ∇_u log p₀(c|x) - ∇_u log p₀(c),

p₀ the start's posterior of x alone at the lowest level. What a round's few simulations would have to find in x, how much an
outlier counts, say, then needs little more than a straight line through s. No error of the start biases anything, if the
simulations are not those that it was trained on: s is then a function of x alone, and p(u | x, s) = p(u | x) whatever it is.

Where s holds nothing new, it is only noise to learn from. Its columns are used if the Gaussian base that is fitted with them to
four fifths of the simulations gives the last fifth a higher log density, by more than two standard errors and 0.01.
"""

from typing import NamedTuple

import numpy as np

from scorefold.methods.refine.straight_line import lines, straight
from scorefold.posterior.composed import ComposedPosterior
from scorefold.prior.proposal import Proposal
from scorefold.score.standardize import standardized
from scorefold.simulation.simulations import Simulations
from scorefold.types import Float

TOGETHER = 1_024
"""Observations whose scores are computed at a time."""
UNSEEN = 5
"""One in so many simulations judges."""
ERRORS_GAINED, LEAST_GAIN = 2.0, 0.01
"""Standard errors of the gain, and the gain itself."""


class Summaries(NamedTuple):
    """s for one region."""

    start: ComposedPosterior
    centre: Float[np.ndarray, " dim"]
    """c"""

    def join(self, x: np.ndarray) -> np.ndarray:
        """Observations (..., features) with s(x) behind them."""
        rows = x.reshape(-1, x.shape[-1])
        scores = [self._scores(rows[i : i + TOGETHER]) for i in range(0, len(rows), TOGETHER)]
        return np.concatenate([x, np.concatenate(scores).reshape(*x.shape[:-1], -1).astype(x.dtype)], axis=-1)

    def _scores(self, x: np.ndarray) -> np.ndarray:
        scores, prior = self.start.single_scores(x, self.centre[None])
        return np.nan_to_num(scores[:, 0] - prior, posinf=0.0, neginf=0.0)


def centre_of(region: Proposal, dim: int) -> np.ndarray:
    """c (dim,)"""
    centre: np.ndarray = region.from_w(np.zeros((1, dim)))[0]
    return centre


def summarised(cases: Simulations, start: ComposedPosterior, region: Proposal) -> tuple[Simulations, Summaries] | None:
    """A region's simulations, none of which `start` knows, with what they are joined by; None where that says nothing new."""
    if start.method.embedding is not None or not region.narrow().size:
        return None
    summaries = Summaries(start, centre_of(region, start.prior.dim))
    flat = cases.x.reshape(*cases.x.shape[:2], -1)
    real = np.arange(flat.shape[1]) < cases.sizes[:, None]
    joined = np.zeros((*flat.shape[:2], flat.shape[2] + start.prior.dim), flat.dtype)
    joined[real] = summaries.join(flat[real])
    gain = _unseen_density(cases, joined) - _unseen_density(cases, flat)
    if not gain.mean() > max(LEAST_GAIN, ERRORS_GAINED * gain.std() / np.sqrt(len(gain))):
        return None
    return cases._replace(x=joined), summaries


def _unseen_density(cases: Simulations, x: np.ndarray) -> np.ndarray:
    """log N(w | μ(x), R) of unseen cases, up to a constant, by the base of the others."""
    w, unseen = cases.prior.to_normal(cases.theta), cases.origin % UNSEEN == 0
    standardize, base = straight(x[~unseen], cases.sizes[~unseen], w[~unseen])
    mu, inverse = lines(base, standardized(standardize, x[unseen]), cases.sizes[unseen])
    off = w[unseen] - mu
    density: np.ndarray = (np.linalg.slogdet(inverse)[1] - np.einsum("nd,nde,ne->n", off, inverse, off)) / 2
    return density
