"""Where to simulate in place of the prior: proposals p̃(u), each with a space of its own, where it is N(0, I).

- Gaussian: u = m + A w. In w the prior is no longer N(0, I), and a posterior composed there has to be tilted back by
  ∇_w log p(u(w)) - ∇_w log p̃(w) = -Aᵀ(m + A w) + w.
- Truncated: the prior itself inside a box with axes V, as in "Sequential neural score estimation" (Sharrock, Simons, Liu and
  Beaumont, 2024). With v = Vᵀu, which is N(0, I) too, and v_i between a_i and b_i,
  w_i = Φ⁻¹([Φ(v_i) - Φ(a_i)] / [Φ(b_i) - Φ(a_i)]). Inside, p̃ ∝ p: nothing has to be tilted.

Parameters θ simulated from one proposal q serve another p̃ where p̃ ≤ M q everywhere: kept with probability p̃(θ) / (M q(θ))
they are distributed as p̃.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from scorefold.prior.marginals import Marginals
from scorefold.prior.multivariate_normal import Gaussian
from scorefold.prior.normal_space import U_MAX, Values
from scorefold.types import Float

UNCUT_SD = 4.0
"""Truncated: beyond that many sd the prior is not cut."""
LARGEST_W = 8.0
"""Truncated: no w goes farther, or Φ(w) would be 1."""
LARGEST_ENTRY = 1e6
WORST_CONDITION = 1e12
"""What a proposal from a file may hold, in the space where θ is standard normal."""


@dataclass(frozen=True, eq=False)
class GaussianProposal:
    """A Gaussian to simulate from in place of the prior, in the prior's N(0, I) space: u = m + A w with w ~ N(0, I).

    It has no edges, so that nothing is lost outside of it, but a posterior composed in w has to be tilted back to the prior
    (`compose.from_proposal`).

    Args:
        mean: m, where to simulate.
        root: A, a square root of the covariance, not singular.
    """

    mean: Float[np.ndarray, " dim"]
    root: Float[np.ndarray, "dim dim"]
    """A"""

    farthest = U_MAX

    def to_w(self, u: Values) -> Values:
        """Map u to w, where the proposal is N(0, I), row by row; w is what networks see in a round of refinement."""
        return np.linalg.solve(self.root, (u - self.mean)[..., None])[..., 0]

    def from_w(self, w: Values) -> Values:
        """Map w back to u, row by row; the inverse of `to_w`."""
        # Not w @ Aᵀ, which rounds differently for different numbers of rows.
        return self.mean + sum(w[..., j, None] * self.root[:, j] for j in range(len(self.mean)))

    def log_density(self, u: Values) -> np.ndarray | np.float64:
        """log p̃(u), the log density of the proposal at each row of u, in the prior's N(0, I) space."""
        return _log_normal(self.to_w(u)) - np.linalg.slogdet(self.root)[1]

    def log_excess(self, other: "Proposal") -> float:
        """log M, the supremum of log p̃ - log q over another proposal q; infinite where q's tails are the lighter ones.

        Simulations from q can be thinned to p̃ where it is finite.
        """
        if not isinstance(other, GaussianProposal):
            return np.inf
        own, theirs = (np.linalg.inv(p.root @ p.root.T) for p in (self, other))
        difference = own - theirs
        if np.array_equal(self.mean, other.mean) and np.array_equal(self.root, other.root):
            return 0.0
        if np.linalg.eigvalsh(difference)[0] <= 1e-9 * np.abs(own).max():
            return np.inf
        peak = np.linalg.solve(difference, own @ self.mean - theirs @ other.mean)
        return float(self.log_density(peak) - other.log_density(peak))

    def narrow(self) -> np.ndarray:
        """The directions of w, as columns (dim, narrow), along which this is narrower than the prior, for a symmetric A."""
        variances, axes = np.linalg.eigh(self.root @ self.root.T)
        return axes[:, variances < 0.999]

    def fault(self) -> str:
        """What is wrong with numbers that come from a file, in words; an empty string if nothing is."""
        if not _within(self.mean, self.root):
            return f"a proposal should be within ±{LARGEST_ENTRY:.0e}, where θ is standard normal"
        return "" if np.linalg.cond(self.root, 1) < WORST_CONDITION else "the root of a proposal cannot be inverted"

    def describe(self) -> dict[str, Any]:
        """The proposal's kind and arrays as strict JSON can hold them; `read_proposal` makes a proposal of it again."""
        return {"kind": "gaussian", "mean": self.mean.tolist(), "root": self.root.tolist()}


