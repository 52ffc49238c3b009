"""Drift diffusion: the time and the outcome of a decision between two, in four dimensions.

Evidence starts at a w between two boundaries, 0 and a, and moves by dx = v dt + dB until it meets one of them, at time
T:

    v ~ U(-4, 4),   a ~ U(0.5, 2.5),   w ~ U(0.3, 0.7),   t0 ~ U(0.1, 0.6);
    x = (t0 + T, 1 if it was the upper boundary, otherwise 0)

are the drift, the boundary separation, the relative start (bias), the non-decision time, and one reaction time in
seconds with the choice. `first_passage.py` has the density of (T, choice), whose product over the trials is the
likelihood: zero where t0 is above the shortest reaction time.

Two simulators, exact both, share nothing. The batched one inverts the distribution function of T. The other one walks:
from the middle of (z-b, z+b), with b the distance to the nearer boundary, the path leaves above with probability 1 / (1
+ e^{-2vb}), and, independently of that, after b² J, where J has the density ∝ e^{-(vb)²j/2} times that of a Brownian
path's first exit from (-1, 1). Either this was the boundary, or the walk goes on from there. J is drawn by Devroye's
method of alternating series.

The reference is drawn by NUTS (`nuts_reference.py`). Beyond the shortest reaction time the posterior of t0 is zero, so
that its prior may be cut there, at h; up to h it is smooth, because the density of T vanishes at 0 faster than any
power: as e^{-c/(h - t0)}. In the coordinate u with t0 = 0.1 + (h - 0.1) / (1 + e^{-u}) this is a slope of -c eᵘ, which
NUTS can follow. (With Φ(u) in place of the logistic function it is c e^{u²/2}, and chains diverge.)

References: "A theory of memory retrieval", Ratcliff, 1978; "Bayesian inference for logistic models using Pólya–Gamma
latent variables", Polson, Scott and Windle, 2013, for J.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.special import expit, ndtr

from scorefold.errors import ScorefoldError
from scorefold.prior import Prior
from scorefold.simulation.batched import Batched
from scorefold.tasks import first_passage, stored
from scorefold.tasks import nuts_reference as nuts
from scorefold.tasks.task import Task, checked
from scorefold.types import Float, Key, Observation, Scalar, Theta

VERSION = 1
"""Of the task's posterior; stored draws of another version are not used."""
PARAMETERS = ("v", "a", "w", "t0")
LOW, HIGH = np.array([-4, 0.5, 0.3, 0.1]), np.array([4, 2.5, 0.7, 0.6])
"""The prior's box."""
LONGER_CHAINS = 3
"""Chains are so many times longer than usual: a few trials tell a and t0 apart badly, and a second attempt is a compilation."""
MEETING = 0.64
"""The j at which the two series for J's density change places."""


def simulate_one(theta: Theta, key: Key) -> Observation:
    """Simulate one trial at one θ from one random key: the reaction time and the choice, (2,)."""
    time, above = first_passage.draw(key, *theta[:3])
    return jnp.stack([theta[3] + time, above.astype(time.dtype)])


def numpy_simulator(theta: Float[np.ndarray, "4"], rng: np.random.Generator) -> Float[np.ndarray, "2"]:
    """Simulate one trial at θ with NumPy and SciPy alone, and without the first-passage series, as a check on these."""
    v, a, w, time = theta
    z = a * w
    while True:
        b = min(z, a - z)
        time += b**2 * _exit_time(abs(v) * b, rng)
        up = rng.uniform() < 1 / (1 + np.exp(-2 * v * b))
        if up and a - z <= z:
            return np.array([time, 1.0])
        if not up and z <= a - z:
            return np.array([time, 0.0])
        z += b if up else -b


def _exit_time(mu: float, rng: np.random.Generator) -> float:
    """J with vb = μ: an exponential beyond 0.64, an inverse Gaussian below, and the series' terms until one decides."""
    rate = np.pi**2 / 8 + mu**2 / 2
    late = np.pi / (2 * rate) * np.exp(-rate * MEETING)
    root = np.sqrt(MEETING)
    early = 2 * (np.exp(-mu) * ndtr((mu * MEETING - 1) / root) + np.exp(mu) * ndtr(-(mu * MEETING + 1) / root))
    while True:
        j = MEETING + rng.exponential() / rate if rng.uniform() * (late + early) < late else _early_exit(mu, rng)
        total = _term(0, j)
        level = rng.uniform() * total
        for k in itertools.count(1):
            total += (-1) ** k * _term(k, j)  # below the density for odd k, above it for even k
            if k % 2 and level <= total:
                return j
            if not k % 2 and level > total:
                break


