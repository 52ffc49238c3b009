"""The board's page: who is right at n = 30, and at what cost; the same as n grows; and all numbers in tables.

It needs no script: the charts are SVG, and other n are chosen by buttons of the page itself.
"""

import math
from collections.abc import Sequence
from typing import Any

from scorefold.app.bench.points import METRICS, Series, measured, pick, series, values
from scorefold.app.bench.record import Record
from scorefold.app.bench.standings import Standing, comparable, cost, lacks, standing, standings
from scorefold.report.page import Words, escaped, scrolled, table, whole
from scorefold.report.svg_chart import Axis, Look, Mark, chart, key
from scorefold.report.words import TASK_LABELS

HEADLINE_N = 30
METHOD_LOOKS = {
    **{"f-npse": (0, 0), "nle": (4, 0)},
    **{"sbi-npse": (1, 0), "sbi-nle": (3, 1), "sbi-nre": (5, 3), "bayesflow": (6, 1)},
}
"""The page's colour of each method, and the shape of its first way of composing."""
OTHER_LOOK = (6, 3)
SHAPES = ("circle", "square", "triangle", "diamond")
UNFOLDED_TASKS = 3
"""With so many or fewer the tables of C2ST start open."""
C2ST_AXIS = Axis("C2ST", (0.5, 0.6, 0.7, 0.8, 0.9, 1.0), (0.48, 1.015))
TABLES = ("c2st", "sliced_wasserstein", "mmd2")


def board_page(every: Sequence[Record]) -> str:
    """The page of the board, from the records of one folder or several."""
    records = comparable(every)
    looks, tasks = looks_of(records), values(records, "task")
    few = len(tasks) <= UNFOLDED_TASKS
    return whole(
        "Many observations",
        [
            _lead(records, len(every) - len(records)),
            _at_what_cost(records, looks),
            _as_n_grows(records, looks),
            '<section><h2>Tables</h2><p class="quiet">Means over the cells that were finished. The best is bold. '
            "* some cells were not finished or failed.</p>",
            *(_task_table(pick(records, task=task), task, metric, few) for task in tasks for metric in TABLES),
            "</section>",
            _costs(records),
            _peers(records),
        ],
        {"kind": "board"},
    )


def looks_of(records: Sequence[Record]) -> dict[Series, Look]:
    """A colour for the method, a shape for its way of composing; posteriors that are not refined are hollow."""
    lines: dict[str, list[Series]] = {}
    for line in values(records, "series"):
        lines.setdefault(line.method, []).append(line)
    found = {}
    for method, own in lines.items():
        ways = list(dict.fromkeys(line.sampler for line in own))
        for line in own:
            colour, first = METHOD_LOOKS.get(method, OTHER_LOOK)
            shape = SHAPES[(first + ways.index(line.sampler)) % len(SHAPES)]
            found[line] = Look(f"var(--c{colour})", shape, hollow=line.setting == "default")
    return found


def _lead(records: Sequence[Record], more: int) -> str:
    lost = [r for r in records if lacks(r)]
    apart = f"; {more:,} more, of data sets that not all methods have, are left out" if more else ""
    facts = [
        ("Cells", f"{len(records):,}; {len(lost):,} of them failed or not finished{apart}"),
        ("Tasks", ", ".join(TASK_LABELS.get(task, task) for task in values(records, "task"))),
        ("Observations", ", ".join(f"{n:,}" for n in values(records, "n"))),
        ("Simulations", ", ".join(f"{budget:,}" for budget in values(records, "budget"))),
        ("Hardware", _hardware(records)),
    ]
    listed = "".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(text)}</dd></div>" for name, text in facts)
    return (
        '<p class="lead">Posteriors of many observations, by this package and by others, from the same simulations and against '
        "the same true posteriors. C2ST is the accuracy of telling draws from the truth: 0.5 is perfect, 1 is wholly wrong.</p>"
        f'<section><dl class="facts">{listed}</dl></section>'
    )


def _hardware(records: Sequence[Record]) -> str:
    """The machines, without how many programs each had at once, which the table of seconds has."""
    every = list(dict.fromkeys(str(r.get("device", "unknown")) for r in records))
    machines = list(dict.fromkeys(device.partition(", one of up to")[0] for device in every))
    busy = ", each shared by several programs" if any("one of up to" in device for device in every) else ""
    several = ". Seconds on different machines do not compare." if len(machines) > 1 else ""
    return f"{'; '.join(machines)}{busy}{several}"


