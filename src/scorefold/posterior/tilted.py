"""What is left to do where scores or likelihoods were learned in the space of a proposal (`compose/from_proposal.py`)."""

import jax.numpy as jnp

from scorefold.compose.from_proposal import Tilt
from scorefold.prior.proposal import GaussianProposal, Proposal


def tilt_of(proposal: Proposal | None) -> Tilt | None:
    """From a Gaussian proposal to the prior; nothing where that was simulated from, or cut."""
    if not isinstance(proposal, GaussianProposal):
        return None
    return Tilt(jnp.asarray(proposal.mean, jnp.float32), jnp.asarray(proposal.root, jnp.float32))
