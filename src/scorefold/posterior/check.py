"""Is the answer for this data set right? Simulations at the posterior's own draws tell.

With g(u, X) = ∇ log p(u|X) - ∇ log p(u) the score of one set of m observations less the prior's, whatever the simulator,

    E[g] = 0   and   E[g gᵀ + ∇g] = 0   over X ~ p(X|u), at every u.

Draws u_k of the posterior, spread 1.5-fold, get one simulated set X_k each (at a noise level γ, X_k comes from u ~ N(√γ u_k,
(1-γ) I), as u given its noisy u_k is distributed). A straight line through g(u_k, X_k) has the value b₀ at the draws' mean,
and n observations composed miss the score by (n/m) b₀. With A the draws' covariance, their mean is off by

    T2 = A (n/m) b₀ / (1 + B)          (per parameter C (n/m) b₀, C = Cov(θ, u)), signed, with a standard error of about √(n/K),

B the line's slope along the parameter, as below, which is what the score is too flat by.

Their widths are off by what the line and the second-moment twin say. With e the residuals of the line and B its slope, along
each parameter and in units of the draws' own precision, let J = (n/m) E[e²], K = -(n/m) E[∇g] and B likewise. The draws have
the precision 1 = K + that of the prior; the right one of the corrected score (`score/local_mean.py`) is 1 + (K+B)²/J - K, to
first order 1 - (J - K) + 2B. A score that is c times too large has J/K = c and B = 0, one that misses by B u has J - K = B.

`LocalMean` takes both away as far as the simulations can tell: intercept, slope and D are each shrunk towards 0 by the
positive-part James–Stein factor 1 - (their number) / χ² ("Estimation with quadratic loss", James and Stein, 1961). Besides,
observed and simulated observations are compared: mean rank, and mean distance from the middle rank, of every feature, the
largest difference judged by permutation.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from scipy import stats

from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.posterior.trust import BAD, GOOD, SHIFTS, USABLE, WIDTHS, Around, Disagreement
from scorefold.prior import Prior
from scorefold.progress import step
from scorefold.score.local_mean import LocalMean
from scorefold.shown import html_table, one_line
from scorefold.simulation.replicate import as_far_as_made, replicate
from scorefold.simulation.workers import Workers
from scorefold.types import Float, single_precision

DRAWS = 1_000
SPREAD = 1.5
FEWEST_SETS = 50
PERMUTATIONS = 999
UNLIKELY = 0.01
TOLD = 0.1
"""Posterior sd: what advice on the number of simulations aims at."""
LARGEST_FACTOR = 3.0
"""A width whose standard error is larger is not told."""
REMAINS = 0.2
"""PROVISIONAL: the share of a corrected shift that is left; on SIR and Lotka–Volterra at n = 30 it was 0.1 to 0.3."""
SMALLEST_PRECISION = 0.05
"""Of the right one, in units of the draws'."""
SLOPES = (-0.75, 3.0)
"""Of the line that is taken away, where the composed score's slope is -1: widths change by a factor of two at most."""
WEIGHTS = (0.25, 4.0)
"""No direction is weighed by less, or by more."""


class Pairs(NamedTuple):
    """g and its derivative at K pairs of u and a set."""

    score: Float[np.ndarray, "pairs dim"]
    jacobian: Float[np.ndarray, "pairs dim dim"]


@runtime_checkable
class Checkable(Protocol):
    """What a check needs of a posterior."""

    @property
    def prior(self) -> Prior:
        """With the map from the space of the scores to θ."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one observation."""

    def at_pairs(self, x: np.ndarray, u: np.ndarray) -> Pairs:
        """See `ComposedPosterior`."""

    def checked_size(self, n: int) -> int:
        """Observations in a set."""

    @property
    def lowest_noise(self) -> float:
        """1 - γ of the level that draws come from; 0 without noise."""


class Simulating(NamedTuple):
    """How a check simulates."""

    simulator: Callable[..., Any]
    sims: int
    seed: int
    workers: int | Workers | None
    progress: bool
    inputs: np.ndarray | None = None
    """(n, inputs) of the observations, where there are known ones: simulated sets have these in turn."""


