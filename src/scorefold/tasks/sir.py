"""SIR: the contact and the recovery rate of an epidemic, in two dimensions.

    S' = -β S I,   I' = β S I - γ I   as shares of a population of 10⁶, one of them infected at first;
    β ~ LogNormal(log 0.4, 0.5),   γ ~ LogNormal(log 0.125, 0.2);   x_i ~ Binomial(1000, I(t_i)) at t = 0, 17 … 153.

Reference draws come from an envelope (`envelope.py`), which needs a bound on the posterior over a box
[β₁, β₂] × [γ₁, γ₂]. With Z = ∫ I dt, S = S₀ e^{-βZ} and

    Z' = I = 1 - γ Z - S₀ e^{-βZ},   Z(0) = 0,

one equation whose right-hand side rises with β and falls with γ, and so does its solution: Z(t) over the box lies
between Z(t; β₁, γ₂) and Z(t; β₂, γ₁). For given Z, I too rises with β and falls with γ; it is concave in Z. So, over the
box, I(t) lies between

    the lesser of 1 - γ₂ Z - S₀ e^{-β₁ Z} at both ends of Z's range, and
    the maximum of 1 - γ₁ Z - S₀ e^{-β₂ Z} over it, at Z = log(S₀ β₂ / γ₁) / β₂ or at an end.

Late in an epidemic log I = log I₀ + β ∫S dt - γ t is tighter: as S falls with β and rises with γ, it lies between

    log I₀ + β₁ ∫S(β₂, γ₁) dt - γ₂ t   and   log I₀ + β₂ ∫S(β₁, γ₂) dt - γ₁ t.

The likelihood, which has one maximum in I(t) at x̄(t) / 1000, is at most its value at the closest I(t) in between.

Reference: "Benchmarking simulation-based inference", Lueckmann, Boelts, Greenberg, Gonçalves and Macke, 2021.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import integrate, stats
from scipy.special import xlogy

from scorefold.errors import ScorefoldError
from scorefold.prior import Prior
from scorefold.simulation.batched import Batched
from scorefold.tasks import envelope, ode
from scorefold.tasks.task import Series, Task, checked, stream
from scorefold.types import Array, Float, Key, Observation, Scalar, Theta

POPULATION = 1_000_000
ASKED = 1000
"""People tested at each time."""
TIMES = tuple(17.0 * i for i in range(10))
START = (float(np.log1p(-1 / POPULATION)), float(-np.log(POPULATION)))
"""log S and log I at first."""
LOG_MEDIAN, LOG_SD = np.log([0.4, 0.125]), np.array([0.5, 0.2])
LARGEST_U = 8.0
"""Prior sds from the median to the envelope's end; 10⁻¹⁵ of the prior lies beyond."""
FIRST_CELLS = 64
SOLVER_ERROR = 1e-7
"""More than the solver's error in I, added to its bounds."""
AT_ONCE = (256, 2048)
"""Parameters solved together for the reference, few or many: every size is a compilation."""

Pair = Float[np.ndarray, "points 2"]
PerPoint = Float[np.ndarray, " points"]
Shares = Float[np.ndarray, "points times"]


def field(t: Any, y: ode.Pair, theta: Theta) -> ode.Pair:
    """The rates of change of log S and log I at these logarithms and this θ, as `ode.solve` takes them."""
    log_s, log_i = y
    beta, gamma = theta
    return -beta * jnp.exp(log_i), beta * jnp.exp(log_s) - gamma


def log_infected(theta: Theta) -> Float[Array, " times"]:
    """log I, the logarithm of the infected share of the population, at the observed times for one θ."""
    return ode.solve(field, START, TIMES, theta)[1]


def simulate_one(theta: Theta, key: Key) -> Observation:
    """Simulate one observation (10,) at one θ from one random key: the infected among those tested; NaN where the solver gave
    up.
    """
    share = jnp.exp(log_infected(theta))
    infected = jax.random.binomial(key, float(ASKED), jnp.where(jnp.isnan(share), 0, share))
    return jnp.where(jnp.isnan(share), jnp.nan, infected)


def numpy_simulator(theta: Float[np.ndarray, "2"], rng: np.random.Generator) -> Float[np.ndarray, " times"]:
    """Simulate one observation at θ with NumPy and SciPy alone, as a user's own simulator would be written.

    It agrees with `simulate_one` in distribution, not draw by draw.
    """
    beta, gamma = theta

    def rates(t: float, y: np.ndarray) -> list[float]:
        return [-beta * np.exp(y[1]), beta * np.exp(y[0]) - gamma]

    solution = integrate.solve_ivp(rates, (TIMES[0], TIMES[-1]), START, "LSODA", TIMES, rtol=1e-8, atol=1e-8)
    if not solution.success:
        return np.full(len(TIMES), np.nan)
    return rng.binomial(ASKED, np.clip(np.exp(solution.y[1]), 0, 1)).astype(float)


def log_likelihood(theta: Theta, x: Observation) -> Scalar:
    """log p(x|θ) of one observation at one θ: the sum over the times of binomial log probabilities.

    It is there to check against; no method sees it.
    """
    return (
        jax.scipy.special.gammaln(ASKED + 1.0) * len(TIMES)
        - jnp.sum(jax.scipy.special.gammaln(x + 1) + jax.scipy.special.gammaln(ASKED - x + 1))
        + log_likelihood_of_mean(theta, x)
    )


