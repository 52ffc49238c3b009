"""The prior, as a map between the parameters θ and the space where it is N(0, I).

- Independent marginals with distribution functions F_i: u_i = Φ⁻¹(F_i(θ_i)) and θ_i = F_i⁻¹(Φ(u_i)); above
  the median both go through 1 - F_i, because F_i has no digits left there.
- One multivariate normal N(μ, Σ) with Σ = L Lᵀ: u = L⁻¹(θ - μ) and θ = μ + L u.

In that space the diffused prior is N(0, I) at every level, and no draw can leave the bounds of θ. All of it
is float64 on the host. The map and its inverse agree to 1e-6 for |u| ≤ 6, except where float64 cannot hold θ
so close to its bound: Beta(½, ½) keeps the last 1e-9 of its mass between 1 - 2e-18 and 1.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, stats
from scipy.special import ndtr, ndtri

from scorefold.errors import ScorefoldError, closest
from scorefold.types import Float

Values = Float[np.ndarray, "*batch dim"]

U_MAX = 37.5
"""No u goes farther: Φ(-37.5) = 5e-308 is about the smallest tail that is not subnormal."""
FLOAT32_EPS = np.finfo(np.float32).eps
MULTIVARIATE_NORMAL = type(stats.multivariate_normal())
EXPECTED = "expected a continuous distribution of scipy.stats or NumPyro"

NUMPYRO: dict[str, Callable[..., Any]] = {
    "Beta": lambda concentration1, concentration0: stats.beta(concentration1, concentration0),
    "Cauchy": lambda loc, scale: stats.cauchy(loc, scale),
    "Exponential": lambda rate: stats.expon(scale=1 / rate),
    "Gamma": lambda concentration, rate: stats.gamma(concentration, scale=1 / rate),
    "Gumbel": lambda loc, scale: stats.gumbel_r(loc, scale),
    "HalfCauchy": lambda scale: stats.halfcauchy(scale=scale),
    "HalfNormal": lambda scale: stats.halfnorm(scale=scale),
    "InverseGamma": lambda concentration, rate: stats.invgamma(concentration, scale=rate),
    "Laplace": lambda loc, scale: stats.laplace(loc, scale),
    "LogNormal": lambda loc, scale: stats.lognorm(scale, scale=np.exp(loc)),
    "LogUniform": lambda low, high: stats.loguniform(low, high),
    "Logistic": lambda loc, scale: stats.logistic(loc, scale),
    "Normal": lambda loc, scale: stats.norm(loc, scale),
    "Pareto": lambda scale, alpha: stats.pareto(alpha, scale=scale),
    "StudentT": lambda df, loc, scale: stats.t(df, loc, scale),
    "TruncatedNormal": lambda loc, scale, low=-np.inf, high=np.inf: stats.truncnorm(
        (low - loc) / scale, (high - loc) / scale, loc, scale
    ),
    "Uniform": lambda low, high: stats.uniform(low, high - low),
    "Weibull": lambda scale, concentration: stats.weibull_min(concentration, scale=scale),
}
"""NumPyro's scalar distributions as SciPy's, by NumPyro's names for their parameters."""


def diffused_score(u: Any, gamma: Any) -> Any:
    """The score at u of the prior diffused to level γ, in the N(0, I) space: -u, whatever γ.

    With u_0 ~ N(0, I), u_t = √γ u_0 + √(1-γ) ε has variance γ + (1-γ) = 1: diffusion leaves N(0, I) as it is.
    """
    return -u


