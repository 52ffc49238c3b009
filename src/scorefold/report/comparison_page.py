"""The page of a comparison: the verdict in words, a table, and what was compared."""

from typing import Any

from scorefold.errors import ScorefoldError
from scorefold.report import comparison_rows as say
from scorefold.report.page import escaped, gallery, scrolled, settings_table, table, whole

LEAD = (
    "Parameters were drawn from the prior and data sets simulated from them, the same for all posteriors. How far are each "
    "posterior's draws from the true parameters?"
)


def comparison_page(summary: dict[str, Any], pictures: dict[str, bytes]) -> str:
    """The page, from the summary that `Comparison.write` leaves, and pictures by name, of which there need not be any."""
    try:
        body = _body(summary)
    except (KeyError, TypeError, IndexError) as error:
        raise ScorefoldError(f"expected the summary that `scorefold compare` writes; it has no {error}") from None
    return whole("Which posterior is best?", [*body, *gallery(pictures, {})], {"kind": "comparison", "summary": summary})


def _body(summary: dict[str, Any]) -> list[str]:
    settings = {**summary.get("about", {}), "observations in each data set": summary["n"], "draws for each": summary["draws"],
                "data sets": summary["data sets"]["simulated"], "seed": summary["seed"]}  # fmt: skip
    return [
        f'<p class="verdict {"good" if summary["posteriors"][summary["take"]]["calibrated"] else "bad"}">'
        f"{escaped(say.verdict(summary))}</p>",
        f'<p class="lead">{escaped(LEAD)} {escaped(say.data_sets(summary))}</p>',
        "<section><h2>Each posterior</h2>", scrolled(table(say.COLUMNS, say.rows(summary))),
        f'<p class="quiet">{escaped(say.READING)}</p></section>',
        "<section><h2>Settings</h2>", scrolled(settings_table(settings)), "</section>",
    ]  # fmt: skip
