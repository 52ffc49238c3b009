"""Are observations, or draws, beyond what was simulated?

At fit time a curve is laid through the simulations, standardised x against u with its squares and products, and the
residuals' covariance R is kept:

    x ≈ W φ(u) + r,   d(x, u) = |R^{-1/2} (x - W φ(u))| / √features,

with the tail of d over the simulations, p(d) = p₀ (d / d₀)^{-1/ξ} beyond the quantile d₀ of 1 - p₀ ("A simple general
approach to inference about the tail of a distribution", Hill, 1975). At sampling, d is that of every observation at the
draws' mean φ. If the simulator made the observations and the draws are where their parameters are, then p(d) < α/n for any of
n observations in at most a share α of data sets, over the prior (Bonferroni). It is smaller than that where the observations
are like none simulated, and also where the draws are in the wrong place. Draws beyond 4 prior sd lie where hardly anything
was simulated.

N simulations alone, however well they are used, leave an error. Where all is Gaussian the line u | x that is fitted to them
has at x the error R (1 + xᵀΣ⁻¹x) / N, and in a sum over k sets, whose posterior is R/k wide, that is √(k (1 + |ū|²) / N)
posterior sd, with the draws' |ū|² in place of the standardised x's. All members share it, so that their disagreement does not
show it.
"""

from typing import NamedTuple

import numpy as np

from scorefold.score.standardize import Standardize, standardized
from scorefold.train.training_set import TrainingSet
from scorefold.types import Float

MOST_CURVE_CASES = 20_000
MOST_CURVE_FEATURES = 32
"""Of more, the leading principal components of the residuals are looked at."""
MOST_PRODUCTS = 10
"""Parameters up to which products of two are terms of the curve too."""
CURVE_RIDGE = 1e-4
TAIL = 0.05
"""p₀"""
LEAST_INDEX = 0.05
"""Of ξ: noise with sharp ends has no tail, and the curve is not exact."""
STRANGE, HARDLY_POSSIBLE = 0.01, 1e-4
"""Of n observations together: below the first the verdict is lowered by one, below the second by two."""
BEYOND_PRIOR, MOST_BEYOND = 4.0, 0.01
"""Prior sd, and the share of draws beyond."""


class Strangeness(NamedTuple):
    """How observations and draws lie to the simulations: what may lower the verdict on draws whose networks agree."""

    p_value: float
    """That simulated data sets have an observation as far from the curve, at most."""
    worst: int
    """Which observation is the farthest."""
    far: float
    """The share of draws beyond 4 prior sd."""

    def lowers(self) -> tuple[int, list[str]]:
        """By how much the verdict is lowered, and why."""
        lower, reasons = 0, []
        if self.p_value < STRANGE:
            lower = 2 if self.p_value < HARDLY_POSSIBLE else 1
            reasons.append(f"observation {self.worst} is unlike any simulation near the draws (p = {self.p_value:.1g})")
        if self.far > MOST_BEYOND:
            lower = max(lower, 1)
            reasons.append(
                f"{self.far:.0%} of the draws lie beyond {BEYOND_PRIOR:.0f} prior sd, where hardly anything was simulated"
            )
        return lower, reasons


