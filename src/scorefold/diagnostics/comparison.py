"""What `compare` found out: how each posterior stands, and which one to take, in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scorefold.report.p_values import passes, written
from scorefold.shown import observations, one_line

if TYPE_CHECKING:
    from rich.console import Group

QUICKER = 2.0
"""Times as quick that one of several equally good posteriors must be to be taken for its speed."""
SECONDS_THAT_COUNT = 0.01
"""For one data set; smaller differences are no reason to take either."""

# The methods import `report` when they are called, so that `sf.compare` works without loading matplotlib.


class Estimate(NamedTuple):
    """A mean over data sets, with its standard error."""

    mean: float
    error: float


class Standing(NamedTuple):
    """How one posterior stands among those compared: its score with its distance from the best, its calibration, and what a
    data set costs.
    """

    name: str
    score: Estimate
    """Its energy score, lower is better, in the posterior sd of each data set (see `sf.compare`)."""
    behind: Estimate
    """Its energy score minus that of the best one, data set by data set, so that how hard a data set is cancels."""
    log_ratio: Estimate
    """The logarithm of its energy score over that of the best one. Not proper: half the right width would be favoured."""
    holds_50: Estimate
    """How often central intervals of 50 % hold the true value, over all parameters."""
    holds_90: Estimate
    """The same of intervals of 90 %."""
    p_value: float
    """Of simulation-based calibration; below 5 % it is not calibrated."""
    diverged: int
    """Data sets whose draws diverged; they are left out for all posteriors."""
    unconverged: int
    """Data sets that are used although the sampler's checks did not pass."""
    seconds: float
    """To draw for one data set, with the share of compilation."""

    @property
    def calibrated(self) -> bool:
        """Whether simulation-based calibration found nothing wrong."""
        return passes(self.p_value)


class Tie(NamedTuple):
    """Which posteriors the data sets cannot tell from the best one."""

    best: Standing
    others: tuple[Standing, ...]
    threshold: float
    """Standard errors from which on a difference counts."""


@dataclass(frozen=True)
class Comparison:
    """Everything that `sf.compare` found out about several posteriors.

    `print(found)` says which one to take and why, with a table; `found.take` is its name, and `found.tied` are the names of
    those that the data sets cannot tell from the best one. `found.table()` is the same for rich's console, `found.summary()`
    for a file, and `found.write(folder)` leaves a page and the numbers. The numbers of each posterior are in
    `found.standings`, and `found.refused` says why some could not be compared. The example of `sf.compare` makes one.
    """

    names: tuple[str, ...]
    """Of the posteriors, in the order in which they were given."""
    n: int
    """Observations in every data set."""
    asked: int
    """Data sets simulated."""
    used: int
    """Data sets that all posteriors in `standings` have draws for."""
    failed: int
    """Left out, since a simulation was not finite."""
    draws: int
    """Of each posterior given each data set."""
    standings: tuple[Standing, ...]
    """Of those that could be compared, in the order of `names`."""
    refused: Mapping[str, str]
    """Why the others could not, by name."""
    tied: tuple[str, ...]
    """The best by its score, and those that cannot be told from it."""
    take: str
    """The one to take."""
    verdict: str
    """Which one to take and why, in sentences."""
    seed: int

    def table(self) -> "Group":
        """The comparison for rich's console: the verdict, and one line for each posterior; `print(found)` shows the same
        without colours.

        Returns:
            A rich `Group`: `rich.print(found.table())`.
        """
        from scorefold.report.comparison_table import table

        return table(self.summary())

    def summary(self) -> dict[str, Any]:
        """Everything that was found, for a file; `write` puts it into comparison.json.

        Returns:
            What strict JSON can hold: the settings, the numbers of every posterior, and the verdict.
        """
        return {
            "n": self.n,
            "data sets": {"simulated": self.asked, "used": self.used, "failed": self.failed},
            "draws": self.draws,
            "seed": self.seed,
            "verdict": self.verdict,
            "take": self.take,
            "tied": list(self.tied),
            "posteriors": {one.name: _described(one) for one in self.standings},
            "refused": dict(self.refused),
        }

    def write(self, out: Path | str, about: Mapping[str, str] | None = None) -> Path:
        """Write the page report.html and comparison.json into a folder, which is made if need be.

        Args:
            out: The folder.
            about: Settings that the page shows besides the numbers of data sets and draws. Default None: none.

        Returns:
            The folder's path.

        Raises:
            StorageError: The folder cannot be written to.
        """
        from scorefold.report import results_folder
        from scorefold.report.comparison_page import comparison_page

        out = Path(out)
        results_folder.write(
            out, results_folder.COMPARISON, {**self.summary(), "about": dict(about or {})}, {}, comparison_page
        )
        return out

    def __str__(self) -> str:
        from scorefold.report.rendered import as_text

        return as_text(self.table())

    def _repr_html_(self) -> str:
        from scorefold.report.rendered import as_html

        return as_html(self.table())

    def __repr__(self) -> str:
        return f"Comparison({len(self.names)} posteriors given {observations(self.n)}: {self.verdict.split('. ')[0]:.160})"


