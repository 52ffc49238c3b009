"""A diagnosis in words and rows, from its summary: what the terminal and the page both show."""

from collections.abc import Mapping
from typing import Any

from scorefold.report.p_values import beyond_chance, passes, written
from scorefold.report.page import Row, Words
from scorefold.shown import observations

QUANTITIES = ("parameter", "verdict", "p", "sd\nratio", "shift\nin sd", "90 %\nholds", "contraction")
TESTS = {
    "SBC": "all ranks (SBC)",
    "coverage": "central intervals and ellipsoid",
    "highest density": "highest-density regions and ellipsoid",
    "TARP": "TARP, around points near what the data predict",
}
POWER = {
    40: "a width 1.7 times too large in 65 % of cases, one 1.3 times too large in 5 %, and hardly one that is wrong only near "
    "the observed data",
    100: "a width 1.7 times too large in nearly all cases (in half of them if it is so only near the observed data), and "
    "one 1.3 times too large in 68 %",
    300: "a width 1.3 times too large in nearly all cases, and in 80 % if it is wrong only near the observed data",
}
"""Of local C2ST, for so many data sets, in two dimensions."""
NAMED_OBSERVATIONS = 3
"""Influential observations that are named."""

Summary = Mapping[str, Any]


def verdict(summary: Summary) -> str:
    """The overall verdict, as a sentence."""
    words = summary["verdict"]
    return f"{words[0].upper()}{words[1:]}."


def data_sets(summary: Summary) -> str:
    """How many data sets there were, and what became of those that were left out."""
    found = summary["data sets"]
    left_out = (
        ("failed", "with failed simulations were left out"),
        ("diverged", "diverged and were left out"),
        ("not converged", "are used although the sampler did not settle"),
    )
    said = "".join(f"; {found[name]} {words}" for name, words in left_out if found[name])
    return f"{found['used']} data sets of {observations(summary['n'])}, {summary['draws']} draws each{said}."


def caveat(summary: Summary) -> str:
    """What seems to contradict the verdict, and what to make of it."""
    failed = [words for name, words in TESTS.items() if not passes(summary["p"][name])]
    said = []
    if summary["good"] and failed:
        least = min(summary["p"][name] for name in TESTS)
        said.append(
            f"But {'; '.join(failed)} failed "
            + (
                f"(p {written(least)}), which chance does not explain: the ranks miss something. Look at those figures."
                if beyond_chance(summary["p"])
                else "by little, as one of them does in 5 to 15 % of cases if all is right. More data sets will tell."
            )
        )
    here = _at_observed(summary)
    if here is not None and passes(here) != summary["good"]:
        said.append(
            "That is on average over the prior; for the observed data set it is "
            + (
                "right, as far as can be told."
                if passes(here)
                else f"NOT right (local C2ST, p {written(here)}; a right one fails in 5 % of cases)."
            )
        )
    return " ".join(said)


def is_good(summary: Summary) -> bool:
    """Whether what the verdict and its caveat say is good news."""
    here = _at_observed(summary)
    return bool(summary["good"]) and (here is None or passes(here))


def _at_observed(summary: Summary) -> float | None:
    """The p-value of local C2ST, where there is an observed data set."""
    p: float | None = summary.get("observed", {}).get("p", {}).get("local C2ST")
    return p


def power(summary: Summary) -> str:
    """What local C2ST would have noticed with as many data sets, as measured (`diagnostics/local_c2st.py`)."""
    used = summary["data sets"]["used"]
    measured = max((count for count in POWER if count <= used), default=0)
    about = f"fewer than {min(POWER)} data sets notice next to nothing"
    if measured:
        least = "" if measured == used else f" at least what {measured} do,"
        about = f"{used} data sets notice{least} {POWER[measured]}"
    more = "" if used >= max(POWER) else f" With {max(POWER)} they would notice {POWER[max(POWER)]}."
    return (
        f"What local C2ST can notice, measured on Gaussian posteriors whose widths were made wrong: {about}.{more} A pass "
        "means no more than that."
    )


def quantities(summary: Summary) -> list[Row]:
    """A row for each parameter and for the data-dependent quantity."""
    rows: list[Row] = []
    for name, one in summary["quantities"].items():
        row: list[str | Words] = [name, Words(one["verdict"], one["good"]), written(one["p"])]
        if name in summary["contraction"]:
            held, learned = summary["coverage of 90 % intervals"][name], summary["contraction"][name]
            row += [f"{one['sd ratio']:.2f}", f"{-one['low by']:+.2f}", f"{held:.0%}", f"{learned:.2f}"]
        rows.append(row + [""] * (len(QUANTITIES) - len(row)))
    return rows


def tests(summary: Summary) -> list[Row]:
    """A row for each joint test."""
    return [
        (words, written(p), Words("passed" if passes(p) else "FAILED", passes(p)))
        for words, p in ((words, summary["p"][name]) for name, words in TESTS.items())
    ]


def observed(summary: Summary) -> list[Row]:
    """What was found out about the observed data set."""
    found = summary["observed"]

    def row(words: str, name: str, right: str, wrong: str) -> Row:
        p = found["p"][name]
        return words, written(p), Words(right if passes(p) else wrong, passes(p))

    rows = [
        row("is it like anything simulated?", "misspecification", found["verdict"], found["verdict"]),
        row("is its posterior right (local C2ST)?", "local C2ST",
            f"right, as far as {summary['data sets']['used']} data sets can tell",
            "WRONG here, whatever it is elsewhere"),
        row("prior predictive", "prior predictive", "simulations from the prior reach it",
            "simulations from the prior do NOT reach it"),
        row("posterior predictive", "posterior predictive", "simulations from the posterior look like it",
            "simulations from the posterior do NOT look like it"),
    ]  # fmt: skip
    if found["influence"]:
        order = sorted(range(len(found["influence"])), key=lambda j: -found["influence"][j])
        moves = ", ".join(f"{j} ({found['influence'][j]:.2f} sd)" for j in order[:NAMED_OBSERVATIONS])
        rows.append(("observations that move it most", "", Words(moves)))
    return rows
