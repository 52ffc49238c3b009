"""The ratio of another prior p' to the one that was simulated from, p, as tables that a compiled program can hold.

In the N(0, I) space of p both densities have the same Jacobian, so that

    r(u) = log p'(θ(u)) - log p(θ(u))

is all that another prior changes: p'(θ) ∏_j p(x_j|θ) = e^{r(u)} p(θ) ∏_j p(x_j|θ). SciPy's densities do not run in compiled
programs, but in the coordinates c = A u, one for each parameter (A = I for independent marginals, and for a multivariate
normal θ = μ + L u the rows of L at unit length), every part of r is a function of one number or a quadratic form:

    r(u) = Σ_i f_i(c_i) - ½ g(c)ᵀ P g(c) + b |u|²/2,      g_i(c_i) = (θ_i - μ'_i) / σ'_i.

- p' of independent marginals: f_i = log p'_i(θ_i), P = 0;  p' a multivariate normal: P is the inverse of its correlations;
- p of independent marginals: f_i has -log p_i(θ_i) besides, b = 0;  p a multivariate normal: b = 1.

f and g are tables with slopes, cubic between their knots and straight beyond. Where p' ends inside the support of p, the table
ends, too, and r falls off within a tenth of a prior sd (`compose/other_prior.py`): draws beyond are left out.

Where p' has weight and p has none, nothing was simulated, and where p has little, not much was: `check_overlap` refuses the
first and warns of the second.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.prior.known_by_draws import Whitened
from scorefold.prior.marginals import Marginals
from scorefold.prior.multivariate_normal import Gaussian
from scorefold.prior.prior import Prior
from scorefold.prior.proposal import Proposed
from scorefold.types import Float

CURVE_KNOTS = 1_025
CURVE_END = 8.5
"""Tables end there, in prior sd."""
CURVE_STEP = 1e-3
"""Of the differences that slopes are made of, as a share of the distance between knots."""
STEEPEST = 1e5
COUNTED = 20_000
"""Draws of the other prior that are looked at."""
OUTSIDE = 1e-4
"""The share of another prior's weight that may lie where nothing was simulated."""
NOWHERE = 6.0
"""Prior sd beyond which there are no simulations, however many were made."""
MOST_NOWHERE = 0.5
"""The share of another prior's weight that may lie there: a wider prior reaches there too, and the posterior need not."""
FAR_SHARE, WEIGHT_FAR_OUT = 0.003, 0.05
"""The outermost share of the simulations, and the weight there from which on it is said."""


class PriorRatio(NamedTuple):
    """The log ratio of another prior to the one that was simulated from, over the space of the latter, as tables that a
    compiled program can hold.
    """

    axes: Float[np.ndarray, "dim dim"]
    """A, one coordinate a row"""
    low: Float[np.ndarray, " dim"]
    high: Float[np.ndarray, " dim"]
    """The ends of the tables."""
    cut: Float[np.ndarray, "2 dim"]
    """1 where the other prior ends there, below and above; else 0"""
    f: Float[np.ndarray, "dim knots"]
    f_slope: Float[np.ndarray, "dim knots"]
    g: Float[np.ndarray, "dim knots"]
    g_slope: Float[np.ndarray, "dim knots"]
    precision: Float[np.ndarray, "dim dim"]
    """P"""
    pull: float
    """b"""

    def inside(self, u: Float[np.ndarray, "draws dim"]) -> np.ndarray:
        """Whether the other prior has weight at each draw."""
        c = u @ self.axes.T
        return ~(((c < self.low) & (self.cut[0] > 0)) | ((c > self.high) & (self.cut[1] > 0))).any(axis=1)

    @property
    def cuts(self) -> bool:
        """Whether it ends anywhere inside the support of the first one."""
        return bool(self.cut.any())


