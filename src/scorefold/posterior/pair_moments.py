"""What scores at pairs of a draw and a set simulated from it say: how far widths are off, and what to take away.

A straight line is laid through the scores g(u_k, X_k) of `check.py`. The widths of the draws are off by what the line and the
second-moment twin say. With e the residuals of the line and B its slope, along each parameter and in units of the draws' own
precision, let J = (n/m) E[e²], K = -(n/m) E[∇g] and B likewise. The draws have the precision 1 = K + that of the prior; the
right one of the corrected score (`score/local_mean.py`) is 1 + (K+B)²/J - K, to first order 1 - (J - K) + 2B. A score that is
c times too large has J/K = c and B = 0, one that misses by B u has J - K = B.

`LocalMean` takes away what the line and the twin find, as far as the simulations can tell: intercept, slope and D are each
shrunk towards 0 by the positive-part James–Stein factor 1 - (their number) / χ² ("Estimation with quadratic loss", James and
Stein, 1961).
"""

from typing import NamedTuple

import numpy as np

from scorefold.posterior.trust import Around, Disagreement
from scorefold.score.local_mean import LocalMean
from scorefold.types import Float

REMAINS = 0.2
"""PROVISIONAL: the share of a corrected shift that is left; on SIR and Lotka–Volterra at n = 30 it was 0.1 to 0.3."""
LEAST_PRECISION = 0.05
"""Of the right one, in units of the draws'."""
SLOPE_BOUNDS = (-0.75, 3.0)
"""Of the line that is taken away, where the composed score's slope is -1: widths change by a factor of two at most."""
WEIGHT_BOUNDS = (0.25, 4.0)
"""No direction is weighed by less, or by more."""
RIDGE = 1e-12
"""Of the mean spread: scores of more parameters than an observation has numbers may lie in a plane."""


class Pairs(NamedTuple):
    """g and its derivative at K pairs of u and a set."""

    score: Float[np.ndarray, "pairs dim"]
    jacobian: Float[np.ndarray, "pairs dim dim"]


class Moments(NamedTuple):
    """The moments of g over the pairs, times the number of sets."""

    offset: np.ndarray
    """(dim,) of the line at the draws' mean"""
    error: np.ndarray
    """(dim, dim), its covariance"""
    slope: np.ndarray
    slope_error: np.ndarray
    """(dim, dim): its covariance is the spread's, in rows, times this, in columns."""
    slope_chance: float
    """χ² of the slope over its number of entries; about 1 where there is none."""
    twins: np.ndarray
    """(pairs, dim, dim): e eᵀ + ∇g"""
    spread: np.ndarray
    """(dim, dim): mean e eᵀ"""


