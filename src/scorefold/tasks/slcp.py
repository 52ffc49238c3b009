"""SLCP: mean, spread and correlation of four points in the plane, in five dimensions.

    θ ~ U(-3, 3)⁵,   x = 4 points ~ N(m, C),   m = (θ_1, θ_2),
    C_11 = s_1², C_22 = s_2², C_12 = ρ s_1 s_2   with s_1 = θ_3², s_2 = θ_4², ρ = tanh θ_5.

A simple likelihood, but a complex posterior. θ_3 and θ_4 enter through their squares and have even priors, so that for
any observations the posterior is the same in all four quadrants of (θ_3, θ_4): four equal modes of weight ¼ each.

The reference is exact. n observations are N = 4n points, with mean x̄ and scatter matrix S = Σ (x - x̄)(x - x̄)ᵀ. Given
C, m ~ N(x̄, C/N) cut to the box. With m integrated out, but for that cut, the likelihood of C is |C|^{-(N-1)/2}
e^{-tr(C⁻¹S)/2}. The flat prior of θ_3 … θ_5 is, up to a constant, the density s_1^{-1/2} s_2^{-1/2} (1-ρ²)⁻¹ of (s_1,
s_2, ρ), and as dC_11 dC_12 dC_22 = 4 s_1² s_2² ds_1 ds_2 dρ, the density of C is

    (s_1 s_2)^{-5/2} (1-ρ²)⁻¹ = |C|^{-5/4} (1-ρ²)^{1/4}.

So p(C|x) is an inverse Wishart density with N - 3/2 degrees of freedom and scale S, times (1-ρ²)^{1/4} ≤ 1, cut to the
box. Draw C from the first, keep it with probability (1-ρ²)^{1/4}, draw m from N(x̄, C/N), keep both if θ lies in the
box, and toss a coin for the sign of θ_3 and one for that of θ_4. These are independent draws for any n, and no step is
approximate.

Reference: "Sequential neural likelihood", Papamakarios, Sterratt and Murray, 2019; "Benchmarking simulation-based
inference", Lueckmann, Boelts, Greenberg, Gonçalves and Macke, 2021, which adds 10⁻⁶ to C_11 and C_22; here nothing is
added.
"""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from scorefold.errors import ScorefoldError
from scorefold.prior import Prior
from scorefold.simulation.batched import Batched
from scorefold.tasks.task import Task, checked, stream
from scorefold.types import Array, Float, Key, Observation, Scalar, Theta

DIM, POINTS = 5, 4
PRIOR_EDGE = 3.0
"""Of the prior."""
FEWEST_PROPOSALS, MOST_PROPOSALS = 2**12, 2**18
"""At once."""
PATIENCE = 2**28
"""Proposals, over which the observations count as impossible."""


def simulate_one(theta: Theta, key: Key) -> Observation:
    """Simulate one observation (8,) at one θ from one random key: x and y of every point in turn."""
    e = jax.random.normal(key, (POINTS, 2))
    rho, free = jnp.tanh(theta[4]), 1 / jnp.cosh(theta[4])
    return jnp.stack(
        [theta[0] + theta[2] ** 2 * e[:, 0], theta[1] + theta[3] ** 2 * (rho * e[:, 0] + free * e[:, 1])], axis=1
    ).ravel()


def numpy_simulator(theta: Float[np.ndarray, "5"], rng: np.random.Generator) -> Float[np.ndarray, "8"]:
    """Simulate one observation at θ with NumPy and SciPy alone, as a user's own simulator would be written.

    It agrees with `simulate_one` in distribution, not draw by draw.
    """
    s_1, s_2, rho = theta[2] ** 2, theta[3] ** 2, np.tanh(theta[4])
    covariance = [[s_1**2, rho * s_1 * s_2], [rho * s_1 * s_2, s_2**2]]
    return rng.multivariate_normal(theta[:2], covariance, size=POINTS).ravel()


def log_likelihood(theta: Theta, x: Observation) -> Scalar:
    """log p(x|θ) of one observation at one θ: the sum of the four points' bivariate normal log densities.

    It is there to check against; no method sees it.
    """
    first, second = (x.reshape(POINTS, 2) - theta[:2]).T / theta[2:4, None] ** 2
    free = (second - jnp.tanh(theta[4]) * first) * jnp.cosh(theta[4])
    log_norm = 2 * jnp.log(jnp.abs(theta[2] * theta[3])) - _log_cosh(theta[4]) + np.log(2 * np.pi)
    return -jnp.sum(first**2 + free**2) / 2 - POINTS * log_norm