def _described(one: Standing) -> dict[str, Any]:
    """A standing as JSON holds it."""
    estimates = {
        "energy score": one.score, "behind the best": one.behind, "log ratio to the best": one.log_ratio,
        "50 % holds": one.holds_50, "90 % holds": one.holds_90,
    }  # fmt: skip
    return {
        **{name: {"mean": found.mean, "error": found.error} for name, found in estimates.items()},
        "p": one.p_value, "calibrated": one.calibrated, "diverged": one.diverged, "not converged": one.unconverged,
        "seconds": one.seconds,
    }  # fmt: skip


def choose(tie: Tie) -> tuple[Standing, str]:
    """Which of several posteriors to take that the data sets cannot tell apart: a calibrated one first, then one that is much
    quicker.

    Args:
        tie: The best and those that are tied with it.

    Returns:
        The one to take, and why, in words.
    """
    every = (tie.best, *tie.others)
    calibrated = [one for one in every if one.calibrated]
    left = calibrated or list(every)
    best, quickest = left[0], min(left, key=lambda one: one.seconds)
    if len(left) < len(every):
        off = [one.name for one in every if not one.calibrated]
        why = f"simulation-based calibration found {listed(off)} wrong"
        if len(left) == 1:
            return best, why
    else:
        why = ""
    if quickest.seconds * QUICKER < best.seconds and best.seconds - quickest.seconds > SECONDS_THAT_COUNT:
        quick = f"it is quicker, {quickest.seconds:.2g} s for a data set against {best.seconds:.2g} s"
        return quickest, f"{why}, and {quick}" if why else quick
    return best, why or "its score is the lowest"


def words(tie: Tie, behind: Sequence[Standing], refused: Mapping[str, str], used: int, n: int) -> tuple[str, str]:
    """The outcome of a comparison in words.

    Args:
        tie: The best posterior and those that are tied with it.
        behind: Those that are clearly worse.
        refused: Those that could not be compared, with the reason.
        used: How many data sets were used.
        n: Observations in each.

    Returns:
        The name of the one to take, and the verdict.
    """
    chosen, why = choose(tie) if tie.others else (tie.best, "")
    if tie.others:
        said = _tied(tie, chosen, why, used)
    elif behind:
        closest = min(behind, key=lambda one: one.behind.mean)
        others = "that of" if len(behind) == 1 else "the next, that of"
        said = (
            f"take {one_line(chosen.name)}: over {used} data sets of {observations(n)} its energy score is "
            f"{_shown(closest.behind)} posterior sd below {others} {one_line(closest.name)}."
        )
    else:
        said = f"take {one_line(chosen.name)}: it is the only one that could be drawn from given {observations(n)}."
    if behind and tie.others:
        said += f" Clearly worse: {listed([one.name for one in behind])}."
    if not chosen.calibrated:
        said += (
            f" But it is not calibrated (p {written(chosen.p_value)}): sf.diagnose says what is wrong with it. Train it on "
            "more simulations, or compare it with other methods."
        )
    if refused:
        said += f" Not compared: {'; '.join(f'{one_line(name)} ({reason})' for name, reason in refused.items())}"
    return chosen.name, said


def _tied(tie: Tie, chosen: Standing, why: str, used: int) -> str:
    names = listed([one.name for one in (tie.best, *tie.others)])
    most = max(one.behind.mean + tie.threshold * one.behind.error for one in tie.others)
    if most == 0:
        return f"{names} give the same scores for each of {used} data sets. Take {one_line(chosen.name)}, or any: {why}."
    return (
        f"{names} cannot be told apart by their energy scores with {used} data sets; they differ by less than {most:.2g} "
        f"posterior sd. Take {one_line(chosen.name)}: {why}. To tell them apart, compare on more data sets: sims={4 * used} "
        "halves the errors."
    )


def _shown(found: Estimate) -> str:
    return f"{found.mean:.2g} ± {found.error:.1g}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *others, last = map(one_line, names)
    return f"{', '.join(others)} and {last}" if others else last
