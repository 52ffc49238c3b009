"""A prior known from draws θ_1 … θ_N only: each parameter without its bounds, then all of them whitened.

    y_i = θ_i                          without bounds,
          log(θ_i - low)               above a lower one,
          -log(high - θ_i)             below an upper one,
          Φ⁻¹((θ_i - low)/(high - low))  between two (a uniform parameter becomes N(0, 1));
    u = L⁻¹ (y - μ),   μ and L Lᵀ the mean and the covariance of the draws' y.

So u has mean 0 and covariance I and unbounded support, but it is N(0, I) only if y is Gaussian; the score of the diffused prior
has to be learned from the draws. What is learned wrong counts n times in a posterior of n observations: hence Φ⁻¹ and not the
logit, for parameters between two bounds are more often uniform than logistic.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from scipy.special import ndtr, ndtri

from scorefold import settings
from scorefold.errors import ScorefoldError, closest
from scorefold.prior.multivariate_normal import cholesky
from scorefold.prior.normal_space import U_MAX, Values
from scorefold.shown import listed
from scorefold.types import Float

Rows = Float[np.ndarray, "count dim"]
Bounds = Float[np.ndarray, "dim 2"]

FEWEST_DRAWS = 100
FEWEST_DRAWS_EACH = 10
"""So many draws at least, in all and for each parameter."""
Y_MAX = 700.0
"""exp(Y_MAX) is finite."""


class Whitened:
    """The law of a prior known from draws: the map that whitens them, and the draws where they are at hand."""

    def __init__(self, bounds: Bounds, mean: np.ndarray, L: np.ndarray, rows: Rows | None, count: int, sha256: str):
        self.bounds, self.mean, self.L = bounds, mean, L
        self.rows, self.count, self.sha256 = rows, count, sha256
        self.reach = np.tile([-U_MAX, U_MAX], (len(mean), 1))

    def to_normal(self, theta: Values) -> Values:
        """Map θ to u, row by row: without bounds, then with mean 0 and covariance I over the draws."""
        off = (unbounded(theta, self.bounds) - self.mean).reshape(-1, len(self.mean))
        return linalg.solve_triangular(self.L, off.T, lower=True, check_finite=False).T.reshape(theta.shape)

    def from_normal(self, u: Values) -> Values:
        """Map u in the N(0, I) space back to θ, row by row; the inverse of `to_normal`.

        A row of θ is the same however many rows there are.
        """
        # Summed in this order rows do not depend on how many there are.
        y = self.mean + sum(u[..., j, None] * self.L[:, j] for j in range(len(self.mean)))
        return bounded(y, self.bounds)

    def log_volume(self, theta: Values) -> Float[np.ndarray, "*batch"]:
        """log |du/dθ| at each row of θ."""
        low, high = self.bounds.T
        below, above = np.isfinite(low), np.isfinite(high)
        with np.errstate(all="ignore"):
            y = unbounded(theta, self.bounds)
            between = y**2 / 2 + np.log(2 * np.pi) / 2 - np.log(high - low)
            one_sided = -np.log(np.where(below, theta - low, high - theta))
        each = np.where(below & above, between, np.where(below | above, one_sided, 0.0))
        return np.asarray(each.sum(axis=-1) - np.log(np.diag(self.L)).sum())

    def theta(self) -> Rows:
        """The draws θ (count, dim); where a file came without them, an error that says how to get them back."""
        if self.rows is None:
            raise ScorefoldError(
                f"expected the draws that this prior was made from; got only their number, {self.count}: the file that it "
                "comes from is without them. Make the prior again with Prior.from_draws."
            )
        return self.rows

    def sample(self, count: int, rng: np.random.Generator) -> Rows:
        """Take `count` of the draws in a random order, each once while they last, and then again in another order.

        So no draw is there twice before all are there once.
        """
        rows = self.theta()
        rounds = [rng.permutation(len(rows)) for _ in range(-(-count // len(rows)))]
        return rows[np.concatenate([*rounds, np.zeros(0, int)])[:count]]

    def describe(self) -> dict[str, Any]:
        """The map, the number of draws and their fingerprint as strict JSON can hold them; the draws are kept beside it."""
        return {
            "kind": "draws",
            "bounds": [[end if np.isfinite(end) else str(end) for end in pair] for pair in self.bounds.tolist()],
            "mean": self.mean.tolist(),
            "factor": self.L.tolist(),
            "count": self.count,
            "sha256": self.sha256,
        }

    @classmethod
    def described(cls, description: Mapping[str, Any], rows: Rows | None) -> "Whitened":
        """The law that gave this description, with its draws or without them; what does not fit together is refused."""
        bounds, mean, L = (np.array(description[k], np.float64) for k in ("bounds", "mean", "factor"))
        dim, count, sha256 = len(mean), description["count"], description["sha256"]
        if bounds.shape != (dim, 2) or L.shape != (dim, dim) or not (np.isfinite(mean).all() and np.isfinite(L).all()):
            raise ScorefoldError(f"bounds, mean and factor do not belong together: {bounds.shape}, {mean.shape}, {L.shape}")
        if (np.diag(L) <= 0).any() or not (bounds[:, 0] < bounds[:, 1]).all():
            raise ScorefoldError("the factor or the bounds are not those of a prior")
        if rows is not None and (rows.shape != (count, dim) or fingerprint(rows) != sha256):
            raise ScorefoldError("the draws do not have the fingerprint that they were written with")
        return cls(bounds, mean, L, rows, int(count), str(sha256))

    def text(self, names: tuple[str, ...]) -> str:
        """The law in words, with the parameters' names, for the representation of a `Prior`."""
        within = [f" in ({low:.6g}, {high:.6g})" if np.isfinite([low, high]).any() else "" for low, high in self.bounds]
        return f"{listed([a + b for a, b in zip(names, within, strict=True)])} ~ {self.count} draws"


