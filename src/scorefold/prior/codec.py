"""A prior in files: a strict JSON description, and beside it the arrays that are too large for JSON.

    describe(prior) → {"kind": "marginals", "names": […], "marginals": [{"distribution": "norm", "parameters": {…}}, …]}
                      {"kind": "multivariate normal", "names": […], "mean": […], "cov": [[…], …]}
                      {"kind": "draws", "names": […], "bounds": […], "mean": […], "factor": […], "count": …, "sha256": …}
                      {"kind": "proposal", "names": […], "proposal": {"kind": "gaussian", …}, "prior": {"kind": "marginals", …}}
    arrays(prior)   → {} or, for a prior from draws, {"draws": (count, dim)}

`restore` gives back the prior with the same maps, bit for bit. For priors of many parameters, whose matrices would make long
JSON, `parts` keeps all vectors and matrices apart, by their dotted path (`proposal.root`), and `from_parts` puts them back.

Nothing that is read is trusted: every key must be there and no other, numbers are finite (the words "inf" and "-inf" stand
only where a bound may be missing), and a distribution is one of LAWS, so that no description can name anything else of SciPy's
or be slow to take up.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import stats

from scorefold.errors import ScorefoldError, closest
from scorefold.prior.known_by_draws import Whitened
from scorefold.prior.marginals import described
from scorefold.prior.multivariate_normal import Gaussian
from scorefold.prior.prior import Prior
from scorefold.prior.proposal import read_proposal

MOST_PARAMETERS = 1_000

# fmt: off
LAWS = [
    "alpha", "anglit", "arcsine", "beta", "betaprime", "bradford", "burr", "burr12", "cauchy", "chi", "chi2", "cosine",
    "crystalball", "dgamma", "dweibull", "erlang", "expon", "exponpow", "exponweib", "f", "fatiguelife", "fisk", "foldnorm",
    "gamma", "gengamma", "genextreme", "genhalflogistic", "genlogistic", "gennorm", "genpareto", "gompertz", "gumbel_l",
    "gumbel_r", "halfcauchy", "halfgennorm", "halflogistic", "halfnorm", "hypsecant", "invgamma", "invgauss", "invweibull",
    "johnsonsb", "johnsonsu", "kappa3", "laplace", "laplace_asymmetric", "levy", "levy_l", "loggamma", "logistic",
    "loglaplace", "lognorm", "loguniform", "lomax", "maxwell", "mielke", "moyal", "nakagami", "norm", "pareto", "pearson3",
    "powerlaw", "powerlognorm", "powernorm", "rayleigh", "reciprocal", "rice", "semicircular", "skewcauchy", "skewnorm", "t",
    "trapezoid", "triang", "truncexpon", "truncnorm", "truncpareto", "truncweibull_min", "tukeylambda", "uniform",
    "vonmises_line", "wald", "weibull_max", "weibull_min", "wrapcauchy",
]
# fmt: on
"""SciPy's names of the distributions a description may hold."""

MAY_BE_INFINITE = {("truncnorm", "a"), ("truncnorm", "b")}


def describe(prior: Prior) -> dict[str, Any]:
    """The prior as strict JSON holds it, checked as if it were read again; the draws of a prior from draws are not in it."""
    description = prior.describe()
    check(description)
    return description


def arrays(prior: Prior) -> dict[str, np.ndarray]:
    """The arrays that go beside the description: the draws of a prior from draws if they are at hand, else nothing."""
    law = prior._law
    return {DRAWS_ARRAY: law.rows.copy()} if isinstance(law, Whitened) and law.rows is not None else {}