class Prior:
    """A named, proper, continuous prior over θ.

    `Prior({"beta": scipy.stats.lognorm(0.5, scale=0.4), "gamma": numpyro.distributions.Gamma(2, 3)})` has
    independent marginals (a sequence of pairs will do too);
    `Prior(scipy.stats.multivariate_normal(mean, cov), names=["a", "b"])` is one multivariate normal.
    """

    def __init__(self, distribution: Any, names: Sequence[str] | None = None):
        self._law: _Marginals | _Gaussian
        if isinstance(distribution, Mapping | list | tuple):
            if names is not None:
                raise ScorefoldError(
                    "expected names= only with a multivariate normal; got it with marginals, which bring "
                    "their own. Leave it out."
                )
            pairs = _pairs(distribution)
            self.names = _checked_names([name for name, _ in pairs], len(pairs))
            self._law = _Marginals([_marginal(name, law) for name, law in pairs])
        else:
            mean, cov = _mean_and_cov(distribution)
            default = [f"theta_{i}" for i in range(len(mean))]
            self.names = _checked_names(default if names is None else names, len(mean))
            self._law = _Gaussian(mean, cov)

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
        if count < 0 or seed < 0:
            raise ScorefoldError(f"expected count ≥ 0 and seed ≥ 0; got count = {count}, seed = {seed}.")
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
        return self.from_normal(rng.standard_normal((count, self.dim)))

    def log_prob(self, theta: ArrayLike) -> Float[np.ndarray, "*batch"]:
        """The log density at θ; -inf outside the support."""
        theta = self._values("theta", theta)
        low, high = self._law.bounds.T
        inside = (np.isfinite(theta) & (low <= theta) & (theta <= high)).all(axis=-1)
        with np.errstate(all="ignore"):
            return np.where(inside, self._law.log_prob(theta), -np.inf)

    def describe(self) -> dict[str, Any]:
        """Kind, names and parameters, as strict JSON can hold them (an infinite bound is the word "inf")."""
        return {"names": list(self.names), **self._law.describe()}

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> "Prior":
        """The prior that gave this description."""
        try:
            kind, names = description["kind"], description["names"]
            if kind == "marginals":
                laws = [_described(**marginal) for marginal in description["marginals"]]
                return cls(list(zip(names, laws, strict=True)))
            if kind == "multivariate normal":
                return cls(stats.multivariate_normal(description["mean"], description["cov"]), names=names)
            raise ScorefoldError(f"{kind!r} is not a kind of prior")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ScorefoldError(
                "expected a description that Prior.describe() gave; got one that cannot be read "
                f"({type(error).__name__}: {error}). If it comes from a file, the file has been changed."
            ) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prior) and self.describe() == other.describe()

    def __repr__(self) -> str:
        return f"Prior({self._law.text(self.names)})"

    def _values(self, what: str, values: ArrayLike) -> Values:
        array = np.asarray(values, np.float64)
        if array.ndim == 0 or array.shape[-1] != self.dim:
            raise ScorefoldError(
                f"expected {what} of shape (..., {self.dim}) with the columns {', '.join(self.names)}; got shape {array.shape}."
            )
        return array


class _Marginal(NamedTuple):
    distribution: str
    parameters: dict[str, float]
    law: Any
    support: tuple[float, float]
    reach: tuple[float, float]

    def describe(self) -> dict[str, Any]:
        written = {k: v if np.isfinite(v) else str(v) for k, v in self.parameters.items()}
        return {"distribution": self.distribution, "parameters": written}

    def text(self) -> str:
        default = {"loc": 0.0, "scale": 1.0}
        shown = [f"{k}={v:.6g}" for k, v in self.parameters.items() if default.get(k) != v]
        return f"{self.distribution}({', '.join(shown)})"


class _Marginals:
    def __init__(self, marginals: list[_Marginal]):
        self.marginals = marginals
        self.bounds = np.array([m.support for m in marginals])
        self.reach = np.array([m.reach for m in marginals])

    def to_normal(self, theta: Values) -> Values:
        return np.stack([_to_normal(m.law, theta[..., i]) for i, m in enumerate(self.marginals)], axis=-1)

    def from_normal(self, u: Values) -> Values:
        return np.stack([_from_normal(m.law, u[..., i]) for i, m in enumerate(self.marginals)], axis=-1)

    def log_prob(self, theta: Values) -> np.ndarray | np.float64:
        return np.sum([m.law.logpdf(theta[..., i]) for i, m in enumerate(self.marginals)], axis=0)

    def describe(self) -> dict[str, Any]:
        return {"kind": "marginals", "marginals": [m.describe() for m in self.marginals]}

    def text(self, names: tuple[str, ...]) -> str:
        return ", ".join(f"{name} ~ {m.text()}" for name, m in zip(names, self.marginals, strict=True))


class _Gaussian:
    def __init__(self, mean: np.ndarray, cov: np.ndarray):
        self.mean, self.cov, self.L = mean, cov, _cholesky(cov)
        self.bounds = np.tile([-np.inf, np.inf], (len(mean), 1))
        self.reach = np.tile([-U_MAX, U_MAX], (len(mean), 1))

    def to_normal(self, theta: Values) -> Values:
        rows = (theta - self.mean).reshape(-1, len(self.mean))
        return linalg.solve_triangular(self.L, rows.T, lower=True, check_finite=False).T.reshape(theta.shape)

    def from_normal(self, u: Values) -> Values:
        # u @ Lᵀ would round differently for different numbers of rows, so that runs would not share a start.
        return self.mean + sum(u[..., j, None] * self.L[:, j] for j in range(len(self.mean)))

    def log_prob(self, theta: Values) -> np.ndarray | np.float64:
        log_norm = np.log(np.diag(self.L)).sum() + len(self.mean) / 2 * np.log(2 * np.pi)
        return -np.square(self.to_normal(theta)).sum(axis=-1) / 2 - log_norm

    def describe(self) -> dict[str, Any]:
        return {"kind": "multivariate normal", "mean": self.mean.tolist(), "cov": self.cov.tolist()}

    def text(self, names: tuple[str, ...]) -> str:
        with np.printoptions(threshold=25, formatter={"float": "{:.6g}".format}):
            mean, cov = (" ".join(np.array2string(a, separator=", ").split()) for a in (self.mean, self.cov))
        return f"{', '.join(names)} ~ multivariate_normal(mean={mean}, cov={cov})"


