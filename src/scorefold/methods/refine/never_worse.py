"""Which of several posteriors for one data set is the best: simulations at each one's own draws say.

A check (`posterior/check.py`) estimates by how many sd each mean is off, and each width by what factor. With a shift s and a
log width l of standard errors e and f, the mean over the parameters of

    s² - e² + l² - f²

estimates the squared error without bias. The lowest is the best. The start is kept only if it is better than the best of the
others by more than two standard errors of the difference: an error that chance can explain is no reason to throw a refinement
away, and the same simulations that would show a smaller one are better spent in it.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.posterior.check import FEWEST_SETS, Check, Simulating
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.refining import Refining

SHARE = 0.15
"""Of the budget, for all of them together."""
ERRORS_BETTER = 2.0
"""Standard errors."""


class Judged(NamedTuple):
    """What a check of one of them says."""

    name: str
    error: float
    """Estimated mean squared error of means and log widths, in posterior sd; may be below 0 by chance."""
    chance: float
    """Its standard error."""

    @property
    def between(self) -> str:
        """The error, give or take its standard error, in posterior sd."""
        low, high = np.sqrt(np.maximum([self.error - self.chance, self.error + self.chance], 0.0))
        return f"{low:.2f} to {high:.2f}" if np.isfinite(high) else "no number"


class Compared(NamedTuple):
    """The start and what refinement made, by checks with simulations of their own."""

    simulations: int
    judged: tuple[Judged, ...]
    """The start first; none where the budget was too small to compare, or comparing was interrupted."""
    kept: str
    """The name of the one that was kept."""

    @property
    def off(self) -> float:
        """By how many posterior sd the one that was kept is off, at least: a standard error less than what was found."""
        return max((np.sqrt(max(one.error - one.chance, 0.0)) for one in self.judged if one.name == self.kept), default=0.0)

    def __str__(self) -> str:
        if len(self.judged) < 2:
            return "not compared with the start: the budget is too small for it, or it was interrupted"
        each = ", ".join(f"{one.name} {one.between}" for one in self.judged)
        return f"kept {self.kept}; errors of means and widths by {self.simulations:,} simulations, in posterior sd: {each}"


def reserved(plan: Refining, size: int) -> int:
    """Simulator calls that the comparison of three may take; 0 where the budget is too small for it."""
    calls = int(SHARE * plan.budget)
    return calls if calls >= 3 * FEWEST_SETS * size else 0


def better(
    start: Posterior,
    others: Sequence[tuple[str, Posterior]],
    x: np.ndarray,
    simulator: Callable[..., Any],
    calls: int,
    plan: Refining,
) -> tuple[Posterior, Compared]:
    """The best of them for observations x, and why; the first of the others where there are no calls to compare by."""
    if not calls:
        return others[0][1], Compared(0, (), others[0][0])
    each = calls // (1 + len(others))
    judged, spent = [], 0
    for number, (name, one) in enumerate([("the start", start), *others]):
        how = Simulating(simulator, each, plan.seed + 31 * number, plan.workers, plan.progress, start.inputs_of(x))
        try:
            judged.append(_judged(name, one, x, how))
        except KeyboardInterrupt:
            warnings.warn(
                "the comparison with the start was interrupted: the refinement is kept.", ScorefoldWarning, stacklevel=4
            )
            return others[0][1], Compared(spent, (), others[0][0])
        spent += each
    best = min(range(1, len(judged)), key=lambda i: judged[i].error)
    margin = ERRORS_BETTER * np.hypot(judged[0].chance, judged[best].chance)
    if judged[0].error + margin < judged[best].error:
        return start, Compared(spent, tuple(judged), judged[0].name)
    return others[best - 1][1], Compared(spent, tuple(judged), judged[best].name)


def _judged(name: str, posterior: Posterior, x: np.ndarray, how: Simulating) -> Judged:
    """A posterior that cannot be drawn from, or checked, is as wrong as can be."""
    try:
        error, chance = squared_error(posterior.check_observations(x, how))
    except ScorefoldError:
        return Judged(name, float("inf"), 0.0)
    return Judged(name, error, chance)


def squared_error(check: Check) -> tuple[float, float]:
    """Of what a check found: the estimate, and its standard error."""
    return squared((check.shift, check.shift_error), (check.log_width, check.log_width_error))


def squared(shift: tuple[np.ndarray, np.ndarray], log_width: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """The estimate from shifts and log widths, each with its standard errors; and its standard error."""
    found, error = (np.stack(part) for part in zip(shift, log_width, strict=True))
    value = (found**2 - error**2).sum(axis=0).mean()
    spread = (4 * found**2 * error**2 + 2 * error**4).sum() / found.shape[1] ** 2
    return float(value), float(np.sqrt(spread))
