"""A posterior: something that was trained, ready to draw from p(θ | x_1 … x_n) for any observations.

Every method has its own final class below this abstract one, which checks what comes in. What a method does with n
observations is in `methods/`.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from scorefold.errors import ScorefoldError
from scorefold.prior import Prior


@runtime_checkable
class Health(Protocol):
    """What every method's Info says of the draws."""

    @property
    def converged(self) -> Any:
        """The method's own checks passed."""

    @property
    def diverged(self) -> Any:
        """The draws are not to be used."""


@dataclass(frozen=True)
class Draws:
    """Posterior draws and how they came about."""

    theta: np.ndarray
    """(draws, dim), in the prior's order"""
    names: tuple[str, ...]
    info: Health
    """How it went; what it holds depends on the method, `converged` and `diverged` are always there."""
    observations: int
    how: Any
    """What was used to draw: for composed scores a `Composition`."""
    seconds: float

    def to_arviz(self) -> Any:
        """As an ArviZ InferenceData with one chain."""
        import arviz

        posterior = {name: self.theta[None, :, i] for i, name in enumerate(self.names)}
        return arviz.from_dict(posterior=posterior)

    def __repr__(self) -> str:
        trust = "converged" if self.info.converged else "DIVERGED" if self.info.diverged else "NOT CONVERGED"
        return (
            f"Draws({len(self.theta):,} × ({', '.join(self.names)}) given {self.observations:,} observations; "
            f"{trust}; {self.seconds:.1f} s)"
        )


class Drawn(NamedTuple):
    """What a method hands back, in the N(0, I) space."""

    u: np.ndarray
    """(draws, dim)"""
    info: Health
    how: Any


class Posterior(ABC):
    """What `fit` returns. Abstract: methods have a final class each."""

    prior: Prior
    method: Any
    history: Any
    """How training went."""
    shape: tuple[int, ...]
    """Of one observation."""
    options: ClassVar[tuple[str, ...]] = ()
    """What `sample` takes besides observations, draws and seed."""

    @abstractmethod
    def draw(self, *args: Any, **how: Any) -> Drawn:
        """draw(x (n, features), draws, seed (two whole numbers), **options): draws for finite observations."""

    def sample(self, x_obs: Any, draws: int = 1_000, seed: int = 0, **how: Any) -> Any:
        """`Draws` from p(θ | x_1 … x_n) for `x_obs` of shape (n, *shape), or a list of them for a list of such.

        `how` is the method's: for composed scores `rule` and `sampler`, by name or as objects, override the method's for
        this call, and `set_size` m cuts the observations into sets of at most m (by default as large as trained); "auto"
        takes the m that unseen simulations favour.
        """
        check_count("draws", draws, 1)
        check_count("seed", seed, 0)
        unknown = [word for word in how if word not in self.options]
        if unknown:
            raise ScorefoldError(
                f"expected only {', '.join(self.options) or 'x_obs, draws and seed'} for {type(self.method).__name__}; got "
                f"{', '.join(unknown)}"
            )
        if isinstance(x_obs, list) and x_obs and _depth(x_obs[0]) == 1 + len(self.shape):
            checked = [self.checked(x) for x in x_obs]
            return [self._sample(x, draws, (seed, i), how) for i, x in enumerate(checked)]
        return self._sample(self.checked(x_obs), draws, (seed, 0), how)

    def refine(
        self, x_obs: Any, simulator: Callable[..., Any], budget: int = 5_000, rounds: int = 6, seed: int = 0, **how: Any
    ) -> "Posterior":
        """A posterior for this data set and its neighbourhood, from `budget` more simulations near it in `rounds` rounds."""
        raise ScorefoldError(
            f"expected a posterior of composed scores to refine; got {type(self).__name__}. Fit with method='f-npse' or "
            "'pf-npse', and refine that."
        )

    def _sample(self, x: np.ndarray, draws: int, seed: tuple[int, int], how: dict[str, Any]) -> Draws:
        started = time.perf_counter()
        drawn = self.draw(x, draws, seed, **how)
        theta = self.prior.from_normal(drawn.u)
        return Draws(theta, self.prior.names, drawn.info, len(x), drawn.how, time.perf_counter() - started)

    def checked(self, x_obs: Any) -> np.ndarray:
        """x_obs as (n, features) float64, or a ScorefoldError."""
        wanted = "(n, " + ", ".join(map(str, self.shape)) + ")" if self.shape else "(n,)"
        try:
            x = np.asarray(x_obs, np.float64)
        except (TypeError, ValueError):
            raise ScorefoldError(
                f"expected x_obs to be numbers of shape {wanted}; got {type(x_obs).__name__}. For several data sets pass a "
                "list of such arrays."
            ) from None
        if x.shape[1:] != self.shape or x.ndim == 0:
            hint = " For one observation write x_obs[None]." if x.shape == self.shape else ""
            raise ScorefoldError(
                f"expected x_obs of shape {wanted}, as the simulations were; got {x.shape}. The first axis counts "
                f"observations.{hint}"
            )
        if len(x) == 0:
            raise ScorefoldError(
                "expected at least one observation; got n = 0. Without observations the posterior is the prior: use "
                "prior.sample(count, seed)."
            )
        bad = ~np.isfinite(x.reshape(len(x), -1)).all(axis=1)
        if bad.any():
            raise ScorefoldError(
                f"expected finite observations; {bad.sum()} of {len(x)} hold NaN or infinity (first: x_obs[{bad.argmax()}]). "
                "Leave them out if they are missing at random."
            )
        return x.reshape(len(x), -1)


def check_count(name: str, value: Any, least: int) -> None:
    """A whole number of at least so many, or a ScorefoldError."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ScorefoldError(f"expected {name} to be a whole number ≥ {least}; got {value!r}")


def _depth(value: Any) -> int:
    """How deeply nested; -1 where it is ragged."""
    try:
        return np.ndim(value)
    except ValueError:
        return -1
