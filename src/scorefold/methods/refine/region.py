"""Where to simulate next, given draws: a region that holds them with room to spare.

- Gaussian: along every principal axis of the draws the variance is inflated c-fold; where that reaches the prior's, it is the
  prior's, 0 ± 1. All draws count, so that several modes lie well inside, in one region.
- Truncated: the prior between the outermost draws along every axis, half their distance wider on either side.

A region missed if more than 1 % of the draws lie beyond |w_i| = 3 along some axis of it, or if their mean is beyond 1.5: the
simulations were elsewhere, and what a line says of so far away is not to be trusted. The next region is then three times as
wide, and its centre goes as far as 3 along each axis, and no farther than 4 prior sd from the prior's. A region is right where
it is if the draws' mean is within 1 and their sd between 0.15 and 0.6.
"""

from typing import NamedTuple

import numpy as np

from scorefold.errors import ScorefoldError, closest
from scorefold.posterior.modes import count_of, divided, which_of
from scorefold.prior.proposal import GaussianProposal, Proposal, TruncatedProposal, whole
from scorefold.simulation.simulations import Simulations

FAR = 3.0
MOST_FAR = 0.01
FARTHEST_MEAN = 1.5
WIDER = 3.0
FARTHEST_CENTRE = 4.0
NO_HELP = 0.2
"""Mean log ratio of a straight line's sds to those of the draws before, from which on it is thought worse than they are."""
STRETCH = 0.5
KINDS = ("gaussian", "truncated")
FEWEST_OF_A_MODE = 20
"""Different draws by which it can be told how far a mode moved."""
NARROWEST = 1e-12
"""Prior sd of draws that are all the same."""
STEPS_AN_OCTAVE = 4
"""Of numbers of cases, as a power of two."""


def propose(kind: str, u: np.ndarray, inflation: float, disagreement: np.ndarray) -> Proposal:
    """From draws u (draws, dim), and how far the round before moved their mean (dim): the region is as wide as that too."""
    if kind not in KINDS:
        raise ScorefoldError(f"unknown proposal {kind!r}. {closest(kind, list(KINDS))}")
    covariance = np.cov(u, rowvar=False).reshape(u.shape[1], u.shape[1]) + np.outer(disagreement, disagreement) / inflation
    variances, axes = np.linalg.eigh(covariance)
    if kind == "truncated":
        along = u @ axes
        low, high = along.min(axis=0), along.max(axis=0)
        room = STRETCH * (high - low) + np.abs(disagreement @ axes)
        return TruncatedProposal(axes, low - room, high + room)
    variances = inflation * np.maximum(variances, 1e-10)
    narrow = variances < 1
    if not narrow.any():
        return whole(u.shape[1])
    mean = np.where(narrow, u.mean(axis=0) @ axes, 0.0) @ axes.T
    return GaussianProposal(mean, (axes * np.sqrt(np.minimum(variances, 1.0))) @ axes.T)


def step(region: Proposal, w: np.ndarray, inflation: float, seed: int) -> np.ndarray:
    """For draws w that missed their region: draws u to propose the next one from, with that inflation."""
    centre = region.from_w(np.clip(w.mean(axis=0), -FAR, FAR)[None])
    own = region.from_w(np.random.default_rng([seed, 19]).standard_normal(w.shape))
    return np.clip(centre, -FARTHEST_CENTRE, FARTHEST_CENTRE) + around(own, WIDER, inflation)


def around(u: np.ndarray, wider: float, inflation: float) -> np.ndarray:
    """Offsets from their mean, such that a region proposed from them with that inflation is so many times as wide as u."""
    return (u - u.mean(axis=0)) * wider / np.sqrt(inflation)


class Fit(NamedTuple):
    """How draws lie in the region that their simulations came from."""

    far: float
    """The largest share beyond |w_i| = 3 along an axis."""
    mean: float
    """The largest |mean of w_i|."""
    widths: tuple[float, float]
    """The smallest and the largest sd of w along the draws' own axes."""

    @property
    def missed(self) -> bool:
        """The simulations were elsewhere."""
        return self.far > MOST_FAR or self.mean > FARTHEST_MEAN

    @property
    def right(self) -> bool:
        """More simulations from the same region are as good as any."""
        return not self.missed and self.mean < 1 and self.widths[0] > 0.15 and self.widths[1] < 0.6