@dataclass(frozen=True, repr=False)
class Check:
    """What simulations at a posterior's own draws say of them; `posterior.check` returns it.

    `print(check)` says it in words, parameter by parameter; `posterior.corrected(check)` takes the errors away as far as the
    simulations can tell.
    """

    names: tuple[str, ...]
    n: int
    """Observations."""
    sims: int
    """Simulator calls."""
    failed: int
    """Of them, left out with the sets that they were in."""
    shift: Float[np.ndarray, " dim"]
    """T2: the draws' means less the right ones, in posterior sd."""
    shift_error: Float[np.ndarray, " dim"]
    """Its standard error."""
    log_width: Float[np.ndarray, " dim"]
    """Log ratio of the draws' sds to the right ones."""
    log_width_error: Float[np.ndarray, " dim"]
    p_value: float
    """That simulated observations differ from others as much as the observed ones do."""
    correction: LocalMean
    prior: Prior
    shape: tuple[int, ...]

    @property
    def verdict(self) -> str:
        """ "good", "usable" or "not to be trusted"."""
        shift, width = _beyond_chance(self.shift, self.shift_error), _beyond_chance(self.log_width, self.log_width_error)
        level = max(
            int(np.searchsorted(SHIFTS, shift.max(), "right")), int(np.searchsorted(np.log(WIDTHS), width.max(), "right"))
        )
        return BAD if self.p_value < UNLIKELY else (GOOD, USABLE, BAD)[level]

    @property
    def words(self) -> str:
        """The verdict, and what it rests on."""
        worst = int(np.abs(self.shift).argmax())
        found = (
            f"{self.verdict}: {one_line(self.names[worst])} is most off, by {self.shift[worst]:+.2f} ± "
            f"{self.shift_error[worst]:.2f} posterior sd; {self._widths()}"
        )
        if self.p_value < UNLIKELY:
            found += f"; the observations are unlike simulations from the draws (p = {self.p_value:.2g})"
        if self.shift_error.max() > SHIFTS[0]:
            wanted = self.sims * (self.shift_error.max() / TOLD) ** 2
            found += f"; about {wanted:,.0f} simulations would tell to {TOLD} sd"
        return found

    def _widths(self) -> str:
        """The worst width among those that the simulations tell."""
        told = self.log_width_error < np.log(LARGEST_FACTOR)
        if not told.any():
            return "the widths cannot be told by so few simulations"
        wide = int(np.where(told, np.abs(self.log_width), -1.0).argmax())
        width, either = np.exp(self.log_width[wide]), np.exp(self.log_width_error[wide])
        return f"the width of {one_line(self.names[wide])} is {width:.2f} times the right one (within a factor {either:.2f})"

    def rows(self) -> list[tuple[str, str, str]]:
        """For a table: parameter, shift and width with their standard errors."""
        return [
            (
                name, f"{self.shift[i]:+.2f} ± {self.shift_error[i]:.2f}",
                f"{np.exp(self.log_width[i]):.2f} (× or ÷ {np.exp(self.log_width_error[i]):.2f})"
                if self.log_width_error[i] < np.log(LARGEST_FACTOR)
                else "not told by so few simulations",
            )
            for i, name in enumerate(self.names)
        ]  # fmt: skip

    def summary(self) -> dict[str, Any]:
        """As strict JSON can hold it."""
        numbers = {
            "shift": self.shift, "shift error": self.shift_error, "width": np.exp(self.log_width),
            "width error": np.exp(self.log_width_error),
        }  # fmt: skip
        named = {word: dict(zip(self.names, values.tolist(), strict=True)) for word, values in numbers.items()}
        said = {"verdict": self.verdict, "words": self.words, "n": self.n, "simulations": self.sims, "failed": self.failed}
        return {**said, "p": self.p_value, **named}

    def correction_for(self, prior: Prior, shape: tuple[int, ...]) -> LocalMean:
        """The correction, for the posterior that was checked."""
        if prior != self.prior or shape != self.shape:
            raise ScorefoldError("expected the check of this posterior; got one of another. Call posterior.check first.")
        return self.correction

    def __str__(self) -> str:
        lines = [f"{one_line(name)}: shift {shift} posterior sd, width {width}" for name, shift, width in self.rows()]
        return "\n".join([self.words, *lines])

    def __repr__(self) -> str:
        return f"Check({self.words})"

    def _repr_html_(self) -> str:
        head = ("parameter", "shift (posterior sd)", "width over the right one")
        return html_table(f"Check: {self.verdict}", head, self.rows(), [self.words])


