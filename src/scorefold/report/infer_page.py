"""The page of one `infer` run: measures against the true posterior, settings, the sampler's health, pictures, what next."""

from typing import Any

from scorefold.errors import ScorefoldError
from scorefold.report.next_steps import after_inference
from scorefold.report.page import escaped, gallery, settings_table, table, whole
from scorefold.report.words import SETTLED, TASK_LABELS, health, trust_rows
from scorefold.shown import observations

CAPTIONS = {
    "sequence": "The posterior as observations are added; dotted, the true one.",
    "corner": "Draws (filled) against draws of the true posterior (lines); the true parameters in orange.",
    "predictive": "Data sets simulated from posterior draws, against the observed one.",
    "training": "Loss in training. Circles mark the weights that were kept; at epoch 0, those of the straight line that "
    "networks start from. Where the loss jumps back, training began again from its best weights with a falling learning rate.",
    "sampler": "The sampler's health, level by level from noise to data; in the grey bands it is as it should be. The last "
    "level counts, where the Stein identity is 1 and the drift 0 if the draws follow the score. The information identity is 1 "
    "for one Gaussian mode, and larger for several.",
    "calibration": "Calibration over simulated data sets.",
}
READING = (
    "The draws are compared with draws of the true posterior. C2ST is the accuracy of a classifier that tells them apart, "
    "squared MMD a distance between them. The sliced Wasserstein distance is how far the draws would have to be moved, in sd "
    "of the true posterior; 1,000 perfect draws are about 0.08 away. The mean shift is in sd of the true posterior; the sd "
    "ratio is the width of the draws over the right one. The sampler's own checks say whether it followed what was learned, "
    "not whether that is right."
)
TRUST = (
    "The networks of an ensemble were trained on different parts of the simulations. Where they disagree on these "
    "observations, the answer may be off: by so many posterior sd in the mean, and by such a factor, 1 or more, in the width."
)
CLASSES = {"not to be trusted": "bad", "not known": "unknown"}
"""How a verdict is set; others are good news."""
PERFECT = {"squared MMD": "0", "C2ST": "0.5", "sliced Wasserstein": "near 0", "sd ratio": "1", "mean shift": "0"}


def infer_page(summary: dict[str, Any], pictures: dict[str, bytes]) -> str:
    """The page, from the run's summary and its pictures by name."""
    try:
        settings, measures, seconds = (summary[part] for part in ("settings", "measures", "seconds"))
        checks = health(summary["converged"], summary["diverged"])
    except KeyError as error:
        raise ScorefoldError(f"expected the summary that `scorefold infer` writes; it has no {error}") from None
    task = TASK_LABELS.get(settings["task"], settings["task"])
    trained, drawn = f"{settings['budget']:,} simulator calls", f"{settings['draws']:,} draws"
    lead = f"{task}: {settings['method']} trained on {trained}, and {drawn} given {observations(settings['n'])}."
    rows = [
        (name, f"{found:.4g}", next((best for word, best in PERFECT.items() if name.startswith(word)), ""))
        for name, found in measures.items()
    ]
    rows.append(("sampler's own checks", checks, SETTLED))
    rows += [
        (f"sampler's own checks, given only {count}", words, SETTLED) for count, words in summary.get("given fewer", {}).items()
    ]
    rows += [(f"sampler: {name}", f"{value:.4g}", "") for name, value in summary.get("sampler", {}).items()]
    body = [
        f'<p class="lead">{escaped(lead)}</p>',
        *_trust(summary.get("trust")),
        '<div class="columns"><section><h2>Measures</h2>' + table(("measure", "found", "perfect"), rows)
        + f'<p class="quiet">{escaped(READING)}</p></section>',
        "<section><h2>Settings</h2>" + settings_table(settings) + "<h2>Times</h2>"
        + table(("step", "seconds"), [(name, f"{value:.1f}") for name, value in seconds.items()]) + "</section></div>",
        *gallery(pictures, CAPTIONS),
        f"<section><h2>What next</h2><p>{escaped(after_inference(summary))}</p></section>",
    ]  # fmt: skip
    return whole("One inference", body, {"kind": "infer", "summary": summary})


def _trust(told: dict[str, Any] | None) -> list[str]:
    """What the draws say of their own error, where they say anything."""
    if told is None:
        return []
    kind, rows = CLASSES.get(told["verdict"], "good"), trust_rows(told)
    said = f'<p class="verdict {kind}">Trust: {escaped(told["verdict"])}: {escaped(told["why"])}.</p>'
    if not rows:
        return [said]
    numbers = table(("parameter", "expected shift", "expected width"), rows)
    reading = f'<p class="quiet">{escaped(TRUST)}</p>'
    return [said, f"<section><h2>What the draws say of their own error</h2>{numbers}{reading}</section>"]
