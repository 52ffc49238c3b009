"""Parameters that are given a value, as a plane in the space of u.

Every prior maps each parameter, perhaps without its bounds, to a number y_i(θ_i) that is a straight line in u: u_i itself for
independent marginals, and (μ + L u)_i for a multivariate normal or for draws. Giving some of them values is C u = d; in the
space of a Gaussian proposal, u = m + A w, it is C A w = d - C m. The plane is u_0 + B v with u_0 = C⁺ d, its point nearest to
0, and B an orthonormal basis of the null space of C.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from scorefold import settings
from scorefold.errors import ScorefoldError, closest
from scorefold.prior.known_by_draws import Whitened, unbounded
from scorefold.prior.marginals import Marginals
from scorefold.prior.multivariate_normal import Gaussian
from scorefold.prior.prior import Prior
from scorefold.prior.prior_ratio import NOWHERE
from scorefold.prior.proposal import GaussianProposal, Proposed
from scorefold.types import Float

AT_THE_END = 1e-6
"""Of an interval's width."""


class Plane(NamedTuple):
    """Where some parameters have given values: a plane in the space of u, by a point of it and directions along it."""

    origin: Float[np.ndarray, " dim"]
    free: Float[np.ndarray, "dim free"]


def plane(prior: Prior, given: Any) -> Plane:
    """Where these parameters have these values, in the prior's own space.

    Args:
        prior: Any prior; of proposals, a Gaussian one.
        given: Values by the parameters' names, of some parameters but not of all.

    Returns:
        The plane.

    Raises:
        ScorefoldError: A name is unknown, a value is outside the support or where nothing was simulated, or no parameter is
            left.
    """
    values = checked_values(prior, given)
    index = [prior.names.index(name) for name in values]
    theta = np.array(prior.from_normal(np.zeros(prior.dim)))  # any point of the support, but for the given values
    theta[index] = list(values.values())
    matrix, offset = _line(prior, theta)
    C, d = matrix[index], offset[index]
    if prior.has_density:  # draws may lie anywhere
        _refuse_nowhere(prior, values, d / np.linalg.norm(C, axis=1))
    proposal = prior.proposal
    if proposal is not None:
        if not isinstance(proposal, GaussianProposal):
            raise ScorefoldError("expected a posterior refined with Gaussian proposals to give values to; got a truncated one.")
        C, d = C @ proposal.root, d - C @ proposal.mean
    return Plane(np.linalg.pinv(C) @ d, linalg.null_space(C))


def with_given(theta: np.ndarray, prior: Prior, given: Mapping[str, float | int]) -> np.ndarray:
    """Draws θ (…, dim) with the given values as they were given: u are in single precision."""
    theta = theta.copy()
    for name, value in given.items():
        theta[..., prior.names.index(name)] = value
    return theta


def checked_values(prior: Prior, given: Any) -> dict[str, float]:
    """The values as floats, in the prior's order; else a ScorefoldError."""
    if not isinstance(given, Mapping) or not given:
        raise ScorefoldError(f"expected given as values by name, such as {{{prior.names[0]!r}: 1.0}}; got {given!r:.60}")
    for name, value in given.items():
        if name not in prior.names:
            raise ScorefoldError(
                f"expected given to name parameters; got {name!r:.60}. {closest(str(name), list(prior.names))}"
            )
        if not settings.fits(value, float):
            raise ScorefoldError(f"expected a finite number for {name!r} in given; got {value!r:.60}")
        low, high = prior.bounds[prior.names.index(name)]
        if not low <= value <= high:
            raise ScorefoldError(
                f"expected {name!r} in given within the support of its prior, {low:.6g} to {high:.6g}; got {value:.6g}"
            )
    if len(given) == prior.dim:
        raise ScorefoldError("expected some parameters without a given value; got one for each. There is nothing to draw.")
    return {name: float(given[name]) for name in prior.names if name in given}


def _refuse_nowhere(prior: Prior, values: Mapping[str, float], out: np.ndarray) -> None:
    """A ScorefoldError for a value so many prior sd out that there are no simulations; the very end of an interval has some."""
    for (name, value), sd in zip(values.items(), np.abs(out), strict=True):
        low, high = prior.bounds[prior.names.index(name)]
        at_the_end = np.isfinite(high - low) and min(value - low, high - value) <= AT_THE_END * (high - low)
        if sd > NOWHERE and not at_the_end:
            raise ScorefoldError(
                f"expected {name!r} in given within {NOWHERE:.0f} prior sd, as there are no simulations beyond; got "
                f"{value:.6g}. Simulate from a prior that has weight there."
            )


def _line(prior: Prior, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """M and M u at θ, for the prior's own u: which line in u each parameter is, and its value."""
    law = prior._law.law if isinstance(prior._law, Proposed) else prior._law
    if isinstance(law, Marginals):
        return np.eye(prior.dim), np.clip(law.to_normal(theta), *law.reach.T)
    if isinstance(law, Gaussian):
        return law.L, theta - law.mean
    assert isinstance(law, Whitened)
    return law.L, unbounded(theta, law.bounds) - law.mean
