"""Is the answer for this data set right? Simulations at the posterior's own draws tell.

With g(u, X) = ∇ log p(u|X) - ∇ log p(u) the score of one set of m observations less the prior's, whatever the simulator,

    E[g] = 0   and   E[g gᵀ + ∇g] = 0   over X ~ p(X|u), at every u.

Draws u_k of the posterior, spread 1.5-fold, get one simulated set X_k each (at a noise level γ, X_k comes from u ~ N(√γ u_k,
(1-γ) I), as u given its noisy u_k is distributed). A straight line through g(u_k, X_k) has the value b₀ at the draws' mean,
and n observations composed miss the score by (n/m) b₀. With A the draws' covariance, their mean is off by

    T2 = A (n/m) b₀ / (1 + B)          (per parameter C (n/m) b₀, C = Cov(θ, u)), signed, with a standard error of about √(n/K),

B the line's slope along the parameter, which is what the score is too flat by. What simulations cannot show is how far off the
scores of these very observations are beyond the mean over all that could be; as far as the members of a likelihood differ in it
(`of_observations` in `pair_moments.py`), it joins the standard error.

Their widths follow from the residuals of the same line, and `LocalMean` takes both errors away as far as the simulations can
tell (`pair_moments.py`). Besides, observed and simulated observations are compared: mean rank, and mean distance from the
middle rank, of every feature, the largest difference judged by permutation.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from scipy import stats

from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.posterior.modes import count_of, divided
from scorefold.posterior.pair_moments import LEAST_PRECISION, Pairs, correction, moments, sure, widths
from scorefold.posterior.trust import BAD, SHIFTS, UNKNOWN, VERDICTS, WIDTHS, Around
from scorefold.prior import Prior
from scorefold.progress import step
from scorefold.score.local_mean import LocalMean
from scorefold.shown import html_table, listed, one_line
from scorefold.simulation.calls import repeat
from scorefold.simulation.replicate import as_far_as_made, replicate
from scorefold.simulation.workers import Workers
from scorefold.types import Float, single_precision

CHECKED_DRAWS = 1_000
DRAWS_APART = 1.5
FEWEST_SETS = 50
PERMUTATIONS = 999
ALARMING_P = 0.01
TOLD = 0.1
"""Posterior sd: what advice on the number of simulations aims at."""
LARGEST_FACTOR = 3.0
"""A width whose standard error is larger is not told."""


@runtime_checkable
class Checkable(Protocol):
    """What a check needs of a posterior."""

    @property
    def prior(self) -> Prior:
        """The prior, with the map from the space of the scores to θ."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one observation."""

    def at_pairs(self, x: np.ndarray, u: np.ndarray) -> Pairs:
        """See `ComposedPosterior`."""

    def checked_size(self, n: int) -> int:
        """Observations in a set."""

    def unseen(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """The covariance (dim, dim) of the composed score's error that comes from these observations, as members show it."""

    @property
    def lowest_noise(self) -> float:
        """1 - γ of the level that draws come from; 0 without noise."""


class Simulating(NamedTuple):
    """How a check simulates: the simulator, how often and with what seed, who runs it, and the known inputs of the
    observations.
    """

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

    `print(check)` says it in words, parameter by parameter: how far each mean is too high (+) or too low (-), in posterior sd,
    and how many times too wide each sd is, with standard errors. What is within two standard errors, right draws show too.
    `posterior.corrected(check)` takes the errors away as far as the simulations can tell. `docs/trust.md` has an example that
    the tests run.
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
    """Its standard error, with what members say of these very observations."""
    log_width: Float[np.ndarray, " dim"]
    """Log ratio of the draws' sds to the right ones."""
    log_width_error: Float[np.ndarray, " dim"]
    p_value: float
    """That simulated observations differ from others as much as the observed ones do."""
    correction: LocalMean
    prior: Prior
    shape: tuple[int, ...]
    several_modes: bool = False
    """Of the draws: then shifts and widths are those of all modes together, and cannot be corrected."""

    @property
    def verdict(self) -> str:
        """ "good", "usable" or "not to be trusted"; "not known" where nothing was found, by errors too large to find it.

        No verdict is better than the standard errors: an error of 0.3 posterior sd is none that would show draws to be good.
        """
        if self.p_value < ALARMING_P or self._found == len(VERDICTS) - 1:
            return BAD
        return UNKNOWN if self._told == len(VERDICTS) - 1 else VERDICTS[max(self._found, self._told)]

    @property
    def limited(self) -> bool:
        """The standard errors, and not what was found, are the reason why the verdict is not a better one."""
        return self.verdict != BAD and self._told > self._found

    @property
    def _found(self) -> int:
        """The verdict by what was found beyond chance, as its place among `VERDICTS`."""
        return _level(_beyond_chance(self.shift, self.shift_error), _beyond_chance(self.log_width, self.log_width_error))

    @property
    def _told(self) -> int:
        """The best verdict that so large standard errors can tell from a worse one."""
        return _level(self.shift_error, self.log_width_error)

    @property
    def words(self) -> str:
        """The verdict, and what it rests on."""
        worst = int(np.abs(self.shift).argmax())
        found = (
            f"{self.verdict}{self._as_far}: {one_line(self.names[worst])} is most off, by {self.shift[worst]:+.2f} ± "
            f"{self.shift_error[worst]:.2f} posterior sd; {self._widths()}"
        )
        if self.p_value < ALARMING_P:
            found += f"; the observations are unlike simulations from the draws (p = {self.p_value:.2g})"
        if self.shift_error.max() > SHIFTS[0]:
            wanted = self.sims * (self.shift_error.max() / TOLD) ** 2
            found += f"; about {wanted:,.0f} simulations would tell to {TOLD} sd"
        return found

    @property
    def _as_far(self) -> str:
        """What is said behind a verdict that only the number of simulations keeps from being better."""
        return f", as {self.sims:,} simulations cannot tell more" if self.limited else ""

    def _widths(self) -> str:
        """The worst width among those that the simulations tell, and which they do not tell."""
        told = self.log_width_error < np.log(LARGEST_FACTOR)
        if not told.any():
            return "the widths cannot be told by so few simulations"
        others = listed([name for name, known in zip(self.names, told, strict=True) if not known])
        untold = f", that of {others} cannot be told" if others else ""
        wide = int(np.where(told, np.abs(self.log_width), -1.0).argmax())
        width, either = np.exp(self.log_width[wide]), np.exp(self.log_width_error[wide])
        found = f"the width of {one_line(self.names[wide])} is {width:.2f} times the right one"
        return f"{found} (within a factor {either:.2f}){untold}"

    def rows(self) -> list[tuple[str, str, str]]:
        """For a table: each parameter's name, its shift in posterior sd and the ratio of its width to the right one, both with
        their standard errors, in words.
        """
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
        """All that was found, for a file.

        Returns:
            What strict JSON can hold: "verdict", "words", counts, "p" and, for each parameter, "shift" and "width" with their
            errors.
        """
        numbers = {
            "shift": self.shift, "shift error": self.shift_error, "width": np.exp(self.log_width),
            "width error": np.exp(self.log_width_error),
        }  # fmt: skip
        named = {word: dict(zip(self.names, values.tolist(), strict=True)) for word, values in numbers.items()}
        said = {
            "verdict": self.verdict,
            "limited": self.limited,
            "words": self.words,
            "n": self.n,
            "simulations": self.sims,
            "failed": self.failed,
        }
        return {**said, "p": self.p_value, **named}

    def correction_for(self, prior: Prior, shape: tuple[int, ...]) -> LocalMean:
        """The correction, for the posterior that was checked."""
        if prior != self.prior or shape != self.shape:
            raise ScorefoldError("expected the check of this posterior; got one of another. Call posterior.check first.")
        if self.several_modes:
            raise ScorefoldError(
                "expected draws with one mode to correct; got several, around which a straight line says nothing. Use "
                "posterior.refine(x_obs, simulator), which moves every mode by itself."
            )
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
    """Simulate at draws, and compare the scores there with what they would be if the posterior were right.

    Args:
        posterior: A posterior with a score.
        x: (n, features), the observations.
        u: (draws, dim), draws given them, in the space of the scores.
        how: How to simulate.
        seen: Makes of simulated observations what the scores see. Default: as they are.

    Returns:
        A `Check`.

    Raises:
        ScorefoldError: There are too few simulations, or too few are left after failures.
    """
    n, size = len(x), posterior.checked_size(len(x))
    rng = np.random.default_rng([how.seed, 23])
    pairs = _simulated_pairs(posterior, u, size, how, rng)
    with single_precision(), step("comparing", how.progress):
        found = moments(posterior.at_pairs(seen(pairs.x), pairs.u), pairs.u - u.mean(axis=0), n / size)
        error = found.error + posterior.unseen(seen(x), u)
    around = Around.draws(u, posterior.prior.from_normal(u))
    steeper = np.maximum(1 + 2 * around.log_width(sure(found)), LEAST_PRECISION)
    shift_error = np.sqrt(np.diag(around.cross @ error @ around.cross.T)) / around.sd / steeper
    log_width, width_error = widths(found, around)
    return Check(
        names=posterior.prior.names,
        n=n,
        sims=pairs.made * size,
        failed=pairs.failed,
        shift=around.shift(found.offset) / steeper,
        shift_error=shift_error,
        log_width=log_width,
        log_width_error=width_error,
        p_value=_misfit(_outcomes(x, how), _outcomes(pairs.x[:, 0], how), rng),
        correction=correction(found, u, n, posterior.lowest_noise, (error, width_error)),
        prior=posterior.prior,
        shape=posterior.shape,
        several_modes=count_of(divided(u)) > 1,
    )


class _SimulatedPairs(NamedTuple):
    """Draws with a set simulated from each."""

    u: Float[np.ndarray, "pairs dim"]
    x: Float[np.ndarray, "pairs set features"]
    made: int
    """Pairs, those included that a failure has left out."""
    failed: int
    """Simulations."""


def _simulated_pairs(
    posterior: Checkable, u: np.ndarray, size: int, how: Simulating, rng: np.random.Generator
) -> _SimulatedPairs:
    """Sets of this size, each simulated from one of the draws, spread; a ScorefoldError where they are too few."""
    count = how.sims // size
    if count < FEWEST_SETS:
        raise ScorefoldError(
            f"expected sims of {FEWEST_SETS * size} or more, {FEWEST_SETS} sets of {size}; got {how.sims}. A standard error is "
            "about √(n / sims) posterior sd."
        )
    centre, noise = u.mean(axis=0), posterior.lowest_noise
    at = centre + DRAWS_APART * (u[rng.permutation(np.resize(np.arange(len(u)), count))] - centre)
    before = np.sqrt(1 - noise) * at + np.sqrt(noise) * rng.standard_normal(at.shape)
    simulated = simulated_sets(posterior.prior.from_normal(before), size, how, rng)
    made = len(simulated)
    right = np.isfinite(simulated).all(axis=2)
    whole = right.all(axis=1)
    if whole.sum() < FEWEST_SETS:
        raise ScorefoldError(f"expected {FEWEST_SETS} simulated sets or more; {whole.sum()} of {made} are left after failures")
    return _SimulatedPairs(at[:made][whole], simulated[whole], made, int((~right).sum()))


def _outcomes(x: np.ndarray, how: Simulating) -> np.ndarray:
    """Observations (n, features) without their inputs."""
    return x if how.inputs is None else x[:, : -how.inputs.shape[1]]


def simulated_sets(
    theta: np.ndarray, size: int, how: Simulating, rng: np.random.Generator, fewest: int = FEWEST_SETS
) -> np.ndarray:
    """(pairs, set, features), NaN where a simulation failed; failures are counted, not warned of. After Ctrl-C fewer pairs, as
    long as there are enough.
    """
    inputs = None
    if how.inputs is not None:
        turn = np.resize(rng.permutation(len(how.inputs)), (len(theta), size))
        inputs = how.inputs[turn]

    def simulate() -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ScorefoldWarning)
            return replicate(repeat(theta, size, how.seed, inputs), how.simulator, how.workers, how.progress)

    x = as_far_as_made(simulate, fewest)
    return x.reshape(*x.shape[:2], -1)


def _level(shift: np.ndarray, log_width: np.ndarray) -> int:
    """The place among `VERDICTS` of shifts and log widths."""
    by_shift = int(np.searchsorted(SHIFTS, np.abs(shift).max(), "right"))
    return max(by_shift, int(np.searchsorted(np.log(WIDTHS), np.abs(log_width).max(), "right")))


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
