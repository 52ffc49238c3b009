"""A conjugate Gaussian whose posterior is drawn in NumPy, right or with a planted fault.

θ ~ N(0, I), x_j ~ N(θ, I): the posterior is N(Σ_j x_j / (n + 1), I / (n + 1)). The folded one has x_j ~ N(|θ|, I), each
parameter's sign is lost, and its posterior has two mirrored modes.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats

FAULTS = ("narrow", "wide", "shifted", "lost mode", "prior", "wrong n")


class World(NamedTuple):
    truth: np.ndarray
    x: np.ndarray
    draws: np.ndarray

    @property
    def names(self):
        return tuple("abcdefgh"[: self.truth.shape[1]])

    @property
    def log_likelihood(self):
        """At the truth and at the draws, as SBC takes it."""

        def value(theta):
            return -((self.x[:, None] - theta[:, :, None]) ** 2).sum(axis=(2, 3)) / 2

        return {"log-likelihood": (value(self.truth[:, None])[:, 0], value(self.draws))}


def world(seed, datasets=300, draws=100, n=8, dim=2, fault=""):
    """Data sets and posterior draws for each of them."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((datasets, dim))
    folded = fault in ("lost mode", "folded")
    x = (np.abs(truth) if folded else truth)[:, None] + rng.standard_normal((datasets, n, dim))
    return World(truth, x, np.stack([posterior(one, draws, rng, fault) for one in x]))


def posterior(x, draws, rng, fault=""):
    """Draws (draws, dim) given x (n, dim)."""
    if fault == "wrong n":  # half of the observations are forgotten
        x = x[: len(x) // 2]
    n, dim = x.shape
    mean, sd = x.sum(axis=0) / (n + 1), (n + 1) ** -0.5
    if fault == "prior":
        return rng.standard_normal((draws, dim))
    if fault in ("lost mode", "folded"):
        size = stats.truncnorm.rvs(-mean / sd, np.inf, mean, sd, (draws, dim), random_state=rng)
        return size * rng.choice([-1.0, 1.0], (1 if fault == "lost mode" else draws, dim))
    width = {"narrow": 0.7, "wide": 1.4}.get(fault, 1.0)
    shift = 0.5 if fault == "shifted" else 0.0
    return mean + sd * (shift + width * rng.standard_normal((draws, dim)))