def _at_what_cost(records: Sequence[Record], looks: dict[Series, Look]) -> str:
    """Accuracy against seconds: a pane for each n, of which one is shown."""
    sizes = values(records, "n")
    shown = HEADLINE_N if HEADLINE_N in sizes else max(sizes, key=lambda n: (len(values(pick(records, n=n), "series")), n))
    tabs, panes = [], []
    for n in sizes:
        chosen = " checked" if n == shown else ""
        tabs.append(f'<input type="radio" name="n" id="n{n}" class="tab"{chosen}><label for="n{n}">n = {n:,}</label>')
        panes.append(f'<div class="pane" data-n="{n}">{_pane(records, looks, n)}</div>')
    rules = "".join(f'#n{n}:checked~.pane[data-n="{n}"]{{display:block}}' for n in sizes)
    return (
        f'<section class="board"><style>{rules}</style><h2>Who is right, and at what cost</h2>'
        f'<div class="tabs" role="group" aria-label="Observations">{"".join(tabs)}{"".join(panes)}</div></section>'
    )


def _pane(records: Sequence[Record], looks: dict[Series, Look], n: int) -> str:
    at_n = pick(records, n=n)
    every = standings(records, n)
    ticks = _seconds_ticks([one for task in values(at_n, "task") for one in standings(records, n, task)] + every)
    rows = []
    for one in every:
        name = f"{key(looks[one.line])}{escaped(one.line.label)}"
        lost = f"{one.cells - one.finished} of {one.cells} {one.word}" if one.word else ""
        numbers = "".join(f"<td>{text}</td>" for text in (_number(one.mean, 2), _number(one.seconds, 0), one.tasks))
        last = f"<td class=words>{escaped(lost)}</td>" if any(other.word for other in every) else ""
        rows.append(f"<tr><th scope=row>{name}</th>{numbers}{last}</tr>")
    head = "".join(f"<th scope=col>{word}</th>" for word in ("method", "C2ST", "seconds", "tasks"))
    head += "<th scope=col class=words>without draws</th>" if any(one.word for one in every) else ""
    listing = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    panels = [_panel("All tasks", every, looks, ticks, n)]
    panels += [
        _panel(TASK_LABELS.get(task, task), standings(records, n, task), looks, ticks, n) for task in values(at_n, "task")
    ]
    return (
        f'<div class="overall">{panels[0]}{scrolled(listing)}</div><div class="panels">{"".join(panels[1:])}</div>'
        '<p class="quiet">Down is more accurate, left is faster; dotted: a perfect posterior. Seconds are for one training and '
        "one data set. Hollow: ours without refining, one training for any data set. Over all tasks, "
        "cells without draws count as C2ST 1; "
        "methods that were run on different tasks cannot be compared there.</p>"
    )


def _panel(title: str, found: Sequence[Standing], looks: dict[Series, Look], ticks: Sequence[float], n: int) -> str:
    marks = [
        Mark(looks[one.line], [one.seconds], [one.mean], [f"{one.line.label}: C2ST {one.mean:.2f}, {one.seconds:.0f} s"])
        for one in found
        if one.mean is not None and one.seconds is not None
    ]
    drawn = chart(marks, f"{title}, n = {n}: C2ST against seconds", Axis("seconds", ticks), C2ST_AXIS, 0.5)
    absent = [f"{one.line.label}: {one.word}" for one in found if one.mean is None and one.word]
    said = f'<p class="quiet">{escaped("; ".join(absent))}</p>' if absent else ""
    return f'<div class="panel"><h3>{escaped(title)}</h3>{drawn}{said}</div>'


def _seconds_ticks(found: Sequence[Standing]) -> list[float]:
    """Powers of ten around all seconds."""
    spent = [one.seconds for one in found if one.seconds]
    low, high = (math.log10(min(spent)), math.log10(max(spent))) if spent else (0, 2)
    return [10.0**power for power in range(math.floor(low), max(math.ceil(high), math.floor(low) + 1) + 1)]


