"""A two-dimensional mean known up to its sign.

    θ ~ N(0, I),   x | θ ~ ½ N(θ, I/2) + ½ N(-θ, I/2).

For one observation p(θ|x) = ½ N(⅔ x, I/3) + ½ N(-⅔ x, I/3); for n of them, up to a constant,

    ℓ(θ) = log p(θ|x_1 … x_n) = -(n + ½)|θ|² + Σ_j log cosh(2 x_j·θ),

which is even: two modes of weight ½ each once |θ| is large against 1/√(2n+1), their width.

Reference draws come from a grid that refines itself. Within a square cell of centre c and half-diagonal r,
Taylor's theorem bounds ℓ by

    ℓ(c) + |∇ℓ(c)| r + ½ r² max(0, 4 Σ_j |x_j|² sech²(max(0, |2 x_j·c| - 2|x_j| r)) - (2n+1)).

Cells whose bound is 30 below the best centre are dropped, the others split in four until they are half a mode
wide. The bounds are then the steps of an envelope: pick a cell by the envelope's mass, a point inside it
uniformly, accept it with probability exp(ℓ - bound). The cells' width decides the acceptance rate and nothing
else; the dropped cells hold less than 10⁻⁸ of the mass for n ≤ 1000. As log cosh y ≤ |y|, ℓ < ℓ(0) - 30
beyond the radius R + √(R² + 30/(n+½)) with R = 2 Σ_j |x_j| / (2n+1): the first cells cover that.

Reference: "Compositional score modeling for simulation-based inference", Geffner, Papamakarios and Mnih,
2023.
"""

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.simulation.batched import Batched
from scorefold.tasks.exact import GaussianMixture, single_log_density, single_score
from scorefold.tasks.gaussian import standard_normal_prior
from scorefold.tasks.task import Task, checked, stream
from scorefold.types import Float, Key, Observation, Scalar, Theta

DIM = 2
DEPTH = 30.0
"""How far below the maximum log density still counts."""
FIRST_CELLS = 16
"""First cells along a side."""
PAIRS_AT_ONCE = 2**21
"""Points × observations held in memory together."""

Points = Float[np.ndarray, "points 2"]
Observations = Float[np.ndarray, "obs 2"]
PerPoint = Float[np.ndarray, " points"]


def simulate_one(theta: Theta, key: Key) -> Observation:
    """Simulate one observation of shape (2,) at one θ from one random key, in JAX. The task's simulator is `jax.vmap` of it."""
    key_sign, key_noise = jax.random.split(key)
    sign = jax.random.rademacher(key_sign, dtype=theta.dtype)
    return sign * theta + jax.random.normal(key_noise, (DIM,)) / jnp.sqrt(2)


def numpy_simulator(theta: Float[np.ndarray, "2"], rng: np.random.Generator) -> Float[np.ndarray, "2"]:
    """Simulate one observation at θ with NumPy and SciPy alone, as a user's own simulator would be written.

    It agrees with `simulate_one` in distribution, not draw by draw.
    """
    return rng.choice([-1.0, 1.0]) * theta + rng.standard_normal(DIM) / np.sqrt(2)


def log_likelihood(theta: Theta, x: Observation) -> Scalar:
    """log p(x|θ) of one observation at one θ: the logarithm of the sum of its two components.

    It is there to check against; no method sees it.
    """
    return jnp.logaddexp(-jnp.sum((x - theta) ** 2), -jnp.sum((x + theta) ** 2)) - jnp.log(2 * jnp.pi)


def single_posterior(x: Observation) -> GaussianMixture:
    """p(θ|x) of one observation: a Gaussian on either side of 0, with equal weights."""
    return GaussianMixture(jnp.log(jnp.full(2, 0.5)), jnp.stack([x, -x]) * 2 / 3, jnp.full((2, DIM), 1 / 3))


def reference(x_obs: np.ndarray, draws: int, seed: int) -> Float[np.ndarray, "draws dim"]:
    """Draw θ from the posterior given the observations (n, 2), exactly and independently, by rejection under the grid's
    envelope. Observations of another shape, or that are not finite, are a ScorefoldError.
    """
    x = checked(x_obs, DIM)
    rng = stream(seed, "reference")
    centres, width, bound = _cells(x)
    mass = np.exp(bound - bound.max())
    count = min(2 * draws, max(1, PAIRS_AT_ONCE // len(x)))
    accepted: list[np.ndarray] = []
    while sum(map(len, accepted)) < draws:
        cell = rng.choice(len(centres), size=count, p=mass / mass.sum())
        theta = centres[cell] + width * rng.uniform(-0.5, 0.5, size=(count, DIM))
        accepted.append(theta[rng.exponential(size=count) > bound[cell] - log_posterior(theta, x)])
    return np.concatenate(accepted)[:draws]


def log_posterior(theta: Points, x: Observations) -> PerPoint:
    """ℓ(θ), the log posterior at each point given the observations, up to a constant."""
    y = 2 * theta @ x.T
    return np.sum(np.logaddexp(y, -y) - np.log(2), axis=1) - (len(x) + 0.5) * np.sum(theta**2, axis=1)


def upper_bound(centres: Points, radius: float, x: Observations) -> tuple[PerPoint, PerPoint]:
    """ℓ at the centres, and a bound that ℓ nowhere exceeds within a radius of them."""
    n, length = len(x), np.linalg.norm(x, axis=1)
    value = log_posterior(centres, x)
    y = 2 * centres @ x.T
    slope = np.linalg.norm(2 * np.tanh(y) @ x - (2 * n + 1) * centres, axis=1)
    sech2 = 1 - np.tanh(np.maximum(np.abs(y) - 2 * radius * length, 0)) ** 2
    curvature = np.maximum(4 * sech2 @ length**2 - (2 * n + 1), 0)
    return value, value + slope * radius + curvature * radius**2 / 2


def _cells(x: Observations) -> tuple[Points, float, PerPoint]:
    """The cells that can hold mass: their centres, their width and the bound on ℓ in each."""
    n = len(x)
    reach = 2 * np.linalg.norm(x, axis=1).sum() / (2 * n + 1)
    half = reach + np.sqrt(reach**2 + DEPTH / (n + 0.5))
    width = 2 * half / FIRST_CELLS
    ticks = (np.arange(FIRST_CELLS) + 0.5) * width - half
    centres = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    quarters = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]]) / 2
    while True:
        pieces = np.array_split(centres, 1 + len(centres) * n // PAIRS_AT_ONCE)
        value, bound = np.hstack([upper_bound(piece, width / np.sqrt(2), x) for piece in pieces])
        kept = bound > value.max() - DEPTH
        centres, bound = centres[kept], bound[kept]
        if width <= 0.5 / np.sqrt(2 * n + 1):
            return centres, float(width), bound
        width /= 2
        centres = (centres[:, None] + width * quarters).reshape(-1, 2)


def task() -> Task:
    """The task of a mean known up to its sign: two modes of equal weight, which a sampler must both find.

    Exact scores are known, and the reference is drawn from a grid.
    """
    return Task(
        name="bimodal",
        title="Two modes, 2-D",
        description="A 2-D mean known up to its sign. The posterior has two modes of equal weight.",
        prior=standard_normal_prior(DIM),
        simulator=Batched(jax.vmap(simulate_one)),
        log_likelihood=log_likelihood,
        reference=reference,
        reference_kind="grid",
        numpy_simulator=numpy_simulator,
        single_score=single_score(single_posterior),
        single_log_density=single_log_density(single_posterior),
    )
