"""The prior, as a map between the parameters θ and a space of its own, where diffusion takes place.

- Independent marginals (`marginals.py`) and one multivariate normal (`multivariate_normal.py`): the space where the prior is
  N(0, I). There the diffused prior is N(0, I) at every level.
- A prior known from draws only (`known_by_draws.py`): the space where it has mean 0 and covariance I.

No draw can leave the bounds of θ. All of it is float64 on the host. The map and its inverse agree to 1e-6 for |u| ≤ 6, except
where float64 cannot hold θ so close to its bound: Beta(½, ½) keeps the last 1e-9 of its mass between 1 - 2e-18 and 1.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from scorefold import settings
from scorefold.errors import ScorefoldError
from scorefold.prior.known_by_draws import Whitened, bounds_of, checked_draws, fit_draws
from scorefold.prior.marginals import Marginals, marginal, pairs_of
from scorefold.prior.multivariate_normal import Gaussian, mean_and_cov
from scorefold.prior.normal_space import Values
from scorefold.prior.proposal import Proposal, Proposed
from scorefold.shown import html_table
from scorefold.types import Float

ROWS_AT_ONCE = 65_536
MOST_ROWS_SHOWN = 20
"""Parameters in a notebook's table."""
DRAWS_FOR_QUANTILES = 1_000
"""From which that table has the quantiles of parameters that are not independent."""
FLOAT32_EPS = np.finfo(np.float32).eps