def _as_n_grows(records: Sequence[Record], looks: dict[Series, Look]) -> str:
    sizes = values(records, "n")
    panels = []
    for task in values(records, "task"):
        own = pick(records, task=task)
        marks = []
        for line in values(own, "series"):
            at = {n: standing(mine).mean for n in sizes if (mine := pick(own, series=line, n=n))}
            known = {n: mean for n, mean in at.items() if mean is not None}
            if known:
                words = [f"{line.label}, n = {n:,}: C2ST {mean:.2f}" for n, mean in known.items()]
                marks.append(Mark(looks[line], [*map(float, known)], list(known.values()), words))
        title = TASK_LABELS.get(task, task)
        drawn = chart(marks, f"{title}: C2ST against n", Axis("observations, n", [*map(float, sizes)]), C2ST_AXIS, 0.5)
        panels.append(f'<div class="panel"><h3>{escaped(title)}</h3>{drawn}</div>')
    names = "".join(f"<li>{key(look)}{escaped(line.label)}</li>" for line, look in looks.items())
    return (
        f'<section class="board"><h2>As n grows</h2><ul class="keys">{names}</ul>'
        f'<div class="panels">{"".join(panels)}</div></section>'
    )


def _task_table(records: Sequence[Record], task: str, metric: str, few: bool) -> str:
    if metric not in measured(records):
        return ""
    sizes = values(records, "n")
    found = {(one.line, n): one for n in sizes for one in standings(records, n, task, metric)}
    best = {n: min((o.mean for (_, at), o in found.items() if at == n and o.mean is not None), default=None) for n in sizes}

    def cell(line: Series, n: int) -> str:
        one = found.get((line, n))
        if one is None or (one.mean is None and not one.word):
            return '<td class="none">–</td>'
        if one.mean is None:
            return f'<td class="none">{escaped(one.word)}</td>'
        return f"<td{' class=best' if one.mean == best[n] else ''}>{one.mean:.3f}{'*' if one.word else ''}</td>"

    rows = "".join(
        f"<tr><th scope=row>{escaped(line.label)}</th>{''.join(cell(line, n) for n in sizes)}</tr>"
        for line in values(records, "series")
    )
    head = "".join(f"<th scope=col>n = {n:,}</th>" for n in sizes)
    name, unfolded = (
        escaped(f"{TASK_LABELS.get(task, task)}: {METRICS[metric][0]}"),
        " open" if few and metric == "c2st" else "",
    )
    grid = f"<table><thead><tr><th scope=col>method</th>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<details{unfolded}><summary>{name}</summary>{scrolled(grid)}</details>"


def _costs(records: Sequence[Record]) -> str:
    rows = []
    for line in values(records, "series"):
        own = [r for r in records if series(r) == line and cost(r) is not None]
        if own:
            parts = [[r["seconds"].get(name) for r in own] for name in ("train", "refine", "draw")]
            means = [sum(v for v in part if v is not None) / len(own) if any(part) else None for part in parts]
            memory = max((r.get("memory", {}).get("process", 0) for r in own), default=0)
            devices = "; ".join(dict.fromkeys(str(r.get("device", "unknown")) for r in own))
            rows.append((line.label, *(_number(mean, 1) for mean in means), f"{memory:,}" if memory else "–", Words(devices)))
    head = ("method", "training", "refining", "drawing", "memory of the process, MB", "on")
    return (
        '<section><h2>Seconds and memory</h2><p class="quiet">Compare seconds only where the last column is the same. Those of '
        "several programs at once are longer than a program takes alone. Ours include compilation.</p>"
        f"{scrolled(table(head, rows))}</section>"
    )


def _peers(records: Sequence[Record]) -> str:
    """Versions and settings that the other packages ran with."""
    told: dict[str, Any] = {}
    for record in records:
        for name, entries in record.get("peer", {}).items():
            words = "; ".join(f"{what}: {value}" for what, value in entries.items())
            told.setdefault(f"{record['cell']['method']}, {name}", words)
    if not told:
        return ""
    rows = [(name, Words(words)) for name, words in told.items()]
    return f"<section><h2>How the others were run</h2>{scrolled(table(('', ''), rows))}</section>"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
