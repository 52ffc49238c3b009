"""A data set of any number of observations as a few numbers of fixed length, and what they predict of θ.

Every number of an observation is scaled by its median and its spread over all data sets, a = asinh((x - median) / spread),
which is a straight line in the middle and a logarithm in the tails. The summaries of a data set are, for every number, the mean
of a over its observations and, where there are several, the logarithm of their sd. The diagnostics that look at θ and the data
together work on these; they do not have to be sufficient, only to say something.

`predict` fits straight lines from the summaries and their squares to ψ(θ) = (a(θ), a(θ)²) by ridge regression, with the
penalty that generalised cross-validation favours ("Generalized cross-validation as a method for choosing a good ridge
parameter", Golub, Heath and Wahba, 1979). Either half of the data sets is predicted by what was fitted to the other half: for
a data set the prediction is then a function of its observations alone, as every test on ranks requires. With e the residual
and R its covariance,

    T(θ, x) = -eᵀ R⁻¹ e / 2

plays the log-likelihood's part in SBC where none is known: a posterior that ignores the data has draws far from the
prediction.
"""

from typing import NamedTuple

import numpy as np

from scorefold.errors import ScorefoldError
from scorefold.score.least_squares import gcv_ridge
from scorefold.types import Float

PENALTIES = np.geomspace(1e-3, 1e5, 33)
LEAST_FREE = 0.1
"""Share of the data sets that a fit leaves as degrees of freedom, at least."""
LEAST_SD = 0.01
FITTED = "fit to the data"
"""What T is called beside the parameters."""


class Scaling(NamedTuple):
    """Robust centre and spread of each number."""

    centre: Float[np.ndarray, " numbers"]
    spread: Float[np.ndarray, " numbers"]

    def __call__(self, values: Float[np.ndarray, "*rows numbers"]) -> Float[np.ndarray, "*rows numbers"]:
        """a; in the middle, 0, where a number is missing."""
        a = np.arcsinh((values - self.centre) / self.spread)
        return np.where(np.isnan(a), 0.0, a)

    def back(self, a: Float[np.ndarray, "*rows numbers"]) -> Float[np.ndarray, "*rows numbers"]:
        """The values that a came from."""
        return self.centre + self.spread * np.sinh(a)


def fit_scaling(values: Float[np.ndarray, "rows numbers"]) -> Scaling:
    """Median and interquartile range of each number, or its sd where more than half of the values are equal; NaN is missing."""
    values = np.where(np.isnan(values).all(axis=0), 0.0, values)  # of a number that is always missing
    low, centre, high = np.nanquantile(values, [0.25, 0.5, 0.75], axis=0)
    spread = (high - low) / 1.349
    spread = np.where(spread > 0, spread, np.nanstd(values, axis=0))
    return Scaling(centre, np.where(spread > 0, spread, 1.0))


def summaries(
    x: Float[np.ndarray, "datasets n numbers"], scaling: Scaling | None = None
) -> Float[np.ndarray, "datasets summaries"]:
    """Each data set as numbers of fixed length: the means of a over its observations, then the logarithms of their sds.

    `scaling` is fitted to all of the data sets unless given. Single observations have no sds.

    >>> summaries(np.random.default_rng(0).normal(size=(20, 5, 3))).shape
    (20, 6)
    """
    scaling = scaling or fit_scaling(x.reshape(-1, x.shape[2]))
    a = scaling(x)
    means = a.mean(axis=1)
    return means if x.shape[1] == 1 else np.concatenate([means, np.log(a.std(axis=1) + LEAST_SD)], axis=1)


class Prediction(NamedTuple):
    """What the summaries of each data set predict."""

    scaling: Scaling
    """Of θ."""
    psi: Float[np.ndarray, "datasets targets"]
    """The predicted ψ(θ)."""
    root: Float[np.ndarray, "datasets targets targets"]
    """Of R⁻¹: e @ root has the identity as covariance."""

    def log_density(self, theta: Float[np.ndarray, "datasets draws dim"]) -> Float[np.ndarray, "datasets draws"]:
        """T(θ, x), each data set's draws against its own observations."""
        e = _psi(self.scaling(theta)) - self.psi[:, None]
        return -np.sum((e @ self.root) ** 2, axis=2) / 2

    def quantity(
        self, truth: Float[np.ndarray, "datasets dim"], draws: Float[np.ndarray, "datasets draws dim"]
    ) -> dict[str, tuple[Float[np.ndarray, " datasets"], Float[np.ndarray, "datasets draws"]]]:
        """T at the truth and at the draws, by its name, as SBC takes it."""
        return {FITTED: (self.log_density(truth[:, None])[:, 0], self.log_density(draws))}

    def points(self, seed: int) -> Float[np.ndarray, "datasets dim"]:
        """A point for each data set near the prediction for it, one residual's length away in a random direction."""
        dim = len(self.scaling.centre)
        noise = np.random.default_rng([seed, 8]).standard_normal((len(self.psi), dim))
        residual_sd = 1 / np.linalg.norm(self.root[:, :dim], axis=2)
        return self.scaling.back(np.clip(self.psi[:, :dim] + residual_sd * noise, -6, 6))


def predict(theta: Float[np.ndarray, "datasets dim"], summary: Float[np.ndarray, "datasets summaries"]) -> Prediction:
    """Predict ψ(θ) from the summaries of each data set, by lines fitted to the other half of the data sets.

    Raises a ScorefoldError where there are fewer than 20 data sets, or not a θ for each.
    """
    if len(theta) != len(summary) or len(theta) < 20:
        raise ScorefoldError(f"expected summaries of at least 20 data sets, and θ for each; got {len(summary)}, {len(theta)}")
    scaling = fit_scaling(theta)
    target = _psi(scaling(theta))
    halves = np.array_split(np.arange(len(theta)), 2)
    psi, root = np.empty_like(target), np.empty((*target.shape, target.shape[1]))
    for own, other in (halves, halves[::-1]):
        sd = np.maximum(summary[other].std(axis=0), 1e-9)
        centre = summary[other].mean(axis=0)
        # Far outside of what was seen, a straight line is no guide.
        z_own, z_other = (_with_squares(np.clip((summary[half] - centre) / sd, -4, 4)) for half in (own, other))
        middle = target[other].mean(axis=0)
        fit = gcv_ridge(z_other, target[other] - middle, PENALTIES, LEAST_FREE)
        psi[own] = middle + z_own @ fit.coefficients
        # As they would be on data sets not seen, by generalised cross-validation.
        residual = (target[other] - middle - z_other @ fit.coefficients) * len(other) / fit.free
        root[own] = _whitening(residual)
    return Prediction(scaling, psi, root)


def _with_squares(z: Float[np.ndarray, "rows summaries"]) -> Float[np.ndarray, "rows terms"]:
    return np.concatenate([z, (z**2 - 1) / np.sqrt(2)], axis=1)


def _psi(a: Float[np.ndarray, "*rows dim"]) -> Float[np.ndarray, "*rows targets"]:
    return np.concatenate([a, a**2], axis=-1)


def _whitening(residual: Float[np.ndarray, "rows targets"]) -> Float[np.ndarray, "targets targets"]:
    """A root of the inverse covariance, shrunk towards its diagonal as much as the rows are few."""
    covariance = np.cov(residual, rowvar=False)
    diagonal = np.diag(np.diag(covariance) + 1e-9)
    few = residual.shape[1] / (residual.shape[1] + len(residual))
    return np.linalg.cholesky(np.linalg.inv((1 - few) * covariance + few * diagonal))