def _to_normal(law: Any, theta: np.ndarray) -> np.ndarray:
    below = law.cdf(theta)
    return np.where(below < 0.5, ndtri(below), -ndtri(law.sf(theta)))


def _from_normal(law: Any, u: np.ndarray) -> np.ndarray:
    return np.piecewise(ndtr(-np.abs(u)), [u < 0], [law.ppf, law.isf])


def _reach(law: Any) -> tuple[float, float]:
    """How far u may go, down and up, before SciPy's quantile meets the bound, overflows or is wrong.

    Far out it often is (Student's t at 1e-307 gives +inf), so the map is tried outwards in steps of ½.
    """
    u = np.arange(1, 2 * U_MAX + 1) / 2
    try:
        errors = [np.abs(_to_normal(law, _from_normal(law, v)) - v) for v in (-u, u)]
    except ArithmeticError:
        return 0.0, 0.0
    below, above = (float(np.cumprod(error < 0.01).sum()) / 2 for error in errors)
    return -below, above


def _marginal(name: str, distribution: Any) -> _Marginal:
    """A marginal with all its parameters named, once it is known to be proper and within reach of float64."""
    frozen = _as_scipy(name, distribution)
    given = _parameters(frozen)
    if shape := np.broadcast_shapes(*map(np.shape, given.values())):
        raise _batched(name, shape)
    kind, parameters = frozen.dist.name, {k: float(v) for k, v in given.items()}
    law = getattr(stats, kind)(**parameters)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        median, (below, above) = law.ppf(0.5), _reach(law)
    shown = ", ".join(f"{k} = {v:g}" for k, v in parameters.items())
    if not np.isfinite(median):
        raise ScorefoldError(
            f"prior of {name!r}: expected parameters that make {kind} a proper distribution; got {shown}. "
            "Scales must be positive and finite, and nothing may be NaN."
        )
    if min(-below, above) < 3:
        raise ScorefoldError(
            f"prior of {name!r}: expected quantiles that float64 can tell apart as far as u = ±3; got {kind} "
            f"with {shown}, where they are lost beyond {below:g} and {above:g}. Shift or scale the "
            "parameter, or use its logarithm."
        )
    # Where the bound is 0, loc + scale · a can miss it by a rounding error of loc.
    low, high = (0.0 if abs(end) < 1e-15 * abs(parameters["loc"]) else float(end) for end in law.support())
    return _Marginal(kind, parameters, law, (low, high), (below, above))


def _parameters(frozen: Any) -> dict[str, Any]:
    known = [*(frozen.dist.shapes or "").replace(",", " ").split(), "loc", "scale"]
    given = {"loc": 0.0, "scale": 1.0, **dict(zip(known, frozen.args, strict=False)), **frozen.kwds}
    return {k: given[k] for k in known}


def _described(distribution: str, parameters: Mapping[str, Any]) -> Any:
    kind = getattr(stats, distribution, None)
    if not isinstance(kind, stats.rv_continuous):
        raise ScorefoldError(f"{distribution!r} is not a continuous distribution of scipy.stats")
    return kind(**{k: float(v) for k, v in parameters.items()})


def _as_scipy(name: str, distribution: Any) -> Any:
    """The frozen SciPy distribution that this is, or that says the same."""
    if type(distribution).__module__.startswith("numpyro."):
        return _from_numpyro(name, distribution)
    kind = getattr(distribution, "dist", distribution)
    if isinstance(kind, stats.rv_discrete):
        got = f"{kind.name}, which is discrete. Make it continuous and round inside the simulator"
    elif isinstance(kind, MULTIVARIATE_NORMAL):
        got = "a multivariate normal. Pass it by itself: Prior(distribution, names=[...])"
    elif not isinstance(kind, stats.rv_continuous):
        got = f"{distribution!r:.60}. Use one such as scipy.stats.norm(0, 1)"
    elif kind is distribution:
        got = f"scipy.stats.{kind.name} itself. Call it with its parameters, as in scipy.stats.norm(0, 1)"
    elif kind.name == "vonmises":
        got = "vonmises, which is on the circle. Use scipy.stats.vonmises_line"
    elif type(getattr(stats, kind.name, None)) is not type(kind):
        got = f"{kind.name!r}, made elsewhere, which could not be saved. Use the closest one of scipy.stats"
    else:
        return distribution
    raise ScorefoldError(f"prior of {name!r}: {EXPECTED}; got {got}.")