def log_likelihood_of_mean(theta: Theta, mean: Observation) -> Scalar:
    """(1/n) Σ_j log p(x_j|θ) at one θ, up to a constant, from the mean of the x_j alone."""
    log_share = log_infected(theta)
    return jnp.sum(mean * log_share + (ASKED - mean) * jnp.log1p(-jnp.exp(log_share)))


def reference(x_obs: np.ndarray, draws: int, seed: int) -> Float[np.ndarray, "draws dim"]:
    """Draw θ from the posterior given the observations (n, 10), exactly and independently, by rejection under the envelope.

    Observations of another shape, or impossible ones, are a ScorefoldError.
    """
    x = checked(x_obs, len(TIMES))
    if x.min() < 0 or x.max() > ASKED:
        raise ScorefoldError(f"expected between 0 and {ASKED} infected; got {x.min():g} to {x.max():g}.")
    posterior = Posterior(len(x), x.mean(0))
    corner = np.full(2, LARGEST_U)
    start = envelope.grid(posterior.log_density, posterior.upper_bound, -corner, corner, FIRST_CELLS)
    u = envelope.draw(posterior.log_density, posterior.upper_bound, start, draws, stream(seed, "reference"))
    return _theta(u)


class Posterior:
    """The log posterior in the N(0, I) space given n and the mean of the observations, and its bound over a box."""

    def __init__(self, n: int, mean: Float[np.ndarray, " times"]):
        self.n, self.mean = n, mean

    def log_density(self, u: Pair) -> PerPoint:
        """The log posterior at each point u, up to a constant, with the dynamics solved in double precision."""
        share = np.exp(solved(_theta(u))[:, 1])
        return self._log_likelihood(share) - np.sum(u**2, axis=1) / 2

    def upper_bound(self, low: Pair, high: Pair) -> PerPoint:
        """A number that the log density nowhere exceeds between the corners of each box."""
        least, most = infected_range(_theta(low), _theta(high))
        nearest = np.clip(0, low, high)
        return self._log_likelihood(np.clip(self.mean / ASKED, least, most)) - np.sum(nearest**2, axis=1) / 2

    def _log_likelihood(self, share: Shares) -> PerPoint:
        return self.n * np.sum(xlogy(self.mean, share) + xlogy(ASKED - self.mean, 1 - share), axis=1)


def infected_range(low: Pair, high: Pair) -> tuple[Shares, Shares]:
    """The least and the most that I can be at the observed times, for θ anywhere in each of the boxes."""
    (beta_1, gamma_1), (beta_2, gamma_2) = low.T[..., None], high.T[..., None]
    mild, severe = solved(np.hstack([beta_1, gamma_2])), solved(np.hstack([beta_2, gamma_1]))
    s_0, t = np.exp(START[0]), np.array(TIMES)
    z_least, z_most = (START[0] - mild[:, 0]) / beta_1, (START[0] - severe[:, 0]) / beta_2
    at_ends = [1 - gamma_2 * z - s_0 * np.exp(-beta_1 * z) for z in (z_least, z_most)]
    z_peak = np.clip(np.log(s_0 * beta_2 / gamma_1) / beta_2, z_least, z_most)
    peak = 1 - gamma_1 * z_peak - s_0 * np.exp(-beta_2 * z_peak)
    least = (severe[:, 1] + gamma_1 * t - START[1]) * beta_1 / beta_2 + START[1] - gamma_2 * t
    most = (mild[:, 1] + gamma_2 * t - START[1]) * beta_2 / beta_1 + START[1] - gamma_1 * t
    least = np.maximum(np.minimum(*at_ends), np.exp(least)) - SOLVER_ERROR
    most = np.minimum(peak, np.exp(np.minimum(most, 0))) + SOLVER_ERROR
    return np.clip(least, 0, 1), np.clip(most, 0, 1)


def solved(theta: Pair) -> Float[np.ndarray, "points 2 times"]:
    """log S and log I (points, 2, times) for many θ, in double precision and a fixed number of θ at a time."""
    size = AT_ONCE[len(theta) > AT_ONCE[0]]
    rows = np.minimum(np.arange(-(-len(theta) // size) * size), len(theta) - 1).reshape(-1, size)
    with jax.enable_x64(True):
        return np.concatenate([np.asarray(_solved(jnp.asarray(theta[some], jnp.float64))) for some in rows])[: len(theta)]


@jax.jit
@jax.vmap
def _solved(theta: Theta) -> ode.Solution:
    return ode.solve(field, START, TIMES, theta)


def _theta(u: Pair) -> Pair:
    return np.exp(LOG_MEDIAN + LOG_SD * u)


def task() -> Task:
    """The task of an epidemic's contact and recovery rate (SIR), from ten counts: fast epidemics are rare under the prior, and
    hard. The reference is drawn under an envelope, exactly.
    """
    beta, gamma = (stats.lognorm(sd, scale=np.exp(median)) for sd, median in zip(LOG_SD, LOG_MEDIAN, strict=True))
    return Task(
        name="sir",
        title="Epidemic, 2-D (SIR)",
        description="The contact and recovery rates of an epidemic, from ten counts of the infected among 1,000 tested.",
        prior=Prior({"beta": beta, "gamma": gamma}),
        simulator=Batched(jax.vmap(simulate_one)),
        log_likelihood=log_likelihood,
        reference=reference,
        reference_kind="grid",
        numpy_simulator=numpy_simulator,
        series=(Series("infected among 1,000 tested", TIMES),),
    )
