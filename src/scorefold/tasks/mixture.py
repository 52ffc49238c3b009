"""G-MoG: the common mean of a wide and a narrow Gaussian, in ten dimensions.

    θ ~ N(0, I),   x | θ ~ ½ N(θ, 2.25 Σ) + ½ N(θ, Σ/9),   Σ = diag(0.6 … 1.4).

Write z_j for the component of x_j and s_z for its factor. Given all n of them the posterior is conjugate,

    Λ_z = I + Σ⁻¹ Σ_j 1/s_{z_j},   θ | z, x ~ N(Λ_z⁻¹ Σ⁻¹ Σ_j x_j / s_{z_j}, Λ_z⁻¹),

and p(z|x) has a closed form, so p(θ|x_1 … x_n) is a mixture of 2ⁿ Gaussians. Up to n = 16 that mixture is
written out and drawn from. Beyond, every draw is the end of its own Gibbs chain, z | θ, x then θ | z, x, that
starts from the posterior as if every component were wide.

Why not Gibbs throughout: in ten dimensions the components hardly overlap, so a chain leaves a narrow one with
probability about e⁻¹⁰ a sweep. At n = 1 or 2 that decides the answer. With n > 16, in all but 1 of 7,000 data
sets two or more narrow observations agree on θ, and other arrangements have no mass to speak of.

Reference: "Compositional score modeling for simulation-based inference", Geffner, Papamakarios and Mnih,
2023.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.simulation.batched import Batched
from scorefold.tasks.exact import GaussianMixture, single_log_density, single_score
from scorefold.tasks.gaussian import DIM, VARIANCES, standard_normal_prior
from scorefold.tasks.task import Task, checked, key_stream, stream
from scorefold.types import Array, Float, Key, Observation, Scalar, Theta

SCALES = np.array([2.25, 1 / 9])
"""s_z: wide, narrow."""
ENUMERATED = 16
"""The largest n whose 2ⁿ components are written out."""
SWEEPS = 20
"""Gibbs sweeps before a chain's state is taken; the tests bound what is left of the start by coupling."""
PAIRS_AT_ONCE = 2**20
"""Draws × observations held in memory together."""
PRECISION = jax.lax.Precision.HIGHEST
"""Of matrix products: the default on a GPU keeps 10 bits of the mantissa, which would show in the means."""


def simulate_one(theta: Theta, key: Key) -> Observation:
    """Simulate one observation of shape (10,) at one θ from one random key, in JAX.

    The task's simulator is `jax.vmap` of it.
    """
    key_component, key_noise = jax.random.split(key)
    scale = jax.random.choice(key_component, jnp.asarray(SCALES))
    return theta + jnp.sqrt(scale * VARIANCES) * jax.random.normal(key_noise, (DIM,))


def numpy_simulator(theta: Float[np.ndarray, " dim"], rng: np.random.Generator) -> Float[np.ndarray, " dim"]:
    """Simulate one observation at θ with NumPy and SciPy alone, as a user's own simulator would be written.

    It agrees with `simulate_one` in distribution, not draw by draw.
    """
    return theta + np.sqrt(rng.choice(SCALES) * VARIANCES) * rng.standard_normal(DIM)


def log_likelihood(theta: Theta, x: Observation) -> Scalar:
    """log p(x|θ) of one observation at one θ: the logarithm of the sum of its wide and its narrow component.

    It is there to check against; no method sees it.
    """
    return jax.nn.logsumexp(_log_components(theta, x))


def single_posterior(x: Observation) -> GaussianMixture:
    """p(θ|x) of one observation: a component for each of x's, weighted by its evidence N(x | 0, I + s Σ)."""
    spread = SCALES[:, None] * VARIANCES
    evidence = jax.scipy.stats.norm.logpdf(x, 0, np.sqrt(1 + spread)).sum(-1)
    return GaussianMixture(jax.nn.log_softmax(evidence), x / (1 + spread), jnp.asarray(spread / (1 + spread)))


def reference(x_obs: np.ndarray, draws: int, seed: int) -> Float[np.ndarray, "draws dim"]:
    """Draw θ from the posterior given the observations (n, 10), independently: exactly up to n = 16, by Gibbs beyond.

    Observations of another shape, or that are not finite, are a ScorefoldError.
    """
    x = checked(x_obs, DIM)
    if len(x) <= ENUMERATED:
        return draw_enumerated(x, draws, stream(seed, "reference"))
    return draw_gibbs(x, draws, key_stream(seed, "reference"))


