"""The prior, as a map between the parameters θ and a space of its own, where diffusion takes place.

- Independent marginals (`marginals.py`) and one multivariate normal (`gaussian.py`): the space where the prior is N(0, I).
  There the diffused prior is N(0, I) at every level.
- A prior known from draws only (`draws.py`): the space where it has mean 0 and covariance I.

No draw can leave the bounds of θ. All of it is float64 on the host. The map and its inverse agree to 1e-6 for |u| ≤ 6, except
where float64 cannot hold θ so close to its bound: Beta(½, ½) keeps the last 1e-9 of its mass between 1 - 2e-18 and 1.
"""

from collections.abc import KeysView, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scorefold import settings
from scorefold.errors import ScorefoldError
from scorefold.prior.known_by_draws import Whitened, bounds_of, checked_draws, fit_draws
from scorefold.prior.marginals import Marginals, marginal, pairs_of
from scorefold.prior.multivariate_normal import Gaussian, mean_and_cov
from scorefold.prior.normal_space import Values
from scorefold.prior.proposal import Proposal, Proposed
from scorefold.types import Float

CHUNK = 65_536
FLOAT32_EPS = np.finfo(np.float32).eps


class Prior:
    """A named, proper, continuous prior over θ.

    `Prior({"beta": scipy.stats.lognorm(0.5, scale=0.4), "gamma": numpyro.distributions.Gamma(2, 3)})` has
    independent marginals (a sequence of pairs will do too);
    `Prior(scipy.stats.multivariate_normal(mean, cov), names=["a", "b"])` is one multivariate normal;
    `Prior.from_draws(theta, names=["a", "b"], bounds={"a": (0, 1)})` is known from its draws (count, dim) only.
    """

    def __init__(self, distribution: Any, names: Sequence[str] | None = None):
        self._law: Marginals | Gaussian | Whitened | Proposed
        if isinstance(distribution, Mapping | list | tuple):
            if names is not None:
                raise ScorefoldError(
                    "expected names= only with a multivariate normal; got it with marginals, which bring "
                    "their own. Leave it out."
                )
            pairs = pairs_of(distribution)
            self.names = _checked_names([name for name, _ in pairs], len(pairs))
            self._law = Marginals([marginal(name, law) for name, law in pairs])
        else:
            ready = isinstance(distribution, Gaussian | Whitened | Proposed)
            law = distribution if ready else Gaussian(*mean_and_cov(distribution))
            self.names = _names_or_default(names, len(law.bounds))
            self._law = law

    @classmethod
    def from_draws(
        cls,
        theta: ArrayLike,
        names: Sequence[str] | None = None,
        bounds: Mapping[str, Sequence[float | int]] | None = None,
    ) -> "Prior":
        """The prior of which these are independent draws (count, dim), at least 10 for each parameter and 100 in all.

        `bounds` holds (low, high) by name, ±inf for none; what comes back from the map stays within. The density of such a
        prior is unknown, and `sample` gives the draws themselves, in a random order.
        """
        draws = checked_draws(theta)
        names = _names_or_default(names, draws.shape[1])
        return cls(fit_draws(draws, names, bounds_of({} if bounds is None else bounds, names)), names)

    def proposing(self, proposal: Proposal) -> "Prior":
        """In place of the prior: θ from a proposal, which has N(0, I) for a space of its own."""
        if isinstance(self._law, Proposed | Whitened):
            raise ScorefoldError("expected a prior with a known density to propose from; got a proposal, or a prior from draws")
        return Prior(Proposed(self._law, proposal), self.names)

    @property
    def proposal(self) -> Proposal | None:
        """What stands in place of the prior, if anything does."""
        return self._law.proposal if isinstance(self._law, Proposed) else None

    @property
    def has_density(self) -> bool:
        """Whether p(θ) is known, so that u is N(0, I); if not, u is only whitened, and its diffused score is learned."""
        return not isinstance(self._law, Whitened)

    @property
    def draws_normal(self) -> Float[np.ndarray, "count dim"]:
        """The draws that the prior was made from, as u."""
        if isinstance(self._law, Whitened):
            return self.to_normal(self._law.theta())
        raise ScorefoldError("expected a prior from draws; got one with a known density. Use to_normal(sample(count, seed)).")

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return len(self.names)

    @property
    def bounds(self) -> Float[np.ndarray, "dim 2"]:
        """The support: the lowest and the highest value of each parameter."""
        return self._law.bounds.copy()

    def to_normal(self, theta: ArrayLike) -> Values:
        """θ ↦ u, finite also for a θ at its bound; a θ outside the support is refused."""
        theta = self._values("theta", theta)
        # A θ that float32 cannot tell from its bound is at its bound.
        low, high = (self._law.bounds + FLOAT32_EPS * np.abs(self._law.bounds) * [-1, 1]).T
        outside = ~np.isfinite(theta) | (theta < low) | (theta > high)
        if outside.any():
            i = int(np.argwhere(outside)[0, -1])
            wrong = theta[..., i][outside[..., i]]
            raise ScorefoldError(
                f"expected {self.names[i]!r} finite and within the support of its prior, {low[i]:.6g} to "
                f"{high[i]:.6g}; got {wrong[0]:.6g} ({wrong.size} of {theta[..., i].size} values are out). "
                f"Check the order of the columns, which is {', '.join(self.names)}, or widen the prior."
            )
        with np.errstate(all="ignore"):
            return np.clip(self._law.to_normal(theta), *self._law.reach.T)

    def from_normal(self, u: ArrayLike) -> Values:
        """u ↦ θ, finite and within the support: a far u gives the farthest θ that float64 resolves."""
        u = self._values("u", u)
        if np.isnan(u).any():
            raise ScorefoldError(
                f"expected u without NaN; got NaN in {np.isnan(u).sum()} of {u.size} values. What computed "
                "them diverged; mend it there."
            )
        with np.errstate(all="ignore"):
            return self._law.from_normal(np.clip(u, *self._law.reach.T))

    def sample(self, count: int, seed: int) -> Float[np.ndarray, "count dim"]:
        """`count` draws of θ; a longer run with the same seed starts with them."""
        count, seed = settings.count("count", count, 0), settings.count("seed", seed, 0)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
        if isinstance(self._law, Whitened):
            return self._law.sample(count, rng)
        theta = np.empty((count, self.dim))
        for start in range(0, count, CHUNK):  # SciPy's quantiles take ten times the memory of what they return
            rows = theta[start : start + CHUNK]
            rows[:] = self.from_normal(rng.standard_normal(rows.shape))
        return theta

    def log_prob(self, theta: ArrayLike) -> Float[np.ndarray, "*batch"]:
        """The log density at θ; -inf outside the support. A prior from draws has none to give."""
        if isinstance(self._law, Whitened):
            raise ScorefoldError(
                "expected a prior with a known density; got one from draws. Leave log_prob out, or write the prior "
                "down as a distribution: Prior({'beta': scipy.stats.norm(0, 1)})."
            )
        theta = self._values("theta", theta)
        low, high = self._law.bounds.T
        inside = (np.isfinite(theta) & (low <= theta) & (theta <= high)).all(axis=-1)
        with np.errstate(all="ignore"):
            return np.where(inside, self._law.log_prob(theta), -np.inf)

    def describe(self) -> dict[str, Any]:
        """Kind, names and parameters, as strict JSON can hold them (an infinite bound is the word "inf")."""
        return {"names": list(self.names), **self._law.describe()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prior) and self.describe() == other.describe()

    def __repr__(self) -> str:
        return f"Prior({self._law.text(self.names)})"

    def _values(self, what: str, values: ArrayLike) -> Values:
        array = settings.numbers(what, values)
        if array.ndim == 0 or array.shape[-1] != self.dim:
            raise ScorefoldError(
                f"expected {what} of shape (..., {self.dim}) with the columns {', '.join(self.names)}; got shape {array.shape}."
            )
        return array


def _checked_names(names: Any, count: int) -> tuple[str, ...]:
    ordered = isinstance(names, list | tuple | KeysView) or (isinstance(names, np.ndarray) and names.ndim == 1)
    good = ordered and all(isinstance(name, str) and name.strip() for name in names)
    if not good or len(names) != count or len(set(names)) != count:
        raise ScorefoldError(
            f"expected {count} different names, each a string with something in it; got {names!r:.200}. Name "
            "every parameter once."
        )
    return tuple(names)


def _names_or_default(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    return _checked_names([f"theta_{i}" for i in range(count)] if names is None else names, count)
