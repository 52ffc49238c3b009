"""The page of a check: the verdict in words, what each parameter is off by, and what was simulated."""

from typing import Any

from scorefold.errors import ScorefoldError
from scorefold.report.next_steps import after_check
from scorefold.report.page import escaped, gallery, scrolled, settings_table, table, whole

LEAD = (
    "Parameters were drawn from the posterior of this data set, and observations simulated from them. The mean of the learned "
    "score over them should be that of the prior, and its spread should match its slope."
)
READING = (
    "The shift is how far the draws' mean is off, in posterior sd: positive where it is too high. The width is that of the "
    "draws over the right one, and stands with the factor by which it may be off. p is the share of simulated observations "
    "that differ from the others as much as the observed ones do."
)
COLOURS = {"not to be trusted": "bad", "not known": "unknown"}
"""The colour of a verdict."""
COLUMNS = ("parameter", "shift", "standard error", "width", "factor either way")


def check_page(summary: dict[str, Any], pictures: dict[str, bytes]) -> str:
    """The page, from the summary that `scorefold check` writes, and pictures by name, of which there need not be any."""
    try:
        body = _body(summary)
    except (KeyError, TypeError) as error:
        raise ScorefoldError(f"expected the summary that `scorefold check` writes; it has no {error}") from None
    return whole("Is this answer right?", [*body, *gallery(pictures, {})], {"kind": "check", "summary": summary})


def rows(summary: dict[str, Any]) -> list[tuple[str, ...]]:
    """One for each parameter, under `COLUMNS`."""
    parts = [summary[word] for word in ("shift", "shift error", "width", "width error")]
    return [(name, f"{parts[0][name]:+.2f}", *(f"{part[name]:.2f}" for part in parts[1:])) for name in parts[0]]


def _body(summary: dict[str, Any]) -> list[str]:
    settings = {
        **summary.get("about", {}), "observations": summary["n"], "simulator calls": summary["simulations"],
        "of them failed": summary["failed"], "p of the observations": f"{summary['p']:.3f}",
    }  # fmt: skip
    kind, words = COLOURS.get(summary["verdict"], "good"), summary["words"]
    return [
        f'<p class="verdict {kind}">{escaped(words[:1].upper() + words[1:])}.</p>',
        f'<p class="lead">{escaped(LEAD)}</p>',
        "<section><h2>Each parameter</h2>", scrolled(table(COLUMNS, rows(summary))),
        f'<p class="quiet">{escaped(READING)}</p></section>',
        "<section><h2>Settings</h2>", scrolled(settings_table(settings)), "</section>",
        f"<section><h2>What next</h2><p>{escaped(after_check(summary))}</p></section>",
    ]  # fmt: skip
