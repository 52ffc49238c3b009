"""Which simulations a likelihood is fitted to in a round of refinement: those in a frame around the draws, or near a mode.

A likelihood q(x|u) is that of the simulator wherever u came from, so every simulation there counts, whichever proposal it is
from. They are taken as if they were from the frame, so that networks see parameters of order one.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from scorefold.density.coordinates import at
from scorefold.density.mode_lines import MOST_MODES, ModePlaces, places_of
from scorefold.methods.refine.region import round_number
from scorefold.posterior.modes import count_of, divided, which_of
from scorefold.prior import Prior
from scorefold.prior.proposal import Proposal
from scorefold.simulation.simulations import Simulations

FRAME, EDGE = 4.0, 4.0
"""The frame's covariance over the draws', and how far out in it cases count, in sd along every axis; also of a mode's place."""
ENOUGH = 2
"""Cases of a mode, for each number that its line makes of one case or is given, for it to have a line."""


def fewest(sims: Simulations) -> int:
    """Cases that a line asks for."""
    return ENOUGH * (1 + sims.theta.shape[1] + sims.x.shape[2])


def together(parts: Sequence[Simulations]) -> Simulations:
    """All of them as one, cases of one parameter draw still together."""
    starts = np.cumsum([0, *(int(part.origin.max()) + 1 for part in parts[:-1])])
    origin = np.concatenate([part.origin + start for part, start in zip(parts, starts, strict=True)])
    theta, x, sizes = (np.concatenate([getattr(part, name) for part in parts]) for name in ("theta", "x", "sizes"))
    return parts[-1]._replace(theta=theta, x=x, sizes=sizes, origin=origin, budget=len(theta), failed=0, calls=None)


def nearest(sims: Simulations, frame: Proposal, prior: Prior) -> Simulations:
    """The cases that lie in a frame, as if they were from it."""
    far = np.abs(frame.to_w(prior.to_normal(sims.theta))).max(axis=1)
    return _those(sims._replace(prior=prior.proposing(frame)), far)


def _those(sims: Simulations, far: np.ndarray) -> Simulations:
    """The cases that are not too far out; as many as `round_number` says, the outermost left out."""
    inside = np.sort(np.argsort(far, kind="stable")[: round_number(int((far < EDGE).sum()))])
    theta, x, sizes, origin = (getattr(sims, name)[inside] for name in ("theta", "x", "sizes", "origin"))
    return sims._replace(theta=theta, x=x, sizes=sizes, origin=origin)


def near_modes(cases: Simulations, before: np.ndarray) -> tuple[Simulations, ModePlaces | None]:
    """The cases near a mode of the draws, and where these are; all of them where only one mode has enough for a line."""
    found, w = divided(before), cases.prior.to_normal(cases.theta)
    labels = which_of(found, before)
    modes = list(range(min(count_of(found), MOST_MODES)))
    while len(modes) > 1:
        places = places_of(before, labels, modes, FRAME)
        v = np.asarray(at(places, jnp.asarray(w, jnp.float32)))
        own, far = v[:, : len(modes)].argmax(axis=1), np.abs(v[:, len(modes) :]).max(axis=1)
        count = np.bincount(own[far < EDGE], minlength=len(modes))
        enough = count >= fewest(cases)
        if enough.all():
            return _those(cases, far), places
        modes = [mode for mode, kept in zip(modes, enough, strict=True) if kept]
    return cases, None
