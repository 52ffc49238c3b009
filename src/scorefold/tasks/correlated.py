"""The mean of a Gaussian with correlated noise, in a box of five dimensions.

    θ ~ U(-1, 1)⁵,   x | θ ~ N(θ, S),   S = s² [(1-ρ) I + ρ 11ᵀ],   s = ρ = ½.

The noise has one common factor: x_i = θ_i + a z + b e_i with z, e_i ~ N(0, 1), a² = ρ s² and b² = (1-ρ) s². Given z the
dimensions are independent, so everything exact about this task is a one-dimensional integral over z.

Reference. The mean x̄ of n observations is sufficient; it is as one observation with a/√n and b/√n for a and b. With
m_i = x̄_i - a z and the box's mass F_i = Φ((1-m_i)/b) - Φ((-1-m_i)/b),

    p(z|x̄) ∝ φ(z) ∏_i F_i,   θ_i | z, x̄ ~ N(m_i, b²) cut to (-1, 1).

The first is log-concave with a curvature of log p between 1 and 1 + 5a²/b² = 6, wherever x̄ is and whatever n: a grid of 9
to either side of its mode has all but 10⁻¹⁷ of it, and steps of 1/256 miss its distribution function by 10⁻⁵ at
most. Both draws invert theirs.

Single score. In the space where the prior is N(0, I), θ_i = 2Φ(u_i) - 1, the diffused posterior of one observation is

    p_t(u|x) ∝ φ(u) ∫ dz φ(z) ∏_i ∫ dv N(v; √γ u_i, 1-γ) N(x_i - a z; 2Φ(v) - 1, b²),

by the trapezoid rule in both, which converges faster than any power of the step because the integrands are smooth and
vanish at both ends.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from scipy import stats

from scorefold.prior import Prior
from scorefold.simulation.batched import Batched
from scorefold.tasks import cut_normal
from scorefold.tasks.task import Task, checked, stream
from scorefold.types import Array, Float, Key, Observation, Scalar, Theta

DIM = 5
A = B = float(np.sqrt(0.5) * 0.5)
"""The common factor's share of the noise and each dimension's own: √ρ s and √(1-ρ) s."""

U_REACH, U_NODES = 6.5, 32
"""How many sd of the kernel the inner integral covers, and its nodes: the score is within 10⁻⁵ of the integral for draws
near the posterior, and within 10⁻² at worst for draws as far from it as u and x on opposite sides of the box."""
Z_REACH, Z_NODES = 6.0, 14
"""Likewise for z, in sd of its approximate posterior."""

GRID_REACH, GRID_STEP = 9.0, 1 / 256


def simulate_one(theta: Theta, key: Key) -> Observation:
    """Simulate one observation of shape (5,) at one θ from one random key, in JAX. The task's simulator is `jax.vmap` of it."""
    key_common, key_own = jax.random.split(key)
    return theta + A * jax.random.normal(key_common) + B * jax.random.normal(key_own, (DIM,))


def numpy_simulator(theta: Float[np.ndarray, " dim"], rng: np.random.Generator) -> Float[np.ndarray, " dim"]:
    """Simulate one observation at θ with NumPy and SciPy alone, as a user's own simulator would be written.

    It agrees with `simulate_one` in distribution, not draw by draw.
    """
    return theta + A * rng.standard_normal() + B * rng.standard_normal(DIM)


def log_likelihood(theta: Theta, x: Observation) -> Scalar:
    """log p(x|θ) of one observation at one θ: log N(x | θ, S), with the inverse and the determinant of S = b² I + a² 11ᵀ
    written out. It is there to check against; no method sees it.
    """
    r, whole = x - theta, B**2 + DIM * A**2
    distance = (jnp.sum(r**2) - A**2 / whole * jnp.sum(r) ** 2) / B**2
    return -0.5 * (distance + (DIM - 1) * np.log(B**2) + np.log(whole) + DIM * np.log(2 * np.pi))


def single_log_density(u: Theta, x: Observation, gamma: Scalar) -> Scalar:
    """log p_t(u|x) of one observation at one u and level γ, up to a constant, by the integral over z."""
    given = _given_z(u, x, gamma)
    return jax.nn.logsumexp(given.log_p) + given.log_step - jnp.sum(u**2) / 2


@jax.custom_jvp
def single_score(u: Theta, x: Observation, gamma: Scalar) -> Theta:
    """∇log p_t(u|x) of one observation: the mean of the inner integrals' slopes under p_t(z|u, x)."""
    # As jax.grad of the above has it, at a third of the time: one pass over the nodes and none back.
    given = _given_z(u, x, gamma)
    return jax.nn.softmax(given.log_p) @ given.slope - u


def _single_score_jvp(primals: tuple[Theta, Observation, Scalar], tangents: tuple[Any, Any, Any]) -> tuple[Theta, Theta]:
    """With the Jacobian E[∂slope] + Cov[slope] - I under p_t(z|u, x): once it is known, the nodes need not be kept."""
    if not all(isinstance(tangent, SymbolicZero) for tangent in tangents[1:]):
        raise NotImplementedError("the score's derivative is known in u alone")
    given = _given_z(*primals)
    p = jax.nn.softmax(given.log_p)
    slope = p @ given.slope
    around = given.slope - slope
    jacobian = jnp.diag(p @ given.curvature) + jnp.einsum("z,zi,zj->ij", p, around, around) - jnp.eye(DIM)
    return slope - primals[0], jacobian @ tangents[0]


single_score.defjvp(_single_score_jvp, symbolic_zeros=True)


