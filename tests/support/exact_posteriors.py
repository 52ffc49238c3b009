"""Posteriors that are drawn exactly, or with a planted fault, and need no training."""

import warnings
from dataclasses import dataclass

import conjugate
import equinox as eqx
import jax.numpy as jnp
import numpy as np
from scipy import stats

import scorefold as sf
from scorefold.errors import Diverged, UntrustworthyDraws
from scorefold.posterior.draws import Drawn
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.summed import SummedPosterior
from scorefold.tasks.gaussian import standard_normal_prior

VARIANCES = np.array([0.5, 2.0])
"""Of the observations of `Conjugate`."""


class Health:
    def __init__(self, converged=True):
        self.converged, self.diverged = converged, not converged


class Looped(Posterior):
    """Exact draws, one data set at a time; some data sets go wrong."""

    prior = sf.Prior({"a": stats.norm(0, 1), "b": stats.norm(0, 1)})
    method, history, shape = None, None, (2,)

    def draw(self, x, draws, seed, options=None):
        if x[0, 0] > 100:
            raise Diverged("the draws are not finite")
        u = conjugate.posterior(x, draws, np.random.default_rng(seed))
        if x[0, 0] < -100:
            warnings.warn("not converged", UntrustworthyDraws, stacklevel=1)
        return Drawn(u, Health(x[0, 0] >= -100), None)


class Analytic(Looped):
    """The conjugate posterior, or one with a fault."""

    def __init__(self, fault=""):
        self.fault = fault

    def draw(self, x, draws, seed, options=None):
        if self.fault == "diverges" and x[0, 0] > 1:
            raise Diverged("the draws are not finite")
        u = conjugate.posterior(x, draws, np.random.default_rng(seed), self.fault)
        return Drawn(u, Health(), None)


class Exact(eqx.Module):
    """x | u ~ N(u, diag VARIANCES)."""

    def prepare(self, x):
        return x

    def term(self, u, x):
        return -jnp.sum((x - u) ** 2 / jnp.asarray(VARIANCES, jnp.float32)) / 2


@dataclass(frozen=True)
class Settings:
    """Of NUTS and variational inference, as NLE and NRE have them."""

    sampler: str = "nuts"
    chains: int = 4
    warmup: int = 150
    steps: int = 800


def summed(terms=None, **settings):
    """N(0, I) in two dimensions with exact likelihood terms, by default the conjugate Gaussian's, drawn by NUTS or VI."""
    return SummedPosterior(standard_normal_prior(2), Settings(**settings), terms or Exact(), None, (2,))


def simulator(theta, rng):
    return theta + rng.standard_normal(2)


def folded(theta, rng):
    return np.abs(theta) + rng.standard_normal(2)
