"""The page of one `infer` run: measures against the true posterior, settings, the sampler's health, pictures."""

from typing import Any

from scorefold.errors import ScorefoldError
from scorefold.report.page import escaped, gallery, settings_table, table, whole
from scorefold.report.words import TASK_LABELS, health, observations

CAPTIONS = {
    "sequence": "The posterior as observations are added; dotted, the true one.",
    "corner": "Draws (filled) against draws of the true posterior (lines); the true parameters in orange.",
    "predictive": "Data sets simulated from posterior draws, against the observed one.",
    "training": "Loss in training. Circles mark the weights that were kept.",
    "sampler": "The sampler's health, level by level. Both identities are 1 where the draws follow the score.",
    "calibration": "Calibration over simulated data sets.",
}
PERFECT = {"squared MMD": "0", "C2ST": "0.5", "sd ratio": "1", "mean shift": "0"}


def infer_page(summary: dict[str, Any], pictures: dict[str, bytes], title: str = "One inference") -> str:
    """From the run's summary, and its pictures by name."""
    try:
        settings, measures, seconds = (summary[part] for part in ("settings", "measures", "seconds"))
        trust = health(summary["converged"], summary["diverged"])
    except KeyError as error:
        raise ScorefoldError(f"expected the summary that `scorefold infer` writes; it has no {error}") from None
    task = TASK_LABELS.get(settings["task"], settings["task"])
    asked = f"{settings['budget']:,} simulator calls, {settings['draws']:,} draws"
    lead = f"{task}: {settings['method']} on {asked} given {observations(settings['n'])}."
    rows = [
        (name, f"{found:.4g}", next((best for word, best in PERFECT.items() if name.startswith(word)), ""))
        for name, found in measures.items()
    ]
    rows.append(("sampler", trust, "converged"))
    rows += [(f"sampler, given only {count}", words, "converged") for count, words in summary.get("given fewer", {}).items()]
    rows += [(f"sampler, {name}", f"{value:.4g}", "") for name, value in summary.get("sampler", {}).items()]
    body = [
        f'<p class="lead">{escaped(lead)}</p>',
        '<div class="columns"><section><h2>Measures</h2>' + table(("measure", "found", "perfect"), rows) + "</section>",
        "<section><h2>Settings</h2>" + settings_table(settings) + "<h2>Seconds</h2>"
        + table(("to", ""), [(name, f"{value:.1f}") for name, value in seconds.items()]) + "</section></div>",
        *gallery(pictures, CAPTIONS),
    ]  # fmt: skip
    return whole(title, body, {"kind": "infer", "summary": summary})
