"""The page of a benchmark folder: what was run, charts to choose from, tables, times.

The tables are plain HTML and there without JavaScript; the charts are drawn by `assets/page.js` from the records in the page.
"""

import json
from collections.abc import Sequence
from typing import Any

from scorefold.app.bench.points import (
    METHOD_LABELS,
    METRICS,
    PAPER_SAMPLER,
    Point,
    Series,
    measured,
    pick,
    point,
    sampler_label,
    series,
    value,
    values,
)
from scorefold.app.bench.record import Record
from scorefold.errors import ScorefoldError
from scorefold.report.page import escaped, scrolled, table, whole
from scorefold.report.words import TASK_LABELS

TABLES = ("c2st", "mmd2", "sliced_wasserstein")
"""Measures with a table of their own for each task."""
FOLDED_RECORDS = 500
"""From so many on, the tables start folded."""
FOLDED_LINES = 10
"""From so many methods on, the times do."""


def bench_page(records: Sequence[Record], runs: Sequence[dict[str, Any]]) -> str:
    """The page of a benchmark folder."""
    if not records:
        raise ScorefoldError("expected records to report; got none. Run `scorefold bench run --out DIR` first.")
    body = [
        _intro(records, runs),
        '<section id="explore" class="needs-js" aria-labelledby="explore-title"><h2 id="explore-title">Explore</h2>'
        '<form id="controls" aria-label="What the charts show"></form><div id="legend" role="group" aria-label="Methods"></div>'
        '<h3 id="shown" aria-live="polite"></h3><div id="charts"></div><p id="note" class="quiet"></p>'
        '<div id="tip" role="status" hidden></div>'
        '<div id="chosen" aria-live="polite"></div></section>',
        '<section aria-labelledby="tables-title"><h2 id="tables-title">Tables</h2>'
        '<p class="quiet">Mean over cells ± standard deviation over trainings. The best for each budget and n is bold.</p>',
        *(
            _table(pick(records, task=task), task, metric, unfolded=len(records) < FOLDED_RECORDS)
            for task in values(records, "task")
            for metric in measured(pick(records, task=task))
            if metric in TABLES
        ),
        "</section>",
        _times(records),
    ]
    return whole("Benchmark", body, {"kind": "bench", **_payload(records)})


def _intro(records: Sequence[Record], runs: Sequence[dict[str, Any]]) -> str:
    tasks = [TASK_LABELS.get(task, task) for task in values(records, "task")]
    trainings = {(json.dumps(_trained(r)), r["cell"]["training"]) for r in records}
    failed, unsure = sum("failed" in r for r in records), sum(not r["converged"] and "failed" not in r for r in records)
    facts = [
        ("Cells", f"{len(records):,}"),
        ("Trainings", f"{len(trainings):,}"),
        ("Tasks", ", ".join(tasks)),
        ("Methods", ", ".join(_method_names(records))),
        ("Settings", ", ".join(values(records, "setting"))),
        ("Budgets", ", ".join(f"{b:,}" for b in values(records, "budget"))),
        ("Observations", ", ".join(map(str, values(records, "n")))),
        ("Draws in each cell", ", ".join(f"{d:,}" for d in values(records, "draws"))),
        (
            "Not settled",
            f"{unsure:,} of {len(records):,} cells, by the sampler's checks; {failed:,} with refused draws",
        ),
        ("Hardware", ", ".join(dict.fromkeys(str(r.get("device", "unknown")) for r in records))),
    ]
    listed = "".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(text)}</dd></div>" for name, text in facts)
    notes = [
        (run.get("started", ""), run.get("preset", ""), run.get("only", "") or "all", run.get("executor", ""),
         f"{run.get('missing', 0):,} of {run.get('cells', 0):,}")
        for run in runs
    ]  # fmt: skip
    listing = table(("started", "preset", "only", "executor", "cells to run"), notes) if notes else ""
    history = f"<details><summary>Runs into this folder: {len(notes)}</summary>{listing}</details>" if notes else ""
    return (
        '<p class="lead">Learned posteriors against true ones. C2ST is the accuracy of telling them apart (0.5: not at all); '
        "squared MMD is 0 where they agree, and the sliced Wasserstein distance, in posterior sd, is near 0.</p>"
        f'<section><h2>What was run</h2><dl class="facts">{listed}</dl>{history}</section>'
    )


def _method_names(records: Sequence[Record]) -> list[str]:
    """The methods, with the set sizes where there are several."""
    named = []
    for method in values(records, "method"):
        sizes = values(pick(records, method=method), "m")
        several = f" (m = {', '.join(map(str, sizes))})" if method == "pf-npse" else ""
        named.append(METHOD_LABELS.get(method, method) + several)
    studies = (("sampler", "other samplers"), ("conservative", "conservative networks"))
    return named + [words for axis, words in studies if any(r["cell"][axis] for r in records)]