def fit_draws(theta: Rows, names: tuple[str, ...], bounds: Bounds) -> Whitened:
    """Fit the law of these draws: check that they vary and lie between their bounds, then compute the map that whitens them.

    A ScorefoldError names the parameter that is at fault.
    """
    outside = (theta <= bounds[:, 0]) | (theta >= bounds[:, 1])
    if outside.any():
        row, i = map(int, np.argwhere(outside)[0])
        raise ScorefoldError(
            f"expected draws of {names[i]!r} between its bounds, {bounds[i, 0]:.6g} to {bounds[i, 1]:.6g}, and not on them; "
            f"got {theta[row, i]:.6g} ({outside[:, i].sum()} of {len(theta)} draws). Widen the bounds or leave these draws out."
        )
    with np.errstate(over="ignore"):
        constant = np.ptp(theta, axis=0) <= 1e-12 * np.abs(theta).max(axis=0)
    if constant.any():
        i = int(constant.argmax())
        raise ScorefoldError(
            f"expected draws of {names[i]!r} that vary; got {theta[0, i]:.6g} in all of them. Leave the parameter out of the "
            "prior and set it inside the simulator."
        )
    y = unbounded(theta, bounds)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = y.mean(axis=0)
        cov = (y - mean).T @ (y - mean) / len(y)
    if not np.isfinite(cov).all():
        raise ScorefoldError(
            f"expected draws whose squares float64 can hold; got values up to {np.abs(theta).max():.3g}. Give the parameter in "
            "other units, or bounds so that its logarithm is used."
        )
    L = cholesky(cov)
    return Whitened(bounds, mean, L, theta, len(theta), fingerprint(theta))


def checked_draws(theta: ArrayLike) -> Rows:
    """The draws as a new float64 array (count, dim), or an error that says what is wrong with them."""
    rows = np.array(settings.numbers("draws", theta), order="C")
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise ScorefoldError(
            f"expected draws of shape (count, dim), one per row; got shape {rows.shape}. Write draws of a single parameter as "
            "theta[:, None]."
        )
    if not np.isfinite(rows).all():
        raise ScorefoldError(
            f"expected finite draws; got {np.sum(~np.isfinite(rows).all(axis=1))} of {len(rows)} with NaN or infinity. Leave "
            "them out only if they do not belong to the prior."
        )
    fewest = max(FEWEST_DRAWS, FEWEST_DRAWS_EACH * rows.shape[1])
    if len(rows) < fewest:
        raise ScorefoldError(
            f"expected at least {fewest} draws for {rows.shape[1]} parameters; got {len(rows)}. Draw more, or write the prior "
            "down as a distribution."
        )
    return rows


def bounds_of(bounds: Mapping[str, Sequence[float | int]], names: tuple[str, ...]) -> Bounds:
    """The bounds (dim, 2) in the order of the names, from a mapping by name; a name that is not in it has infinite ones."""
    table = np.tile([-np.inf, np.inf], (len(names), 1))
    if not isinstance(bounds, Mapping):
        raise ScorefoldError(f"expected bounds by name, as in {{'a': (0, 1)}}; got {bounds!r:.60}")
    for name, pair in bounds.items():
        if name not in names:
            raise ScorefoldError(f"expected bounds of parameters by name; got {name!r}. {closest(str(name), list(names))}")
        try:
            low, high = (float(end) for end in pair)
        except (TypeError, ValueError):
            low, high = np.nan, np.nan
        if not low < high:
            raise ScorefoldError(
                f"expected the bounds of {name!r} as (low, high) with low < high, ±inf for none; got {pair!r:.60}. A "
                "parameter that cannot vary does not belong to the prior."
            )
        table[names.index(name)] = low, high
    return table


def unbounded(theta: Values, bounds: Bounds) -> Values:
    """Map θ to y, which has no bounds: as it is, by a logarithm or by Φ⁻¹; finite also at the bounds."""
    low, high = bounds.T
    below, above = np.isfinite(low), np.isfinite(high)
    with np.errstate(all="ignore"):
        theta = np.clip(theta, np.nextafter(low, np.inf), np.nextafter(high, -np.inf))
        from_low, to_high, width = theta - low, high - theta, high - low
        between = np.where(from_low < to_high, ndtri(from_low / width), -ndtri(to_high / width))
        one_sided = np.where(below, np.log(from_low), -np.log(to_high))
    return np.where(below & above, between, np.where(below | above, one_sided, theta))


def bounded(y: Values, bounds: Bounds) -> Values:
    """Map y back to θ, finite and within the bounds; the inverse of `unbounded`."""
    low, high = bounds.T
    below, above = np.isfinite(low), np.isfinite(high)
    with np.errstate(all="ignore"):
        size = np.exp(np.clip(y, -Y_MAX, Y_MAX))
        one_sided = np.where(below, low + size, high - 1 / size)
        part = ndtr(-np.abs(y)) * (high - low)
        between = np.clip(np.where(y < 0, low + part, high - part), low, high)
    return np.where(below & above, between, np.where(below | above, one_sided, y))


def fingerprint(theta: Rows) -> str:
    """The SHA-256 of the draws as little-endian float64, row by row, by which a file's draws are recognised."""
    return hashlib.sha256(np.ascontiguousarray(theta, "<f8").tobytes()).hexdigest()
