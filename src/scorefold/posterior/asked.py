"""What draws are asked for besides observations: another prior, or some parameters given the values of others.

Both change a composed score in the same place, after composition. Where a Gaussian proposal stands for the prior, the score is
taken from it to the prior first.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.compose.from_proposal import Tilt
from scorefold.compose.other_prior import OtherPrior
from scorefold.compose.slice import Along, Slice
from scorefold.errors import ScorefoldError
from scorefold.noise import LogDensity, Score
from scorefold.posterior.draws import Options
from scorefold.posterior.rule_and_sampler import FOR_SEVERAL, get_sampler
from scorefold.prior import Prior
from scorefold.prior.given_values import plane
from scorefold.prior.prior_ratio import PriorRatio, prior_ratio
from scorefold.prior.proposal import GaussianProposal, Proposal, TruncatedProposal
from scorefold.sample import Langevin, Metropolis, SelfTuned
from scorefold.types import Cloud

MOST_MORE = 16
"""Times as many draws are made at most, where another prior ends inside the support."""


class Asked(eqx.Module):
    """What happens to a composed score before a sampler follows it: a proposal gives way to the prior, another prior comes in,
    some parameters are held. It is a part of a compiled program.
    """

    tilt: Tilt | None = None
    other: OtherPrior | None = None
    plane: Slice | None = None

    def score(self, composed: Score) -> Score:
        """The score to follow."""
        if self.tilt is not None:
            composed = self.tilt.score(composed)
        if self.other is not None:
            composed = self.other.score(composed, self.tilt)
        return composed if self.plane is None else self.plane.score(composed)

    def log_density(self, composed: LogDensity) -> LogDensity:
        """What it is the gradient of."""
        if self.tilt is not None:
            composed = self.tilt.log_density(composed)
        if self.other is not None:
            composed = self.other.log_density(composed, self.tilt)
        return composed if self.plane is None else self.plane.log_density(composed)

    def back(self, v: Along) -> Cloud:
        """Draws in the space of the scores, from the one that the sampler moves in."""
        return v if self.plane is None else self.plane.back(v)

    def free(self, dim: int) -> int:
        """How many numbers the sampler moves."""
        return dim if self.plane is None else self.plane.free.shape[1]


def asked_of(prior: Prior, options: Options) -> Asked:
    """What options of `sample`, and a Gaussian proposal in place of the prior, come to for a composed score.

    Args:
        prior: The posterior's, with the proposal that was simulated from if there was one.
        options: What `sample` was told.

    Returns:
        The changes to the score, as arrays for a compiled program.

    Raises:
        ScorefoldError: Another prior was asked for where simulations are from truncated proposals, or values are not possible
            ones.
    """
    tilt = tilt_of(prior.proposal)
    other = None if options.prior is None else on_device(ratio_of(prior, options.prior))
    if options.given is None:
        return Asked(tilt, other)
    along = plane(prior, options.given)
    return Asked(tilt, other, Slice(*(jnp.asarray(part, jnp.float32) for part in along)))


def ratio_of(prior: Prior, other: Prior) -> PriorRatio:
    """The ratio of another prior to this one, whose posterior has to be that of a Gaussian proposal if of any."""
    if isinstance(prior.proposal, TruncatedProposal):
        raise ScorefoldError(
            "expected a posterior that was refined with Gaussian proposals to put another prior in; got truncated ones. Refine "
            "with proposal='gaussian'."
        )
    return prior_ratio(prior, other)


def on_device(ratio: PriorRatio) -> OtherPrior:
    """A ratio of priors as compiled programs take it."""
    return OtherPrior(*jax.tree.map(lambda v: jnp.asarray(v, jnp.float32), tuple(ratio)))


def inside(prior: Prior, options: Options, u: np.ndarray) -> np.ndarray:
    """Which draws lie where another prior has weight; all of them where none was asked for.

    Args:
        prior: The posterior's.
        options: What `sample` was told.
        u: (draws, dim), in the space of the scores.

    Returns:
        (draws,) booleans; the others are left out, and more are drawn.
    """
    if options.prior is None:
        return np.ones(len(u), bool)
    return prior_ratio(prior, options.prior).inside(u if prior.proposal is None else prior.proposal.from_w(u))


def langevin_for(sampler: Any, options: Options) -> Any:
    """The sampler for a score that was changed after composition: the changed score is not that of a diffusion, so none that
    reverses one.

    Args:
        sampler: What was asked for, by name or configured; None for the default.
        options: What `sample` was told; without another prior or given values the sampler comes back as it is.

    Returns:
        A Langevin sampler, by default the self-tuned one.

    Raises:
        ScorefoldError: Another sampler was asked for.
    """
    if options.prior is None and options.given is None:
        return sampler
    chosen = FOR_SEVERAL if sampler is None else get_sampler(sampler)
    if not isinstance(chosen, SelfTuned | Langevin | Metropolis):
        raise ScorefoldError(
            f"expected a Langevin sampler for draws under another prior, or given parameters; got {sampler!r}, and the changed "
            "score is not that of a diffusion. Use 'self-tuned'."
        )
    return chosen


def too_few(kept: int, made: int) -> ScorefoldError:
    """The error for draws that nearly all lie where the other prior has no weight."""
    return ScorefoldError(
        f"expected draws where the other prior has weight; got {kept:,} of {made:,}. The observations speak for parameters "
        "outside of it; widen that prior, or look at draws under the first one."
    )


def tilt_of(proposal: Proposal | None) -> Tilt | None:
    """What takes a score from a Gaussian proposal to the prior; None where the prior was simulated from, whole or cut."""
    if not isinstance(proposal, GaussianProposal):
        return None
    return Tilt(jnp.asarray(proposal.mean, jnp.float32), jnp.asarray(proposal.root, jnp.float32))