@dataclass(frozen=True, eq=False)
class TruncatedProposal:
    """The prior cut to a box, to simulate from in place of the prior, in the prior's N(0, I) space.

    Inside the box it is in proportion to the prior, so that nothing has to be tilted; what lies outside is lost.

    Args:
        axes: V, orthogonal, one axis of the box a column.
        low: The lower ends of the box, along these axes.
        high: The upper ends.
    """

    axes: Float[np.ndarray, "dim dim"]
    """V, orthogonal; one axis a column"""
    low: Float[np.ndarray, " dim"]
    high: Float[np.ndarray, " dim"]

    farthest = LARGEST_W

    def to_w(self, u: Values) -> Values:
        """Map u to w, where the proposal is N(0, I), row by row; a u outside the box goes as far as w may."""
        sign, low, high = self._flipped()
        below, above = special.ndtr(low), special.ndtr(high)
        share = (special.ndtr(sign * (u @ self.axes)) - below) / (above - below)
        ends = special.ndtr([-LARGEST_W, LARGEST_W])
        return sign * special.ndtri(np.clip(share, *ends))

    def from_w(self, w: Values) -> Values:
        """Map w back to u, row by row, always inside the box; the inverse of `to_w`."""
        sign, low, high = self._flipped()
        below, above = special.ndtr(low), special.ndtr(high)
        v = special.ndtri(below + special.ndtr(sign * w) * (above - below))
        return (sign * np.clip(v, low, high)) @ self.axes.T

    def log_density(self, u: Values) -> np.ndarray:
        """log p̃(u) at each row of u: the prior's over its mass in the box, and -∞ outside."""
        return np.where(self.inside(u), _log_normal(u) - self._log_mass(), -np.inf)

    def inside(self, u: Values) -> np.ndarray | np.bool_:
        """Whether each row of u lies in the box, its faces included; outside, the proposal has no density."""
        v = u @ self.axes
        return ((v >= self.low) & (v <= self.high)).all(axis=-1)

    def log_excess(self, other: "Proposal") -> float:
        """log M, the supremum of log p̃ - log q: the ratio of the prior's masses where this box lies in q's or q is the prior,
        else infinite.
        """
        if isinstance(other, TruncatedProposal):
            reach = np.abs(other.axes.T @ self.axes)
            centre = other.axes.T @ self.axes @ ((self.low + self.high) / 2)
            half = reach @ ((self.high - self.low) / 2)
            slack = 1e-9 * (other.high - other.low)
            contained = (centre - half >= other.low - slack).all() and (centre + half <= other.high + slack).all()
            return other._log_mass() - self._log_mass() if contained else np.inf
        whole = np.array_equal(other.root, np.eye(len(other.mean))) and not other.mean.any()
        return -self._log_mass() if whole else np.inf

    def narrow(self) -> np.ndarray:
        """The directions of w, as columns (dim, narrow), along which the box cuts the prior."""
        return np.eye(len(self.low))[:, (self.low > -UNCUT_SD) | (self.high < UNCUT_SD)]

    def fault(self) -> str:
        """What is wrong with numbers that come from a file, in words; an empty string if nothing is."""
        if not _within(self.axes, self.low, self.high):
            return f"a proposal should be within ±{LARGEST_ENTRY:.0e}, where θ is standard normal"
        off = np.abs(self.axes.T @ self.axes - np.eye(len(self.low))).max()
        return "" if off < 1e-6 and (self.low < self.high).all() else "a box should have orthogonal axes, and low below high"

    def describe(self) -> dict[str, Any]:
        """The proposal's kind and arrays as strict JSON can hold them; `read_proposal` makes a proposal of it again."""
        return {"kind": "truncated", "axes": self.axes.tolist(), "low": self.low.tolist(), "high": self.high.tolist()}

    def _flipped(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the box is on the upper side its mirror image, whose tail probabilities float64 resolves."""
        sign = np.where(self.low + self.high > 0, -1.0, 1.0)
        return sign, np.where(sign > 0, self.low, -self.high), np.where(sign > 0, self.high, -self.low)

    def _log_mass(self) -> float:
        _, low, high = self._flipped()
        return float(np.log(special.ndtr(high) - special.ndtr(low)).sum())


Proposal = GaussianProposal | TruncatedProposal


def whole(dim: int) -> GaussianProposal:
    """The proposal that is the prior itself, for so many parameters: a Gaussian with mean 0 and A = I."""
    return GaussianProposal(np.zeros(dim), np.eye(dim))


class Proposed:
    """The law of θ under a proposal, and its map to w: the prior's own map, then the proposal's."""

    def __init__(self, law: Marginals | Gaussian, proposal: Proposal):
        self.law, self.proposal = law, proposal
        self.bounds = law.bounds
        self.reach = np.tile([-proposal.farthest, proposal.farthest], (len(law.bounds), 1))

    def to_normal(self, theta: Values) -> Values:
        """Map θ to w, where the proposal is N(0, I), row by row."""
        return self.proposal.to_w(np.clip(self.law.to_normal(theta), *self.law.reach.T))

    def from_normal(self, w: Values) -> Values:
        """Map w back to θ, row by row; the inverse of `to_normal`."""
        return self.law.from_normal(np.clip(self.proposal.from_w(w), *self.law.reach.T))

    def log_prob(self, theta: Values) -> np.ndarray | np.float64:
        """log p̃(θ), the log density of θ under the proposal, for θ within the support: the prior's, times p̃/p in the N(0, I)
        space.
        """
        u = np.clip(self.law.to_normal(theta), *self.law.reach.T)
        return self.law.log_prob(theta) + self.proposal.log_density(u) - _log_normal(u)

    def describe(self) -> dict[str, Any]:
        """The law's kind and parameters as strict JSON can hold them.

        `codec.restore` makes a prior of it, and priors whose descriptions are equal count as equal.
        """
        return {"kind": "proposal", "proposal": self.proposal.describe(), "prior": self.law.describe()}

    def text(self, names: tuple[str, ...]) -> str:
        """The law in words, with the parameters' names, for the representation of a `Prior`."""
        return f"a {self.proposal.describe()['kind']} proposal for {self.law.text(names)}"


def read_proposal(description: Any) -> Proposal:
    """The proposal that `describe` wrote down; its numbers are to be checked with `fault`."""
    arrays = {k: np.asarray(v, np.float64) for k, v in description.items() if k != "kind"}
    return {"gaussian": GaussianProposal, "truncated": TruncatedProposal}[description["kind"]](**arrays)


def _log_normal(u: Values) -> np.ndarray | np.float64:
    return -np.square(u).sum(axis=-1) / 2 - u.shape[-1] / 2 * np.log(2 * np.pi)


def _within(*arrays: np.ndarray) -> bool:
    return all(bool(np.abs(array).max() <= LARGEST_ENTRY) for array in arrays)
