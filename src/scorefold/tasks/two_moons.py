"""Two moons: a point known up to a reflection, seen as a half-moon, in two dimensions.

    θ ~ U(-1, 1)²,   x = r (cos a, sin a) + (¼, 0) + w,   a ~ U(-π/2, π/2),   r ~ N(0.1, 0.01²),
    w = (-|θ_1 + θ_2|, θ_2 - θ_1) / √2.

With q = x - (¼, 0) - w, which has length ρ, polar coordinates give

    p(x|θ) = N(ρ | 0.1, 0.01²) / (π ρ) where q_1 > 0, and zero beyond that straight edge of the half-moon.

(A radius below zero, with a probability of 10⁻²³, would be on the other side of it, and is left out.)

θ enters through w alone. The reflection θ_1, θ_2 ↦ -θ_2, -θ_1 leaves w and the prior as they are: for any observations
the posterior consists of two mirror images of weight ½ each, which touch where θ_1 + θ_2 = 0. The reference draws w,
uniform over the triangle |w_2| ≤ √2 + w_1, w_1 ≤ 0 before it sees data, and then takes either θ by the toss of a coin.

With y_j = x_j - (¼, 0), all q_j are on their side of the edge if w_1 < min_j y_j1, and there log p(w|x_1 … x_n) is

    ℓ(w) = Σ_j h(|y_j - w|),   h(ρ) = -(ρ - 0.1)² / (2 · 0.01²) - log ρ,

drawn from under an envelope (`envelope.py`), exactly. It needs a bound over a box of w. With ρ_j between l_j and m_j
there, ℓ is at most

    Σ_j h(ρ° clipped to [l_j, m_j]),   ρ° = 0.05 + √(0.05² - 0.01²) the maximum of h,

which is good for large boxes, and by Taylor's theorem, around the box's centre c with half its sides d, at most

    ℓ(c) + |∂_1 ℓ(c)| d_1 + |∂_2 ℓ(c)| d_2 + ½ |d|² max(0, Σ_j h'(l_j) / l_j),

good for small ones whatever n: the second derivatives of h(|y - w|) are h''(ρ) along y - w and h'(ρ) / ρ across; for ρ
> 0.01 the second is the larger, and it falls with ρ. Radii below 0.01, of probability 10⁻¹⁹, are left out of the
reference.

Reference: "Automatic posterior transformation for likelihood-free inference", Greenberg, Nonnenmacher and Macke, 2019;
"Benchmarking simulation-based inference", Lueckmann, Boelts, Greenberg, Gonçalves and Macke, 2021.
"""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from scorefold.errors import ScorefoldError
from scorefold.prior import Prior
from scorefold.simulation.batched import Batched
from scorefold.tasks import envelope
from scorefold.tasks.task import Task, checked, stream
from scorefold.types import Array, Float, Key, Observation, Scalar, Theta

RADIUS, SPREAD = 0.1, 0.01
"""Mean and sd of r."""
OFFSET = np.array([0.25, 0.0])
SHORTEST_RADIUS = 0.01
"""Of the reference."""
LIKELIEST_RADIUS = RADIUS / 2 + np.sqrt(RADIUS**2 / 4 - SPREAD**2)
"""ρ°."""
FIRST_CELLS = 16
"""First boxes along a side."""
PAIRS_AT_ONCE = 2**20
"""Boxes × observations held in memory together."""

Points = Float[np.ndarray, "points 2"]
PerPoint = Float[np.ndarray, " points"]


def place(theta: Theta) -> Float[Array, "2"]:
    """w, where the half-moon of θ lies; θ enters the likelihood through it alone."""
    return jnp.stack([-jnp.abs(theta[0] + theta[1]), theta[1] - theta[0]]) / np.sqrt(2)


def simulate_one(theta: Theta, key: Key) -> Observation:
    """Simulate one observation of shape (2,) at one θ from one random key, in JAX. The task's simulator is `jax.vmap` of it."""
    key_angle, key_radius = jax.random.split(key)
    angle = jax.random.uniform(key_angle, minval=-np.pi / 2, maxval=np.pi / 2)
    radius = RADIUS + SPREAD * jax.random.normal(key_radius)
    return radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)]) + OFFSET + place(theta)


def numpy_simulator(theta: Float[np.ndarray, "2"], rng: np.random.Generator) -> Float[np.ndarray, "2"]:
    """Simulate one observation at θ with NumPy and SciPy alone, as a user's own simulator would be written.

    It agrees with `simulate_one` in distribution, not draw by draw.
    """
    angle, radius = rng.uniform(-np.pi / 2, np.pi / 2), rng.normal(RADIUS, SPREAD)
    w = np.array([-np.abs(theta[0] + theta[1]), theta[1] - theta[0]]) / np.sqrt(2)
    return radius * np.array([np.cos(angle), np.sin(angle)]) + OFFSET + w


def log_likelihood(theta: Theta, x: Observation) -> Scalar:
    """log p(x|θ) of one observation at one θ; -∞ beyond the half-moon's straight edge.

    It is there to check against; no method sees it.
    """
    q = x - jnp.asarray(OFFSET, x.dtype) - place(theta)
    inside = q[0] > 0
    rho = jnp.hypot(jnp.where(inside, q[0], 1.0), q[1])
    log_p = -(((rho - RADIUS) / SPREAD) ** 2) / 2 - jnp.log(rho) - np.log(np.pi * np.sqrt(2 * np.pi) * SPREAD)
    return jnp.where(inside, log_p, -jnp.inf)