def prior_ratio(prior: Prior, other: Prior) -> PriorRatio:
    """The ratio of `other` to `prior` (of a proposal: to the prior that it stands for), in the N(0, I) space of the latter.

    Args:
        prior: What was simulated from, with a known density.
        other: A prior of the same parameters, with a known density.

    Returns:
        Its tables.

    Raises:
        ScorefoldError: Parameters differ, or a density is not known.
    """
    own, theirs = _laws(prior, other)
    dim = prior.dim
    if isinstance(own, Gaussian):
        scale = np.linalg.norm(own.L, axis=1)
        axes, shift = own.L / scale[:, None], own.mean
    else:
        axes, scale, shift = np.eye(dim), np.ones(dim), np.zeros(dim)

    def theta_at(c: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return shift + scale * c if isinstance(own, Gaussian) else own.from_normal(np.clip(c, *own.reach.T))

    def c_of(theta: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return (theta - shift) / scale if isinstance(own, Gaussian) else np.clip(own.to_normal(theta), *own.reach.T)

    ends = np.clip(c_of(np.clip(theirs.bounds, *own.bounds.T[:, :, None]).T), -CURVE_END, CURVE_END)
    cut = np.stack([theirs.bounds[:, 0] > own.bounds[:, 0], theirs.bounds[:, 1] < own.bounds[:, 1]])
    low, high = np.where(cut[0], ends[0], -CURVE_END), np.where(cut[1], ends[1], CURVE_END)

    def f(c: np.ndarray) -> np.ndarray:
        theta = theta_at(c)
        with np.errstate(all="ignore"):
            value = theirs.log_probs(theta) if isinstance(theirs, Marginals) else np.zeros(c.shape)
            return value - (own.log_probs(theta) if isinstance(own, Marginals) else 0.0)

    def g(c: np.ndarray) -> np.ndarray:
        if isinstance(theirs, Marginals):
            return np.zeros(c.shape)
        return (theta_at(c) - theirs.mean) / np.sqrt(np.diag(theirs.cov))

    precision = np.zeros((dim, dim))
    if isinstance(theirs, Gaussian):
        sd = np.sqrt(np.diag(theirs.cov))
        precision = np.linalg.inv(theirs.cov / np.outer(sd, sd))
    tables = (*_table(f, low, high), *_table(g, low, high))
    return PriorRatio(axes, low, high, cut.astype(float), *tables, precision, float(isinstance(own, Gaussian)))


def volume(prior: Prior) -> PriorRatio:
    """log |du/dθ| as a function of u, up to a constant: what turns a density of u into one of θ.

    It is r for a flat p', without bounds: f_i = log p_i(θ_i) + u_i²/2 for independent marginals, and constant otherwise.
    """
    law, dim = prior._law.law if isinstance(prior._law, Proposed) else prior._law, prior.dim
    low, high = np.full(dim, -CURVE_END), np.full(dim, CURVE_END)

    def f(u: np.ndarray) -> np.ndarray:
        if not isinstance(law, Marginals):
            return np.zeros(u.shape)
        with np.errstate(all="ignore"):
            near = np.clip(u, *law.reach.T)
            return law.log_probs(law.from_normal(near)) + near**2 / 2

    flat = np.zeros((dim, CURVE_KNOTS))
    return PriorRatio(np.eye(dim), low, high, np.zeros((2, dim)), *_table(f, low, high), flat, flat, np.zeros((dim, dim)), 0.0)


def check_overlap(prior: Prior, other: Any) -> None:
    """Refuse another prior with weight where nothing can have been simulated, and warn of one with much where little was.

    Args:
        prior: What was simulated from.
        other: What draws are to be made under.

    Raises:
        ScorefoldError: More than 1 in 10,000 of the other prior's draws lie outside the support of the first, parameters
            differ, or a density is not known; or most of it lies beyond 6 sd of the first, where nothing was simulated either.
    """
    _laws(prior, other)
    theta = other.sample(COUNTED, seed=0)
    low, high = prior.bounds.T
    outside = (theta < low) | (theta > high)
    if outside.any(axis=1).mean() > OUTSIDE:
        i = int(outside.mean(axis=0).argmax())
        raise ScorefoldError(
            f"expected another prior within the support of the one that was simulated from, where {prior.names[i]!r} goes from "
            f"{low[i]:.6g} to {high[i]:.6g}; got one with {outside[:, i].mean():.2%} of its weight outside. Cut it to that "
            "support, or simulate from a wider prior."
        )
    u = _own_space(prior, np.clip(theta, low, high))
    beyond = np.abs(u) > NOWHERE
    share = beyond.any(axis=1).mean()
    if share > MOST_NOWHERE:
        i = int(beyond.mean(axis=0).argmax())
        raise ScorefoldError(
            f"expected another prior where simulations can have been; got one with {share:.0%} of its weight beyond "
            f"{NOWHERE:.0f} prior sd, most of all of {prior.names[i]!r}. Simulate from a prior that covers both."
        )
    each = np.abs(u) > stats.norm.isf(FAR_SHARE / 2)
    far = each.any(axis=1) | (np.square(u).sum(axis=1) > stats.chi2.isf(FAR_SHARE, prior.dim))
    own = 1 - (1 - FAR_SHARE) ** prior.dim  # what the prior itself has there, by its single numbers
    if far.mean() - own > WEIGHT_FAR_OUT:
        where = f", most of all of {prior.names[int(each.mean(axis=0).argmax())]!r}" if each.any() else ""
        warnings.warn(
            f"{far.mean():.0%} of the other prior's weight lies where fewer than {own + FAR_SHARE:.1%} of the simulations "
            f"were{where}. If the posterior is there, too, its draws rest on few simulations; simulate from a prior that "
            "covers both.",
            ScorefoldWarning,
            stacklevel=5,
        )


def _own_space(prior: Prior, theta: np.ndarray) -> np.ndarray:
    """u of the prior itself, also for one that a proposal stands for."""
    law = prior._law.law if isinstance(prior._law, Proposed) else prior._law
    with np.errstate(all="ignore"):
        return np.clip(law.to_normal(theta), *law.reach.T)


def _laws(prior: Prior, other: Any) -> tuple[Marginals | Gaussian, Marginals | Gaussian]:
    if not isinstance(other, Prior):
        raise ScorefoldError(f"expected another prior as an sf.Prior; got {type(other).__name__}. Build one with sf.Prior(…).")
    if other.names != prior.names:
        raise ScorefoldError(
            f"expected another prior of the same parameters in the same order, {', '.join(prior.names)}; got "
            f"{', '.join(other.names)}"
        )
    own = prior._law.law if isinstance(prior._law, Proposed) else prior._law
    theirs = other._law
    for law, what in ((own, "that was simulated from"), (theirs, "to change to")):
        if isinstance(law, Whitened | Proposed):
            raise ScorefoldError(
                f"expected a prior {what} whose density is known; got one from draws, or a proposal. Write it down as a "
                "distribution."
            )
    return own, theirs  # type: ignore[return-value]


def _table(
    of: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray
) -> tuple[Float[np.ndarray, "dim knots"], Float[np.ndarray, "dim knots"]]:
    """Values and slopes of a function of every coordinate."""
    knots = low + (high - low) * np.linspace(0, 1, CURVE_KNOTS)[:, None]
    # A density may be 0 or infinite at the very end.
    margin = 1e-9 * (high - low)
    knots = np.clip(knots, low + margin, high - margin)
    step = CURVE_STEP * (high - low) / (CURVE_KNOTS - 1)
    right, left = np.minimum(knots + step, high - margin), np.maximum(knots - step, low + margin)
    slope = (of(right) - of(left)) / (right - left)
    values = _filled(of(knots).T)
    return values, np.clip(np.nan_to_num(slope.T, nan=0.0, posinf=STEEPEST, neginf=-STEEPEST), -STEEPEST, STEEPEST)


def _filled(rows: np.ndarray) -> np.ndarray:
    """The values, with the nearest finite one where one is not finite."""
    place = np.arange(rows.shape[1])
    for row in rows:
        good = np.isfinite(row)
        if good.any() and not good.all():
            row[~good] = np.interp(place[~good], place[good], row[good])
    return rows
