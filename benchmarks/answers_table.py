"""The table of docs/densities.md, from the lines that `answers.py` has written."""

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

Lines = Sequence[dict[str, Any]]
SAME = ("part", "task", "prior", "scores", "method", "sims", "n", "seed", "data")
"""What a result is of: of two that agree in these the later one counts."""


def read(path: Path) -> list[dict[str, Any]]:
    """The results that count."""
    lines = [{"sims": 10_000, **json.loads(line)} for line in path.read_text().splitlines()]
    return list({tuple(line.get(key) for key in SAME): line for line in lines}.values())


def table(path: Path) -> str:
    """In Markdown; a row for each kind of result that is there."""
    lines = read(path)
    rows = [row for of in (_density, _exact, _evidence, _other_priors, _missing) for row in of(lines)]
    return "\n".join(["| what | measured |", "|---|---|", *(f"| {what} | {found} |" for what, found in rows)])


def _grouped(lines: Lines, part: str, *keys: str) -> dict[tuple, Lines]:
    """The lines of a part by some of what they are of, in the order they came."""
    found: dict[tuple, list] = {}
    for line in lines:
        if line["part"] == part:
            found.setdefault(tuple(line.get(key) for key in keys), []).append(line)
    return found  # type: ignore[return-value]


def _largest(lines: Lines, key: str) -> str:
    return f"{max(abs(line[key]) for line in lines):.2f}"


def _mean(lines: Lines, key: str) -> str:
    values = [line[key] for line in lines]
    return f"{sum(values) / len(values):.3f}"


def _density(lines: Lines) -> list[tuple[str, str]]:
    return [
        (
            f"`log_prob`, exact scores of the Gaussian, n = 1,000, 1,000 points, {scores}",
            f"{_largest(some, 'largest')} nat off at most; maximum {_largest(some, 'map_off')} sd off; "
            f"{some[0]['cpu_seconds']:.1f} s of processor time",
        )
        for (scores,), some in _grouped(lines, "density", "scores").items()
    ]


def _exact(lines: Lines) -> list[tuple[str, str]]:
    return [
        (
            f"{task}, exact likelihood, n = {n}, data sets: {len(some)}",
            f"evidence {_largest(some, 'off')} nat off at most; maximum {_largest(some, 'map_off')} sd off at most",
        )
        for (task, n), some in _grouped(lines, "exact", "task", "n").items()
    ]


def _evidence(lines: Lines) -> list[tuple[str, str]]:
    return [
        (
            f"{task}, as learned by default from {sims:,} simulations, n = {n}, {_runs(some)}",
            f"evidence {_largest(some, 'off')} nat off at most, "
            f"{_mean_of(some, lambda line: abs(line['off'])):.2f} in the mean; "
            f"stated error {_mean_of(some, lambda line: line['error']):.2f}{_beside_the_mean(some)}",
        )
        for (task, n, sims), some in _grouped(lines, "evidence", "task", "n", "sims").items()
    ]


def _beside_the_mean(lines: Lines) -> str:
    """The maximum, where it was looked for, next to the mean."""
    some = [line for line in lines if "map_off" in line]
    if not some:
        return ""
    maximum, mean = (f"{_largest(some, key)} sd off at most" for key in ("map_off", "mean_off"))
    return f"; maximum {maximum}, mean {mean}"


def _other_priors(lines: Lines) -> list[tuple[str, str]]:
    rows = []
    for (task, prior), some in _grouped(lines, "other_prior", "task", "prior").items():
        what = f"{task}, n = 8, {WORDS[prior]}, {_runs(some)}"
        said = [line["said"] for line in some]
        if all(word == "refused" for word in said):
            rows.append((what, "refused"))
            continue
        found = f"C2ST {_with_spread(line['changed'] for line in some)}"
        if prior == "moderate":
            found += f"; {_beside_trained(some)}"
        rows.append((what, f"{found}; warned of in {said.count('warned')} of {len(some)}"))
    return rows


def _beside_trained(lines: Lines) -> str:
    """Next to a posterior trained under the other prior, and to the first one's own draws."""
    apart = _with_spread((line["changed"] - line["trained under it"] for line in lines), "+")
    trained, itself = (_with_spread(line[key] for line in lines) for key in ("trained under it", "reweighed"))
    own = _mean(lines, "own")
    return f"trained under it {trained}; difference {apart}; the change itself {itself}; under the first prior {own}"


WORDS = {
    "moderate": "a prior half as wide and one sd away",
    "far": "one half as wide and three sd away",
    "beyond": "one nine sd away",
}


def _missing(lines: Lines) -> list[tuple[str, str]]:
    return [
        (
            f"gaussian, n = 30, 30 % missing, {method}, {_runs(some)}",
            f"C2ST {_mean(some, 'c2st')}, at most {max(line['c2st'] for line in some):.3f}",
        )
        for (method,), some in _grouped(lines, "missing", "method").items()
    ]


def _runs(lines: Lines) -> str:
    seeds, sets = (len({line[key] for line in lines}) for key in ("seed", "data"))
    ended = "" if len(lines) == seeds * sets else f", {len(lines)} of them"
    return f"{seeds} training{'s' if seeds > 1 else ''} × {sets} data set{'s' if sets > 1 else ''}{ended}"


def _with_spread(values: Iterable[float], sign: str = "") -> str:
    """The mean, and its standard error by how much runs differ."""
    each = list(values)
    error = f" ± {statistics.stdev(each) / len(each) ** 0.5:.3f}" if len(each) > 1 else ""
    return f"{statistics.mean(each):{sign}.3f}{error}"


def _mean_of(lines: Lines, of: Callable[[dict], float]) -> float:
    return sum(of(line) for line in lines) / len(lines)
