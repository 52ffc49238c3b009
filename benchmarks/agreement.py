"""Do the records of a benchmark folder agree with what the paper says? For each statement the numbers, and a verdict by rule.

    python benchmarks/agreement.py DIR                      # Markdown to the terminal
    python benchmarks/agreement.py DIR --out agreement.md

The statements are those of "Compositional score modeling for simulation-based inference" (Geffner, Papamakarios and Mnih, 2023)
and one of ours. A number is a mean ± standard error over trainings, of a training's mean over its parameter draws. Methods are
compared on the data sets that all of them have, so that differences are paired.
"""

import argparse
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scorefold.app.bench.bench_plan import BASELINES, PAPER_SET_SIZE
from scorefold.app.bench.points import METHOD_LABELS, METRICS, pick, values
from scorefold.app.bench.record import RECORDS, Record, read
from scorefold.report.words import TASK_LABELS

MEASURES = ("c2st", "mmd2")
SETTINGS = ("paper", "default")
SCORES = ("f-npse", "pf-npse", "npse")
RIVALS = ("npe", "nre")
"""What the paper compares with; NLE is ours."""
CONSIDERABLE = 0.05
"""A difference that matters, in C2ST and in squared MMD."""
FEWEST_CELLS, FEWEST_TASKS, FEWEST_TRAININGS = 4, 2, 3
STUDY_BUDGET, STUDY_N, SMALL_N = 10_000, 22, 10
AGREES, DISAGREES, UNDECIDED, FEW = "agrees", "does not agree", "undecided", "not enough records"

RULES = f"""\
- A **cell** is a task, a budget and an n. Methods meet in it on the data sets that all of them have, with {FEWEST_TRAININGS}
  trainings at least; a method that lacks some of the trainings of those a statement is about does not take part. A method is
  *near the best* if its mean exceeds the best one's by no more than one standard error of the paired difference. Where all are
  near the best the cell is undecided, and not counted.
- A statement about **most cases** agrees if it holds in more than half of the cells counted, does not agree if in fewer than
  half; below {FEWEST_CELLS} cells, or {FEWEST_TASKS} tasks for the study of m, there are not enough records.
- A statement about a **difference** names a range. It agrees if the mean ± 2 standard errors lies within the range, does not
  agree if outside, and is undecided otherwise; below {FEWEST_TASKS} tasks there are not enough records. *Considerable* is more
  than {CONSIDERABLE:g}, in C2ST as in squared MMD. What should hold on any task must agree on each.
- NPE, NRE and NLE come in one setting, this library's own, which has a Gaussian base and, but for NRE, three flows: what the
  paper's setting meets here is stronger than what it met in the paper. The paper has no NLE.
- The paper trains for up to 20,000 epochs, its setting here for up to 20,000 steps."""

HEALTH = """\
Cells by what the sampler said of them, each in one column at most. All count above and below; where the sampler refused its
draws they count as wholly wrong."""

Seed = tuple[int, int]
"""A training and its parameter draw."""
Values = dict[Seed, float]


class Estimate(NamedTuple):
    """A mean over trainings and its standard error, nan with one."""

    mean: float
    error: float
    trainings: int

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if math.isnan(self.error) else f"{self.mean:.3f} ± {self.error:.3f}"

    @property
    def signed(self) -> str:
        """As a difference."""
        return f"{self.mean:+.3f}" if math.isnan(self.error) else f"{self.mean:+.3f} ± {self.error:.3f}"


class Finding(NamedTuple):
    """A statement with its verdict, for one setting and measure, and the tables behind it."""

    statement: str
    setting: str
    measure: str
    verdict: str
    why: str
    details: str = ""


# Numbers


def measured(records: Iterable[Record], measure: str) -> Values:
    """The records' values by their seeds."""
    found = {(r["cell"]["training"], r["cell"]["parameters"]): r["measures"].get(measure) for r in records}
    return {seed: value for seed, value in found.items() if value is not None}