def fit_of(w: np.ndarray, proposal: Proposal) -> Fit:
    """For draws in the region's own space (draws, dim), along the axes where the region is narrower than the prior."""
    along = w @ proposal.narrow()
    if not along.shape[1]:
        return Fit(0.0, 0.0, (0.3, 0.3))  # the prior itself cannot be missed
    covariance = np.cov(along, rowvar=False).reshape(along.shape[1], along.shape[1])
    widths = np.sqrt(np.maximum(np.linalg.eigvalsh(covariance), 0.0))
    far = float((np.abs(along) > FAR).mean(axis=0).max())
    return Fit(far, float(np.abs(along.mean(axis=0)).max()), (float(widths[0]), float(widths[-1])))


def moved(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """From some draws to others: shift of the mean in sd of the latter, root mean square, and mean log ratio of the sds."""
    covariance = np.cov(after, rowvar=False).reshape(after.shape[1], after.shape[1])
    root = np.linalg.cholesky(covariance + (1e-12 * np.trace(covariance) + NARROWEST**2) * np.eye(len(covariance)))
    shift = np.linalg.solve(root, after.mean(axis=0) - before.mean(axis=0))
    widths = np.log(np.maximum(after.std(axis=0), NARROWEST) / np.maximum(before.std(axis=0), NARROWEST))
    return float(np.sqrt((shift**2).mean())), float(widths.mean())


def moved_within_modes(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """As `moved`, mode by mode of the draws before: how much each weighs is another matter."""
    modes = divided(before)
    labels, own = which_of(modes, before), which_of(modes, after)
    count = np.array([len(np.unique(after[own == mode], axis=0)) for mode in range(count_of(modes))])
    kept = np.flatnonzero(count >= FEWEST_OF_A_MODE)
    if not len(kept):
        return moved(before, after)
    each = np.array([moved(before[labels == mode], after[own == mode]) for mode in kept])
    weights = count[kept] / count[kept].sum()
    return float(np.sqrt(weights @ each[:, 0] ** 2)), float(weights @ each[:, 1])


def acceptance(sims: Simulations, own: Proposal, proposal: Proposal) -> np.ndarray:
    """(cases,) with which chance cases simulated from `own` are kept, to be distributed as `proposal`."""
    bound = proposal.log_excess(own)
    if not np.isfinite(bound):
        return np.zeros(len(sims.theta))
    to_u = own.from_w(sims.prior.to_normal(sims.theta))
    chance: np.ndarray = np.exp(np.minimum(proposal.log_density(to_u) - own.log_density(to_u) - bound, 0.0))
    return chance


def reusable(sims: Simulations, own: Proposal, proposal: Proposal, seed: int) -> np.ndarray:
    """(cases,) booleans: cases simulated from `own` that are distributed as `proposal`, by acceptance and rejection."""
    # Cases of one parameter draw stay together.
    luck = np.random.default_rng([seed, 13]).uniform(size=int(sims.origin.max()) + 1)[sims.origin]
    return luck < acceptance(sims, own, proposal)


def pooled(fresh: Simulations, earlier: list[tuple[Proposal, Simulations]], proposal: Proposal, seed: int) -> Simulations:
    """Simulations from a proposal, and those of earlier ones that are distributed alike, as many as `round_number` says."""
    parts, start = [fresh], int(fresh.origin.max()) + 1
    for index, (own, sims) in enumerate(earlier):
        kept = reusable(sims, own, proposal, seed + index)
        if kept.any():
            origin = sims.origin[kept] + start
            parts.append(sims._replace(theta=sims.theta[kept], x=sims.x[kept], sizes=sims.sizes[kept], origin=origin))
            start = int(origin.max()) + 1
    theta, x, sizes, origin = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("theta", "x", "sizes", "origin")
    )
    failed, most = sum(part.failed for part in parts), max(round_number(len(theta)), len(fresh.theta))
    return fresh._replace(theta=theta[:most], x=x[:most], sizes=sizes[:most], origin=origin[:most], failed=failed)


def round_number(count: int) -> int:
    """The largest number up to `count` of sixteen to an octave: programs are compiled for a number of cases."""
    step: int = 1 << max(count.bit_length() - 1 - STEPS_AN_OCTAVE, 0)
    return count - count % step
