"""A comparison in rows, from its summary: what the terminal and the page both show."""

from collections.abc import Mapping
from typing import Any

from scorefold.report.p_values import passes, written
from scorefold.report.page import Row, Words
from scorefold.shown import observations

COLUMNS = ("posterior", "energy\nscore", "behind\nthe best", "50 %\nholds", "90 %\nholds", "SBC p", "seconds", "")
READING = (
    "Lower energy scores are better; they are in posterior sd, and ± is one standard error. Intervals of 50 % and 90 % should "
    "hold the truth so often. Seconds are for one data set, with the share of compilation."
)

Summary = Mapping[str, Any]

UNSETTLED = (("diverged", "diverged"), ("not converged", "not settled"))


def verdict(summary: Summary) -> str:
    """The verdict, as it stands at the beginning of a text."""
    words = str(summary["verdict"])
    return f"{words[0].upper()}{words[1:]}" if words.startswith("take ") else words


def data_sets(summary: Summary) -> str:
    """How many data sets there were, and what was left out."""
    found = summary["data sets"]
    failed = f"; {found['failed']} with failed simulations were left out" if found["failed"] else ""
    return f"{found['used']} data sets of {observations(summary['n'])}, {summary['draws']} draws each{failed}."


def rows(summary: Summary) -> list[Row]:
    """A row for each posterior, the best first, then those that could not be compared."""
    ordered = sorted(summary["posteriors"].items(), key=lambda item: item[1]["energy score"]["mean"])
    found: list[Row] = [_row(name, one, summary["tied"], name == summary["take"]) for name, one in ordered]
    blank = [""] * (len(COLUMNS) - 2)
    return found + [[name, *blank, Words("not compared", False)] for name in summary["refused"]]


def _row(name: str, one: Mapping[str, Any], tied: list[str], taken: bool) -> Row:
    score, behind = one["energy score"], one["behind the best"]
    place = "best score" if name == tied[0] else "not told from the best" if name in tied else "worse"
    said = [f"take it: {place}" if taken else place]
    said += [f"{one[word]} {shown}" for word, shown in UNSETTLED if one[word]]
    if not passes(one["p"]):
        said.append("not calibrated")
    return [
        name,
        f"{score['mean']:.3f} ± {score['error']:.3f}",
        "" if name == tied[0] else f"{behind['mean']:.3f} ± {behind['error']:.3f}",
        *(f"{one[word]['mean']:.0%} ± {one[word]['error']:.0%}" for word in ("50 % holds", "90 % holds")),
        written(one["p"]),
        f"{one['seconds']:.2g}",
        Words("; ".join(said), name in tied and one["calibrated"]),
    ]