def estimate(found: Mapping[Seed, float]) -> Estimate:
    """Over trainings, of their means."""
    apart: dict[int, list[float]] = {}
    for (training, _), value in found.items():
        apart.setdefault(training, []).append(value)
    means = [float(np.mean(own)) for own in apart.values()]
    error = float(np.std(means, ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else math.nan
    return Estimate(float(np.mean(means)) if means else math.nan, error, len(means))


def paired(a: Mapping[Seed, float], b: Mapping[Seed, float]) -> Values:
    """a - b where both are."""
    return {seed: a[seed] - b[seed] for seed in a if seed in b}


class Contest(NamedTuple):
    """Some methods on the same data sets."""

    means: dict[str, Estimate]
    best: str
    near: frozenset[str]
    """Those whose paired difference to the best is within one standard error; the best is one of them."""

    @property
    def decided(self) -> bool:
        """Whether one of them at least is worse than the best."""
        return len(self.near) < len(self.means)


def contest(lines: Mapping[str, Values]) -> Contest | None:
    """Who is best on the seeds that all have; none with fewer than two methods or trainings."""
    lines = {name: own for name, own in lines.items() if own}
    if len(lines) < 2:
        return None
    shared = set.intersection(*(set(own) for own in lines.values()))
    if len({training for training, _ in shared}) < FEWEST_TRAININGS:
        return None
    on = {name: {seed: own[seed] for seed in sorted(shared)} for name, own in lines.items()}
    means = {name: estimate(own) for name, own in on.items()}
    best = min(means, key=lambda name: means[name].mean)
    excess = {name: estimate(paired(own, on[best])) for name, own in on.items()}
    return Contest(means, best, frozenset(name for name, e in excess.items() if e.mean <= e.error))


class Claim(NamedTuple):
    """That one of the winners is the best of some methods, in most cells."""

    statement: str
    needed: tuple[str, ...]
    others: tuple[str, ...]
    """Of which one at least."""
    winners: tuple[str, ...]
    largest: int = 10**9
    """n at most."""


COMPOSED = ("f-npse", "pf-npse")
CLAIMS = (
    Claim("The best method is F-NPSE or PF-NPSE (m = 6) in most cases", COMPOSED, ("npse", *RIVALS), COMPOSED),
    Claim("PF-NPSE (m = 6) is the best of all methods in most cases", COMPOSED, ("npse", *RIVALS), ("pf-npse",)),
    Claim("PF-NPSE (m = 6) is better than both F-NPSE and NPSE in most cases", SCORES, (), ("pf-npse",)),
    Claim("PF-NPSE (m = 6) typically outperforms NPE and NRE", ("pf-npse",), RIVALS, ("pf-npse",)),
    Claim(f"For n ≤ {SMALL_N}, F-NPSE is better than PF-NPSE (m = 6)", COMPOSED, (), ("f-npse",), SMALL_N),
    Claim("(not in the paper) F-NPSE or PF-NPSE (m = 6) is better than NLE in most cases", (*COMPOSED, "nle"), (), COMPOSED),
)


# Verdicts


def most(held: int, cells: int, fewest: int = FEWEST_CELLS) -> str:
    """Of a statement about most cases."""
    return FEW if cells < fewest else UNDECIDED if 2 * held == cells else AGREES if 2 * held > cells else DISAGREES


def within(found: Estimate, low: float, high: float) -> str:
    """Of a difference that should be between low and high."""
    if math.isnan(found.error):
        return FEW
    first, last = found.mean - 2 * found.error, found.mean + 2 * found.error
    return AGREES if low <= first and last <= high else DISAGREES if last < low or first > high else UNDECIDED


def every(verdicts: Sequence[str], fewest: int = FEWEST_TASKS) -> str:
    """That each agrees; one that does not is enough."""
    told = [verdict for verdict in verdicts if verdict != FEW]
    if len(told) < fewest:
        return FEW
    return next((verdict for verdict in (DISAGREES, UNDECIDED) if verdict in told), AGREES)


def over_tasks(tasks: Mapping[str, Estimate]) -> Estimate:
    """The mean of the tasks' means, which are independent; an error only with enough tasks."""
    told = [one for one in tasks.values() if not math.isnan(one.error)]
    if len(told) < FEWEST_TASKS:
        return Estimate(math.nan, math.nan, 0)
    error = math.sqrt(sum(one.error**2 for one in told)) / len(told)
    return Estimate(float(np.mean([one.mean for one in told])), error, sum(one.trainings for one in told))


# Statements


def methods_of(records: Sequence[Record], setting: str) -> list[Record]:
    """Every method once: score methods in the setting, PF-NPSE with m = 6, the others as they are."""
    return [
        r
        for r in plain(records)
        if (r["cell"]["setting"] == setting if r["cell"]["method"] in SCORES else r["cell"]["method"] in BASELINES)
        and (r["cell"]["method"] != "pf-npse" or r["cell"]["m"] == PAPER_SET_SIZE)
    ]


def plain(records: Iterable[Record]) -> list[Record]:
    """Without the studies of samplers and of conservative networks."""
    return [r for r in records if not r["cell"]["sampler"] and not r["cell"]["conservative"]]


def lines_at(records: Iterable[Record], measure: str, axis: str, *at: str) -> dict[tuple, dict]:
    """Values apart by the axes `at`, and there by another axis."""
    apart: dict[tuple, dict] = {}
    for record in records:
        cell = record["cell"]
        apart.setdefault(tuple(cell[name] for name in at), {}).setdefault(cell[axis], []).append(record)
    return {place: {x: measured(own, measure) for x, own in lines.items()} for place, lines in apart.items()}


def who_is_best(records: Sequence[Record], setting: str, measure: str) -> list[Finding]:
    """The claims of who is best, cell by cell."""
    places = lines_at(methods_of(records, setting), measure, "method", "task", "budget", "n")
    findings = []
    for claim in CLAIMS:
        contests = {
            place: found
            for place, lines in places.items()
            if place[2] <= claim.largest
            and all(name in lines for name in claim.needed)
            and ((others := complete(lines, claim)) or not claim.others)
            and (found := contest({name: lines[name] for name in (*claim.needed, *others)}))
        }
        counted = [one for one in contests.values() if one.decided]
        held = sum(one.best in claim.winners for one in counted)
        undecided = len(contests) - len(counted)
        why = f"{held} of {len(counted)} cells" + (f"; {undecided} undecided" if undecided else "")
        findings.append(Finding(
            claim.statement, setting, measure, most(held, len(counted)), why if contests else "no records", ranking(contests)
        ))  # fmt: skip
    return findings


def complete(lines: Mapping[str, Values], claim: Claim) -> list[str]:
    """The others that have every training which all of the needed have."""
    wanted = set.intersection(*({training for training, _ in lines[name]} for name in claim.needed))
    return [name for name in claim.others if wanted <= {training for training, _ in lines.get(name, {})}]


def ranking(contests: Mapping[tuple, Contest]) -> str:
    """Who was best how often, and near the best, for each n; undecided cells left out."""
    counted = {place: one for place, one in contests.items() if one.decided}
    if not counted:
        return ""
    sizes = sorted({place[2] for place in counted})
    names = [name for name in METHOD_LABELS if any(name in one.means for one in counted.values())]

    def entry(name: str, places: Iterable[tuple]) -> str:
        own = [counted[place] for place in places if name in counted[place].means]
        return f"{sum(c.best == name for c in own)} ({sum(name in c.near for c in own)}) of {len(own)}" if own else "–"

    rows = [
        [METHOD_LABELS[name], *(entry(name, [p for p in counted if p[2] == n]) for n in sizes), entry(name, counted)]
        for name in names
    ]
    return grid(["best (near the best) of cells", *(f"n = {n}" for n in sizes), "all"], rows)


def more_simulations(records: Sequence[Record], setting: str, measure: str) -> list[Finding]:
    """That a larger budget helps: each one against the one below it."""
    counts: dict[str, list[int]] = {}
    for (method, _, _), lines in lines_at(methods_of(records, setting), measure, "budget", "method", "task", "n").items():
        for few, many in zip(sorted(lines), sorted(lines)[1:], strict=False):
            change = estimate(paired(lines[many], lines[few]))
            if abs(change.mean) > change.error:
                counts.setdefault(method, []).append(change.mean < 0)
    every_one = [better for own in counts.values() for better in own]
    rows = [[METHOD_LABELS[name], f"{sum(counts[name])} of {len(counts[name])}"] for name in METHOD_LABELS if name in counts]
    return [Finding(
        "Performance tends to improve with the budget", setting, measure, most(sum(every_one), len(every_one)),
        f"better in {sum(every_one)} of {len(every_one)} changes larger than their error" if every_one else "no records",
        grid(["method", "better with the next larger budget"], rows) if rows else "",
    )]  # fmt: skip


def best_m(records: Sequence[Record], setting: str, measure: str) -> list[Finding]:
    """That m = 3 or 6 is best at n = 22; m = 1 is F-NPSE."""
    own = [r for r in pick(plain(records), setting=setting, budget=STUDY_BUDGET, n=STUDY_N) if r["cell"]["method"] in COMPOSED]
    places = lines_at(own, measure, "m", "task")
    contests = {
        task: found
        for (task,), lines in places.items()
        if any(m in lines for m in (3, 6)) and 1 in lines and max(lines) > 6
        if (found := contest({str(m): lines[m] for m in sorted(lines)}))
    }
    counted = [one for one in contests.values() if one.decided]
    held = sum(one.best in ("3", "6") for one in counted)
    sizes = sorted({int(m) for one in contests.values() for m in one.means})
    rows = [[TASK_LABELS.get(t, t), *(marked(one, str(m)) for m in sizes)] for t, one in contests.items()]
    return [Finding(
        f"At n = {STUDY_N} the best m is 3 or 6 (budget {STUDY_BUDGET:,})", setting, measure,
        most(held, len(counted), FEWEST_TASKS), f"{held} of {len(counted)} tasks" if contests else "no records",
        grid(["task (best bold, near it starred)", *(f"m = {m}" for m in sizes)], rows) if contests else "",
    )]  # fmt: skip


def marked(found: Contest, name: str) -> str:
    """A mean, bold if it is the best and with a star if near it."""
    if name not in found.means:
        return "–"
    text = str(found.means[name])
    return f"**{text}**" if name == found.best else f"{text} *" if name in found.near else text


def samplers(records: Sequence[Record], setting: str, measure: str) -> list[Finding]:
    """Every other sampler against Algorithm 1 with a = 0.3, L = 5, which only the paper's setting has."""
    if setting != "paper":
        return []
    own = pick(records, method="pf-npse", m=PAPER_SET_SIZE, conservative=False, setting="paper")
    others = [name for name in values(own, "sampler") if name]
    changes = {name: differences(own, measure, "sampler", name, "", ("budget",)) for name in others}
    second, overall = changes.get("transitions", {}), over_tasks(by_task(changes.get("transitions", {})))
    enough = [name for name in others if name != "transitions" and "L=2" not in name]
    found = [one for name in enough for one in by_task(changes[name]).values()]
    largest = f"{max(abs(one.mean) for one in found):.3f} at most, of a task's mean" if found else "no records"
    listed = [f"{name} minus a=0.3 L=5:\n\n{difference_table(changes[name])}" for name in others if name != "transitions"]
    return [
        Finding("Algorithm 2 is slightly worse than Langevin: by more than 0, not considerably", setting, measure,
                within(overall, 0.0, CONSIDERABLE), said(overall, second), difference_table(second)),
        Finding("With 5 Langevin steps a level or more (not L=2), a and L make no considerable difference on any task", setting,
                measure, every([within(one, -CONSIDERABLE, CONSIDERABLE) for one in found]), largest, "\n\n".join(listed)),
    ]  # fmt: skip


def conservative(records: Sequence[Record], setting: str, measure: str) -> list[Finding]:
    """Networks that are gradients against those that are not, otherwise the same."""
    own = [r for r in pick(records, setting=setting, sampler="") if r["cell"]["method"] in SCORES]
    changes = differences(own, measure, "conservative", True, False, ("method", "m", "budget"))
    tasks = by_task(changes)
    return [Finding(
        "Conservative networks make no considerable difference on any task", setting, measure,
        every([within(one, -CONSIDERABLE, CONSIDERABLE) for one in tasks.values()]), said(over_tasks(tasks), changes),
        difference_table(changes, apart=True),
    )]  # fmt: skip


def ours(records: Sequence[Record], measure: str) -> list[Finding]:
    """The default setting against the paper's."""
    own = [r for r in plain(records) if r["cell"]["method"] in SCORES and r["cell"]["setting"] in SETTINGS]
    changes = differences(own, measure, "setting", "default", "paper", ("method", "m", "budget"))
    overall = over_tasks(by_task(changes))
    return [Finding(
        "(ours) The default setting is better than the paper's", "default − paper", measure,
        within(overall, -math.inf, 0.0), said(overall, changes), difference_table(changes, apart=True),
    )]  # fmt: skip


# Paired differences: keys are a task, an n and what else tells the cells apart


Changes = dict[tuple, Values]


def differences(
    records: Iterable[Record], measure: str, axis: str, one: object, other: object, also: tuple[str, ...]
) -> Changes:
    """one - other wherever both are, by task, n and the other axes."""
    places = lines_at(records, measure, axis, "task", "n", *also)
    found = {place: paired(lines.get(one, {}), lines.get(other, {})) for place, lines in places.items()}
    return {place: own for place, own in found.items() if own}


def by_task(changes: Changes) -> dict[str, Estimate]:
    """Of all of a task's differences: a training is one unit, whatever it was used for."""
    tasks = dict.fromkeys(place[0] for place in changes)
    return {task: estimate(together(changes, [place for place in changes if place[0] == task])) for task in tasks}


def together(changes: Changes, places: Iterable[tuple]) -> Values:
    """The differences of some places, each seed's mean over them."""
    apart: dict[Seed, list[float]] = {}
    for place in places:
        for seed, value in changes[place].items():
            apart.setdefault(seed, []).append(value)
    return {seed: float(np.mean(own)) for seed, own in apart.items()}


def said(overall: Estimate, changes: Changes) -> str:
    """A difference in words."""
    if not changes:
        return "no records"
    only = ", ".join(dict.fromkeys(TASK_LABELS.get(place[0], place[0]) for place in changes))
    return f"{overall.signed}, mean over tasks" if overall.trainings else f"only {only}"


def difference_table(changes: Changes, apart: bool = False) -> str:
    """A row for each task, and for what else tells the cells apart if wanted; a column for each n."""
    if not changes:
        return ""
    sizes = sorted({place[1] for place in changes})
    heads: dict[tuple, list[tuple]] = {}
    for place in changes:
        heads.setdefault((place[0], *place[2:]) if apart else (place[0],), []).append(place)
    rows = []
    for head, places in heads.items():
        found = [estimate(together(changes, [place for place in places if place[1] == n])) for n in sizes]
        entries = [one.signed if one.trainings else "–" for one in (*found, estimate(together(changes, places)))]
        rows.append([named(head), *entries])
    return grid(["difference", *(f"n = {n}" for n in sizes), "all n"], rows)


def named(head: tuple) -> str:
    """A task, and a method with its m and budget where they are given."""
    task, *rest = head
    if not rest:
        return TASK_LABELS.get(task, task)
    method, m, budget = rest
    return f"{TASK_LABELS.get(task, task)}, {METHOD_LABELS[method]}{f' (m = {m})' if method == 'pf-npse' else ''}, {budget:,}"


# The page


def health(records: Sequence[Record]) -> str:
    """How many cells can be trusted, by setting and task."""
    apart: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        cell = record["cell"]
        kind = cell["setting"] if cell["method"] in SCORES else "other methods"
        for task in (cell["task"], "all"):
            apart.setdefault((kind, task), []).append(record)
    kinds = list(dict.fromkeys(kind for kind, _ in apart))
    order = sorted(apart, key=lambda at: (kinds.index(at[0]), at[1] == "all"))
    rows = [[kind, TASK_LABELS.get(task, task), *counts(apart[kind, task])] for kind, task in order]
    return grid(["setting", "task", "cells", "refused", "diverged", "not converged", "not converged or worse"], rows)


def counts(records: Sequence[Record]) -> list[str]:
    """Each cell in one state: draws refused, diverged, not converged or converged."""
    refused = sum("failed" in r for r in records)
    diverged = sum(bool(r["diverged"]) and "failed" not in r for r in records)
    unsure = sum(not r["converged"] and not r["diverged"] and "failed" not in r for r in records)
    share = (refused + diverged + unsure) / len(records)
    return [f"{len(records):,}", f"{refused:,}", f"{diverged:,}", f"{unsure:,}", f"{100 * share:.1f} %"]


def findings(records: Sequence[Record]) -> list[Finding]:
    """Every statement, for each setting and measure."""
    found = [
        finding
        for setting in SETTINGS
        for measure in MEASURES
        for study in (who_is_best, more_simulations, best_m, samplers, conservative)
        for finding in study(records, setting, measure)
    ]
    return found + [finding for measure in MEASURES for finding in ours(records, measure)]


def one_extent(records: Sequence[Record]) -> list[Record]:
    """The records with as many draws a cell as most have: those of other presets are not compared with them."""
    if not records:
        return []
    usual, _ = Counter(r["cell"]["draws"] for r in records).most_common(1)[0]
    return [r for r in records if r["cell"]["draws"] == usual]


def markdown(every_record: Sequence[Record]) -> str:
    """The whole text."""
    records = one_extent(every_record)
    found = findings(records)
    statements = list(dict.fromkeys(one.statement for one in found))
    rows = []
    for statement in statements:
        own = [one for one in found if one.statement == statement]
        for setting in dict.fromkeys(one.setting for one in own):
            told = {one.measure: f"**{one.verdict}**: {one.why}" for one in own if one.setting == setting}
            rows.append([statement, setting, *(told.get(measure, "–") for measure in MEASURES)])
    parts = [
        "# What agrees with the paper",
        f"From {len(records):,} records; {len(every_record) - len(records):,} with another number of draws are left out. "
        "Numbers are means ± standard errors over trainings; lower is better.",
        grid(["statement", "setting", *(METRICS[measure][0] for measure in MEASURES)], rows),
        "## Rules", RULES, "## What the sampler said", HEALTH, health(records),
    ]  # fmt: skip
    for statement in statements:
        parts.append(f"## {statement}")
        for one in found:
            if one.statement == statement:
                parts.append(f"### {one.setting}, {METRICS[one.measure][0]}: {one.verdict} ({one.why})")
                parts += [one.details] if one.details else []
    return "\n\n".join(parts) + "\n"


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Which statements of the paper a benchmark folder's records agree with.")
    parser.add_argument("folder", type=Path, help="a folder that `scorefold bench run` wrote")
    parser.add_argument("--out", type=Path, help="write the Markdown there instead of printing it")
    chosen = parser.parse_args(arguments)
    if not (records := read(chosen.folder / RECORDS)):
        parser.error(f"expected a folder with records in {RECORDS}; got {chosen.folder}. Run `scorefold bench run` first.")
    text = markdown(records)
    if chosen.out:
        chosen.out.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