class _GivenZ(NamedTuple):
    """The integrand and its derivatives at the nodes of z."""

    log_p: Float[Array, " z"]
    """The outer integrand's logarithm, without φ(u)"""
    log_step: Scalar
    slope: Float[Array, "z dim"]
    """The gradient of log_p in u"""
    curvature: Float[Array, "z dim"]
    """and its Hessian, which is diagonal"""


def _given_z(u: Theta, x: Observation, gamma: Scalar) -> _GivenZ:
    """Everything inside of the integral over z."""
    k = jnp.linspace(-U_REACH, U_REACH, U_NODES)
    weights = jax.nn.softmax(-(k**2) / 2)
    v = jnp.sqrt(gamma) * u[:, None] + jnp.sqrt(1 - gamma) * k
    theta, theta_slope = jax.lax.erf(v / np.sqrt(2)), np.sqrt(2 / np.pi) * jnp.exp(-(v**2) / 2)
    centre, sd = _where_z_is(theta, weights, x)
    z = centre + sd * jnp.linspace(-Z_REACH, Z_REACH, Z_NODES)

    def inner(z: Scalar) -> tuple[Scalar, Theta, Theta]:
        y = x - A * z
        # The largest exponent, were there a node at the θ next to y: exact enough to keep exp within float32.
        most = -((y - jnp.clip(y, theta[:, 0], theta[:, -1])) ** 2) / (2 * B**2)
        off = y[:, None] - theta
        mass = weights * jnp.exp(-(off**2) / (2 * B**2) - most[:, None])
        total = mass.sum(axis=1)
        pull = off * theta_slope
        slope = jnp.sum(mass * pull, axis=1) / total * jnp.sqrt(gamma) / B**2
        bend = jnp.sum(mass * (pull**2 / B**2 - theta_slope**2 - v * pull), axis=1) / total * gamma / B**2
        return jnp.sum(jnp.log(total) + most) - z**2 / 2, slope, bend - slope**2

    log_p, slope, curvature = jax.vmap(inner)(z)
    return _GivenZ(log_p, jnp.log(sd), slope, curvature)


def _where_z_is(theta: Float[Array, "dim nodes"], weights: Float[Array, " nodes"], x: Observation) -> tuple[Scalar, Scalar]:
    """Mean and sd of z as if every θ_i were Gaussian. The integral does not depend on them, so its gradient need not either."""
    mean = theta @ weights
    variance = B**2 + jnp.maximum(theta**2 @ weights - mean**2, 0.0)
    precision = 1 + jnp.sum(A**2 / variance)
    return jax.lax.stop_gradient((jnp.sum(A * (x - mean) / variance) / precision, precision**-0.5))


def reference(x_obs: np.ndarray, draws: int, seed: int) -> Float[np.ndarray, "draws dim"]:
    """Draw θ from the posterior given the observations (n, 5), independently: z from its posterior on a grid, then every θ_i
    given z. Observations of another shape, or that are not finite, are a ScorefoldError.
    """
    x = checked(x_obs, DIM)
    mean, a, b = x.mean(0), A / np.sqrt(len(x)), B / np.sqrt(len(x))
    rng = stream(seed, "reference")
    z = _grid_of_z(mean, a, b)
    log_p = log_factor(z, mean, a, b)
    p = np.exp(log_p - log_p.max())
    mass = np.concatenate([[0.0], np.cumsum(p[1:] + p[:-1])])
    m = mean - a * np.interp(rng.uniform(size=draws), mass / mass[-1], z)[:, None]
    return np.clip(m + b * cut_normal.quantile((-1 - m) / b, (1 - m) / b, rng.uniform(size=m.shape)), -1, 1)


def log_factor(
    z: Float[np.ndarray, " grid"], mean: Float[np.ndarray, " dim"], a: float, b: float
) -> Float[np.ndarray, " grid"]:
    """log p(z|x̄) at the points of a grid, up to a constant, for the mean x̄ and the noise's shares a and b."""
    m = mean - a * z[:, None]
    return np.sum(cut_normal.log_mass((-1 - m) / b, (1 - m) / b), axis=1) - z**2 / 2


def _grid_of_z(mean: Float[np.ndarray, " dim"], a: float, b: float) -> Float[np.ndarray, " grid"]:
    """Around the mode, which a concave function has next to the best point of any grid that covers it."""
    outside = np.maximum(np.abs(mean) - 1, 0)
    # The slope of log F_i is at most (its distance outside + b) / b² in m_i, and that of log φ is -z.
    half, centre = (a / b**2) * np.sum(outside + b) + 1, 0.0
    while half > GRID_STEP:
        coarse = centre + np.linspace(-half, half, 101)
        centre, half = coarse[log_factor(coarse, mean, a, b).argmax()], half / 50
    return centre + np.arange(-GRID_REACH, GRID_REACH, GRID_STEP)


def task() -> Task:
    """The task of a mean under correlated noise in a box: the prior's bounds cut the posterior, which Gaussian rules get wrong.

    Exact scores are known, by integrals.
    """
    return Task(
        name="correlated",
        title="Correlated noise, 5-D box",
        description="The mean of a 5-D Gaussian with correlated noise and a uniform prior. The box cuts the posterior.",
        prior=Prior({f"theta_{i}": stats.uniform(-1, 2) for i in range(1, DIM + 1)}),
        simulator=Batched(jax.vmap(simulate_one)),
        log_likelihood=log_likelihood,
        reference=reference,
        reference_kind="grid",
        numpy_simulator=numpy_simulator,
        single_score=single_score,
        single_log_density=single_log_density,
    )