def restore(description: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> Prior:
    """Make the prior that gave this description and these arrays; one without its draws maps, but cannot be drawn from.

    The maps are bit-identical; whatever `describe` cannot have written is a ScorefoldError.
    """
    kind = check(description)
    given = dict(arrays or {})
    if unknown := set(given) - ({DRAWS_ARRAY} if kind == "draws" else set()):
        raise _unreadable(f"no arrays named {', '.join(sorted(map(str, unknown)))} belong to a prior of kind {kind!r}")
    try:
        with np.errstate(all="ignore"):
            if kind == "multivariate normal":
                return Prior(_gaussian(description), names=description["names"])
            if kind == "draws":
                rows = given.get(DRAWS_ARRAY)
                return Prior(Whitened.described(description, None if rows is None else _rows(rows)), names=description["names"])
            if kind == "proposal":
                own = restore({"names": description["names"], **description["prior"]})
                return own.proposing(read_proposal(description["proposal"]))
            laws = [described(**marginal) for marginal in description["marginals"]]
            return Prior(list(zip(description["names"], laws, strict=True)))
    except (ValueError, TypeError, ArithmeticError) as error:
        raise _unreadable(str(error)) from error


def _gaussian(description: Mapping[str, Any]) -> Gaussian:
    """Its law checks it by its correlations; SciPy would also refuse parameters of very different size."""
    cov = np.asarray(description["cov"], np.float64)
    if not np.allclose(cov, cov.T, rtol=1e-6):
        raise _unreadable("cov should be symmetric")
    return Gaussian(np.asarray(description["mean"], np.float64), (cov + cov.T) / 2)


def parts(prior: Prior) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The description without its vectors and matrices, and these by their dotted path as float64 arrays, with the draws if
    there are any. For priors of many parameters, whose matrices would make long JSON.
    """
    description, given = prior.describe(), {}
    for prefix, section in _sections(description):
        for name in ARRAY_AXES.get(section["kind"], ()):
            given[prefix + name] = np.array(section.pop(name), np.float64)
    check(_put_back(description, given))
    return description, {**given, **arrays(prior)}


def size(description: Any) -> tuple[int, bool]:
    """How many parameters a description of `parts`, not yet trusted, has, and whether the density is known."""
    kind, dim = _kind_and_dim(description)
    return dim, kind != "draws"


def shapes(description: Any) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the arrays that belong to a description of `parts`; the draws may be missing all the same."""
    kind, dim = _kind_and_dim(description)
    found: dict[str, tuple[int, ...]] = {}
    if kind == "draws":
        found[DRAWS_ARRAY] = (_draw_count(description.get("count")), dim)
    for prefix, section in _sections(description):
        found |= {prefix + name: (dim,) * axes for name, axes in ARRAY_AXES.get(section["kind"], {}).items()}
    return found


def from_parts(description: Any, arrays: Mapping[str, np.ndarray]) -> Prior:
    """Make the prior that gave these parts, once everything in them has been checked; whatever `parts` cannot have given is a
    ScorefoldError.
    """
    _kind_and_dim(description)
    return restore(_put_back(description, arrays), {name: array for name, array in arrays.items() if name == DRAWS_ARRAY})


def _put_back(description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The description with its vectors and matrices, as arrays."""
    whole: dict[str, Any] = {}
    for prefix, section in _sections(description):
        large = ARRAY_AXES.get(section["kind"], {})
        if twice := set(large) & set(section):
            raise _unreadable(f"{', '.join(sorted(twice))} should be among the arrays")
        own = {**section, **{name: arrays[prefix + name] for name in large}}
        whole = {**whole, prefix.removesuffix("."): own} if prefix else own
    return whole


def _sections(description: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The parts of a description that have a kind of their own, and what stands before the names of their arrays."""
    sections: list[tuple[str, Any]] = [("", description)]
    if description["kind"] == "proposal":
        for name in KEYS["proposal"]:
            section = description.get(name)
            if not isinstance(section, Mapping) or not isinstance(section.get("kind"), str):
                raise _unreadable(f"the {name} of a proposal should be an object with a kind, not {section!r:.60}")
            sections.append((f"{name}.", section))
    return sections


def _kind_and_dim(description: Any) -> tuple[str, int]:
    if not isinstance(description, Mapping):
        raise _unreadable(f"it is not an object but {type(description).__name__}")
    kind = description.get("kind")
    if not isinstance(kind, str) or kind not in KEYS:
        raise _unreadable(f"its kind is {kind!r:.60}, and the kinds are {', '.join(KEYS)}")
    if "names" not in description:
        raise _unreadable(f"a prior of kind {kind!r} has the keys names and others; missing: 'names'")
    names = description["names"]
    if not isinstance(names, list) or not 1 <= len(names) <= MOST_PARAMETERS or not all(isinstance(n, str) for n in names):
        raise _unreadable(f"names should be 1 to {MOST_PARAMETERS} strings")
    return kind, len(names)


def _draw_count(count: Any) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise _unreadable(f"count should be a whole number ≥ 1, not {count!r:.60}")
    return count


def check(description: Any) -> str:
    """Check that a description has the form that `describe` gives it, and return its kind.

    Anything else is a ScorefoldError: unknown or missing keys, numbers that are not finite, distributions not in `LAWS`.
    """
    kind, dim = _kind_and_dim(description)
    _keys(description, {"kind", "names", *KEYS[kind]}, f"a prior of kind {kind!r}")
    if kind == "marginals":
        _check_marginals(description["marginals"], dim)
        return kind
    if kind == "proposal":
        check_proposal(description["proposal"], dim)
        own = description["prior"]
        own_kind = check({**own, "names": description["names"]}) if isinstance(own, Mapping) else ""
        if own_kind not in ("marginals", "multivariate normal"):
            raise _unreadable("the prior of a proposal should be one with a known density")
        return kind
    _numbers("mean", description["mean"], (dim,))
    matrix = KEYS[kind][1]
    values = _numbers(matrix, description[matrix], (dim, dim))
    if kind == "draws":
        _numbers("bounds", description["bounds"], (dim, 2), infinite=True)
        _draw_count(description["count"])
        sha256 = description["sha256"]
        if not isinstance(sha256, str) or len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
            raise _unreadable(f"sha256 should be 64 hexadecimal digits, not {sha256!r:.80}")
        if np.triu(values, 1).any():
            raise _unreadable("factor should be lower triangular")
    return kind


KEYS: dict[str, tuple[str, ...]] = {
    "marginals": ("marginals",),
    "multivariate normal": ("mean", "cov"),
    "draws": ("mean", "factor", "bounds", "count", "sha256"),
    "proposal": ("proposal", "prior"),
}
PROPOSALS: dict[str, dict[str, int]] = {
    "gaussian": {"mean": 1, "root": 2},
    "truncated": {"axes": 2, "low": 1, "high": 1},
}
"""How many axes of length dim each array of a proposal has."""
ARRAY_AXES: dict[str, dict[str, int]] = {
    "multivariate normal": {"mean": 1, "cov": 2},
    "draws": {"mean": 1, "factor": 2},
    **PROPOSALS,
}
"""The same for everything that `parts` keeps apart."""
DRAWS_ARRAY = "draws"


def check_proposal(description: Any, dim: int) -> None:
    """Check that a proposal has the form that `describe` gives it, for `dim` parameters, and a map that can be inverted."""
    kind = description.get("kind") if isinstance(description, Mapping) else None
    if not isinstance(kind, str) or kind not in PROPOSALS:
        raise _unreadable(f"a proposal is an object whose kind is one of {', '.join(PROPOSALS)}, not {description!r:.60}")
    axes = PROPOSALS[kind]
    _keys(description, {"kind", *axes}, f"a {kind} proposal")
    for name, count in axes.items():
        _numbers(name, description[name], (dim,) * count)
    if fault := read_proposal(description).fault():
        raise _unreadable(fault)


def _check_marginals(marginals: Any, dim: int) -> None:
    if not isinstance(marginals, list) or len(marginals) != dim:
        raise _unreadable(f"marginals should be a list of {dim}, one for each name")
    for law in marginals:
        if not isinstance(law, Mapping):
            raise _unreadable(f"a marginal should be an object, not {law!r:.60}")
        _keys(law, {"distribution", "parameters"}, "a marginal")
        name, parameters = law["distribution"], law["parameters"]
        if not isinstance(name, str) or name not in LAWS:
            raise _unreadable(f"{name!r:.60} is not a distribution that files may hold. {closest(str(name)[:60], LAWS)}")
        if not isinstance(parameters, Mapping):
            raise _unreadable(f"the parameters of {name} should be an object, not {parameters!r:.60}")
        shapes = (getattr(stats, name).shapes or "").replace(",", " ").split()
        _keys(parameters, {*shapes, "loc", "scale"}, f"the parameters of {name}")
        for key, value in parameters.items():
            _number(f"{key} of {name}", value, infinite=(name, key) in MAY_BE_INFINITE)


def _keys(given: Mapping[Any, Any], wanted: set[str], where: str) -> None:
    if set(given) != wanted:
        unknown = ", ".join(sorted(f"{str(key)[:40]!r}" for key in set(given) - wanted)[:5]) or "none"
        missing = ", ".join(sorted(map(repr, wanted - set(given)))) or "none"
        raise _unreadable(f"{where} has the keys {', '.join(sorted(wanted))}; unknown here: {unknown}, missing: {missing}")


def _numbers(what: str, values: Any, shape: tuple[int, ...], infinite: bool = False) -> np.ndarray:
    if isinstance(values, np.ndarray):
        if values.shape != shape or values.dtype != np.float64 or not np.isfinite(values).all():
            raise _unreadable(f"{what} should be finite numbers of shape {shape}, not {values.dtype} of shape {values.shape}")
        return values
    if not isinstance(values, list) or len(values) != shape[0]:
        raise _unreadable(f"{what} should be a list of {shape[0]}")
    if len(shape) > 1:
        return np.stack([_numbers(f"a row of {what}", row, shape[1:], infinite) for row in values])
    return np.array([_number(what, value, infinite) for value in values])


def _number(what: str, value: Any, infinite: bool) -> float:
    if infinite and isinstance(value, str) and value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            if np.isfinite(number := float(value)):
                return number
        except OverflowError:
            pass
    raise _unreadable(f"{what} should be a finite number, not {value!r:.60}")


def _rows(rows: Any) -> np.ndarray:
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype != np.float64 or not np.isfinite(rows).all():
        raise _unreadable("the draws should be finite numbers of type float64, one draw a row")
    return rows


def _unreadable(why: str) -> ScorefoldError:
    return ScorefoldError(
        f"expected a prior as scorefold writes it down; got one that cannot be taken up: {why}. If it comes from a file, the "
        "file has been changed or is of another version; if it is your own prior, use a distribution named there."
    )
