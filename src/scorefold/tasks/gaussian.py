"""G-G: the mean of a Gaussian, in ten dimensions.

    θ ~ N(0, I),   x | θ ~ N(θ, Σ),   Σ = diag(0.6 … 1.4).

The posterior is conjugate: p(θ|x_1 … x_n) = N(Λ⁻¹ Σ⁻¹ Σ_j x_j, Λ⁻¹) with Λ = I + n Σ⁻¹.

Reference: "Compositional score modeling for simulation-based inference", Geffner, Papamakarios and Mnih,
2023.
"""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from scorefold.prior import Prior
from scorefold.simulation.batched import Batched
from scorefold.tasks.exact import GaussianMixture, single_log_density, single_score
from scorefold.tasks.task import Task, checked, stream
from scorefold.types import Float, Key, Observation, Scalar, Theta

DIM = 10
VARIANCES = np.linspace(0.6, 1.4, DIM)
"""The diagonal of Σ."""


def simulate_one(theta: Theta, key: Key) -> Observation:
    """Simulate one observation of shape (10,) at one θ from one random key, in JAX.

    The task's simulator is `jax.vmap` of it.
    """
    return theta + jnp.sqrt(VARIANCES) * jax.random.normal(key, (DIM,))


def numpy_simulator(theta: Float[np.ndarray, " dim"], rng: np.random.Generator) -> Float[np.ndarray, " dim"]:
    """Simulate one observation at θ with NumPy and SciPy alone, as a user's own simulator would be written.

    It agrees with `simulate_one` in distribution, not draw by draw.
    """
    return theta + np.sqrt(VARIANCES) * rng.standard_normal(DIM)


def log_likelihood(theta: Theta, x: Observation) -> Scalar:
    """log p(x|θ) of one observation at one θ: log N(x | θ, Σ) with the diagonal Σ of this task.

    It is there to check against; no method sees it.
    """
    return jax.scipy.stats.norm.logpdf(x, theta, jnp.sqrt(VARIANCES)).sum()


def single_posterior(x: Observation) -> GaussianMixture:
    """p(θ|x) of one observation, which is one Gaussian, as a mixture of one component."""
    precision = 1 + 1 / jnp.asarray(VARIANCES)
    return GaussianMixture(jnp.zeros(1), (x / VARIANCES / precision)[None], (1 / precision)[None])


def reference(x_obs: np.ndarray, draws: int, seed: int) -> Float[np.ndarray, "draws dim"]:
    """Draw θ from the posterior given the observations (n, 10), which is conjugate: a Gaussian that is written down.

    Observations of another shape, or that are not finite, are a ScorefoldError.
    """
    x = checked(x_obs, DIM)
    precision = 1 + len(x) / VARIANCES
    mean = x.sum(0) / VARIANCES / precision
    return mean + stream(seed, "reference").standard_normal((draws, DIM)) / np.sqrt(precision)


def standard_normal_prior(dim: int) -> Prior:
    """The prior N(0, I) of `dim` parameters that are called theta_1, theta_2, …"""
    return Prior({f"theta_{i}": stats.norm(0, 1) for i in range(1, dim + 1)})


def task() -> Task:
    """The task of a Gaussian mean (G-G): everything is Gaussian, so that what is wrong is the network or the sampler.

    Exact scores are known, and the reference is conjugate.
    """
    return Task(
        name="gaussian",
        title="Gaussian, 10-D (G-G)",
        description="The mean of a 10-D Gaussian with known diagonal covariance. The posterior is Gaussian.",
        prior=standard_normal_prior(DIM),
        simulator=Batched(jax.vmap(simulate_one)),
        log_likelihood=log_likelihood,
        reference=reference,
        reference_kind="conjugate",
        numpy_simulator=numpy_simulator,
        single_score=single_score(single_posterior),
        single_log_density=single_log_density(single_posterior),
    )