def with_ridge(spread: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """The covariance of scores with a little more on its diagonal, so that it has an inverse."""
    dim = len(spread)
    return spread + (RIDGE * np.trace(spread) / dim + 1e-30) * np.eye(dim)


def moments(pairs: Pairs, off: np.ndarray, times: float) -> Moments:
    """The line through the scores of pairs, and what its residuals say.

    Args:
        pairs: Scores and their derivatives, of K pairs.
        off: (K, dim), where their draws lie from the mean of all draws.
        times: n/m, how many sets of the pairs' size the observations make.

    Returns:
        The `Moments`; offset, slope, twins and spread are those of the composed score, `times` as large.
    """
    count, dim = off.shape
    design = np.concatenate([np.ones((count, 1)), off], axis=1)
    gram = np.linalg.inv(design.T @ design + 1e-12 * np.trace(design.T @ design) * np.eye(dim + 1))
    line = gram @ design.T @ pairs.score
    residual = (pairs.score - design @ line) * np.sqrt(count / max(count - dim - 1, 1))
    spread = residual.T @ residual / count
    spread = with_ridge(spread)
    slope = line[1:].T
    chi = np.einsum("de,df,fg,eg->", slope, np.linalg.inv(spread), slope, np.linalg.inv(gram[1:, 1:]), optimize=True)
    jacobian = (pairs.jacobian + np.swapaxes(pairs.jacobian, 1, 2)) / 2
    twins = residual[:, :, None] * residual[:, None] + jacobian
    return Moments(
        times * line[0], times**2 * gram[0, 0] * spread, times * slope, times * gram[1:, 1:], float(chi) / dim**2,
        times * twins, times * spread,
    )  # fmt: skip


def of_observations(scores: Float[np.ndarray, "members obs dim"]) -> Float[np.ndarray, "dim dim"]:
    """The covariance of what members' scores of n observations leave open that no simulation of others can show.

    With d_ij what member i says of observation j, less the mean over members, the mean of d_ij over all observations that could
    be is what simulations tell. What is left of Σ_j d_ij for those that are has the covariance n Cov_j(d_i).
    """
    members, n, _ = scores.shape
    off = scores - scores.mean(axis=0)
    off = off - off.mean(axis=1, keepdims=True)
    return np.einsum("ijd,ije->de", off, off) * n / (n - 1) / (members - 1)


def correction(found: Moments, u: np.ndarray, n: int, noise: float, errors: tuple[np.ndarray, np.ndarray]) -> LocalMean:
    """What is to be taken away from the score of one observation, around some draws, as far as the simulations can tell.

    Args:
        found: What the scores at pairs say.
        u: (draws, dim), the draws that were checked.
        n: How many observations they are given.
        noise: 1 - γ of the level that they come from.
        errors: The covariance of the error of the composed score that is left, and the standard errors of their widths.

    Returns:
        A `LocalMean`, which a corrected posterior carries.
    """
    dim = u.shape[1]
    values, axes = np.linalg.eigh(np.cov(u, rowvar=False).reshape(dim, dim))
    root, inverse = (axes * np.sqrt(values)) @ axes.T, (axes / np.sqrt(values)) @ axes.T
    offset = _kept(dim, float(found.offset @ np.linalg.solve(found.error, found.offset))) * found.offset
    slope = inverse @ _stable(root @ sure(found) @ root) @ inverse
    # In the space where the draws are white: J, and K with the line taken away.
    twins = root @ (found.twins - (slope + slope.T) / 2) @ root
    surplus = twins.mean(axis=0)
    chance = twins.var(axis=0) / len(twins)
    upper = np.triu_indices(dim)
    surplus = _kept(len(upper[0]), float((surplus[upper] ** 2 / np.maximum(chance[upper], 1e-30)).sum())) * surplus
    spread = root @ found.spread @ root
    weight = _within((spread - surplus) @ np.linalg.inv(spread)) if surplus.any() else np.eye(dim)
    return LocalMean(
        centre=u.mean(axis=0),
        inverse=inverse,
        offset=offset / n,
        slope=slope / n,
        weight=inverse @ weight @ root,
        error=errors[0] / n**2,
        width_error=errors[1],
        noise=noise,
        spread=float(values.mean()),
    )


def sure(found: Moments) -> np.ndarray:
    """The slope, as far as it is one."""
    return _kept(1, found.slope_chance) * found.slope


def _kept(number: int, chi_squared: float) -> float:
    """Positive-part James–Stein: the share of so many estimates that is kept."""
    return max(0.0, 1 - number / max(chi_squared, 1e-30))


def _stable(slope: np.ndarray) -> np.ndarray:
    """The slope of b where draws are white, its symmetric part kept within bounds: the composed score falls by 1 there."""
    symmetric = (slope + slope.T) / 2
    values, axes = np.linalg.eigh(symmetric)
    return slope - symmetric + (axes * np.clip(values, *SLOPE_BOUNDS)) @ axes.T


def _within(weight: np.ndarray) -> np.ndarray:
    """Its singular values kept within bounds."""
    left, values, right = np.linalg.svd(weight)
    return left @ np.diag(np.clip(values, *WEIGHT_BOUNDS)) @ right


def widths(found: "Moments", around: Around) -> tuple[np.ndarray, np.ndarray]:
    """How far the widths of the draws are off, parameter by parameter.

    Args:
        found: What the scores at pairs say.
        around: The draws as a Gaussian.

    Returns:
        Log ratios of the draws' sds to the right ones, and their standard errors.
    """
    surplus, spread, slope = (2 * around.log_width(one) for one in (found.twins, found.spread, found.slope))
    curvature = spread - surplus.mean(axis=0)  # K
    precision = np.maximum(1 + (curvature + slope) ** 2 / np.maximum(spread, 1e-12) - curvature, LEAST_PRECISION)
    along = np.einsum("kd,de,ke->k", around.cross, found.slope_error, around.cross)
    own = np.einsum("kd,de,ke->k", around.cross, around.precision, around.cross)
    chance = surplus.var(axis=0) / len(surplus) + 4 * np.maximum(spread * along / np.maximum(own, 1e-300), 0.0)
    return np.log(precision) / 2, np.sqrt(chance) / precision / 2


def left_over(local: LocalMean, n: int, u: np.ndarray, theta: np.ndarray, found: Disagreement) -> Disagreement:
    """The errors that draws u of a corrected posterior have left.

    Those of the correction, a share of what it moved, and how far the members' slopes differ, since it is a straight line.
    """
    around = Around.draws(u, theta)
    chance = n * np.sqrt(np.maximum(np.diag(around.cross @ local.error @ around.cross.T), 0.0)) / around.sd
    moved = around.shift(around.precision @ (u.mean(axis=0) - local.centre))
    slopes = np.sqrt((found.log_width**2).sum(axis=0) / max(len(found.log_width) - 1, 1))
    shift = np.sqrt(chance**2 + (REMAINS * moved) ** 2 + slopes**2)
    return Disagreement(shift[None], np.hypot(local.width_error, slopes)[None])
