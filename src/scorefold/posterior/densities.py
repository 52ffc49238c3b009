"""The density of a posterior: its values, its maximum.

A kind of posterior has h(u), the log density in the space of u up to a constant, if it has `log_density`: for composed scores
the sum of the networks' energies (conservative ones) or integrals of the composed score along straight lines
(`line_integral.py`), for NLE and NRE log N(u | 0, I) + Σ_j log p(x_j|u), for NPE the flow's density itself. The density of θ is

    log p(θ|x_1 … x_n) = h(u(θ)) + log |du/dθ| - log Z,      Z = ∫ e^{h(u)} du,

with log Z by bridge sampling from draws, and from Gaussians at the maxima of h (`sample/bridge.py`). A maximum is found by
Newton's method from the draws of highest density (`sample/ascent.py`), of the density of θ: that of u has it elsewhere.
"""

import warnings
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from scorefold import settings
from scorefold.errors import ScorefoldError, UntrustworthyDraws
from scorefold.posterior.belongs import refuse_others
from scorefold.posterior.draws import AS_THE_METHOD_SAYS, Drawn, Draws, Options
from scorefold.posterior.sensitivity import Sensitivity, refuse_without_terms, sensitivity
from scorefold.prior import Prior
from scorefold.prior.prior_ratio import NOWHERE
from scorefold.sample.bridge import Constant, log_constant, peaks_at
from scorefold.types import Float, single_precision

DRAWN = 2_000
"""Draws that a density is normalised by, where none are given."""
SCORED = 256
"""Draws at which single observations are looked at."""
CLIMBED_FROM, LOOKED_AT = 8, 256
"""Draws from which a maximum is climbed to, and of how many they are the highest."""


class Summits(NamedTuple):
    """Maxima of a density, with curvatures."""

    u: Float[np.ndarray, "points dim"]
    curvature: Float[np.ndarray, "points dim dim"]


@runtime_checkable
class HasDensity(Protocol):
    """What a kind of posterior needs for all of this."""

    def log_density(self, x: np.ndarray, u: np.ndarray, options: Options = AS_THE_METHOD_SAYS) -> np.ndarray:
        """h at points u (points, dim), given observations x (n, features)."""

    def climb(self, x: np.ndarray, u: np.ndarray, of_theta: bool, options: Options = AS_THE_METHOD_SAYS) -> "Summits":
        """Maxima of the density of u, or of that of θ, uphill from points u."""


