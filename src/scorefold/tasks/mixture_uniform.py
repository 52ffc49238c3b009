"""The mixture of a wide and a narrow Gaussian with a flat prior, in ten dimensions.

    θ ~ U(-10, 10)¹⁰,   x | θ ~ ½ N(θ, 2.25 Σ) + ½ N(θ, Σ/9),   Σ = diag(0.6 … 1.4),

the likelihood of `mixture.py` under a prior that says nothing but where the box is. Write z_j for the component of x_j
and s_z for its factor. Given all n of them, with Λ_z = Σ⁻¹ Σ_j 1/s_{z_j} and μ_z = Λ_z⁻¹ Σ⁻¹ Σ_j x_j / s_{z_j},

    θ | z, x ~ N(μ_z, Λ_z⁻¹) cut to the box,
    p(z|x) ∝ |Λ_z|^{-1/2} ∏_j s_{z_j}^{-5} exp(½ μ_zᵀ Λ_z μ_z - ½ Σ_j |x_j|² / s_{z_j}) P_z,

where |x|² is xᵀ Σ⁻¹ x and P_z the mass of N(μ_z, Λ_z⁻¹) in the box, a product over the dimensions. Up to n = 16 all 2ⁿ
arrangements are written out and drawn from, which is exact. Beyond, every draw is the end of its own Gibbs chain, z |
θ, x then θ | z, x, from a start as if every component were wide; `mixture.py` says why not before, and why that is
enough.

Reference: "Compositional score modeling for simulation-based inference", Geffner, Papamakarios and Mnih, 2023, for the
likelihood.
"""

import jax
import numpy as np
from scipy import stats
from scipy.special import expit

from scorefold.prior import Prior
from scorefold.simulation.batched import Batched
from scorefold.tasks import cut_normal
from scorefold.tasks.gaussian import DIM, VARIANCES
from scorefold.tasks.mixture import ENUMERATED, SCALES, SWEEPS, log_likelihood, numpy_simulator, simulate_one
from scorefold.tasks.task import Task, checked, stream
from scorefold.types import Float

PRIOR_EDGE = 10.0
"""Of the prior."""
PAIRS_AT_ONCE = 2**22
"""Draws × observations held in memory together."""

Observations = Float[np.ndarray, "obs dim"]
Rows = Float[np.ndarray, "rows dim"]


def reference(x_obs: np.ndarray, draws: int, seed: int) -> Float[np.ndarray, "draws dim"]:
    """Draw θ from the posterior given the observations (n, 10), independently: exactly up to n = 16, by Gibbs beyond.

    Observations of another shape, or that are not finite, are a ScorefoldError.
    """
    x, rng = checked(x_obs, DIM), stream(seed, "reference")
    if len(x) <= ENUMERATED:
        return draw_enumerated(x, draws, rng)
    batch = max(1, PAIRS_AT_ONCE // len(x))
    sizes = [min(batch, draws - done) for done in range(0, draws, batch)]
    return np.concatenate([draw_gibbs(x, size, rng) for size in sizes])


def draw_enumerated(x: Observations, draws: int, rng: np.random.Generator) -> Rows:
    """Draw θ from the posterior written out as a mixture of 2ⁿ Gaussians, each cut to the box; for few observations only."""
    n = len(x)
    inverse = 1 / SCALES[(np.arange(2**n)[:, None] >> np.arange(n)) & 1]
    mean, precision = conditional(x, inverse)
    log_weights = (
        np.sum(precision * mean**2 - np.log(precision), axis=1)
        - inverse @ np.sum(x**2 / VARIANCES, axis=1)
        + DIM * np.log(inverse).sum(1)
    ) / 2 + cut_normal.log_mass(*_ends(mean, precision)).sum(1)
    weights = np.exp(log_weights - log_weights.max())
    z = rng.choice(len(weights), size=draws, p=weights / weights.sum())
    return draw_in_box(mean[z], precision[z], rng)


def draw_gibbs(x: Observations, draws: int, rng: np.random.Generator) -> Rows:
    """Draw θ from the posterior by Gibbs sampling: the ends of as many independent chains as draws are asked for."""
    return gibbs(x, wide_start(x, draws, rng), SWEEPS, rng)


def wide_start(x: Observations, draws: int, rng: np.random.Generator) -> Rows:
    """Draw the θ where chains start, one row each: from the posterior as if every component were wide."""
    return draw_in_box(*conditional(x, np.full((draws, len(x)), 1 / SCALES[0])), rng)


def gibbs(x: Observations, theta: Rows, sweeps: int, rng: np.random.Generator) -> Rows:
    """Run Gibbs chains from these starts, one row each, for so many sweeps, and return their ends."""
    for _ in range(sweeps):
        narrow = rng.uniform(size=(len(theta), len(x))) < expit(log_odds_narrow(theta, x))
        theta = draw_in_box(*conditional(x, np.where(narrow, 1 / SCALES[1], 1 / SCALES[0])), rng)
    return theta


def log_odds_narrow(theta: Rows, x: Observations) -> Float[np.ndarray, "rows obs"]:
    """For every row of θ and every observation, the log odds of the narrow component against the wide one."""
    white_theta, white_x = theta / np.sqrt(VARIANCES), x / np.sqrt(VARIANCES)
    distance = np.sum(white_theta**2, axis=1)[:, None] - 2 * white_theta @ white_x.T + np.sum(white_x**2, axis=1)
    return 0.5 * (DIM * np.log(SCALES[0] / SCALES[1]) - distance * (1 / SCALES[1] - 1 / SCALES[0]))


def conditional(x: Observations, inverse: Float[np.ndarray, "rows obs"]) -> tuple[Rows, Rows]:
    """The mean μ_z and the diagonal of the precision Λ_z of θ, for rows of inverse factors 1/s_{z_j}."""
    total = inverse.sum(1, keepdims=True)
    return inverse @ x / total, total / VARIANCES


def draw_in_box(mean: Rows, precision: Rows, rng: np.random.Generator) -> Rows:
    """Draw from normal distributions cut to the box, one for each entry of mean and precision, by inversion."""
    inside = cut_normal.quantile(*_ends(mean, precision), rng.uniform(size=mean.shape))
    return np.clip(mean + inside / np.sqrt(precision), -PRIOR_EDGE, PRIOR_EDGE)


def _ends(mean: Rows, precision: Rows) -> tuple[Rows, Rows]:
    """The box's ends, in sd from the mean."""
    return (-PRIOR_EDGE - mean) * np.sqrt(precision), (PRIOR_EDGE - mean) * np.sqrt(precision)


def task() -> Task:
    """The mixture with a uniform prior on a wide box, against which the posterior is very narrow.

    The reference is drawn by Gibbs.
    """
    return Task(
        name="mixture_uniform",
        title="Mixture of Gaussians with a flat prior, 10-D",
        description="The common mean of a wide and a narrow 10-D Gaussian, anywhere in a wide box.",
        prior=Prior({f"theta_{i}": stats.uniform(-PRIOR_EDGE, 2 * PRIOR_EDGE) for i in range(1, DIM + 1)}),
        simulator=Batched(jax.vmap(simulate_one)),
        log_likelihood=log_likelihood,
        reference=reference,
        reference_kind="Gibbs",
        numpy_simulator=numpy_simulator,
    )