def run_check(
    posterior: Checkable,
    x: np.ndarray,
    u: np.ndarray,
    how: Simulating,
    seen: Callable[[np.ndarray], np.ndarray] = lambda x: x,
) -> Check:
    """Check draws u given observations x (n, features) by simulations; `seen` makes of observations what the scores see."""
    n, size = len(x), posterior.checked_size(len(x))
    count = how.sims // size
    if count < FEWEST_SETS:
        raise ScorefoldError(
            f"expected sims of {FEWEST_SETS * size} or more, {FEWEST_SETS} sets of {size}; got {how.sims}. A standard error is "
            "about √(n / sims) posterior sd."
        )
    rng = np.random.default_rng([how.seed, 23])
    centre, noise = u.mean(axis=0), posterior.lowest_noise
    at = centre + SPREAD * (u[rng.permutation(np.resize(np.arange(len(u)), count))] - centre)
    before = np.sqrt(1 - noise) * at + np.sqrt(noise) * rng.standard_normal(at.shape)
    simulated = _simulated(posterior.prior.from_normal(before), size, how, rng)
    at, count = at[: len(simulated)], len(simulated)
    right = np.isfinite(simulated).all(axis=2)
    simulated, at = simulated[right.all(axis=1)], at[right.all(axis=1)]
    if len(at) < FEWEST_SETS:
        raise ScorefoldError(f"expected {FEWEST_SETS} simulated sets or more; {len(at)} of {count} are left after failures")
    with single_precision(), step("comparing", how.progress):
        found = _moments(posterior.at_pairs(seen(simulated), at), at - centre, n / size)
    around = Around.draws(u, posterior.prior.from_normal(u))
    steeper = np.maximum(1 + 2 * around.log_width(_sure(found)), SMALLEST_PRECISION)
    shift_error = np.sqrt(np.diag(around.cross @ found.error @ around.cross.T)) / around.sd / steeper
    log_width, width_error = _widths(found, around)
    return Check(
        names=posterior.prior.names,
        n=n,
        sims=count * size,
        failed=int((~right).sum()),
        shift=around.shift(found.offset) / steeper,
        shift_error=shift_error,
        log_width=log_width,
        log_width_error=width_error,
        p_value=_misfit(_outcomes(x, how), _outcomes(simulated[:, 0], how), rng),
        correction=_correction(found, u, n, noise, width_error),
        prior=posterior.prior,
        shape=posterior.shape,
    )


def _outcomes(x: np.ndarray, how: Simulating) -> np.ndarray:
    """Observations (n, features) without their inputs."""
    return x if how.inputs is None else x[:, : -how.inputs.shape[1]]


def _simulated(theta: np.ndarray, size: int, how: Simulating, rng: np.random.Generator) -> np.ndarray:
    """(pairs, set, features), NaN where a simulation failed; failures are counted, not warned of. After Ctrl-C fewer pairs."""
    inputs = None
    if how.inputs is not None:
        turn = np.resize(rng.permutation(len(how.inputs)), (len(theta), size))
        inputs = how.inputs[turn]

    def simulate() -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ScorefoldWarning)
            return replicate(theta, how.simulator, size, how.seed, how.workers, how.progress, inputs)

    x = as_far_as_made(simulate, FEWEST_SETS)
    return x.reshape(*x.shape[:2], -1)


def _widths(found: "_Moments", around: Around) -> tuple[np.ndarray, np.ndarray]:
    """Log ratios of the draws' sds to the right ones, and their standard errors, parameter by parameter."""
    surplus, spread, slope = (2 * around.log_width(one) for one in (found.twins, found.spread, found.slope))
    curvature = spread - surplus.mean(axis=0)  # K
    precision = np.maximum(1 + (curvature + slope) ** 2 / np.maximum(spread, 1e-12) - curvature, SMALLEST_PRECISION)
    along = np.einsum("kd,de,ke->k", around.cross, found.slope_error, around.cross)
    own = np.einsum("kd,de,ke->k", around.cross, around.precision, around.cross)
    chance = surplus.var(axis=0) / len(surplus) + 4 * np.maximum(spread * along / np.maximum(own, 1e-300), 0.0)
    return np.log(precision) / 2, np.sqrt(chance) / precision / 2


class _Moments(NamedTuple):
    """Of g over the pairs, times the number of sets."""

    offset: np.ndarray
    """(dim,) of the line at the draws' mean"""
    error: np.ndarray
    """(dim, dim), its covariance"""
    slope: np.ndarray
    slope_error: np.ndarray
    """(dim, dim): its covariance is the spread's, in rows, times this, in columns."""
    slope_chance: float
    """χ² of the slope over its number of entries; about 1 where there is none."""
    twins: np.ndarray
    """(pairs, dim, dim): e eᵀ + ∇g"""
    spread: np.ndarray
    """(dim, dim): mean e eᵀ"""


def _moments(pairs: Pairs, off: np.ndarray, times: float) -> _Moments:
    """From pairs at `off` from the draws' mean."""
    count, dim = off.shape
    design = np.concatenate([np.ones((count, 1)), off], axis=1)
    gram = np.linalg.inv(design.T @ design + 1e-12 * np.trace(design.T @ design) * np.eye(dim + 1))
    line = gram @ design.T @ pairs.score
    residual = (pairs.score - design @ line) * np.sqrt(count / max(count - dim - 1, 1))
    spread = residual.T @ residual / count + 1e-30 * np.eye(dim)
    slope = line[1:].T
    chi = np.einsum("de,df,eg,fg->", slope, np.linalg.inv(spread), slope, np.linalg.inv(gram[1:, 1:]), optimize=True)
    jacobian = (pairs.jacobian + np.swapaxes(pairs.jacobian, 1, 2)) / 2
    twins = residual[:, :, None] * residual[:, None] + jacobian
    return _Moments(
        times * line[0], times**2 * gram[0, 0] * spread, times * slope, times * gram[1:, 1:], float(chi) / dim**2,
        times * twins, times * spread,
    )  # fmt: skip