def draw_enumerated(x: Float[np.ndarray, "obs dim"], draws: int, rng: np.random.Generator) -> Float[np.ndarray, "draws dim"]:
    """Draw θ from the posterior written out as a mixture of 2ⁿ Gaussians; for few observations only."""
    n = len(x)
    z = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    inverse = 1 / SCALES[z]
    precision = 1 + inverse.sum(1, keepdims=True) / VARIANCES
    linear = inverse @ x / VARIANCES
    log_weights = 0.5 * (
        np.sum(linear**2 / precision - np.log(precision), axis=1)
        - inverse @ np.sum(x**2 / VARIANCES, axis=1)
        + DIM * np.log(inverse).sum(1)
    )
    weights = np.exp(log_weights - log_weights.max())
    c = rng.choice(len(z), size=draws, p=weights / weights.sum())
    return linear[c] / precision[c] + rng.standard_normal((draws, DIM)) / np.sqrt(precision[c])


def draw_gibbs(x: Float[np.ndarray, "obs dim"], draws: int, key: Key) -> Float[np.ndarray, "draws dim"]:
    """Draw θ from the posterior by Gibbs sampling: the ends of as many independent chains as draws are asked for."""
    batch = min(draws, max(1, PAIRS_AT_ONCE // len(x)))
    return np.asarray(_chains(jax.random.split(key, draws), jnp.asarray(x, jnp.float32), batch), np.float64)


@partial(jax.jit, static_argnames="batch")
def _chains(keys: Array, x: Float[Array, "obs dim"], batch: int) -> Float[Array, "draws dim"]:
    def one(key: Key) -> Theta:
        key_start, key_chain = jax.random.split(key)
        return gibbs(key_chain, x, wide_start(key_start, x), SWEEPS)

    return jax.lax.map(one, keys, batch_size=batch)


def wide_start(key: Key, x: Float[Array, "obs dim"]) -> Theta:
    """Draw the θ where a chain starts: from the posterior as if every component were wide."""
    return _conjugate_draw(key, x, jnp.full(len(x), 1 / SCALES[0]))


def gibbs(key: Key, x: Float[Array, "obs dim"], start: Theta, sweeps: int) -> Theta:
    """Run one Gibbs chain from `start` for so many sweeps, each over all components and then θ, and return its end."""

    def sweep(theta: Theta, key: Key) -> tuple[Theta, None]:
        key_z, key_theta = jax.random.split(key)
        narrow = jax.random.bernoulli(key_z, jax.nn.sigmoid(log_odds_narrow(theta, x)))
        return _conjugate_draw(key_theta, x, jnp.where(narrow, 1 / SCALES[1], 1 / SCALES[0])), None

    return jax.lax.scan(sweep, start, jax.random.split(key, sweeps))[0]


def log_odds_narrow(theta: Theta, x: Float[Array, "obs dim"]) -> Float[Array, " obs"]:
    """For every observation, the log odds that it came from the narrow component rather than the wide one, given θ."""
    # |x_j - θ|² under Σ⁻¹ by a matrix product, over all chains at once.
    white_x, white_theta = x / np.sqrt(VARIANCES), theta / np.sqrt(VARIANCES)
    inner = jnp.matmul(white_x, white_theta, precision=PRECISION)
    distance = jnp.sum(white_x**2, axis=1) - 2 * inner + jnp.sum(white_theta**2)
    return 0.5 * (DIM * np.log(SCALES[0] / SCALES[1]) - distance * (1 / SCALES[1] - 1 / SCALES[0]))


def _conjugate_draw(key: Key, x: Float[Array, "obs dim"], inverse: Float[Array, " obs"]) -> Theta:
    """θ | z, x for the inverse factors 1/s_{z_j}."""
    precision = 1 + inverse.sum() / VARIANCES
    mean = jnp.matmul(inverse, x, precision=PRECISION) / VARIANCES / precision
    return mean + jax.random.normal(key, (DIM,)) / jnp.sqrt(precision)


def _log_components(theta: Theta, x: Observation) -> Float[Array, "2"]:
    """log ½ N(x | θ, s Σ) for the wide and the narrow s."""
    return jnp.log(0.5) + jax.scipy.stats.norm.logpdf(x, theta, np.sqrt(SCALES[:, None] * VARIANCES)).sum(-1)


def task() -> Task:
    """The task of the mean of two Gaussians (G-MoG): p(θ|x) is a peak on a broad hill, which is no Gaussian at all.

    Exact scores are known, and the reference is drawn by Gibbs.
    """
    return Task(
        name="mixture",
        title="Mixture of Gaussians, 10-D (G-MoG)",
        description="The common mean of a wide and a narrow 10-D Gaussian. p(θ|x) is a peak on a broad hill.",
        prior=standard_normal_prior(DIM),
        simulator=Batched(jax.vmap(simulate_one)),
        log_likelihood=log_likelihood,
        reference=reference,
        reference_kind="Gibbs",
        numpy_simulator=numpy_simulator,
        single_score=single_score(single_posterior),
        single_log_density=single_log_density(single_posterior),
    )