class Reach(NamedTuple):
    """How far the simulations reach: a curve through them, the residuals' covariance and the tail of their distances.
    `reach_of` fits it, and a posterior carries it.
    """

    weight: Float[np.ndarray, "terms seen"]
    """W"""
    root: Float[np.ndarray, "seen kept"]
    """R^{-1/2} / √kept, for the components that are looked at"""
    start: float
    """d₀"""
    decay: float
    """ξ"""
    cases: int
    """N, that the networks and what is below them were fitted to."""

    def distances(self, z: Float[np.ndarray, "n seen"], u: Float[np.ndarray, "draws dim"]) -> Float[np.ndarray, " n"]:
        """d of standardised observations at the draws."""
        residual = z - terms(u).mean(axis=0) @ self.weight
        return np.linalg.norm(residual @ self.root, axis=1)

    def strangeness(self, standardize: Standardize, x: np.ndarray, u: np.ndarray) -> Strangeness:
        """How unlike the simulations observations and their draws are.

        Args:
            standardize: Of the observations.
            x: (n, features).
            u: (draws, dim), draws given them.

        Returns:
            A p-value for the observation that is farthest from the curve, and how many draws lie where hardly anything was
            simulated.
        """
        distance = self.distances(standardized(standardize, x).astype(np.float64), u)
        worst = int(distance.argmax())
        p = TAIL * (max(float(distance[worst]), self.start) / self.start) ** (-1 / self.decay)
        return Strangeness(min(1.0, len(x) * p), worst, float((np.abs(u) > BEYOND_PRIOR).any(axis=1).mean()))

    def floor(self, sets: int, u: Float[np.ndarray, "draws dim"]) -> float:
        """How far a mean is off, in posterior sd, by the number of simulations alone: √(k (1 + |ū|²) / N) for k sets."""
        return float(np.sqrt(sets * (1 + np.square(u.mean(axis=0)).sum()) / self.cases))

    def misfit(self, dim: int) -> str:
        """What is wrong with it for so many parameters, if it comes from a file; else nothing."""
        return "" if len(self.weight) == terms(np.zeros((1, dim))).shape[1] else "the curve should be for these parameters"

    def fault(self) -> str:
        """What is wrong with its numbers, if they come from a file; else nothing."""
        return (
            ""
            if self.start > 0 and self.decay > 0 and self.cases > 0
            else "there should be cases, and the tail of the distances should begin above 0 and fall"
        )


def reach_of(cases: TrainingSet, standardize: Standardize, copies: int = 1) -> Reach:
    """The reach of training cases, by the first observation of each that has one; a part of very many, each there `copies`
    times.
    """
    rows = np.flatnonzero(cases.sizes > 0)
    number = len(rows) if cases.stream is None else len(cases.stream.fold)
    rows = rows[:: -(-len(rows) // MOST_CURVE_CASES)]
    return fit_reach(standardized(standardize, cases.x[rows, 0]), cases.u[rows], number // copies)


def fit_reach(z: Float[np.ndarray, "cases x"], u: Float[np.ndarray, "cases dim"], cases: int | None = None) -> Reach:
    """The reach of standardised single observations and their parameters, of so many cases or of these."""
    z, u = np.asarray(z, np.float64), np.asarray(u, np.float64)
    phi = terms(u)
    weight = np.linalg.solve(phi.T @ phi + CURVE_RIDGE * len(u) * np.eye(phi.shape[1]), phi.T @ z)
    residual = z - phi @ weight
    values, vectors = np.linalg.eigh(residual.T @ residual / len(u))
    # What hardly varies says nothing in single precision.
    varies = int((values > max(1e-6 * values[-1], 1e-12)).sum())
    kept = slice(-min(max(varies, 1), MOST_CURVE_FEATURES), None)
    root = vectors[:, kept] / np.sqrt(np.maximum(values[kept], 1e-12) * len(values[kept]))
    distance = np.linalg.norm(residual @ root, axis=1)
    start = max(float(np.quantile(distance, 1 - TAIL)), 1e-12)
    beyond = distance[distance > start]
    index = float(np.log(beyond / start).mean()) if len(beyond) else 0.0
    return Reach(weight, root, start, max(index, LEAST_INDEX), cases or len(u))


def terms(u: Float[np.ndarray, "draws dim"]) -> Float[np.ndarray, "draws terms"]:
    """φ(u): 1, u, u² and, of few parameters, products of two."""
    dim = u.shape[1]
    rows, columns = np.triu_indices(dim) if dim <= MOST_PRODUCTS else (np.arange(dim), np.arange(dim))
    return np.concatenate([np.ones((len(u), 1)), u, u[:, rows] * u[:, columns]], axis=1)
