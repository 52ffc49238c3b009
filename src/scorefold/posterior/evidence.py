"""The evidence log p(x_1 … x_n), and what of it can be known.

- A likelihood (NLE) gives all of it: log ∫ p(u) ∏_j p(x_j|u) du, by bridge sampling from the posterior's draws
  (`sample/bridge.py`). NLE's likelihood of several networks is their geometric mean, which integrates to a little less than 1
  over x; that is measured with simulations of the flows themselves, and put right.
- Ratios p(x_j|u) / p(x_j) (NRE), posteriors (NPE) and scores of posteriors (NPSE) do not know p(x_j): a simulator whose
  observations had another density at every x, but the same posteriors, would train the same networks. Of these

      C = log p(x_1 … x_n) - Σ_j log p(x_j)

  can be known, and is given: how much better the observations go together than each by itself. For n = 1 it is 0.

For NRE C is the integral of the ratios. For posteriors, at any u ("Marginal likelihood from the Gibbs output", Chib, 1995),

    C = log p(u) + Σ_j [ log p(u|x_j) - log p(u) ] - log p(u|x_1 … x_n),

all three normalised: p(u|x_j) is NPE's flow, or for scores comes along the probability flow (`single_density.py`), and
p(u|x_1 … x_n) from `log_prob`. It is computed at a few draws, and their spread is in the error.

What was learned wrong about one observation counts n times, and is mostly far larger than the error of the computation. Two
parts of it can be known:

- Members of the ensemble that held out different folds of the simulations, of G = 5, have values e_k. If they differ because of
  the simulations, the whole's variance is (G-1)²/G times that of the e_k ("The jackknife, the bootstrap and other resampling
  plans", Efron, 1982). Few members may agree by chance: where the sum over observations of their variances for each is larger,
  that counts.
- They share a straight line, fitted to N simulations. For a likelihood its error is known to first order, at these very
  observations (`line_error.py`). For ratios and posteriors its P numbers leave a variance of n P / N in a sum of n log
  densities where all is Gaussian.

What all members have learned alike wrong, as where a flow cannot have the right form, is not in it.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from scorefold import settings
from scorefold.density.line import Line
from scorefold.density.mean_terms import MeanTerms
from scorefold.errors import ScorefoldError
from scorefold.posterior.densities import Densities
from scorefold.posterior.draws import Draws, Options
from scorefold.posterior.line_error import line_error
from scorefold.posterior.member_evidence import line_numbers, of_scores
from scorefold.prior import Prior
from scorefold.shown import observations
from scorefold.types import single_precision

MEMBERS_AT = 128
"""Draws at which members are compared."""
PLACES = 4
"""Draws at which posteriors are compared."""
ABSOLUTE, RELATIVE = "log p(x_1 … x_n)", "log p(x_1 … x_n) - Σ_j log p(x_j)"


class Offset(NamedTuple):
    """What joins the integral of a summed density, and its standard error."""

    log: float
    error: float
    absolute: bool
    """The sum is then all of the likelihood."""


@runtime_checkable
class HasLikelihood(Protocol):
    """A posterior by terms that are added up."""

    def refuse_corrected(self) -> None:
        """A ScorefoldError where the terms are not those that were trained."""

    def evidence_offset(self, x: np.ndarray, u: np.ndarray, seed: int) -> Offset:
        """What the terms of x leave out, around draws u."""


@runtime_checkable
class HasSingles(Protocol):
    """A posterior whose single observations' posteriors are known, normalised."""

    def single_log_densities(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log p(u | x_j) at one u for every observation, and its error."""


@dataclass(frozen=True)
class Evidence:
    """What `sf.evidence` returns: a number of nats with its standard error.

    The error has two parts, and is the root of the sum of their squares: that of the computation, and that of what was learned,
    which adds up over observations and is mostly the larger. The latter is known by how much members of an ensemble differ, and
    by the number of simulations; what all members have learned alike wrong is not in it. `log` is the number, `error` its
    standard error, and `kind` says in a formula what `log` is. `docs/densities.md` has examples that the tests run.
    """

    log: float
    error: float
    kind: str
    """What `log` is: log p(x_1 … x_n), or that less Σ_j log p(x_j)."""
    n: int
    computed: float = 0.0
    """The part of the error that is the computation's."""
    learned: float = 0.0
    """The part that was learned."""

    @property
    def absolute(self) -> bool:
        """Whether it is log p(x_1 … x_n) itself, so that models can be compared by it."""
        return self.kind == ABSOLUTE

    def __str__(self) -> str:
        parts = f"{self.learned:.2f} by what was learned, {self.computed:.2f} by the computation"
        return f"{self.kind} = {self.log:.2f} ± {self.error:.2f} nat given {observations(self.n)} ({parts})"


def evidence(
    posterior: Any,
    x_obs: Any,
    *,
    draws: Draws | None = None,
    prior: Prior | None = None,
    inputs: Any = None,
    seed: int | None = 0,
) -> Evidence:
    """How probable all observations are under the model, log p(x_1 … x_n), or what of that can be known.

    Only NLE knows the evidence itself, by which models for the same observations are compared. The other methods know by how
    much it exceeds the sum of the single observations' own (`docs/densities.md` says why).

    Args:
        posterior: What `sf.fit` returned, by any method but ABC.
        x_obs: The observations, (n, *shape).
        draws: What `posterior.sample` returned for them and this prior, so that none need be made. Default None.
        prior: Another prior, as in `posterior.sample`, to have the evidence of; single observations' own, where they are taken
            away, stay those under the first one. Default None.
        inputs: The known inputs of the observations, as in `posterior.sample`. Default None.
        seed: Of draws. Default 0.

    Returns:
        An `Evidence`: `log`, its `error`, of which `learned` and `computed` are the parts, and its `kind`.

    Raises:
        ScorefoldError: The posterior has no density, was refined (p(x_j) would be under a proposal) or corrected, or its prior
            is known from draws.

    `docs/densities.md` has examples that the tests run.
    """
    if not isinstance(posterior, Densities):
        raise ScorefoldError(f"expected a posterior; got {type(posterior).__name__}. sf.fit returns one.")
    x, seed, options = posterior.checked(x_obs, inputs), settings.seed(seed), posterior._checked_options(Options(prior=prior))
    with single_precision():
        if isinstance(posterior, HasLikelihood):
            posterior.refuse_corrected()
            return _by_terms(posterior, x, draws, options, seed)
        if not isinstance(posterior, HasSingles) or not posterior.prior.has_density:
            raise ScorefoldError(
                f"expected a posterior whose evidence can be known; got one by {type(posterior.method).__name__} that was "
                "refined, keeps simulations only, or has a prior from draws. Use method='nle', or 'f-npse' with a prior that "
                "is written down."
            )
        if getattr(posterior, "local", None) is not None:
            raise ScorefoldError(
                "expected a posterior as it was trained; got a corrected one, whose correction holds near the draws given all "
                "observations, and not for each by itself. Ask the one that it came from."
            )
        return _by_posteriors(posterior, x, draws, options, seed)


def _by_terms(posterior: Any, x: np.ndarray, draws: Draws | None, options: Options, seed: int) -> Evidence:
    """The integral of summed terms, and what they leave out."""
    constant = posterior.log_constant(x, options, draws, seed)
    u = posterior._draws_for(x, options, draws, seed, 200)
    more, log = posterior.evidence_offset(x, u, seed), constant.log
    if options.prior is not None:  # whose ratio to the first one a density has only up to a constant
        has = posterior.log_density(x, u, options) - posterior.log_density(x, u)
        log += float(np.median(_log_ratio(posterior.prior, options, u) - has))
    error = float(np.hypot(constant.error, more.error))
    found = Evidence(log + more.log, error, ABSOLUTE if more.absolute else RELATIVE, len(x), error)
    return _with_learned(found, posterior, x, u)


def _log_ratio(prior: Prior, options: Options, u: np.ndarray) -> np.ndarray:
    """log p'(θ) / p(θ) of another prior to the first one."""
    if options.prior is None:
        return np.zeros(len(u))
    theta = prior.from_normal(u)
    return options.prior.log_prob(theta) - prior.log_prob(theta)


def _by_posteriors(posterior: Any, x: np.ndarray, draws: Draws | None, options: Options, seed: int) -> Evidence:
    """C from normalised posteriors at a few points."""
    if len(x) == 1 and options.prior is None:
        return Evidence(0.0, 0.0, RELATIVE, 1)
    u = posterior._draws_for(x, options, draws, seed, 1_000)
    known = posterior.normalised and options.prior is None
    constant = None if known else posterior.log_constant(x, options, draws, seed)
    middle = u[np.square(u - u.mean(axis=0)).sum(axis=1).argmin()]  # another prior may have none at the mean
    at = np.concatenate([middle[None], u[: PLACES - 1]])
    joint = posterior.log_density(x, at, options)
    prior = -np.square(at).sum(axis=1) / 2 - at.shape[1] / 2 * np.log(2 * np.pi)
    singles, wrong = zip(*(posterior.single_log_densities(x, one) for one in at), strict=True)
    each = prior + np.array([one.sum() for one in singles]) - len(x) * prior - joint + _log_ratio(posterior.prior, options, at)
    spread = each.std(ddof=1) / np.sqrt(len(each))
    log, error = float(each.mean()), float(np.hypot(spread, np.max([one.sum() for one in wrong])))
    if constant is not None:
        log, error = log + constant.log, float(np.hypot(error, constant.error))
    return _with_learned(Evidence(log, error, RELATIVE, len(x), error), posterior, x, u)


def _with_learned(found: Evidence, posterior: Any, x: np.ndarray, u: np.ndarray) -> Evidence:
    """With the error of what was learned, as far as it can be known."""
    some, reach = u[:MEMBERS_AT], posterior.reach
    members = (
        posterior.evidence_by_member(x, some) if hasattr(posterior, "evidence_by_member") else of_scores(posterior, x, some)
    )
    by_members = 0.0 if members is None else members.error()
    by_number = 0.0 if reach is None else _by_number(posterior, x, some, reach.cases)
    learned = float(np.hypot(by_members, by_number))
    return replace(found, error=float(np.hypot(found.computed, learned)), learned=learned)


def _by_number(posterior: Any, x: np.ndarray, u: np.ndarray, cases: int) -> float:
    """What so many simulations leave of the error of a straight line."""
    inputs, terms = getattr(posterior, "inputs", 0), getattr(posterior, "terms", None)
    if isinstance(terms, MeanTerms) and terms.normalised and isinstance(terms.line, Line):
        return line_error(terms, x, u, cases)
    return float(np.sqrt(len(x) * line_numbers(posterior.prior.dim, x.shape[1], inputs, terms is not None) / cases))
