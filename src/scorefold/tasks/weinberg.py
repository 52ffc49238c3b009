"""Weinberg: the Fermi constant from the scattering angles of muon pairs, in one dimension.

    G ~ U(0, 2),   c = cos φ ∈ [-1, 1] with density ∝ max(0, 1 + c² + a c),   a = 2 G tanh(10 (2E - 90)/90),   E = 40.

Here a ≤ 0. Up to G = 1.24 the polynomial is positive (|a| ≤ 2) and integrates to 8/3 whatever a. Beyond, it
is negative from its root r on, and c lies in [-1, r]:

    r = 2 / (|a| + √(a² - 4)) if |a| > 2, otherwise 1.

With t = r - c the density is ∝ t² + b t + k, where k = max(0, 2 + a) and b = √(a² - 4) if |a| > 2, otherwise -(2 + a).
Its mass above c is

    Q(t) = t³/3 + b t²/2 + k t,

a sum that loses no digits near r. A draw solves Q(t) = v Q(1 + r) for v ~ U(0, 1), which is exact.

The posterior in G is bounded on an interval by bounding every factor: 1 + c_j² + a c_j is linear in a, and the
integral Q(1 + r) never falls with |a|, so that both are extreme at the ends.

Reference: "Adversarial variational optimization of non-differentiable simulators", Louppe, Hermans and
Cranmer, 2017.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize, stats

from scorefold.errors import ScorefoldError
from scorefold.prior import Prior
from scorefold.simulation.batched import Batched
from scorefold.tasks import envelope
from scorefold.tasks.task import Task, checked, stream
from scorefold.types import Count, Float, Key, Observation, Scalar, Theta

BEAM_ENERGY = 40.0
SLOPE = 2 * np.tanh(10 * (2 * BEAM_ENERGY - 90) / 90)
"""a / G."""
LARGEST_G = 2.0
"""Of the prior."""
HALVINGS = 40
"""Of the interval that holds t; single precision has no more to tell after 26 or so."""
FIRST_CELLS = 64
PAIRS_AT_ONCE = 2**22
"""Points × observations held in memory together."""


def simulate_one(theta: Theta, key: Key) -> Observation:
    """Simulate one cos φ, (1,), at one θ from one random key, by solving its distribution function in JAX."""
    r, b, k = _edge(SLOPE * theta, jnp)
    v = jax.random.uniform(key, theta.shape, minval=jnp.finfo(theta.dtype).tiny)

    def halve(_: Count, ends: tuple[Theta, Theta]) -> tuple[Theta, Theta]:
        low, high = ends
        middle = (low + high) / 2
        below = _mass(middle, b, k) < v * _mass(1 + r, b, k)
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = jax.lax.fori_loop(0, HALVINGS, halve, (jnp.zeros_like(r), 1 + r))
    return r - (low + high) / 2


def numpy_simulator(theta: Float[np.ndarray, "1"], rng: np.random.Generator) -> Float[np.ndarray, "1"]:
    """Simulate one observation at θ with NumPy and SciPy alone, as a user's own simulator would be written.

    It agrees with `simulate_one` in distribution, not draw by draw.
    """
    r, b, k = _edge(SLOPE * float(theta[0]), np)
    wanted = rng.uniform() * _mass(1 + r, b, k)
    return np.array([r - optimize.brentq(lambda t: _mass(t, b, k) - wanted, 0.0, 1 + r, xtol=1e-15)])


def log_likelihood(theta: Theta, x: Observation) -> Scalar:
    """log p(x|θ) of one observation at one θ, log p(c|G); -∞ where the density is zero.

    It is there to check against; no method sees it.
    """
    a = SLOPE * theta
    r, b, k = _edge(a, jnp)
    density = jnp.where(x[0] <= r, 1 + x[0] ** 2 + a * x[0], 0)
    return (jnp.log(jnp.maximum(density, 0)) - jnp.log(_mass(1 + r, b, k)))[0]


def reference(x_obs: np.ndarray, draws: int, seed: int) -> Float[np.ndarray, "draws dim"]:
    """Draw G from the posterior given the observations (n, 1), exactly and independently, by rejection under the envelope.

    Observations of another shape, or impossible ones, are a ScorefoldError.
    """
    x = checked(x_obs, 1)[:, 0]
    if np.abs(x).max() > 1:
        raise ScorefoldError(f"expected cosines, between -1 and 1; got {x[np.argmax(np.abs(x))]:g}.")
    low, high = np.zeros(1), np.full(1, LARGEST_G)

    def log_density(points: envelope.Points) -> envelope.PerPoint:
        return log_posterior(points[:, 0], x)

    def bound(low: envelope.Points, high: envelope.Points) -> envelope.PerPoint:
        return upper_bound(low[:, 0], high[:, 0], x)

    start = envelope.grid(log_density, bound, low, high, FIRST_CELLS)
    return envelope.draw(log_density, bound, start, draws, stream(seed, "reference"))


def log_posterior(G: Float[np.ndarray, " points"], x: Float[np.ndarray, " obs"]) -> Float[np.ndarray, " points"]:
    """Σ_j log p(c_j|G) at each G, which is the log posterior as the prior is flat."""
    return upper_bound(G, G, x)


def upper_bound(
    low: Float[np.ndarray, " points"], high: Float[np.ndarray, " points"], x: Float[np.ndarray, " obs"]
) -> Float[np.ndarray, " points"]:
    """The bound on the log posterior over each interval [low, high]; equal ends give the log posterior itself."""
    pieces = 1 + len(low) * len(x) // PAIRS_AT_ONCE
    ends = zip(np.array_split(low, pieces), np.array_split(high, pieces), strict=True)
    with np.errstate(divide="ignore"):
        return np.concatenate([_upper_bound(a, b, x) for a, b in ends])


def _upper_bound(low: np.ndarray, high: np.ndarray, x: np.ndarray) -> np.ndarray:
    density = 1 + x**2 + SLOPE * x * np.where(x > 0, low[:, None], high[:, None])  # SLOPE < 0
    r, b, k = _edge(SLOPE * low, np)
    possible = x <= r[:, None]
    return np.log(np.where(possible, np.maximum(density, 0), 0)).sum(1) - len(x) * np.log(_mass(1 + r, b, k))


def _edge(a: Any, xp: Any) -> tuple[Any, Any, Any]:
    """r, and the coefficients b and k of the density near it; `xp` is numpy or jax.numpy."""
    beyond = (xp.abs(a) - 2) * (xp.abs(a) + 2)
    clipped = beyond > 0
    root = xp.sqrt(xp.where(clipped, beyond, 1))  # never of 0, whose derivative is infinite
    r = xp.where(clipped, 2 / (xp.abs(a) + root), 1)
    return r, xp.where(clipped, root, -(2 + a)), xp.where(clipped, 0, 2 + a)


def _mass(t: Any, b: Any, k: Any) -> Any:
    """Q(t)."""
    return ((t / 3 + b / 2) * t + k) * t


def task() -> Task:
    """The task of the Fermi constant from scattering angles (Weinberg): one parameter, and little said by each observation.

    The reference is drawn under an envelope, exactly.
    """
    return Task(
        name="weinberg",
        title="Weinberg, 1-D",
        description="The Fermi constant from the scattering angles of muon pairs. Each angle says little.",
        prior=Prior({"G": stats.uniform(0, LARGEST_G)}),
        simulator=Batched(jax.vmap(simulate_one)),
        log_likelihood=log_likelihood,
        reference=reference,
        reference_kind="grid",
        numpy_simulator=numpy_simulator,
    )
