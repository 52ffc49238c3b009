"""Predicted against measured seconds: constants that made the times are found again."""

import pytest
from pretended import pretend

from calibrate_estimate import FIELDS, fitted, jobs, report
from scorefold.app.bench.bench_plan import cells
from scorefold.app.bench.estimate import MACHINES, Machine, draw_seconds, training_seconds

TRUE = Machine(start=40.0, step=0.002, network=0.0005, draw=9.0, level=3e-4, score=2e-8, other=2.0)


@pytest.fixture(scope="module")
def records():
    """As if one GPU had the constants above; the last of another device, without them."""
    at = "task=sir,budget=1000,budget=10000,training=0,parameters=1000,parameters=1001,method=f-npse,method=pf-npse,method=npe"
    found = []
    for cell in cells("paper", at):
        draw = draw_seconds(cell, TRUE) - TRUE.draw
        seconds = {"simulate": 1.0, "train": training_seconds(cell.group, TRUE) - 1.0, "draw": draw}
        found.append(pretend(cell) | {"device": "NVIDIA", "seconds": seconds})
    return found


def test_the_constants_are_found_again(records):
    found = fitted(jobs(records))
    assert set(found) == set(FIELDS)
    for name in FIELDS:
        assert found[name] == pytest.approx(getattr(TRUE, name), rel=1e-3), name


def test_the_report_has_every_part_and_both_times(records):
    text = report([*records, {**records[0], "device": "cpu"}])
    assert "## NVIDIA, estimated as one GPU" in text
    assert "## cpu, estimated as two cores" in text
    for part in ("budgets × n, paper setting", "budgets × n, default setting", "study of m", "other methods", "samplers"):
        assert f"| {part} |" in text
    assert f"| start | {MACHINES['one GPU'].start:.3g} | 40 |" in text
    (line,) = [line for line in text.splitlines() if line.startswith("| other methods | train and draw")]
    predicted, refitted, measured = (float(entry.replace(",", "")) for entry in line.split("|")[3:6])
    assert refitted == measured != predicted
