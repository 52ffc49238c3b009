"""How far draws may be from the true posterior, from what the members of an ensemble disagree on.

The members of an ensemble were trained on different folds of the simulations. Let S_i(u) be the composed score by member i
alone and S̄(u) their mean, which the draws follow. Around the draws' mean ū, S_i - S̄ is nearly a_i + B_i (u - ū), by least
squares over the draws. Let M be the inverse of the mean score's slope within a mode, from differences of neighbouring draws and
of their scores as in `sample/self_tuned.py`; for one Gaussian mode it is the draws' covariance. A posterior by that member
alone would differ, to first order, in

    mean       J M a_i                            (J: the line of θ through u, by least squares over the draws),
    variance   J M B_i M Jᵀ / (J M Jᵀ), relative   (both on the diagonal, one entry a parameter).

With the covariance in place of M, modes far apart or a bent posterior would make every disagreement look as large as the
distance between them. How members weigh modes, their scores at the draws do not tell.

T1 is the root mean square of the first over members, Σ_i / (members - 1), in posterior sd; the widths' disagreement is that of
half the second, a log ratio of sds. To T1² is added what the number of simulations leaves at any rate (`reach.py`). A flow is
drawn from member by member instead, and the means and sds are compared. What the members agree on and is wrong all the same
they cannot show: `CALIBRATION` says how large the true error was where it could be seen, given the members' disagreement.
Observations unlike any simulation (`reach.py`) lower the verdict, as the members may be wrong there together.

This is about the answer. Whether the sampler followed what it was given is in `draws.info`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from scorefold.posterior.reach import Strangeness
from scorefold.shown import one_line
from scorefold.types import Float

GOOD, USABLE, BAD, UNKNOWN = "good", "usable", "not to be trusted", "not known"
VERDICTS = (GOOD, USABLE, BAD)
SHIFTS = (0.25, 0.75)
"""Posterior sd: the expected shift of a mean below which draws are good, and usable."""
WIDTHS = (1.25, 1.75)
"""The same for a width that is so many times too large or too small."""
JUDGED, JUDGED_OF_MANY, MANY_SETS = 256, 64, 1_000
"""Draws at which members are compared, and from so many sets on."""
FEWEST_JUDGED = 20
"""Draws that can tell."""
NINE_IN_TEN = 1.2815515655446004
"""The quantile of a standard normal variable."""
LARGEST_LOG_WIDTH = 5.0
LARGEST_SHIFT = 1e3


class Calibrated(NamedTuple):
    """How the true error follows the members' disagreement T, where the truth is known."""

    scale: float
    """The expected error over T: the least for which the promises of verdicts hold, somewhat more than the median."""
    spread: float
    """Nine errors in ten are below e^{1.28 spread} times the expected one."""

    def expected(self, disagreement: np.ndarray) -> np.ndarray:
        """The error to expect."""
        return np.minimum(self.scale * disagreement, LARGEST_SHIFT)

    def at_most(self, disagreement: np.ndarray) -> np.ndarray:
        """What nine in ten of the true errors stay below."""
        return self.expected(disagreement) * math.exp(self.spread * NINE_IN_TEN)


class Calibration(NamedTuple):
    """How the true errors of the shift, in posterior sd, and of the log ratio of sds follow the disagreement."""

    shift: Calibrated
    width: Calibrated


CALIBRATION = Calibration(shift=Calibrated(2.2, 0.5), width=Calibrated(4.0, 1.0))
"""From 256 cells of eight tasks (`python benchmarks/trust.py --out benchmarks/results/trust --summary`; F-NPSE with 10,000
simulations, n = 1, 8, 30, 100). The least scales that they ask for are 1.6 and 4.5; learned on half of the tasks, such scales
were right for 91 % only of what they called good in the other half. docs/trust.md has the figures."""


class Disagreement(NamedTuple):
    """How the posterior of each member alone would differ."""

    shift: Float[np.ndarray, "members dim"]
    """Of the parameters' means, signed, in posterior sd."""
    log_width: Float[np.ndarray, "members dim"]
    """Log ratio of the sds, of the member's to the draws'."""


class Doubts(NamedTuple):
    """What a method knows about the errors of some draws: how members differ, and what no member can know. `judge` makes the
    trust of it.
    """

    disagreement: Disagreement | str
    """Or the reason why there is none, in words."""
    floor: float = 0.0
    """The shift that so few simulations leave at any rate, in posterior sd (`reach.py`)."""
    strange: Strangeness | None = None
    """How the observations lie to the simulations, where that is known."""
    error: Disagreement | None = None
    """The standard errors of a correction by simulations at the draws: they then count in place of the disagreement."""
    found_off: float = 0.0
    """By how many posterior sd simulations have found such draws off, at least: what a refinement's comparison says."""


