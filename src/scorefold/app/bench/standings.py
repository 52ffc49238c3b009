"""Records of several folders → how each method stands: its C2ST and its seconds, for a task and n, or over all tasks.

Seconds are those of one training and of one data set: training, refining and drawing; simulations from the prior are given to
all. A cell without draws (failed, refused, or not finished) has a word instead of a measure. In a mean over tasks it counts as
wholly wrong, C2ST 1, so that a method does not gain by leaving hard tasks out.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scorefold.app.bench.points import METRICS, Series, pick, series, values
from scorefold.app.bench.record import RECORDS, Record, cell_of, read
from scorefold.errors import ScorefoldError

WHOLLY_WRONG = 1.0
UNTIMED = "simulate"


class Standing(NamedTuple):
    """One method on one task at one n, or on all tasks."""

    line: Series
    mean: float | None
    """Of the measure, over the cells that have one; over tasks, of the tasks."""
    seconds: float | None
    """Over the cells that were finished."""
    cells: int
    finished: int
    tasks: int
    word: str
    """Why cells are missing, where some are."""


def gathered(folders: Iterable[Path]) -> list[Record]:
    """The records of all folders, each checked against its description; of a cell that several have, the first."""
    found: dict[str, Record] = {}
    for folder in folders:
        for record in read(folder / RECORDS):
            found.setdefault(cell_of(record).key, record)
    if not found:
        raise ScorefoldError(f"expected folders with records in {RECORDS}; got none with any")
    return list(found.values())


def comparable(records: Sequence[Record]) -> list[Record]:
    """Of each task and n the records of those trainings and data sets that all methods have there, where there are any.

    Data sets differ more than methods do: a mean over the easy ones would be no comparison.
    """
    kept = []
    for task in values(records, "task"):
        for n in values(pick(records, task=task), "n"):
            here = pick(records, task=task, n=n)
            by_method = [{_data(r) for r in pick(here, series=line)} for line in values(here, "series")]
            shared = set.intersection(*by_method)
            kept += [r for r in here if _data(r) in shared or not shared]
    return kept


def _data(record: Record) -> tuple[int, int]:
    """The training and the data set."""
    return record["cell"]["training"], record["cell"]["parameters"]


def cost(record: Record) -> float | None:
    """Seconds for one data set, its training included."""
    seconds = record.get("seconds", {})
    if "draw" not in seconds:
        return None
    shared = seconds.get("train", 0.0) * (1 / len(record["cell"]["together"]) - 1)
    return sum(value for name, value in seconds.items() if name != UNTIMED) + shared


def word(record: Record) -> str:
    """Why there is no measure: failed or not finished."""
    return record.get("failed", "failed").partition(":")[0] if lacks(record) else ""


def lacks(record: Record) -> bool:
    """Whether the cell has no draws."""
    return record["measures"].get("c2st") is None or "failed" in record


def standing(records: Sequence[Record], metric: str = "c2st") -> Standing:
    """How a method stands by records that share method, task and n."""
    there = [r for r in records if not lacks(r)]
    found = [v for r in there if (v := r["measures"].get(metric)) is not None]
    spent = [s for r in there if (s := cost(r)) is not None]
    words = list(dict.fromkeys(filter(None, map(word, records))))
    return Standing(
        series(records[0]), _mean(found), _mean(spent), len(records), len(there), 1, " and ".join(words)[:40]
    )  # fmt: skip


def standings(records: Sequence[Record], n: int, task: str | None = None, metric: str = "c2st") -> list[Standing]:
    """All methods at one n, the best first, those without a measure last; `task` None: over all tasks."""
    own = pick(records, n=n) if task is None else pick(records, n=n, task=task)
    found = []
    for line in values(own, "series"):
        mine = pick(own, series=line)
        apart = [standing(pick(mine, task=name), metric) for name in values(mine, "task")]
        found.append(apart[0] if task is not None else _over_tasks(apart, metric))
    return sorted(found, key=lambda one: (one.mean is None, one.mean, one.seconds or 0.0))


def _over_tasks(apart: Sequence[Standing], metric: str) -> Standing:
    means = [_with_lost(one, metric) for one in apart]
    known = [mean for mean in means if mean is not None]
    words = " and ".join(dict.fromkeys(one.word for one in apart if one.word))
    return Standing(
        apart[0].line,
        _mean(known),
        _mean([one.seconds for one in apart if one.seconds is not None]),
        sum(one.cells for one in apart),
        sum(one.finished for one in apart),
        len(apart),
        words,
    )


def _with_lost(one: Standing, metric: str) -> float | None:
    """The mean with lost cells as wholly wrong, which C2ST alone has a number for."""
    if metric != "c2st" or one.finished == one.cells:
        return one.mean
    return (one.finished * (one.mean or 0.0) + (one.cells - one.finished) * WHOLLY_WRONG) / one.cells


def markdown(records: Sequence[Record], sizes: Sequence[int], metric: str = "c2st", tasks: Sequence[str] = ()) -> str:
    """A table for a README: a row for each method, a column for each task, and n = a / b / c in a cell."""
    own = [r for r in records if r["cell"]["n"] in sizes and (not tasks or r["cell"]["task"] in tasks)]
    if not own:
        raise ScorefoldError(f"expected records with n = {', '.join(map(str, sizes))}; got none")
    columns = values(own, "task")
    head = [f"{METRICS[metric][0]}, n = {' / '.join(f'{n:,}' for n in sizes)}", *columns, "seconds"]
    rows = [head, ["---"] * len(head)]
    for line in values(own, "series"):
        mine = pick(own, series=line)
        cells = [" / ".join(_shown(pick(mine, task=task, n=n), metric) for n in sizes) for task in columns]
        spent = [s for r in mine if (s := cost(r)) is not None and not lacks(r)]
        rows.append([line.label, *cells, f"{np.mean(spent):.0f}" if spent else "–"])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _shown(records: Sequence[Record], metric: str) -> str:
    if not records:
        return "–"
    one = standing(records, metric)
    return one.word or "–" if one.mean is None else f"{one.mean:.2f}" + ("*" if one.word else "")


def _mean(numbers: Sequence[float]) -> float | None:
    return float(np.mean(numbers)) if numbers else None