class Densities(ABC):
    """What every posterior can be asked about its density. `Posterior` is one of these."""

    prior: Prior
    method: Any
    normalised: ClassVar[bool] = False
    """h needs no log Z."""

    @abstractmethod
    def draw(self, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options = AS_THE_METHOD_SAYS) -> Drawn:
        """Draws for finite observations x (n, features)."""

    @abstractmethod
    def checked(self, x_obs: Any, inputs: Any = None) -> np.ndarray:
        """x_obs, with its inputs if there are some, as (n, features) float64, or a ScorefoldError."""

    @abstractmethod
    def _checked_options(self, options: Options) -> Options:
        """The options, if this kind of posterior has them."""

    def log_prob(
        self,
        theta: Any,
        x_obs: Any,
        *,
        normalised: bool = True,
        draws: Draws | None = None,
        prior: Prior | None = None,
        inputs: Any = None,
        seed: int | None = 0,
    ) -> Float[np.ndarray, "*batch"]:
        """The log density of the posterior, log p(θ | x_1 … x_n), at any θ.

        Of composed scores it is the density that the draws have, at the lowest noise level. Scores of networks are gradients of
        a density only roughly, unless they were trained with `sf.NPSE(conservative=True)`; a warning says where that matters.

        Args:
            theta: Parameters (..., dim), with the columns in the order of the prior's names.
            x_obs: The observations, (n, *shape).
            normalised: Whether the density integrates to 1. If so, posterior draws are needed for the constant; if not, it is
                relative to its own maximum in the space of u (composed scores), or lacks log p(x_1 … x_n) (NLE; for NRE what
                that exceeds Σ_j log p(x_j) by). NPE's is always normalised. Default True.
            draws: What `sample` returned for these observations and this prior, so that none need be made. Default None.
            prior: Another prior, as in `sample`. Default None.
            inputs: The known inputs of the observations, as in `sample`. Default None.
            seed: Of draws, where some are made. Default 0.

        Returns:
            Values of shape (...); -inf outside the prior's support.

        Raises:
            ScorefoldError: The method has no density, or arguments do not fit.

        `docs/densities.md` has an example that the tests run.
        """
        x, options = self.checked(x_obs, inputs), self._checked_options(Options(prior=prior))
        points = settings.numbers("theta", theta)
        if points.ndim == 0 or points.shape[-1] != self.prior.dim:
            raise ScorefoldError(f"expected theta of shape (..., {self.prior.dim}); got {points.shape}")
        rows = points.reshape(-1, self.prior.dim)
        low, high = (self.prior if prior is None else prior).bounds.T
        within = np.isfinite(rows).all(axis=1) & ((low <= rows) & (rows <= high)).all(axis=1)
        values = np.full(len(rows), -np.inf)
        with single_precision():
            if within.any():
                values[within] = self._log_density(x, rows[within], options)
            if normalised and (not self.normalised or prior is not None):
                values -= self.log_constant(x, options, draws, settings.seed(seed)).log
        return values.reshape(points.shape[:-1])

    def map(
        self, x_obs: Any, *, draws: Draws | None = None, prior: Prior | None = None, inputs: Any = None, seed: int | None = 0
    ) -> Float[np.ndarray, " dim"]:
        """The θ of highest posterior density (maximum a posteriori), found uphill from posterior draws.

        It depends on how the parameters are written down, as all maxima of densities do: that of log θ is elsewhere.

        Args:
            x_obs: The observations, (n, *shape).
            draws: What `sample` returned for these observations and this prior, so that none need be made. Default None.
            prior: Another prior, as in `sample`. Default None.
            inputs: The known inputs of the observations, as in `sample`. Default None.
            seed: Of draws, where some are made. Default 0.

        Returns:
            θ (dim,), in the prior's order.

        Raises:
            ScorefoldError: The method has no density, or arguments do not fit.

        `docs/densities.md` has an example that the tests run.
        """
        x, options = self.checked(x_obs, inputs), self._checked_options(Options(prior=prior))
        with single_precision():
            own, seen, own_options = self._with_density(x, options)
            u = self._draws_for(x, options, draws, settings.seed(seed), LOOKED_AT)[:LOOKED_AT]
            height = self._log_density(x, self._theta(u), options)
            best = u[np.argsort(-height)[:CLIMBED_FROM]]
            ends = own.climb(seen, np.resize(best, (CLIMBED_FROM, best.shape[1])), True, own_options).u
            theta = self._theta(np.concatenate([ends[np.isfinite(ends).all(axis=1)], best]))
            low, high = (self.prior if prior is None else prior).bounds.T
            theta = np.clip(theta, low, high)
            return theta[np.nanargmax(self._log_density(x, theta, options))]

    def log_likelihood(self, theta: Any, x_obs: Any, *, inputs: Any = None) -> Float[np.ndarray, "*batch n"]:
        """log p(x_j|θ) of every observation, where a likelihood was learned (NLE).

        `draws.to_arviz(log_likelihood=posterior.log_likelihood(draws.theta, x_obs))` is what `arviz.loo` compares models by.

        Args:
            theta: Parameters (..., dim), with the columns in the order of the prior's names.
            x_obs: The observations, (n, *shape).
            inputs: The known inputs of the observations, as in `sample`. Default None.

        Returns:
            Values (..., n), in the units of the observations.

        Raises:
            ScorefoldError: The method has no likelihood, or arguments do not fit.

        `docs/densities.md` has an example that the tests run.
        """
        x = self.checked(x_obs, inputs)
        if not hasattr(self, "log_likelihoods"):
            raise ScorefoldError(
                f"expected a posterior with a likelihood; {type(self.method).__name__} has none. Use method='nle'."
            )
        points = settings.numbers("theta", theta)
        u = self.prior.to_normal(points).reshape(-1, self.prior.dim)
        with single_precision():
            values: np.ndarray = self.log_likelihoods(x, u)
        return values.reshape(*points.shape[:-1], len(x))

    def sensitivity(self, x_obs: Any, *, draws: Draws | None = None, inputs: Any = None, seed: int | None = 0) -> Sensitivity:
        """What moves the posterior's means: each observation, and the prior.

        Args:
            x_obs: The observations, (n, *shape).
            draws: What `sample` returned for them, so that none need be made. Default None.
            inputs: The known inputs of the observations, as in `sample`. Default None.
            seed: Of draws, where some are made. Default 0.

        Returns:
            A `Sensitivity`, in posterior sd; print it. `order` has the observations, the most influential first.

        Raises:
            ScorefoldError: The method has neither scores nor likelihoods of single observations, or arguments do not fit.

        `docs/densities.md` has an example that the tests run.
        """
        x = self.checked(x_obs, inputs)
        with single_precision():
            own, seen, _ = self._own(x, AS_THE_METHOD_SAYS)
            refuse_without_terms(own, self.prior)
            u = self._draws_for(x, AS_THE_METHOD_SAYS, draws, settings.seed(seed), SCORED)[:SCORED]
            return sensitivity(own, self.prior, seen, u, self._theta(u))

    def log_constant(self, x: np.ndarray, options: Options, draws: Draws | None, seed: int) -> Constant:
        """log Z of the density of u, from draws that are given or made."""
        own, seen, own_options = self._with_density(x, options)
        u = self._draws_for(x, options, draws, seed, DRAWN)

        def h(u: np.ndarray) -> np.ndarray:
            value = own.log_density(seen, u, own_options)
            if options.prior is None:
                return value
            low, high = options.prior.bounds.T
            theta = self._theta(u)
            return np.where(((low <= theta) & (theta <= high)).all(axis=1), value, -np.inf)

        some = u[:LOOKED_AT]
        best = some[np.argsort(-h(some))[:CLIMBED_FROM]]
        tops = own.climb(seen, np.resize(best, (CLIMBED_FROM, best.shape[1])), False, own_options)
        found = log_constant(h, u, (seed, 1), peaks_at(*tops))
        if not found.agrees:
            warnings.warn(
                "the draws do not have the weights that the density gives them: part of the posterior, perhaps a narrow peak, "
                "is missing among the draws, or has too many. The constant is by importance sampling instead.",
                UntrustworthyDraws,
                stacklevel=4,
            )
        return found

    def _draws_for(self, x: np.ndarray, options: Options, draws: Draws | None, seed: int, count: int) -> np.ndarray:
        """In the space of the density."""
        own, seen, own_options = self._with_density(x, options)
        if draws is None:
            u: np.ndarray = own.draw(seen, count, (seed, 0), own_options).u
            return u
        refuse_others(draws, x, self.prior if options.prior is None else options.prior)
        return own.prior.to_normal(draws.theta)

    def _log_density(self, x: np.ndarray, theta: np.ndarray, options: Options) -> np.ndarray:
        """log p(θ|x) up to a constant, for θ within the support.

        The space of u has no room for the end of a support. There the likelihood is that of the nearest θ where simulations can
        have been, and the prior's density its own.
        """
        own, seen, own_options = self._with_density(x, options)
        prior = self.prior if options.prior is None else options.prior
        near = _within_reach(self.prior, theta)
        value = own.log_density(seen, own.prior.to_normal(near), own_options) + own.prior.log_volume(near)
        moved = (near != theta).any(axis=1)
        if moved.any():
            value[moved] += prior.log_prob(theta[moved]) - prior.log_prob(near[moved])
        return value

    def _theta(self, u: np.ndarray) -> np.ndarray:
        """From the space of the density."""
        return self._own(np.zeros((1, 0)), AS_THE_METHOD_SAYS)[0].prior.from_normal(u)

    def _with_density(self, x: np.ndarray, options: Options) -> tuple[Any, np.ndarray, Options]:
        own, seen, own_options = self._own(x, options)
        if not isinstance(own, HasDensity):
            raise ScorefoldError(
                f"expected a posterior with a density; {type(self.method).__name__} has none. Use method='f-npse', 'pf-npse', "
                "'npe', 'nle' or 'nre'."
            )
        return own, seen, own_options

    def _own(self, x: np.ndarray, options: Options) -> tuple[Any, np.ndarray, Options]:
        """The posterior that has the density, the observations as it sees them, and options for it."""
        return self, x, options


def _within_reach(prior: Prior, theta: np.ndarray) -> np.ndarray:
    """θ (points, dim), moved to where simulations can have been if it lies beyond them at a finite end of its support."""
    if not prior.has_density or not np.isfinite(prior.bounds).any():
        return theta
    u, (low, high) = prior.to_normal(theta), prior.bounds.T
    ends = (np.isfinite(low) & (u < -NOWHERE)) | (np.isfinite(high) & (u > NOWHERE))
    return np.where(ends, prior.from_normal(np.clip(u, -NOWHERE, NOWHERE)), theta)
