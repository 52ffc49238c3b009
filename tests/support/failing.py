"""A simulator that fails more often for some θ than for others, and whose posterior is known all the same.

θ ~ N(0, I), x | θ ~ N(θ, diag(v)), and a simulation succeeds with probability exp(-a (θ₁ - c)²/2). Given that s of them did, θ
is still Gaussian, with precision (1 + s a, 1) and mean (s a c / (1 + s a), 0); given n observations, which did not fail, it has
precision (1 + n a + n/v₁, 1 + n/v₂).
"""

import numpy as np

import scorefold as sf
from scorefold.simulation.calls import plan
from scorefold.simulation.outcome import OK
from scorefold.simulation.simulations import Results, gather
from scorefold.tasks.gaussian import standard_normal_prior

A, C, V = 0.5, 1.5, np.array([1.0, 0.5])
PRIOR = standard_normal_prior(2)
FAILED = 2


def succeeds(theta, rng):
    return rng.random(theta.shape[:-1]) < np.exp(-A * (theta[..., 0] - C) ** 2 / 2)


def simulator(theta, rng):
    if not succeeds(theta, rng):
        raise RuntimeError("no observation")
    return theta + np.sqrt(V) * rng.standard_normal(2)


def simulations(budget, set_size=1, seed=0):
    """As `sf.simulate` would make them, at once."""
    calls, rng = plan(PRIOR, budget, set_size, seed), np.random.default_rng(seed)
    theta = calls.theta[calls.case]
    x = (theta + np.sqrt(V) * rng.standard_normal(theta.shape)).astype(np.float32)
    return gather(PRIOR, calls, Results(np.where(succeeds(theta, rng), OK, FAILED).astype(np.uint8), [(0, x)], (2,)))


def given_success(s):
    """Mean and variance of θ₁, given that s simulations succeeded."""
    return s * A * C / (1 + s * A), 1 / (1 + s * A)


def exact(x):
    """Mean and sd of the posterior."""
    n = len(x)
    precision = 1 + n / V + np.array([n * A, 0])
    return (x.sum(axis=0) / V + np.array([n * A * C, 0])) / precision, precision**-0.5


def observed(n):
    return np.array([0.3, -0.5]) + np.sqrt(V) * np.random.default_rng(5).standard_normal((n, 2))


def shifts(posterior, x, **how):
    """How far the draws' means are off, in posterior sd."""
    mean, sd = exact(x)
    return (posterior.sample(x, 2_000, **how).theta.mean(axis=0) - mean) / sd


METHOD = sf.NPSE(width=16, depth=2, training=sf.Training(members=2, steps=600))
