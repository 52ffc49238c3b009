"""What `diagnose` found out: the result of every diagnostic, as words, a table, figures and a page."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scorefold.diagnostics.contraction import Contraction
from scorefold.diagnostics.coverage import Coverage
from scorefold.diagnostics.observed_dataset import Observed
from scorefold.diagnostics.sbc import SBC
from scorefold.diagnostics.tarp import TARP
from scorefold.diagnostics.verdict import Verdicts
from scorefold.types import Float

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group

# The methods import `report` when they are called, so that `sf.diagnose` works without loading matplotlib.


@dataclass(frozen=True)
class Diagnosis:
    """Everything that `sf.diagnose` found out about a posterior.

    `print(found)` says in words and in a table what is wrong, if anything is, and what to do next; `found.good` is True if
    nothing was found. `found.table()` is the same for rich's console, `found.figures()` has the figures by name, and
    `found.write(folder)` leaves a page with them and the numbers. The single diagnostics are fields: `sbc`, `coverage`,
    `highest_density`, `tarp`, `contraction` and, with `x_obs`, `observed`. `found.truth` and `found.draws` are what they were
    computed from, and `failed` and `diverged` how many data sets were left out. The example of `sf.diagnose` makes one.
    """

    names: tuple[str, ...]
    """Of the parameters."""
    n: int
    """Observations in every data set."""
    asked: int
    """Data sets simulated."""
    failed: int
    """Left out, since a simulation was not finite."""
    diverged: int
    """Left out, since the draws diverged."""
    unconverged: int
    """Used, although the sampler's checks did not pass."""
    sbc: SBC
    coverage: Coverage
    """Of central intervals."""
    highest_density: Coverage
    """Of regions of highest density."""
    tarp: TARP
    contraction: Contraction
    verdicts: Verdicts
    truth: Float[np.ndarray, "datasets dim"]
    """The true parameters of the data sets that were used."""
    draws: Float[np.ndarray, "datasets draws dim"]
    observed: Observed | None
    """What was found out about `x_obs`, if it was given."""
    seconds: float
    """Of drawing."""
    settings: Mapping[str, str | int]
    """What was asked for, and of which posterior."""

    @property
    def good(self) -> bool:
        """Whether SBC found nothing wrong, at a false-alarm rate of 5 %."""
        return self.verdicts.overall.good

    def table(self) -> "Group":
        """The diagnosis for rich's console, one line for each parameter and one for each joint test; `print(found)` shows the
        same without colours.

        Returns:
            A rich `Group`: `rich.print(found.table())`.
        """
        from scorefold.report.diagnosis_table import table

        return table(self.summary())

    def figures(self) -> "dict[str, Figure]":
        """Draw everything that can be seen.

        Returns:
            matplotlib figures by name, such as "ranks", "coverage", "highest_density", "contraction" and "tarp"; with an
            observed data set more.
        """
        from scorefold.report import diagnosis_figures

        return diagnosis_figures.all_of(self)

    def write(self, out: Path | str, about: Mapping[str, str | int] | None = None) -> Path:
        """Write the page report.html, its figures and diagnosis.json into a folder, which is made if need be.

        Args:
            out: The folder.
            about: Settings that the page shows besides its own, such as where the posterior comes from. Default None: none.

        Returns:
            The folder's path.

        Raises:
            StorageError: The folder cannot be written to.
        """
        from scorefold.report import results_folder
        from scorefold.report.diagnosis_page import diagnosis_page

        out = Path(out)
        summary = self.summary()
        summary["settings"] = {**(about or {}), **summary["settings"]}
        results_folder.write(out, results_folder.DIAGNOSIS, summary, self.figures(), diagnosis_page)
        return out

    def summary(self) -> dict[str, Any]:
        """Everything that was found, for a file; `write` puts it into diagnosis.json.

        Returns:
            What strict JSON can hold: the settings, the numbers of every test, and the verdicts in words.
        """
        found: dict[str, Any] = {
            "settings": dict(self.settings),
            "n": self.n,
            "data sets": {"simulated": self.asked, "used": len(self.truth), "failed": self.failed, "diverged": self.diverged,
                          "not converged": self.unconverged},
            "draws": self.draws.shape[1],
            "good": self.good,
            "verdict": self.verdicts.overall.words,
            "quantities": {
                one.name: {"verdict": one.words, "good": one.good, "p": float(self.sbc.p_values[k]),
                           "low by": float(self.sbc.low_by[k]), "sd ratio": float(self.sbc.sd_ratio[k])}
                for k, one in enumerate(self.verdicts.each)
            },
            "coverage of 90 % intervals": dict(zip(self.coverage.names, self.coverage.at(0.9).tolist(), strict=True)),
            "contraction": dict(zip(self.names, self.contraction.typical.tolist(), strict=True)),
            "p": {"SBC": self.sbc.p_value, "coverage": self.coverage.uniformity.p_value,
                  "highest density": self.highest_density.uniformity.p_value, "TARP": self.tarp.p_value},
            "seconds": self.seconds,
        }  # fmt: skip
        if self.observed:
            found["observed"] = self.observed.summary()
        return found

    def __str__(self) -> str:
        from scorefold.report.rendered import as_text

        return as_text(self.table())

    def _repr_html_(self) -> str:
        from scorefold.report.rendered import as_html

        return as_html(self.table())

    def __repr__(self) -> str:
        return f"Diagnosis({len(self.truth)} data sets of {self.n} observations; {self.verdicts.overall.words})"