def reference(x_obs: np.ndarray, draws: int, seed: int) -> Float[np.ndarray, "draws dim"]:
    """Draw θ from the posterior given the observations (n, 2), exactly and independently, by rejection under the envelope, on
    either side by the toss of a coin. Observations of another shape, or impossible ones, are a ScorefoldError.
    """
    posterior, rng = Posterior(checked(x_obs, 2) - OFFSET), stream(seed, "reference")
    edge = min(0.0, posterior.y[:, 0].min())
    if edge <= -np.sqrt(2):
        raise _impossible(posterior.y)
    # What the edge leaves of the triangle has its corner at (-√2, 0), and fills half of this box.
    low, high = np.array([-np.sqrt(2), -np.sqrt(2) - edge]), np.array([edge, np.sqrt(2) + edge])
    start = envelope.grid(posterior.log_density, posterior.upper_bound, low, high, FIRST_CELLS)
    w = envelope.draw(posterior.log_density, posterior.upper_bound, start, draws, rng)
    along = -w[:, 0] * rng.choice([-1.0, 1.0], size=draws)
    return np.clip(np.column_stack([along - w[:, 1], along + w[:, 1]]) / np.sqrt(2), -1, 1)


class Posterior:
    """The log posterior of w given the observations, and its bound over a box."""

    def __init__(self, y: Float[np.ndarray, "obs 2"]):
        self.y = y

    def log_density(self, w: Points) -> PerPoint:
        """ℓ(w) at each point, up to a constant; -∞ where the prior or a radius rules w out.

        The box that w is in keeps to the edge.
        """
        value = self._over_observations(lambda w: _summed(self._distances(w)), w)
        return np.where(np.abs(w[:, 1]) <= np.sqrt(2) + w[:, 0], value, -np.inf)

    def upper_bound(self, low: Points, high: Points) -> PerPoint:
        """A number that ℓ nowhere exceeds between the corners of each box."""
        bound = self._over_observations(lambda ends: self._bound(ends[:, :2], ends[:, 2:]), np.hstack([low, high]))
        within_prior = np.abs(np.clip(0, low[:, 1], high[:, 1])) <= np.sqrt(2) + high[:, 0]
        return np.where(within_prior, bound, -np.inf)

    def _bound(self, low: Points, high: Points) -> PerPoint:
        y, centre, half = self.y, (low + high) / 2, (high - low) / 2
        off = centre[:, None] - y
        nearest = np.hypot(*np.moveaxis(np.maximum(np.abs(off) - half[:, None], 0), -1, 0))
        farthest = np.hypot(*np.moveaxis(np.abs(off) + half[:, None], -1, 0))
        separate = _summed(np.clip(LIKELIEST_RADIUS, nearest, farthest), largest=farthest)
        rho = np.maximum(np.hypot(off[..., 0], off[..., 1]), SHORTEST_RADIUS)
        slope = np.abs(np.einsum("bj,bji->bi", _slope(rho) / rho, off))
        nearest_allowed = np.maximum(nearest, SHORTEST_RADIUS)
        curvature = np.maximum(np.sum(_slope(nearest_allowed) / nearest_allowed, axis=1), 0)
        taylor = _summed(rho) + np.sum(slope * half, axis=1) + curvature * np.sum(half**2, axis=1) / 2
        smooth = nearest.min(1) > SHORTEST_RADIUS
        return np.where(smooth, np.minimum(separate, taylor), separate)

    def _distances(self, w: Points) -> Float[np.ndarray, "points obs"]:
        return np.hypot(w[:, :1] - self.y[:, 0], w[:, 1:] - self.y[:, 1])

    def _over_observations(self, function: envelope.LogDensity, rows: Float[np.ndarray, "points columns"]) -> PerPoint:
        """A function of all rows, as many at a time as memory holds."""
        pieces = np.array_split(rows, 1 + len(rows) * len(self.y) // PAIRS_AT_ONCE)
        return np.concatenate([function(piece) for piece in pieces if len(piece)])


def _summed(rho: np.ndarray, largest: np.ndarray | None = None) -> PerPoint:
    """Σ_j h(ρ_j), or -∞ where a radius, or the largest it may be, is too short."""
    possible = (rho if largest is None else largest).min(1) >= SHORTEST_RADIUS
    rho = np.maximum(rho, SHORTEST_RADIUS)
    return np.where(possible, np.sum(-(((rho - RADIUS) / SPREAD) ** 2) / 2 - np.log(rho), axis=1), -np.inf)


def _slope(rho: np.ndarray) -> np.ndarray:
    """h'(ρ)."""
    return (RADIUS - rho) / SPREAD**2 - 1 / rho


def _impossible(y: Float[np.ndarray, "obs 2"]) -> ScorefoldError:
    low, high = y.min(0) + OFFSET, y.max(0) + OFFSET
    return ScorefoldError(
        "expected observations that some θ in [-1, 1]² can have led to; got x from "
        f"({low[0]:.3g}, {low[1]:.3g}) to ({high[0]:.3g}, {high[1]:.3g}). All must come from one θ."
    )


def task() -> Task:
    """The task of two moons: a posterior of two thin crescents, mirror images that may touch.

    The reference is drawn under an envelope, exactly.
    """
    return Task(
        name="two_moons",
        title="Two moons, 2-D",
        description="A point seen as a thin half-moon and known up to a reflection. The posterior has two crescents.",
        prior=Prior({f"theta_{i}": stats.uniform(-1, 2) for i in (1, 2)}),
        simulator=Batched(jax.vmap(simulate_one)),
        log_likelihood=log_likelihood,
        reference=reference,
        reference_kind="grid",
        numpy_simulator=numpy_simulator,
    )