def _correction(found: _Moments, u: np.ndarray, n: int, noise: float, width_error: np.ndarray) -> LocalMean:
    """What the simulations can tell, for one observation, around draws u."""
    dim = u.shape[1]
    values, axes = np.linalg.eigh(np.cov(u, rowvar=False).reshape(dim, dim))
    root, inverse = (axes * np.sqrt(values)) @ axes.T, (axes / np.sqrt(values)) @ axes.T
    offset = _kept(dim, float(found.offset @ np.linalg.solve(found.error, found.offset))) * found.offset
    slope = inverse @ _stable(root @ _sure(found) @ root) @ inverse
    # In the space where the draws are white: J, and K with the line taken away.
    twins = root @ (found.twins - (slope + slope.T) / 2) @ root
    surplus = twins.mean(axis=0)
    chance = twins.var(axis=0) / len(twins)
    upper = np.triu_indices(dim)
    surplus = _kept(len(upper[0]), float((surplus[upper] ** 2 / np.maximum(chance[upper], 1e-30)).sum())) * surplus
    spread = root @ found.spread @ root
    weight = _within((spread - surplus) @ np.linalg.inv(spread)) if surplus.any() else np.eye(dim)
    return LocalMean(
        centre=u.mean(axis=0),
        inverse=inverse,
        offset=offset / n,
        slope=slope / n,
        weight=inverse @ weight @ root,
        error=found.error / n**2,
        width_error=width_error,
        noise=noise,
        spread=float(values.mean()),
    )


def _sure(found: _Moments) -> np.ndarray:
    """The slope, as far as it is one."""
    return _kept(1, found.slope_chance) * found.slope


def _kept(number: int, chi_squared: float) -> float:
    """Positive-part James–Stein: the share of so many estimates that is kept."""
    return max(0.0, 1 - number / max(chi_squared, 1e-30))


def _stable(slope: np.ndarray) -> np.ndarray:
    """The slope of b where draws are white, its symmetric part kept within bounds: the composed score falls by 1 there."""
    symmetric = (slope + slope.T) / 2
    values, axes = np.linalg.eigh(symmetric)
    return slope - symmetric + (axes * np.clip(values, *SLOPES)) @ axes.T


def _within(weight: np.ndarray) -> np.ndarray:
    """Its singular values kept within bounds."""
    left, values, right = np.linalg.svd(weight)
    return left @ np.diag(np.clip(values, *WEIGHTS)) @ right


def left_over(local: LocalMean, n: int, u: np.ndarray, theta: np.ndarray, found: Disagreement) -> Disagreement:
    """The errors that draws u of a corrected posterior have left.

    Those of the correction, a share of what it moved, and how far the members' slopes differ, since it is a straight line.
    """
    around = Around.draws(u, theta)
    chance = n * np.sqrt(np.maximum(np.diag(around.cross @ local.error @ around.cross.T), 0.0)) / around.sd
    moved = around.shift(around.precision @ (u.mean(axis=0) - local.centre))
    slopes = np.sqrt((found.log_width**2).sum(axis=0) / max(len(found.log_width) - 1, 1))
    shift = np.sqrt(chance**2 + (REMAINS * moved) ** 2 + slopes**2)
    return Disagreement(shift[None], np.hypot(local.width_error, slopes)[None])


def _beyond_chance(found: np.ndarray, error: np.ndarray) -> np.ndarray:
    """What is left of an estimate without what its own error adds on average."""
    return np.sqrt(np.maximum(found**2 - error**2, 0.0))


def _misfit(x: np.ndarray, simulated: np.ndarray, rng: np.random.Generator) -> float:
    """p-value that others differ from the simulated as much as the observed, in level or spread of any feature."""
    both = np.concatenate([x, simulated])
    # By ranks: no outlier rules, the scale does not matter, and equal values share one.
    ranks = stats.rankdata(both, axis=0) / len(both) - 0.5
    ranks = np.concatenate([ranks, np.abs(ranks)], axis=1)
    count, middle = len(x), ranks.mean(axis=0)

    def largest(rows: np.ndarray) -> float:
        return float(np.abs(rows[:count].mean(axis=0) - middle).max())

    seen = largest(ranks)
    others = [largest(ranks[rng.permutation(len(ranks))]) for _ in range(PERMUTATIONS)]
    return (1 + sum(other >= seen - 1e-12 for other in others)) / (1 + PERMUTATIONS)
