"""Posterior draws, and how they came about."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from scorefold import settings
from scorefold.compose import Rule
from scorefold.errors import ScorefoldError
from scorefold.posterior.trust import Trust
from scorefold.prior import Prior
from scorefold.sample import Sampler
from scorefold.simulation.replicate import replicate
from scorefold.simulation.workers import Workers


@runtime_checkable
class Health(Protocol):
    """What every method's Info says of the draws."""

    @property
    def converged(self) -> Any:
        """The sampler settled, by its own checks; whether what it followed is right they cannot say."""

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
    """How the sampler's run went, not how right the answer is; what it holds depends on the method, `converged` and `diverged`
    are always there."""
    n: int
    """Observations that the draws are given."""
    how: Any
    """What was used to draw: for composed scores a `Composition`."""
    seconds: float
    x_obs: np.ndarray | None = None
    """(n, *shape), what the draws are given"""
    prior: Prior | None = None
    trust: Trust | None = None
    """How far the draws may be from the true posterior; `sample` always says."""

    def to_arviz(self, posterior_predictive: np.ndarray | None = None) -> Any:
        """As an ArviZ InferenceData with one chain: posterior, prior and observed_data.

        `posterior_predictive` (draws, n, *shape), as `predict` simulates it, makes one more group. The posterior's attributes
        hold `trust`, `trust_why` and `sampler_settled`, and for each parameter `expected_shift_…` and `expected_width_…`.
        """
        import arviz

        groups: dict[str, Any] = {"posterior": self._by_name(self.theta)}
        if self.prior is not None:
            groups["prior"] = self._by_name(self.prior.sample(len(self.theta), 0))
        if self.x_obs is not None:
            groups["observed_data"] = {"x": self.x_obs}
        if posterior_predictive is not None:
            replicated = settings.numbers("posterior_predictive", posterior_predictive)
            if self.x_obs is not None and replicated.shape != (len(self.theta), *self.x_obs.shape):
                raise ScorefoldError(
                    f"expected posterior_predictive of shape {(len(self.theta), *self.x_obs.shape)}, a data set for each draw; "
                    f"got {replicated.shape}. draws.predict(simulator) makes one."
                )
            groups["posterior_predictive"] = {"x": replicated[None]}
        return arviz.from_dict(**groups, posterior_attrs=self._attributes())

    def _attributes(self) -> dict[str, Any]:
        """Trust and health, as a file of arrays can hold them."""
        found: dict[str, Any] = {"sampler_settled": int(bool(self.info.converged))}
        if self.trust is None:
            return found
        told = self.trust.summary()
        for word in ("shift", "width"):
            found |= {f"expected_{word}_{name}": value for name, value in told.get(word, {}).items()}
        return {"trust": told["verdict"], "trust_why": told["why"], **found}

    def to_pandas(self) -> Any:
        """As a pandas DataFrame, one column for each parameter."""
        import pandas

        return pandas.DataFrame(self.theta, columns=list(self.names))

    def to_numpy(self) -> np.ndarray:
        """As a NumPy array with named fields, `array["beta"]`."""
        named = np.empty(len(self.theta), [(name, np.float64) for name in self.names])
        for i, name in enumerate(self.names):
            named[name] = self.theta[:, i]
        return named

    def predict(
        self, simulator: Any, n: int | None = None, seed: int = 0, *, workers: int | Workers | None = None
    ) -> np.ndarray:
        """x (draws, n, *shape): a data set simulated for each draw, of as many observations as were given.

        `workers` run the simulator, as in `sf.simulate`. Simulations that fail are NaN, and a warning counts them.
        """
        return replicate(self.theta, simulator, self.n if n is None else n, seed, workers)

    def _by_name(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        return {name: theta[None, :, i] for i, name in enumerate(self.names)}

    def __repr__(self) -> str:
        sampler = "settled" if self.info.converged else "DIVERGED" if self.info.diverged else "has NOT SETTLED"
        trust = "" if self.trust is None else f" trust: {self.trust};"
        return (
            f"Draws({len(self.theta):,} × ({', '.join(self.names)}) given {self.n:,} observations;{trust} "
            f"the sampler {sampler}; {self.seconds:.1f} s)"
        )


class ManyDraws(NamedTuple):
    """Posterior draws for many data sets of one size."""

    theta: np.ndarray
    """(data sets, draws, dim); NaN where a data set's draws were not finite, and then it has diverged"""
    converged: np.ndarray
    """(data sets,) booleans"""
    diverged: np.ndarray
    """(data sets,) booleans: draws not to be used"""
    seconds: float


class Options(NamedTuple):
    """How draws are to be made, where it is not to be as the method says."""

    rule: str | Rule | None = None
    sampler: str | Sampler | None = None
    set_size: int | str | None = None
    chains: int | None = None


AS_THE_METHOD_SAYS = Options()


class Drawn(NamedTuple):
    """What a method hands back, in the N(0, I) space."""

    u: np.ndarray
    """(draws, dim)"""
    info: Health
    how: Any