def _log_cosh(y: Scalar) -> Float[Array, ""]:
    return jnp.logaddexp(y, -y) - np.log(2)


def reference(x_obs: np.ndarray, draws: int, seed: int) -> Float[np.ndarray, "draws dim"]:
    """Draw θ from the posterior given the observations (n, 8), exactly and independently, by rejection from the inverse Wishart
    distribution. Observations of another shape, or impossible ones, are a ScorefoldError.
    """
    points, rng = checked(x_obs, 2 * POINTS).reshape(-1, 2), stream(seed, "reference")
    mean = points.mean(0)
    scatter = (points - mean).T @ (points - mean)
    if scatter[0, 1] ** 2 >= (1 - 1e-12) * scatter[0, 0] * scatter[1, 1]:
        raise ScorefoldError(f"expected points that are not all on one line; got the scatter matrix {scatter.tolist()}.")
    root, accepted, proposals, missing, count = np.linalg.cholesky(scatter), [], 0, draws, 2 * draws
    while missing > 0:
        if proposals > PATIENCE:
            raise ScorefoldError(
                f"expected observations that some θ in [-3, 3]⁵ can have led to; got points around ({mean[0]:.3g}, "
                f"{mean[1]:.3g}), for which {proposals:,} proposals left {draws - missing} draws."
            )
        count = int(np.clip(count, FEWEST_PROPOSALS, MOST_PROPOSALS))
        accepted.append(propose(mean, root, len(points), count, rng))
        proposals, missing, count = proposals + count, missing - len(accepted[-1]), 2 * count
    theta = np.concatenate(accepted)[:draws]
    theta[:, 2:4] *= rng.choice([-1.0, 1.0], size=(draws, 2))
    return theta


def propose(
    mean: Float[np.ndarray, "2"], root: Float[np.ndarray, "2 2"], points: int, count: int, rng: np.random.Generator
) -> Float[np.ndarray, "accepted 5"]:
    """Make so many proposals (m, C), and return those θ in the quadrant θ_3, θ_4 > 0 that are accepted; S is root rootᵀ."""
    freedom = points - 1.5
    # The Wishart matrix is B Bᵀ with B = [[p, 0], [q, r]] (Bartlett), and C = R Rᵀ with R = root B⁻ᵀ.
    p, r = np.sqrt(rng.chisquare(freedom, count)), np.sqrt(rng.chisquare(freedom - 1, count))
    q = rng.standard_normal(count)
    inverse = np.array([[1 / p, -q / (p * r)], [np.zeros(count), 1 / r]])
    R = np.einsum("ij,jkc->cik", root, inverse)
    m = mean + np.einsum("cik,ck->ci", R, rng.standard_normal((count, 2))) / np.sqrt(points)
    s = np.sqrt(np.sum(R**2, axis=2))
    # sinh θ_5 = ρ / √(1-ρ²), which is C_12 / √|C|.
    theta_5 = np.arcsinh(np.sum(R[:, 0] * R[:, 1], axis=1) / (root[0, 0] * root[1, 1] / (p * r)))
    theta = np.column_stack([m, np.sqrt(s), theta_5])
    inside = (np.abs(theta) < PRIOR_EDGE).all(1)
    return theta[inside & (rng.uniform(size=count) < 1 / np.sqrt(np.cosh(np.clip(theta_5, -PRIOR_EDGE, PRIOR_EDGE))))]


def task() -> Task:
    """The task of four points in the plane (SLCP): a simple likelihood, and a posterior with four equal modes.

    The reference is drawn by rejection, exactly.
    """
    return Task(
        name="slcp",
        title="Four points in the plane, 5-D (SLCP)",
        description="Mean, spread and correlation of four points in the plane. The posterior has four equal modes.",
        prior=Prior({f"theta_{i}": stats.uniform(-PRIOR_EDGE, 2 * PRIOR_EDGE) for i in range(1, DIM + 1)}),
        simulator=Batched(jax.vmap(simulate_one)),
        log_likelihood=log_likelihood,
        reference=reference,
        reference_kind="rejection",
        numpy_simulator=numpy_simulator,
    )