@dataclass(frozen=True, repr=False)
class Trust:
    """How far the draws may be from the true posterior, parameter by parameter; `draws.trust` holds it.

    `print(draws.trust)` says it in words. It costs nothing but a moment, and is an estimate: draws called good were nearly all
    within 0.5 posterior sd and a factor 1.25 in width where the truth is known. `posterior.check(x_obs, simulator)` spends some
    hundred simulations on a better one, and `posterior.refine` simulates where draws are not good enough. `docs/trust.md` says
    what the verdicts mean.

    Example:
        >>> import scipy.stats, scorefold as sf
        >>> prior = sf.Prior({"rate": scipy.stats.norm(0, 1)})
        >>> sims = sf.simulate(prior, lambda theta, rng: theta + rng.normal(size=2), budget=200)
        >>> trust = sf.fit(sims, "abc").sample([[0.5, 0.7]], draws=100).trust
        >>> trust.known, str(trust)  # NPSE, NPE, NLE and NRE have an ensemble, and a verdict
        (False, 'not known: ABC has no ensemble whose members could disagree')
    """

    names: tuple[str, ...]
    shift: Float[np.ndarray, " dim"] | None
    """The expected error of each mean, in posterior sd; None where nothing is known."""
    width: Float[np.ndarray, " dim"] | None
    """By what factor each sd is expected to be too large or too small, 1 or more."""
    shift_at_most: Float[np.ndarray, " dim"] | None
    """The shift that nine in ten stay below."""
    width_at_most: Float[np.ndarray, " dim"] | None
    verdict: str
    """"good", "usable", "not to be trusted", or "not known"."""
    why: str
    """What the verdict rests on, in words."""

    @property
    def known(self) -> bool:
        """Whether there is anything to say."""
        return self.verdict != UNKNOWN

    @property
    def bad(self) -> bool:
        """Whether the draws are not to be trusted."""
        return self.verdict == BAD

    def summary(self) -> dict[str, Any]:
        """Everything that `print` says, for a file.

        Returns:
            What strict JSON can hold: "verdict", "why" and, for each parameter, "shift", "width", "shift at most" and "width at
            most".
        """
        numbers = {
            "shift": self.shift, "width": self.width, "shift at most": self.shift_at_most, "width at most": self.width_at_most,
        }  # fmt: skip
        named = {
            word: dict(zip(self.names, map(float, values), strict=True))
            for word, values in numbers.items()
            if values is not None
        }
        return {"verdict": self.verdict, "why": self.why, **named}

    def __str__(self) -> str:
        return f"{self.verdict}: {self.why}"

    def __repr__(self) -> str:
        return f"Trust({self})"


def unknown(names: Sequence[str], reason: str) -> Trust:
    """Where there is nothing to go by."""
    return Trust(tuple(names), None, None, None, None, UNKNOWN, reason)


class MemberScores(NamedTuple):
    """What the members of an ensemble say at some draws."""

    composed: Float[np.ndarray, "members draws dim"]
    """Each member's composed score at every draw."""
    response: Float[np.ndarray, "dim dim"]
    """M: how far draws move where the score is off by one."""


def by_scores(found: MemberScores, u: Float[np.ndarray, "draws dim"], theta: Float[np.ndarray, "draws dim"]) -> Disagreement:
    """How the posterior of each member alone would differ, from their scores at draws of the whole ensemble.

    Args:
        found: The members' composed scores at the draws.
        u: (draws, dim), the draws.
        theta: (draws, dim), their parameters.

    Returns:
        The shift of each member's means and the log ratio of its widths, to first order in how far its score is off.
    """
    off = found.composed - found.composed.mean(axis=0)
    around = Around.draws(u, theta, found.response)
    offset = off.mean(axis=1)
    centred = u - u.mean(axis=0)
    slope = np.einsum("ind,ne->ide", off - offset[:, None], centred) / len(u) @ np.linalg.inv(_covariance(centred))
    return Disagreement(around.shift(offset), around.log_width(slope))


def by_draws(
    theta: Float[np.ndarray, "members draws dim"], mean: Float[np.ndarray, " dim"], sd: Float[np.ndarray, " dim"]
) -> Disagreement:
    """How the posterior of each member differs, where every member has draws of its own.

    Args:
        theta: (members, draws, dim), their parameters.
        mean: (dim,), of the draws of all.
        sd: (dim,), likewise.

    Returns:
        The shift of each member's means, and the log ratio of its widths.
    """
    scale = np.maximum(sd, 1e-300)
    each = np.maximum(theta.std(axis=1), 1e-300)
    return Disagreement((theta.mean(axis=1) - mean) / scale, np.log(each / np.exp(np.log(each).mean(axis=0))))


