"""Are the estimated times of `scorefold bench plan` right? Predicted against measured seconds of a folder's records, by part.

    python benchmarks/calibrate_estimate.py DIR

Measured are simulation with training, once for each configuration, and drawing, for each cell; the reference draws, C2ST and
MMD are not, so `Machine.draw` is left out of the predictions too. The predictions are linear in the other constants, which are
fitted as well, by non-negative least squares: what to write into `MACHINES`, if the parts cover all constants. Drawing has no
constant for compilation, which the first cell of each n pays: with few cells it goes into the others.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from scorefold.app.bench.bench_plan import BASELINES, Cell, grouped
from scorefold.app.bench.estimate import MACHINES, Machine, draw_seconds, part, training_seconds
from scorefold.app.bench.record import RECORDS, Record, cell_of, read

FIELDS = [name for name in Machine._fields if name != "draw"]


class Job(NamedTuple):
    """Some work with its time: one training, or the draws of one configuration at one n."""

    part: str
    what: str
    cost: np.ndarray
    """In units of each constant."""
    measured: float


def unit(name: str) -> Machine:
    """One on which only this constant costs anything."""
    return Machine(**{field: float(field == name) for field in Machine._fields})


def jobs(records: Sequence[Record]) -> list[Job]:
    """All work that was measured; of methods that are not by scores, training and drawing together."""
    seconds = {cell_of(r): r["seconds"] for r in records if "seconds" in r}
    found = []
    for group, cells in grouped(seconds).items():
        training = np.array([training_seconds(group, unit(name)) for name in FIELDS])
        trained = seconds[cells[0]]["simulate"] + seconds[cells[0]]["train"]
        alike: dict[tuple, list[Cell]] = {}
        for cell in cells:
            alike.setdefault((cell.n, cell.draws, cell.sampler), []).append(cell)
        draws = [
            Job(part(own[0]), "draw", len(own) * np.array([draw_seconds(own[0], unit(name)) for name in FIELDS]),
                sum(seconds[cell]["draw"] for cell in own))
            for own in alike.values()
        ]  # fmt: skip
        if group.method in BASELINES:
            cost, spent = training + sum(job.cost for job in draws), trained + sum(job.measured for job in draws)
            found.append(Job(part(cells[0]), "train and draw", cost, spent))
        else:
            found += [Job(part(cells[0]), "train", training, trained), *draws]
    return found


def fitted(work: Sequence[Job]) -> dict[str, float]:
    """The constants with the least squared errors, none negative; weighted by 1 / time."""
    timed = [job for job in work if job.measured > 0]
    root = np.sqrt([job.measured for job in timed])
    cost = np.array([job.cost for job in timed]) / root[:, None]
    scale = np.maximum(np.linalg.norm(cost, axis=0), 1e-30)
    return dict(zip(FIELDS, nnls(cost / scale, root)[0] / scale, strict=True))


def report(records: Sequence[Record]) -> str:
    """Markdown: for each device a table of the parts, and the constants."""
    lines = []
    for device in dict.fromkeys(str(r.get("device", "unknown")) for r in records):
        work = jobs([r for r in records if str(r.get("device", "unknown")) == device])
        name = "two cores" if device.lower() == "cpu" else "one GPU"
        constants, found = MACHINES[name]._asdict(), fitted(work)
        lines += [f"## {device}, estimated as {name}", ""]
        lines += [
            "| part | what | predicted, s | fitted, s | measured, s | measured / predicted |",
            "|---|---|---|---|---|---|",
        ]
        for key in dict.fromkeys((job.part, job.what) for job in work):
            own = [job for job in work if (job.part, job.what) == key]
            predicted, refitted = (sum(job.cost @ [of[field] for field in FIELDS] for job in own) for of in (constants, found))
            measured = sum(job.measured for job in own)
            ratio = f"{measured / predicted:.2f}" if predicted else "–"
            lines.append(f"| {key[0]} | {key[1]} | {predicted:,.0f} | {refitted:,.0f} | {measured:,.0f} | {ratio} |")
        lines += ["", "| constant | now | fitted |", "|---|---|---|"]
        lines += [f"| {field} | {constants[field]:.3g} | {found[field]:.3g} |" for field in FIELDS]
        lines.append("")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Predicted against measured seconds of a benchmark folder.")
    parser.add_argument("folder", type=Path, help="a folder that `scorefold bench run` wrote")
    chosen = parser.parse_args(arguments)
    if not (records := read(chosen.folder / RECORDS)):
        parser.error(f"expected a folder with records in {RECORDS}; got {chosen.folder}. Run `scorefold bench run` first.")
    print(report(records))


if __name__ == "__main__":
    main()
