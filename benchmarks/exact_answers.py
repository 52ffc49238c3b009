"""What is true of gaussian, mixture and sir: evidence, maxima and draws, also under another prior; for `answers.py`."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.special import logsumexp

import scorefold as sf
from scorefold import tasks
from scorefold.tasks.gaussian import VARIANCES
from scorefold.tasks.mixture import SCALES

GAUSSIAN, MIXTURE, SIR = (tasks.get(name) for name in ("gaussian", "mixture", "sir"))


def other_prior_of(task: Any, shift: float) -> sf.Prior:
    """N(shift, 1/4) in the N(0, I) space of the task's prior."""
    if task is GAUSSIAN:
        return sf.Prior({name: stats.norm(shift, 0.5) for name in task.prior.names})
    median, sd = np.log([0.4, 0.125]), np.array([0.5, 0.2])
    laws = [stats.lognorm(s / 2, scale=np.exp(m + shift * s)) for m, s in zip(median, sd, strict=True)]
    return sf.Prior(dict(zip(task.prior.names, laws, strict=True)))


def picked(theta: np.ndarray, log_ratio: np.ndarray, rng: np.random.Generator, number: int = 1_000) -> np.ndarray:
    """So many draws, picked by a ratio of priors."""
    weights = np.exp(log_ratio - log_ratio.max())
    return theta[rng.choice(len(theta), number, p=weights / weights.sum())]


def exact_draws(task: Any, x: np.ndarray, other: sf.Prior, shift: float, seed: int) -> np.ndarray:
    """From the true posterior under another prior: conjugate, or the reference's draws weighed by the ratio of the priors."""
    rng = np.random.default_rng(seed)
    if task is GAUSSIAN:
        precision = 4 + len(x) / VARIANCES
        mean = (4 * shift + x.sum(axis=0) / VARIANCES) / precision
        return mean + rng.standard_normal((1_000, len(mean))) / np.sqrt(precision)
    wide = task.reference(x, 20_000, seed)
    return picked(wide, other.log_prob(wide) - task.prior.log_prob(wide), rng)


def log_joint(task: Any, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """log p(θ) + Σ_j log p(x_j|θ) at (points, 10), in double precision."""
    return stats.norm(0, 1).logpdf(theta).sum(axis=1) + log_likelihood(task, theta, x)


def log_likelihood(task: Any, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Σ_j log p(x_j|θ) at (points, 10)."""
    return np.sum([logsumexp(_log_components(task, theta, one), axis=0) for one in x], axis=0)


def highest(task: Any, x: np.ndarray) -> np.ndarray:
    """The θ of highest density, by expectation maximisation from the mean and from every observation."""
    precision, best = 1 / (_scales(task)[:, None] * VARIANCES), []
    for start in (x.mean(axis=0), *x):
        theta = start
        for _ in range(100):
            each = np.array([_log_components(task, theta[None], one)[:, 0] for one in x])
            weights = np.exp(each - logsumexp(each, axis=1, keepdims=True)) @ precision  # (n, 10)
            theta = (weights * x).sum(axis=0) / (1 + weights.sum(axis=0))
        best.append(theta)
    return max(best, key=lambda theta: log_joint(task, theta[None], x)[0])


def _scales(task: Any) -> np.ndarray:
    """Of the covariances of an observation's components."""
    return np.ones(1) if task is GAUSSIAN else np.asarray(SCALES)


def _log_components(task: Any, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """(components, points)"""
    spread = _scales(task)[:, None, None] * VARIANCES
    return -(np.square(x - theta) / spread + np.log(2 * np.pi * spread)).sum(axis=2) / 2 - np.log(len(spread))


def exact_evidence(task: Any, x: np.ndarray) -> float:
    """log p(x_1 … x_n): closed forms or, of several observations of the mixture, importance sampling with 2·10⁵ draws."""
    n = len(x)
    if task is GAUSSIAN:
        return sum(stats.multivariate_normal(np.zeros(n), 1 + v * np.eye(n)).logpdf(x[:, k]) for k, v in enumerate(VARIANCES))
    if n == 1:
        laws = [stats.norm(0, np.sqrt(1 + s * VARIANCES)).logpdf(x[0]).sum() for s in SCALES]
        return float(logsumexp(laws) - np.log(len(laws)))
    draws = np.asarray(task.reference(x, 4_000, 0), np.float64)
    law = stats.multivariate_t(draws.mean(axis=0), 1.2 * np.cov(draws, rowvar=False), df=6)
    theta = law.rvs(200_000, random_state=np.random.default_rng(0))
    return float(logsumexp(log_joint(task, theta, x) - law.logpdf(theta)) - np.log(len(theta)))


class ExactTerms(eqx.Module):
    """The exact likelihood of a task whose parameters are u."""

    log_likelihood: Any = eqx.field(static=True)
    normalised: bool = eqx.field(static=True, default=True)

    def prepare(self, x: Any) -> Any:
        """Nothing."""
        return x

    def term(self, u: Any, x: Any) -> Any:
        """log p(x|u)"""
        return self.log_likelihood(u, x)

    def log_volume(self, x: Any) -> Any:
        """It is in units of x."""
        return jnp.zeros(())
