"""Independent marginals with distribution functions F_i: u_i = Φ⁻¹(F_i(θ_i)) and θ_i = F_i⁻¹(Φ(u_i)).

Above the median both go through 1 - F_i, because F_i has no digits left there.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from scipy.special import ndtr, ndtri

from scorefold.errors import ScorefoldError, closest
from scorefold.prior.multivariate_normal import MULTIVARIATE_NORMAL
from scorefold.prior.normal_space import U_MAX, Values
from scorefold.shown import listed, one_line

MOST_SHOWN = 12
"""Marginals in the representation of a prior."""
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


class Marginal(NamedTuple):
    """The distribution of one parameter, by SciPy's name and with all its parameters, its support and how far u may go before
    SciPy's quantiles are wrong.
    """

    distribution: str
    parameters: dict[str, float]
    law: Any
    support: tuple[float, float]
    reach: tuple[float, float]

    def describe(self) -> dict[str, Any]:
        """The distribution's name and parameters as strict JSON can hold them, infinite ones as the word "inf"."""
        written = {k: v if np.isfinite(v) else str(v) for k, v in self.parameters.items()}
        return {"distribution": self.distribution, "parameters": written}

    def text(self) -> str:
        """The distribution as one would call it, with the parameters that are not at SciPy's default."""
        default = {"loc": 0.0, "scale": 1.0}
        shown = [f"{k}={v:.6g}" for k, v in self.parameters.items() if default.get(k) != v]
        return f"{self.distribution}({', '.join(shown)})"


class Marginals:
    """The law of independent parameters, and its map to the N(0, I) space, one marginal after the other."""

    def __init__(self, marginals: list[Marginal]):
        self.marginals = marginals
        self.bounds = np.array([m.support for m in marginals])
        self.reach = np.array([m.reach for m in marginals])

    def to_normal(self, theta: Values) -> Values:
        """Map θ to u in the N(0, I) space, row by row; θ is within its bounds, and far values are clipped by `Prior`.

        Above the median it goes through 1 - F, as F has no digits left there.
        """
        return np.stack([_to_normal(m.law, theta[..., i]) for i, m in enumerate(self.marginals)], axis=-1)

    def from_normal(self, u: Values) -> Values:
        """Map u in the N(0, I) space back to θ, row by row; the inverse of `to_normal`.

        Above the median it goes through 1 - F, as F has no digits left there.
        """
        return np.stack([_from_normal(m.law, u[..., i]) for i, m in enumerate(self.marginals)], axis=-1)

    def log_prob(self, theta: Values) -> np.ndarray | np.float64:
        """log p(θ), the sum over the marginals' log densities, for θ within the support."""
        return np.sum([m.law.logpdf(theta[..., i]) for i, m in enumerate(self.marginals)], axis=0)

    def log_probs(self, theta: Values) -> Values:
        """log p_i(θ_i), the log density of every parameter by itself, in the shape of θ."""
        return np.stack([m.law.logpdf(theta[..., i]) for i, m in enumerate(self.marginals)], axis=-1)

    def describe(self) -> dict[str, Any]:
        """The law's kind and parameters as strict JSON can hold them.

        `codec.restore` makes a prior of it, and priors whose descriptions are equal count as equal.
        """
        return {"kind": "marginals", "marginals": [m.describe() for m in self.marginals]}

    def text(self, names: tuple[str, ...]) -> str:
        """The law in words, with the parameters' names, for the representation of a `Prior`."""
        return listed([f"{one_line(name)} ~ {m.text()}" for name, m in zip(names, self.marginals, strict=True)], MOST_SHOWN)


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


def marginal(name: str, distribution: Any) -> Marginal:
    """Take a distribution of SciPy or NumPyro as the marginal of this name, once it is known to be continuous, proper and
    within reach of float64. What cannot be taken is a ScorefoldError that says what to use instead.
    """
    frozen = _as_scipy(name, distribution)
    given = _parameters(frozen)
    if shape := np.broadcast_shapes(*map(np.shape, given.values())):
        raise _batched(name, shape)
    kind, parameters = frozen.dist.name, _floats(name, frozen.dist.name, given)
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
    return Marginal(kind, parameters, law, (low, high), (below, above))


def _floats(name: str, kind: str, given: Mapping[str, Any]) -> dict[str, float]:
    try:
        return {k: float(v) for k, v in given.items()}
    except (TypeError, ValueError):
        shown = ", ".join(f"{k} = {v!r:.40}" for k, v in given.items())
        hint = " uniform(loc, scale) goes from loc to loc + scale." if kind == "uniform" else ""
        raise ScorefoldError(
            f"prior of {name!r}: expected numbers as the parameters of {kind}; got {shown}. Give each a number, and leave out "
            f"what is at its default: scipy.stats.{kind}({', '.join(k for k in given if k not in ('loc', 'scale')) or '0, 1'})."
            f"{hint}"
        ) from None


def _parameters(frozen: Any) -> dict[str, Any]:
    known = [*(frozen.dist.shapes or "").replace(",", " ").split(), "loc", "scale"]
    given = {"loc": 0.0, "scale": 1.0, **dict(zip(known, frozen.args, strict=False)), **frozen.kwds}
    return {k: given[k] for k in known}


def described(distribution: str, parameters: Mapping[str, Any]) -> Any:
    """The frozen SciPy distribution of this name and with these parameters, as `Marginal.describe` wrote them down."""
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


def pairs_of(distribution: Any) -> list[tuple[Any, Any]]:
    """The names and distributions of a mapping or of a list of pairs, as a list of pairs; anything else is refused."""
    pairs = list(distribution.items() if isinstance(distribution, Mapping) else distribution)
    if not pairs or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise ScorefoldError(
            "expected at least one parameter, each with its distribution, as in "
            f"Prior({{'beta': scipy.stats.norm(0, 1)}}) or a list of such pairs; got {distribution!r:.60}."
        )
    return pairs
