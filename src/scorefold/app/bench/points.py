"""Records → points: a mean over the cells that differ in nothing but their seeds, and its spread.

The spread is the standard deviation over trainings of a training's mean over its parameter draws; with one training there is
none.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from scorefold.app.bench.bench_plan import SCORE_METHODS
from scorefold.app.bench.record import Record

METRICS = {
    "mmd2": ("squared MMD", 0.0),
    "c2st": ("C2ST", 0.5),
    "shift": ("shift of the means, posterior sd", 0.0),
    "sd_ratio": ("ratio of the sds", 1.0),
    "sliced_wasserstein": ("sliced Wasserstein distance, posterior sd", 0.0),
}
"""What each is called, and its value for a perfect posterior."""
METHOD_LABELS = {
    "f-npse": "F-NPSE",
    "pf-npse": "PF-NPSE",
    "npse": "NPSE",
    "npe": "NPE",
    "nle": "NLE",
    "nre": "NRE",
    "abc": "ABC",
    "sbi-npse": "sbi NPSE",
    "sbi-nle": "sbi NLE",
    "sbi-nre": "sbi NRE",
    "bayesflow": "BayesFlow",
}
PAPER_SAMPLER = "langevin a=0.3 L=5"
"""What the paper's setting draws with where no sampler is named."""


class Series(NamedTuple):
    """What one line shows: a method and how it was set."""

    method: str
    setting: str
    m: int
    conservative: bool
    sampler: str

    @property
    def label(self) -> str:
        """The method and its settings in words."""
        name = METHOD_LABELS.get(self.method, self.method)
        parts = [f"{name} (m = {self.m})" if self.method == "pf-npse" else name]
        if self.method in SCORE_METHODS or self.setting == "refined":
            parts.append(self.setting)
        if self.conservative:
            parts.append("conservative")
        if self.sampler:
            parts.append(sampler_label(self.sampler))
        return ", ".join(parts)


class Point(NamedTuple):
    """Some cells in one number."""

    mean: float
    spread: float
    """nan with fewer than two trainings."""
    cells: int


def sampler_label(name: str) -> str:
    """A sampler of the study, as the paper calls it: annealed Langevin is Algorithm 1, Gaussian transitions are Algorithm 2."""
    return "Algorithm 2" if name == "transitions" else name.replace("langevin a=", "Algorithm 1, a = ").replace(" L=", ", L = ")


def series(record: Record) -> Series:
    """The line a record belongs to."""
    cell = record["cell"]
    return Series(cell["method"], cell["setting"], cell["m"], cell["conservative"], cell["sampler"])


def measured(records: Iterable[Record]) -> list[str]:
    """The metrics that some record has a number for, in the order of METRICS."""
    found = {name for record in records for name, number in record["measures"].items() if number is not None}
    return [name for name in METRICS if name in found]


def value(record: Record, axis: str) -> Any:
    """What a record has on an axis: of its cell, or "series"."""
    return series(record) if axis == "series" else record["cell"][axis]


def values(records: Iterable[Record], axis: str) -> list[Any]:
    """All there are, numbers in order, others as they come."""
    found = list(dict.fromkeys(value(record, axis) for record in records))
    return sorted(found) if found and isinstance(found[0], int | float) else found


def pick(records: Iterable[Record], **wanted: Any) -> list[Record]:
    """Those with these values."""
    return [record for record in records if all(value(record, axis) == v for axis, v in wanted.items())]


def point(records: Sequence[Record], metric: str) -> Point | None:
    """Mean and spread, or nothing where no cell has the measure."""
    trainings: dict[int, list[float]] = {}
    for record in records:
        found = record["measures"].get(metric)
        if found is not None:
            trainings.setdefault(record["cell"]["training"], []).append(found)
    if not trainings:
        return None
    means = [float(np.mean(own)) for own in trainings.values()]
    spread = float(np.std(means, ddof=1)) if len(means) > 1 else float("nan")
    every = [v for own in trainings.values() for v in own]
    return Point(float(np.mean(every)), spread, len(every))


def points(records: Sequence[Record], axis: str, metric: str) -> dict[Any, Point]:
    """A point for every value on an axis."""
    apart: dict[Any, list[Record]] = {}
    for record in records:
        apart.setdefault(value(record, axis), []).append(record)
    found = {x: point(apart[x], metric) for x in sorted(apart)}
    return {x: p for x, p in found.items() if p is not None}