class Around(NamedTuple):
    """Draws as a Gaussian, and their parameters as straight lines: what an error of the score does to first order."""

    cross: Float[np.ndarray, "dim dim"]
    """J M; without M, Cov(θ, u)"""
    precision: Float[np.ndarray, "dim dim"]
    """M⁻¹"""
    sd: Float[np.ndarray, " dim"]
    """Of the parameters."""

    @classmethod
    def draws(
        cls,
        u: Float[np.ndarray, "draws dim"],
        theta: Float[np.ndarray, "draws dim"],
        response: Float[np.ndarray, "dim dim"] | None = None,
    ) -> "Around":
        """A Gaussian around draws.

        Args:
            u: (draws, dim), in the space of the scores.
            theta: (draws, dim), their parameters.
            response: (dim, dim), how far draws move where the score is off by one. Default None: their covariance.

        Returns:
            What translates errors of the score into errors of means and widths.
        """
        centred = u - u.mean(axis=0)
        covariance = _covariance(centred)
        cross, precision = (theta - theta.mean(axis=0)).T @ centred / len(u), np.linalg.inv(covariance)
        if response is not None:
            cross, precision = cross @ precision @ response, np.linalg.inv(_regular(response))
        return cls(cross, precision, np.maximum(theta.std(axis=0), 1e-300))

    def shift(self, offset: Float[np.ndarray, "*some dim"]) -> Float[np.ndarray, "*some dim"]:
        """How far the parameters' means move, in sd, where the score is off by a constant."""
        return offset @ self.cross.T / self.sd

    def log_width(self, slope: Float[np.ndarray, "*some dim dim"]) -> Float[np.ndarray, "*some dim"]:
        """By how much the logarithms of the parameters' sds change, where the score is off by slope (u - ū)."""
        own = np.einsum("kd,de,ke->k", self.cross, self.precision, self.cross)
        return np.einsum("kd,...de,ke->...k", self.cross, slope, self.cross) / np.maximum(own, 1e-300) / 2


def _covariance(centred: Float[np.ndarray, "draws dim"]) -> Float[np.ndarray, "dim dim"]:
    return _regular(centred.T @ centred / len(centred))


def _regular(matrix: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """The matrix with a little more on its diagonal, so that it has an inverse."""
    return matrix + (1e-9 * np.trace(matrix) / len(matrix) + 1e-30) * np.eye(len(matrix))


def judge(names: Sequence[str], doubts: Doubts, info: Any) -> Trust:
    """The verdict on draws.

    Args:
        names: Of the parameters.
        doubts: What is known about their errors.
        info: How their sampler went.

    Returns:
        The expected errors of every parameter's mean and width, and a word for the worst; "unknown" where nothing is known.
    """
    found, strange = doubts.disagreement, doubts.strange
    if isinstance(found, str):
        return unknown(names, found)
    if doubts.error is not None:
        # The standard errors of a correction stand for themselves: there is nothing to calibrate.
        shift, log_width = _over_members(doubts.error, members=2)
        at_most = shift * 1.645, log_width * 1.645
    else:
        raw = _raw(found, doubts.floor)
        shift, log_width = CALIBRATION.shift.expected(raw[0]), CALIBRATION.width.expected(raw[1])
        at_most = CALIBRATION.shift.at_most(raw[0]), CALIBRATION.width.at_most(raw[1])
    width, widest = (np.exp(np.minimum(one, LARGEST_LOG_WIDTH)) for one in (log_width, at_most[1]))
    level, why = _level(names, shift, width)
    lower, reasons = (0, []) if strange is None else strange.lowers()
    if doubts.found_off > SHIFTS[1]:
        lower, reasons = 2, [*reasons, f"the comparison with the start found this posterior {doubts.found_off:.1f} sd off"]
    if not info.converged:
        lower, reasons = 2, [*reasons, "the sampler has not settled"]
    level = min(level + lower, 2)
    return Trust(tuple(names), shift, width, at_most[0], widest, VERDICTS[level], "; ".join([why, *reasons]))


def expected_shift(doubts: Doubts) -> Float[np.ndarray, " dim"] | None:
    """The expected error of each mean, in posterior sd; None where nothing is known."""
    found = doubts.disagreement
    return None if isinstance(found, str) else CALIBRATION.shift.expected(_raw(found, doubts.floor)[0])


def _raw(found: Disagreement, floor: float) -> tuple[np.ndarray, np.ndarray]:
    shift, width = _over_members(found, members=len(found.shift))
    return np.hypot(shift, floor), width


def _over_members(found: Disagreement, members: int) -> tuple[np.ndarray, np.ndarray]:
    """Root mean square over members, for each parameter, as an estimate of one member's sd."""
    both = (np.nan_to_num(one, nan=np.inf) for one in (found.shift, found.log_width))
    shift, width = (np.sqrt((one**2).sum(axis=0) / max(members - 1, 1)) for one in both)
    return shift, width


def _level(names: Sequence[str], shift: np.ndarray, width: np.ndarray) -> tuple[int, str]:
    """The verdict's place in `VERDICTS`, and the numbers it rests on."""
    worst, widest = int(shift.argmax()), int(width.argmax())
    level = max(int(np.searchsorted(SHIFTS, shift[worst], "right")), int(np.searchsorted(WIDTHS, width[widest], "right")))
    return level, (
        f"means expected within {shift[worst]:.2g} posterior sd of the right ones (most off: {one_line(names[worst])}), widths "
        f"within a factor {width[widest]:.2f} ({one_line(names[widest])})"
    )