def _from_numpyro(name: str, distribution: Any) -> Any:
    kind = type(distribution).__name__
    if distribution.is_discrete:
        got = f"{kind}, which is discrete. Make it continuous and round inside the simulator."
    elif kind == "ImproperUniform":
        got = f"{kind}, which cannot be drawn from. Use a proper prior such as Uniform or a wide Normal."
    elif kind == "MultivariateNormal":
        got = "a MultivariateNormal. Pass it by itself: Prior(distribution, names=[...])."
    elif shape := distribution.batch_shape + distribution.event_shape:
        raise _batched(name, shape)
    else:
        values = {k: getattr(distribution, k) for k in distribution.arg_constraints}
        if kind.endswith("TruncatedDistribution"):
            base = distribution.base_dist
            kind = f"Truncated{type(base).__name__}"
            values |= {k: getattr(base, k) for k in base.arg_constraints}
        if kind in NUMPYRO:
            with np.errstate(all="ignore"):
                return NUMPYRO[kind](**{k: np.float64(v) for k, v in values.items()})
        got = f"{kind}. {closest(kind, list(NUMPYRO))}"
    raise ScorefoldError(f"prior of {name!r}: {EXPECTED}; got NumPyro's {got}")


def _batched(name: str, shape: tuple[int, ...]) -> ScorefoldError:
    return ScorefoldError(
        f"prior of {name!r}: expected the distribution of one number; got a batch of shape {shape}. Name "
        f"each of them: Prior({{'{name}_0': ..., '{name}_1': ...}})."
    )


def _pairs(distribution: Any) -> list[tuple[Any, Any]]:
    pairs = list(distribution.items() if isinstance(distribution, Mapping) else distribution)
    if not pairs or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise ScorefoldError(
            "expected at least one parameter, each with its distribution, as in "
            f"Prior({{'beta': scipy.stats.norm(0, 1)}}) or a list of such pairs; got {distribution!r:.60}."
        )
    return pairs


def _checked_names(names: Sequence[Any], count: int) -> tuple[str, ...]:
    good = not isinstance(names, str) and all(isinstance(name, str) and name.strip() for name in names)
    if not good or len(names) != count or len(set(names)) != count:
        raise ScorefoldError(
            f"expected {count} different names, each a string with something in it; got {names!r:.200}. Name "
            "every parameter once."
        )
    return tuple(names)


def _mean_and_cov(distribution: Any) -> tuple[np.ndarray, np.ndarray]:
    numpyro = type(distribution).__module__.startswith("numpyro.")
    if isinstance(distribution, MULTIVARIATE_NORMAL):
        mean, cov = distribution.mean, distribution.cov
    elif numpyro and type(distribution).__name__ == "MultivariateNormal" and not distribution.batch_shape:
        mean, cov = distribution.loc, distribution.covariance_matrix
    else:
        raise ScorefoldError(
            "expected named marginals, as in Prior({'beta': scipy.stats.norm(0, 1)}), or one multivariate "
            f"normal, SciPy's (called) or NumPyro's (not a batch); got {distribution!r:.60}. Give every "
            "marginal its name."
        )
    mean, cov = np.asarray(mean, np.float64), np.asarray(cov, np.float64)
    if not np.isfinite(mean).all() or not np.isfinite(cov).all() or not np.allclose(cov, cov.T, rtol=1e-6):
        raise ScorefoldError(
            f"expected a finite mean and a symmetric covariance; got mean {mean.tolist()!s:.100} and "
            f"covariance {cov.tolist()!s:.200}. Check them for NaN and for entries i, j unlike j, i."
        )
    return np.broadcast_to(mean, len(cov)), (cov + cov.T) / 2


def _cholesky(cov: np.ndarray) -> np.ndarray:
    scale = np.sqrt(np.maximum(np.diag(cov), np.finfo(float).tiny))
    least = np.linalg.eigvalsh(cov / np.outer(scale, scale))[0]
    if least < 1e-12:
        raise ScorefoldError(
            "expected a positive definite covariance; got one whose correlations have the eigenvalue "
            f"{least:.3g}. Drop parameters that are combinations of others, or add a little to the diagonal."
        )
    return np.linalg.cholesky(cov)
