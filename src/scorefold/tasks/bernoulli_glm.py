"""Bernoulli GLM: a neuron's offset and filter from its spikes under white noise, in ten dimensions.

    θ = (β, f),   β ~ N(0, 2),   f ~ N(0, (FᵀF)⁻¹) of length 9,   z_t ~ Bernoulli(σ(v_t·θ)) for t = 1 … 100,
    x = Vᵀ z,

with v_t = (1, I_t, I_{t-1} … I_{t-8}) the rows of V and I a fixed white-noise stimulus, zero before its start. So x is
the number of spikes and the stimulus summed over spikes at lags 0 … 8. F = D² + diag(√(i/9)), i = 0 … 8, where D has
ones on its diagonal and -1 below: the prior dislikes second differences, and the more so the later the lag.

The family is exponential and x is sufficient. For a white-noise stimulus no two spike trains share their x, so that

    log p(x|θ) = θ·x - Σ_t log(1 + e^{v_t·θ})

is all of it, and n observations say what their sum says:

    log p(θ|x_1 … x_n) = θ·Σ_j x_j - n Σ_t log(1 + e^{v_t·θ}) - ½ θᵀ B θ + constant,

which is strictly concave: one mode. The reference is drawn by NUTS (`nuts_reference.py`).

Reference: "Benchmarking simulation-based inference", Lueckmann, Boelts, Greenberg, Gonçalves and Macke, 2021, whose
stimulus, too, is the first 100 normal numbers of NumPy's Mersenne twister with the seed 42.
"""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from scorefold.errors import ScorefoldError
from scorefold.prior import Prior
from scorefold.simulation.batched import Batched
from scorefold.tasks import nuts_reference as nuts
from scorefold.tasks import stored
from scorefold.tasks.task import Task, checked
from scorefold.types import Array, Float, Key, Observation, Scalar, Theta

VERSION = 1
"""Of the task's posterior; stored draws of another version are not used."""
DIM, LAGS, BINS = 10, 9, 100
STIMULUS_SEED = 42
PRECISION = jax.lax.Precision.HIGHEST
"""Of matrix products: the default on a GPU keeps 10 bits of the mantissa."""


def design() -> Float[np.ndarray, "100 10"]:
    """V, the design matrix (100, 10): a column of ones, and the stimulus at lags 0 … 8."""
    # The one place for NumPy's old generator: its stream is frozen, and the published stimulus comes from it.
    stimulus = np.random.RandomState(STIMULUS_SEED).standard_normal(BINS)
    lagged = [np.r_[np.zeros(lag), stimulus[: BINS - lag]] for lag in range(LAGS)]
    return np.column_stack([np.ones(BINS), *lagged])


def prior_covariance() -> Float[np.ndarray, "10 10"]:
    """The covariance (10, 10) of the prior: 2 for the offset and (FᵀF)⁻¹ for the filter."""
    D = np.eye(LAGS) - np.eye(LAGS, k=-1)
    inverse = np.linalg.inv(D @ D + np.diag(np.sqrt(np.arange(LAGS) / LAGS)))
    covariance = np.zeros((DIM, DIM))
    covariance[0, 0], covariance[1:, 1:] = 2.0, inverse @ inverse.T
    return covariance


V = design()
ROOT = np.linalg.cholesky(prior_covariance())
"""θ = ROOT u."""


def simulate_one(theta: Theta, key: Key) -> Observation:
    """Simulate one observation at one θ from one random key: the sufficient statistics (10,) of 100 bins of spikes."""
    spikes = jax.random.bernoulli(key, jax.nn.sigmoid(_times(V, theta)))
    return _times(V.T, spikes.astype(theta.dtype))


def numpy_simulator(theta: Float[np.ndarray, "10"], rng: np.random.Generator) -> Float[np.ndarray, "10"]:
    """Simulate one observation at θ with NumPy and SciPy alone, as a user's own simulator would be written.

    It agrees with `simulate_one` in distribution, not draw by draw.
    """
    return (rng.uniform(size=BINS) < 1 / (1 + np.exp(-V @ theta))) @ V


def log_likelihood(theta: Theta, x: Observation) -> Scalar:
    """log p(x|θ) of one observation at one θ, which is a vector of sufficient statistics.

    It is there to check against; no method sees it.
    """
    return jnp.sum(theta * x) - jnp.sum(jax.nn.softplus(_times(V, theta)))


def _times(matrix: np.ndarray, vector: Float[Array, " columns"]) -> Float[Array, " rows"]:
    """The product, in the vector's precision."""
    return jnp.matmul(jnp.asarray(matrix, vector.dtype), vector, precision=PRECISION)


def log_posterior(u: Theta, data: nuts.Data) -> Scalar:
    """The log posterior at u in the N(0, I) space, up to a constant, given n and the mean of the observations."""
    n, mean = data
    return n * log_likelihood(_times(ROOT, u), mean) - jnp.sum(u**2) / 2


def statistics(x_obs: np.ndarray) -> nuts.Data:
    """What the posterior depends on: n and the mean of the observations, once they are possible counts of spikes."""
    x = checked(x_obs, DIM)
    if x[:, 0].min() < 0 or x[:, 0].max() > BINS:
        spikes = f"{x[:, 0].min():g} to {x[:, 0].max():g}"
        raise ScorefoldError(f"expected between 0 and {BINS} spikes in the first column; got {spikes}.")
    return np.array(float(len(x))), x.mean(0)


def posteriors(x_obs: list[np.ndarray], draws: int, seeds: list[int]) -> list[nuts.Chains]:
    """Draw θ from the posteriors of several data sets at once, in one program; one `Chains` for each, with its seed.

    `reference` does so for one.
    """
    data = tuple(map(np.stack, zip(*map(statistics, x_obs), strict=True)))
    drawn = nuts.draw(log_posterior, data, DIM, draws, seeds)
    return [chains._replace(draws=chains.draws @ ROOT.T) for chains in drawn]


@stored.kept("bernoulli_glm", VERSION)
def reference(x_obs: np.ndarray, draws: int, seed: int) -> nuts.Chains:
    """Draw θ from the posterior given the observations (n, 10), by NUTS; chains that disagree are refused with a
    ScorefoldError. Draws are kept in a cache, as they take a while.
    """
    return posteriors([x_obs], draws, [seed])[0]


def task() -> Task:
    """The task of a neuron's offset and filter (Bernoulli GLM): ten correlated parameters, one mode, little said by each
    observation. The reference is drawn by NUTS.
    """
    return Task(
        name="bernoulli_glm",
        title="A neuron's filter, 10-D (Bernoulli GLM)",
        description="The offset and the filter of a neuron, from its spikes under a fixed white-noise stimulus.",
        prior=Prior(
            stats.multivariate_normal(np.zeros(DIM), prior_covariance()),
            names=["beta", *(f"f_{lag}" for lag in range(LAGS))],
        ),
        simulator=Batched(jax.vmap(simulate_one)),
        log_likelihood=log_likelihood,
        reference=reference,
        reference_kind="NUTS",
        numpy_simulator=numpy_simulator,
    )