def _trained(record: Record) -> dict[str, Any]:
    drawn = ("training", "parameters", "n", "draws", "sampler")
    return {name: found for name, found in record["cell"].items() if name not in drawn}


def _lines(records: Sequence[Record]) -> list[Series]:
    return values(records, "series")


def _table(records: Sequence[Record], task: str, metric: str, unfolded: bool) -> str:
    """A task's means: a row for each method and budget, a column for each n."""
    sizes, budgets = values(records, "n"), values(records, "budget")
    apart: dict[tuple, list[Record]] = {}
    for record in records:
        apart.setdefault((series(record), value(record, "budget"), value(record, "n")), []).append(record)
    found = {at: point(own, metric) for at, own in apart.items()}
    best = {
        (b, n): min((p.mean for (_, budget, size), p in found.items() if p and (budget, size) == (b, n)), default=None)
        for b in budgets
        for n in sizes
    }

    def cell(line: Series, budget: int, n: int) -> str:
        p = found.get((line, budget, n))
        if p is None:
            return '<td class="none">–</td>'
        return f"<td{' class=best' if p.mean == best[budget, n] else ''}>{escaped(_mean(p))}</td>"

    rows = []
    for budget in budgets:
        for line in _lines(records):
            if any((line, budget, n) in found for n in sizes):
                cells = "".join(cell(line, budget, n) for n in sizes)
                rows.append(f"<tr><th scope=row>{escaped(line.label)}</th><td>{budget:,}</td>{cells}</tr>")
    head = "".join(f"<th scope=col>n = {n}</th>" for n in sizes)
    label, title = METRICS[metric][0], escaped(TASK_LABELS.get(task, task))
    return (
        f"<details{' open' if unfolded else ''}><summary>{title}: {escaped(label)}</summary><div class=scroll><table>"
        f"<caption class=hidden>{escaped(label)} on {title}</caption>"
        f"<thead><tr><th scope=col>method</th><th scope=col>budget</th>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div></details>"
    )


def _times(records: Sequence[Record]) -> str:
    rows = []
    for label in dict.fromkeys(line.label for line in _lines(records)):
        own = [r["seconds"] for r in records if "seconds" in r and series(r).label == label]
        if own:
            draw = sum(s.get("draw", 0.0) for s in own) / len(own)
            train = sum(s.get("train", 0.0) for s in own) / len(own)
            rows.append((label, f"{train:.1f}", f"{draw:.2f}"))
    if not rows:
        return ""
    head = ("method", "training, all seeds together", "drawing one cell, with compilation")
    unfolded = " open" if len(rows) < FOLDED_LINES else ""
    listing = f"<details{unfolded}><summary>By method</summary>{scrolled(table(head, rows))}</details>"
    return f"<section><h2>Seconds</h2>{listing}</section>"


def _payload(records: Sequence[Record]) -> dict[str, Any]:
    """The records as short as they can be: lists of numbers, with names looked up.

    A row is the index of what its training has in common, then its own numbers; `names` are those of both. What failed is
    apart: a reason and the rows that have it.
    """
    tasks, lines, metrics = values(records, "task"), _lines(records), measured(records)
    names = ["task", "budget", "training", "learning_rate", "validation"]
    names += ["line", "n", "parameters", "converged", *metrics, "seconds", "key"]
    trained: dict[tuple, int] = {}
    rows: list[list[Any]] = []
    failed: dict[str, list[int]] = {}
    for number, r in enumerate(records):
        cell, history = r["cell"], r.get("training", {})
        losses = (_short(history.get(name)) for name in ("learning_rate", "validation"))
        common = (tasks.index(cell["task"]), cell["budget"], cell["training"], *losses)
        rows.append([
            trained.setdefault(common, len(trained)),
            lines.index(series(r)), cell["n"], cell["parameters"], int(r["converged"]),
            *(_short(r["measures"].get(metric)) for metric in metrics),
            _short(r.get("seconds", {}).get("draw")), r["key"],
        ])  # fmt: skip
        if "failed" in r:
            failed.setdefault(r["failed"], []).append(number)
    return {
        "tasks": [TASK_LABELS.get(task, task) for task in tasks],
        "lines": [{**line._asdict(), "label": line.label} for line in lines],
        "sampler": sampler_label(PAPER_SAMPLER),
        "metrics": [{"name": name, "label": METRICS[name][0], "perfect": METRICS[name][1]} for name in metrics],
        "names": names,
        "trained": list(trained),
        "rows": rows,
        "failed": list(failed.items()),
    }


def _mean(p: Point) -> str:
    text = f"{round(p.mean, 3) + 0.0:.3f}"  # no minus before 0
    return text if p.spread != p.spread else f"{text} ± {p.spread:.3f}"


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.4g}")
