"""The page of a diagnosis: the verdict in words, the tables, the figures with what to look for, the settings."""

from typing import Any

from scorefold.errors import ScorefoldError
from scorefold.report import diagnosis_rows as say
from scorefold.report.next_steps import after_diagnosis
from scorefold.report.page import escaped, gallery, scrolled, settings_table, table, whole

CAPTIONS = {
    "ranks": "Ranks of the true parameters among the draws, less what is expected. A line that leaves the grey band is orange: "
    "∩ or ∪ around 0 is a shift, an S a wrong width.",
    "coverage": "How often central intervals, and the ellipsoid of all parameters together, hold the truth. Below the diagonal "
    "the posterior is over-confident.",
    "highest_density": "The same for regions of highest density, which also notice a lost mode.",
    "tarp": "TARP: all parameters jointly. In each data set, is the truth as far from a point that depends on the data as the "
    "draws are? Off the band something is wrong; draws that are shifted may be on either side, whatever their width.",
    "contraction": "How much the data narrow each parameter, and how far the truth lies from the posterior's mean: median, "
    "half and 90 % of the data sets.",
}
OBSERVED = {
    "predictive": "Data sets simulated from posterior draws, against the observed one. A statistic that they do not reach is "
    "marked in orange.",
    "influence": "How far the posterior's mean would move without each observation. Observations are counted from 0. "
    "In the grey band all of them would lie, in 95 % of cases, if they counted alike and all were Gaussian.",
}
LEAD = (
    "Parameters were drawn from the prior, and data sets simulated from them. Could they be draws of the posterior given these "
    "data sets?"
)

READING = (
    "The sd ratio is the width of the posterior over the right one; the shift is how far its centre is off, in its own sd. "
    "Read both only where p is below 5 %. 90 % holds: how often a central interval of 90 % held the truth. Contraction is 0 "
    "where the posterior is as wide as the prior, and 1 where it is a point."
)


def diagnosis_page(summary: dict[str, Any], pictures: dict[str, bytes]) -> str:
    """The page, from the summary that `Diagnosis.write` leaves and its pictures by name."""
    try:
        body = _body(summary, pictures)
    except (KeyError, TypeError) as error:
        raise ScorefoldError(f"expected the summary that `scorefold diagnose` writes; it has no {error}") from None
    return whole("Can this posterior be trusted?", body, {"kind": "diagnosis", "summary": summary})


def _body(summary: dict[str, Any], pictures: dict[str, bytes]) -> list[str]:
    own = {name: png for name, png in pictures.items() if name in OBSERVED}
    others = {name: png for name, png in pictures.items() if name not in OBSERVED}
    words, kind = f"{say.verdict(summary)} {say.caveat(summary)}", "good" if say.is_good(summary) else "bad"
    body = [
        f'<p class="verdict {kind}">{escaped(words)}</p>',
        f'<p class="lead">{escaped(LEAD)} {escaped(say.data_sets(summary))}</p>',
        "<section><h2>What next</h2><ul>", *(f"<li>{escaped(one)}</li>" for one in after_diagnosis(summary)),
        "</ul></section>",
        "<section><h2>Each parameter</h2>", scrolled(table(say.QUANTITIES, say.quantities(summary))),
        f'<p class="quiet">{escaped(READING)}</p></section>',
        "<section><h2>All parameters together</h2>", scrolled(table(("joint test", "p", ""), say.tests(summary))),
        '<p class="quiet">Even if the posterior is right, each test fails in 5 % of cases.</p></section>',
    ]  # fmt: skip
    if "observed" in summary:
        found = scrolled(table(("question", "p", ""), say.observed(summary)))
        chance = "Even if all is right, each test fails in 5 % of cases."
        body += [
            "<section><h2>The observed data set</h2>",
            found,
            f'<p class="quiet">{chance} {escaped(say.power(summary))}</p>',
        ]
        body += ['<div class="gallery">', *gallery(own, OBSERVED)]
        body += ["</div></section>"]
    body += ['<section><h2>Figures</h2><div class="gallery">', *gallery(others, CAPTIONS), "</div></section>"]
    return [*body, "<section><h2>Settings</h2>", scrolled(settings_table(summary["settings"])), "</section>"]
