"""LV: the four rates of Lotka and Volterra's prey X and predators Y.

    X' = α X - β X Y,   Y' = -γ Y + δ X Y,   X(0) = 30,   Y(0) = 1;
    α, γ ~ LogNormal(-1/8, ½),   β, δ ~ LogNormal(-3, ½);
    x ~ LogNormal(log X(t_i), 0.1), then LogNormal(log Y(t_i), 0.1), at t = 0, 2.1 … 18.9,

with X and Y clipped to [10⁻¹⁰, 10⁴]. With m the mean of n observations' logarithms the likelihood is, up to a
constant, -n |m - log(X, Y)|² / (2 · 0.1²): one solve serves any n. The reference is drawn by NUTS (`nuts.py`).

Reference: "Benchmarking simulation-based inference", Lueckmann, Boelts, Greenberg, Gonçalves and Macke, 2021.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import integrate, stats

from scorefold.errors import ScorefoldError
from scorefold.prior import Prior
from scorefold.simulation.batched import Batched
from scorefold.tasks import nuts_reference as nuts
from scorefold.tasks import ode, stored
from scorefold.tasks.task import Series, Task, checked
from scorefold.types import Array, Float, Key, Observation, Scalar, Theta

VERSION = 1
"""Of the task's posterior; stored draws of another version are not used."""
NOISE = 0.1
TIMES = tuple(2.1 * i for i in range(10))
START = (float(np.log(30)), 0.0)
"""log X and log Y at first."""
SMALLEST_LOG_SPECIES, LARGEST_LOG_SPECIES = float(np.log(1e-10)), float(np.log(1e4))
LOG_MEDIAN, LOG_SD = np.array([-0.125, -3, -0.125, -3]), 0.5


def field(t: Any, y: ode.Pair, theta: Theta) -> ode.Pair:
    """The rates of change of log X and log Y at these logarithms and this θ, as `ode.solve` takes them."""
    alpha, beta, gamma, delta = theta
    return alpha - beta * jnp.exp(y[1]), -gamma + delta * jnp.exp(y[0])


def log_species(theta: Theta) -> Float[Array, " x"]:
    """log X at the observed times, then log Y, for one θ, both clipped to the bounds of this task."""
    return jnp.clip(ode.solve(field, START, TIMES, theta), SMALLEST_LOG_SPECIES, LARGEST_LOG_SPECIES).ravel()


def simulate_one(theta: Theta, key: Key) -> Observation:
    """Simulate one observation (20,) at one θ from one random key, in JAX; NaN where the solver gave up."""
    return jnp.exp(log_species(theta) + NOISE * jax.random.normal(key, (2 * len(TIMES),)))


def numpy_simulator(theta: Float[np.ndarray, "4"], rng: np.random.Generator) -> Float[np.ndarray, "20"]:
    """Simulate one observation at θ with NumPy and SciPy alone, as a user's own simulator would be written.

    It agrees with `simulate_one` in distribution, not draw by draw.
    """
    alpha, beta, gamma, delta = theta

    def rates(t: float, y: np.ndarray) -> list[float]:
        return [alpha - beta * np.exp(y[1]), -gamma + delta * np.exp(y[0])]

    with np.errstate(over="ignore"):
        solution = integrate.solve_ivp(rates, (TIMES[0], TIMES[-1]), START, "LSODA", TIMES, rtol=1e-8, atol=1e-8)
    if not solution.success:
        return np.full(2 * len(TIMES), np.nan)
    return np.exp(
        np.clip(solution.y, SMALLEST_LOG_SPECIES, LARGEST_LOG_SPECIES).ravel() + NOISE * rng.standard_normal(2 * len(TIMES))
    )


def log_likelihood(theta: Theta, x: Observation) -> Scalar:
    """log p(x|θ) of one observation at one θ: the sum over all counts of their log-normal log densities.

    It is there to check against; no method sees it.
    """
    return jnp.sum(jax.scipy.stats.norm.logpdf(jnp.log(x), log_species(theta), NOISE) - jnp.log(x))


def log_posterior(u: Theta, data: nuts.Data) -> Scalar:
    """The log posterior at u in the N(0, I) space, up to a constant, given n and the mean of the observations' logarithms."""
    n, mean = data
    misfit = (mean - log_species(jnp.exp(LOG_MEDIAN + LOG_SD * u))) / NOISE
    return -(n * jnp.sum(misfit**2) + jnp.sum(u**2)) / 2


def statistics(x_obs: np.ndarray) -> nuts.Data:
    """What the posterior depends on: n and the mean of the logarithms of the observations, which must be positive."""
    x = checked(x_obs, 2 * len(TIMES))
    if x.min() <= 0:
        raise ScorefoldError(f"expected positive observations; got {x.min():g}. Give x itself, not its logarithm.")
    return np.array(float(len(x))), np.log(x).mean(0)


def posteriors(x_obs: list[np.ndarray], draws: int, seeds: list[int]) -> list[nuts.Chains]:
    """Draw θ from the posteriors of several data sets at once, in one program; one `Chains` for each, with its seed.

    `reference` does so for one.
    """
    data = tuple(map(np.stack, zip(*map(statistics, x_obs), strict=True)))
    drawn = nuts.draw(log_posterior, data, len(LOG_MEDIAN), draws, seeds)
    return [chains._replace(draws=np.exp(LOG_MEDIAN + LOG_SD * chains.draws)) for chains in drawn]


@stored.kept("lotka_volterra", VERSION)
def reference(x_obs: np.ndarray, draws: int, seed: int) -> nuts.Chains:
    """Draw θ from the posterior given the observations (n, 20), by NUTS; chains that disagree are refused with a
    ScorefoldError. Draws are kept in a cache, as they take a while.
    """
    return posteriors([x_obs], draws, [seed])[0]


def task() -> Task:
    """The task of prey and predators (Lotka–Volterra): posteriors are very narrow against the prior, which asks for refinement.

    The reference is drawn by NUTS.
    """
    medians = zip(("alpha", "beta", "gamma", "delta"), np.exp(LOG_MEDIAN), strict=True)
    return Task(
        name="lotka_volterra",
        title="Predator and prey, 4-D (Lotka–Volterra)",
        description="The rates of growth and death of a prey and its predator, from ten noisy counts of each.",
        prior=Prior({name: stats.lognorm(LOG_SD, scale=median) for name, median in medians}),
        simulator=Batched(jax.vmap(simulate_one)),
        log_likelihood=log_likelihood,
        reference=reference,
        reference_kind="NUTS",
        numpy_simulator=numpy_simulator,
        series=(Series("prey", TIMES, True), Series("predators", TIMES, True)),
    )