def _early_exit(mu: float, rng: np.random.Generator) -> float:
    """An inverse Gaussian draw of mean 1/μ and shape 1 below 0.64."""
    while mu * MEETING > 1:
        if (j := rng.wald(1 / mu, 1)) < MEETING:
            return j
    while True:
        first, second = rng.exponential(size=2)
        j = MEETING / (1 + MEETING * first) ** 2
        if first**2 <= 2 * second / MEETING and rng.uniform() < np.exp(-(mu**2) * j / 2):
            return j


def _term(k: int, j: float) -> float:
    """The k-th term of the alternating series for the density of J at μ = 0."""
    if j <= MEETING:
        return np.pi * (k + 0.5) * (2 / (np.pi * j)) ** 1.5 * np.exp(-2 * (k + 0.5) ** 2 / j)
    return np.pi * (k + 0.5) * np.exp(-((k + 0.5) ** 2) * np.pi**2 * j / 2)


def log_likelihood(theta: Theta, x: Observation) -> Scalar:
    """log p(x|θ) of one observation at one θ, the density of (reaction time, choice); -∞ where the time is t0 or less.

    It is there to check against; no method sees it.
    """
    v, a, w, t0 = theta
    above = x[1] > 0.5
    return first_passage.log_density(x[0] - t0, jnp.where(above, -v, v), a, jnp.where(above, 1 - w, w))


def log_posterior(u: Theta, data: nuts.Data) -> Scalar:
    """The log posterior in the coordinates u, up to a constant, given the trials, which of them are real, and the prior's upper
    end.
    """
    x, real, high = data
    low = jnp.asarray(LOW, u.dtype)
    theta = low + (high - low) * jnp.append(jax.scipy.special.ndtr(u[:3]), jax.nn.sigmoid(u[3]))
    each = jax.vmap(log_likelihood, in_axes=(None, 0))(theta, x)
    log_prior = jax.nn.log_sigmoid(u[3]) + jax.nn.log_sigmoid(-u[3]) - jnp.sum(u[:3] ** 2) / 2
    return jnp.sum(jnp.where(real > 0, each, 0.0)) + log_prior


def statistics(x_obs: np.ndarray, rows: int) -> nuts.Data:
    """What the posterior depends on: the trials, filled up to so many rows by the first, which of them are real, and the
    prior's upper end.
    """
    x = checked(x_obs, 2)
    if x[:, 0].min() <= LOW[3] or not np.isin(x[:, 1], (0, 1)).all():
        raise ScorefoldError(
            f"expected reaction times above {LOW[3]} s and choices 0 or 1; got times from {x[:, 0].min():g} and choices "
            f"{np.unique(x[:, 1])[:5].tolist()}. Rows are (reaction time, choice)."
        )
    filled = np.concatenate([x, np.broadcast_to(x[:1], (rows - len(x), 2))])
    return filled, (np.arange(rows) < len(x)).astype(float), np.r_[HIGH[:3], min(HIGH[3], x[:, 0].min())]


def posteriors(x_obs: list[np.ndarray], draws: int, seeds: list[int]) -> list[nuts.Chains]:
    """Draw θ from the posteriors of several data sets at once, in one program; one `Chains` for each, with its seed.

    `reference` does so for one.
    """
    rows = 1 << (max(map(len, x_obs)) - 1).bit_length()  # a power of two: every size is a compilation
    data = tuple(map(np.stack, zip(*(statistics(x, rows) for x in x_obs), strict=True)))
    drawn = nuts.draw(log_posterior, data, len(LOW), draws, seeds, LONGER_CHAINS)
    shares = [np.column_stack([ndtr(chains.draws[:, :3]), expit(chains.draws[:, 3])]) for chains in drawn]
    return [
        chains._replace(draws=LOW + (high - LOW) * share) for chains, share, high in zip(drawn, shares, data[2], strict=True)
    ]


@stored.kept("drift_diffusion", VERSION)
def reference(x_obs: np.ndarray, draws: int, seed: int) -> nuts.Chains:
    """Draw θ from the posterior given the observations (n, 2), by NUTS; chains that disagree are refused with a ScorefoldError.

    Draws are kept in a cache, as they take a while.
    """
    return posteriors([x_obs], draws, [seed])[0]


def task() -> Task:
    """The task of a choice between two (drift diffusion): four parameters, and a likelihood that is zero before the
    non-decision time. The reference is drawn by NUTS.
    """
    ends = zip(PARAMETERS, LOW, HIGH, strict=True)
    return Task(
        name="drift_diffusion",
        title="Drift diffusion, 4-D",
        description="Drift, boundary, bias and non-decision time of a choice between two, from its reaction time and outcome.",
        prior=Prior({name: stats.uniform(low, high - low) for name, low, high in ends}),
        simulator=Batched(jax.vmap(simulate_one)),
        log_likelihood=log_likelihood,
        reference=reference,
        reference_kind="NUTS",
        numpy_simulator=numpy_simulator,
    )