class Prior:
    """A named, proper, continuous prior over θ: where parameters are drawn from, and what a posterior is relative to.

    There are three ways to write one down. With independent parameters, give each its distribution of `scipy.stats` or NumPyro
    by name. Correlated parameters are one multivariate normal, with `names`. A prior that cannot be written down, such as the
    posterior of an earlier analysis, is made of its draws by `Prior.from_draws`; its density has to be learned, so prefer the
    first two where you can. Bounds are kept: no posterior draw leaves the support of its prior.

    Args:
        distribution: A mapping, or a sequence of pairs, of names and continuous distributions of one number; or one
            multivariate normal of SciPy or NumPyro.
        names: The parameters' names, only with a multivariate normal; theta_0, theta_1, … by default.

    Raises:
        ScorefoldError: A distribution is discrete, improper, not called with its parameters or not known; parameters make it no
            distribution or lie where float64 cannot tell quantiles apart; a covariance is not positive definite; names are
            missing, empty or there twice.

    Example:
        >>> import scipy.stats, scorefold as sf
        >>> prior = sf.Prior({"beta": scipy.stats.lognorm(0.5, scale=0.4), "rho": scipy.stats.uniform(0, 1)})
        >>> prior
        Prior(beta ~ lognorm(s=0.5, scale=0.4), rho ~ uniform())
        >>> prior.names, prior.dim
        (('beta', 'rho'), 2)
        >>> prior.to_normal([0.8, 0.9]).round(3).tolist()
        [1.386, 1.282]
        >>> both = sf.Prior(scipy.stats.multivariate_normal([0, 1], [[1, 0.5], [0.5, 1]]), names=["a", "b"])
        >>> both.sample(3, seed=0).shape
        (3, 2)
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
            self.names = settings.names("parameter", [name for name, _ in pairs], len(pairs))
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
        """Make a prior from independent draws of it, where it cannot be written down as a distribution.

        The map to the space of diffusion takes bounds away and whitens; the score of the diffused prior is then learned from
        the draws together with the posterior's. What is learned wrong counts once for every set, so give many draws. `sample`
        gives back the draws themselves, in a random order, and `log_prob` is not there to be had.

        Args:
            theta: The draws (count, dim), at least 10 for each parameter and 100 in all.
            names: The parameters' names; theta_0, theta_1, … by default.
            bounds: (low, high) by name, with ±inf for none, for parameters that must stay within; by default none has bounds.

        Returns:
            A `Prior` whose `has_density` is false.

        Raises:
            ScorefoldError: The draws are too few, not finite, constant or not between their bounds; names or bounds do not fit
                them.

        Example:
            >>> import numpy as np, scorefold as sf
            >>> theta = np.random.default_rng(0).uniform(size=(500, 2))
            >>> prior = sf.Prior.from_draws(theta, names=["a", "b"], bounds={"a": (0, 1)})
            >>> prior.has_density
            False
            >>> prior.bounds.tolist()
            [[0.0, 1.0], [-inf, inf]]
        """
        draws = checked_draws(theta)
        names = _names_or_default(names, draws.shape[1])
        return cls(fit_draws(draws, names, bounds_of({} if bounds is None else bounds, names)), names)

    def proposing(self, proposal: Proposal) -> "Prior":
        """Put a proposal in place of the prior, so that θ is drawn where a posterior is expected, as refinement does.

        Args:
            proposal: A `GaussianProposal` or `TruncatedProposal` in this prior's N(0, I) space.

        Returns:
            A prior of the same parameters whose draws come from the proposal, and whose own space has N(0, I) for the proposal.

        Raises:
            ScorefoldError: This is such a prior already, or one made from draws.

        Example:
            >>> import numpy as np, scipy.stats, scorefold as sf
            >>> from scorefold.prior.proposal import GaussianProposal
            >>> prior = sf.Prior({"a": scipy.stats.norm(0, 1)})
            >>> near = prior.proposing(GaussianProposal(mean=np.array([2.0]), root=np.array([[0.1]])))
            >>> near.from_normal([[0.0], [1.0]]).round(3).tolist()
            [[2.0], [2.1]]
        """
        if isinstance(self._law, Proposed | Whitened):
            raise ScorefoldError("expected a prior with a known density to propose from; got a proposal, or a prior from draws")
        return Prior(Proposed(self._law, proposal), self.names)

    @property
    def proposal(self) -> Proposal | None:
        """The proposal that stands in place of the prior after `proposing`, or None for a prior that is itself."""
        return self._law.proposal if isinstance(self._law, Proposed) else None

    @property
    def has_density(self) -> bool:
        """Whether p(θ) is known, so that u is N(0, I).

        If not, the prior is known from draws, u is only whitened, and its diffused score is learned.
        """
        return not isinstance(self._law, Whitened)

    @property
    def independent(self) -> bool:
        """Whether the parameters are independent and each has a distribution of its own, so that θ_i depends on u_i alone."""
        return isinstance(self._law, Marginals)

    @property
    def draws_normal(self) -> Float[np.ndarray, "count dim"]:
        """The draws (count, dim) that a prior from draws was made of, as u; other priors raise a `ScorefoldError`."""
        if isinstance(self._law, Whitened):
            return self.to_normal(self._law.theta())
        raise ScorefoldError("expected a prior from draws; got one with a known density. Use to_normal(sample(count, seed)).")

    @property
    def dim(self) -> int:
        """The number of parameters, which is the length of `names` and of a row of θ."""
        return len(self.names)

    @property
    def bounds(self) -> Float[np.ndarray, "dim 2"]:
        """The support, an array (dim, 2) of each parameter's lowest and highest value, infinite where there is none."""
        return self._law.bounds.copy()

    def to_normal(self, theta: ArrayLike) -> Values:
        """Map parameters θ to u, the space in which networks learn and samplers move.

        Args:
            theta: Parameters (..., dim), with the columns in the order of `names`.

        Returns:
            u of the same shape in float64, finite also for a θ at its bound.

        Raises:
            ScorefoldError: A value is not finite or outside the support, or the shape is another; the message names the
                parameter.

        Example:
            >>> import scipy.stats, scorefold as sf
            >>> prior = sf.Prior({"rate": scipy.stats.uniform(0, 2)})
            >>> prior.to_normal([[0.5], [1.5]]).round(3).tolist()
            [[-0.674], [0.674]]
        """
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
        """Map u back to parameters θ, the inverse of `to_normal`.

        Args:
            u: Values (..., dim). A u far out gives the farthest θ that float64 can tell from its bound.

        Returns:
            θ of the same shape in float64, finite and within the support.

        Raises:
            ScorefoldError: There is NaN in `u`, or the shape is another.

        Example:
            >>> import scipy.stats, scorefold as sf
            >>> prior = sf.Prior({"rate": scipy.stats.uniform(0, 2)})
            >>> prior.from_normal([[0.674], [50.0]]).round(3).tolist()
            [[1.5], [2.0]]
        """
        u = self._values("u", u)
        if np.isnan(u).any():
            raise ScorefoldError(
                f"expected u without NaN; got NaN in {np.isnan(u).sum()} of {u.size} values. What computed "
                "them diverged; mend it there."
            )
        with np.errstate(all="ignore"):
            return self._law.from_normal(np.clip(u, *self._law.reach.T))

    def sample(self, count: int, seed: int | None) -> Float[np.ndarray, "count dim"]:
        """Draw parameters from the prior.

        Args:
            count: How many; 0 or more.
            seed: A whole number of 0 or more; None takes a fresh one, and says which. A longer run with the same seed starts
                with the shorter one's draws.

        Returns:
            θ (count, dim) in float64, with the columns in the order of `names`.

        Raises:
            ScorefoldError: `count` or `seed` is not such a number, or the prior came from a file that does not hold its draws.

        Example:
            >>> import scipy.stats, scorefold as sf
            >>> prior = sf.Prior({"rate": scipy.stats.uniform(0, 2)})
            >>> bool((prior.sample(5, seed=1) == prior.sample(9, seed=1)[:5]).all())
            True
        """
        count, seed = settings.count("count", count, 0), settings.seed(settings.whole(seed))
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
        if isinstance(self._law, Whitened):
            return self._law.sample(count, rng)
        theta = np.empty((count, self.dim))
        for start in range(0, count, ROWS_AT_ONCE):  # SciPy's quantiles take ten times the memory of what they return
            rows = theta[start : start + ROWS_AT_ONCE]
            rows[:] = self.from_normal(rng.standard_normal(rows.shape))
        return theta

    def log_prob(self, theta: ArrayLike) -> Float[np.ndarray, "*batch"]:
        """The log density of the prior.

        Args:
            theta: Parameters (..., dim), with the columns in the order of `names`.

        Returns:
            log p(θ) of shape (...); -inf outside the support.

        Raises:
            ScorefoldError: The prior is known from draws only and has no density to give, or the shape is another.

        Example:
            >>> import scipy.stats, scorefold as sf
            >>> prior = sf.Prior({"rate": scipy.stats.uniform(0, 2)})
            >>> prior.log_prob([[1.0], [3.0]]).round(4).tolist()
            [-0.6931, -inf]
        """
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

    def log_volume(self, theta: ArrayLike) -> Float[np.ndarray, "*batch"]:
        """log |du/dθ|: what makes a density of θ of one of u, the space in which networks learn.

        Args:
            theta: Parameters (..., dim) within the support, with the columns in the order of `names`.

        Returns:
            Its values, of shape (...).

        Example:
            >>> import scipy.stats, scorefold as sf
            >>> prior = sf.Prior({"rate": scipy.stats.norm(0, 2)})
            >>> prior.log_volume([[1.0]]).round(4).tolist()  # u = θ / 2
            [-0.6931]
        """
        theta = self._values("theta", theta)
        if isinstance(self._law, Whitened):
            return self._law.log_volume(theta)
        square = np.square(self.to_normal(theta)).sum(axis=-1)
        return np.asarray(self.log_prob(theta) + square / 2 + self.dim / 2 * np.log(2 * np.pi))

    def describe(self) -> dict[str, Any]:
        """Kind, names and parameters as strict JSON can hold them; two priors are equal if these are.

        Returns:
            A dictionary of words, numbers and lists (an infinite bound is the word "inf"), without the draws of a prior from
                draws.

        Example:
            >>> import scipy.stats, scorefold as sf
            >>> sf.Prior({"rate": scipy.stats.norm(1, 2)}).describe()["marginals"]
            [{'distribution': 'norm', 'parameters': {'loc': 1.0, 'scale': 2.0}}]
        """
        return {"names": list(self.names), **self._law.describe()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prior) and self.describe() == other.describe()

    def __repr__(self) -> str:
        return f"Prior({self._law.text(self.names)})"

    def _repr_html_(self) -> str:
        levels = np.array([0.05, 0.5, 0.95])
        if self.independent:
            between = self.from_normal(np.tile(ndtri(levels)[:, None], self.dim))
        else:
            between = np.quantile(self.sample(DRAWS_FOR_QUANTILES, 0), levels, axis=0)
        values = np.stack([self.bounds[:, 0], *between, self.bounds[:, 1]], axis=1)
        shown = zip(self.names[:MOST_ROWS_SHOWN], values, strict=False)
        rows = [(name, *(f"{value:.4g}" for value in row)) for name, row in shown]
        return html_table("Prior", ("parameter", "least", "5 %", "median", "95 %", "most"), rows, [repr(self)])

    def _values(self, what: str, values: ArrayLike) -> Values:
        array = settings.numbers(what, values)
        if array.ndim == 0 or array.shape[-1] != self.dim:
            raise ScorefoldError(
                f"expected {what} of shape (..., {self.dim}) with the columns {', '.join(self.names)}; got shape {array.shape}."
            )
        return array


def _names_or_default(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    return settings.names("parameter", [f"theta_{i}" for i in range(count)] if names is None else names, count)
