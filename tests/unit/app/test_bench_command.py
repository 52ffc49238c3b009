"""`scorefold bench` and `scorefold report`: what they print and write, and their exit status."""

import io
import json

import pytest
from command_line import call
from pretended import pretend, pretended
from rich.console import Console

from scorefold.app.bench import bench_cells as run
from scorefold.app.bench.bench_plan import cells, grouped
from scorefold.app.bench.record import RECORDS, Event, appending, read
from scorefold.app.bench.watch import Watch, duration
from scorefold.errors import ScorefoldError


@pytest.fixture
def quickly(monkeypatch):
    """Cells cost nothing."""
    monkeypatch.setattr(run, "run_group", lambda cells, tell=None: iter([pretend(cell) for cell in cells]))


@pytest.fixture
def folder(tmp_path):
    with appending(tmp_path / RECORDS) as append:
        for record in pretended("smoke"):
            append(record)
    return tmp_path


def test_plan_counts_what_it_would_run():
    result = call("bench", "plan", "--preset", "quick", "--only", "task=sir")
    assert result.exit_code == 0, result.output
    everything = next(line.split() for line in result.output.splitlines() if line.startswith("all "))
    assert everything[1:3] == ["96", "16"]
    assert "budgets × n, paper setting" in result.output


def test_run_writes_records_and_says_how_far_it_is(quickly, tmp_path):
    result = call("bench", "run", "--preset", "smoke", "--out", tmp_path / "new", "--only", "n=8")
    assert result.exit_code == 0, result.output
    assert "8 cells, 8 trainings; 0 cells have a record, 8 to run" in result.output
    assert "8/8 cells" in result.output
    assert "s left; " in result.output
    last = [line for line in result.output.splitlines() if "8/8 cells" in line]
    assert len(last) == 1
    assert "left" not in last[0]
    assert "-0 s" not in result.output
    assert len(read(tmp_path / "new" / RECORDS)) == 8
    again = call("bench", "run", "--preset", "smoke", "--out", tmp_path / "new")
    assert "8 cells have a record, 8 to run" in again.output
    assert len(read(tmp_path / "new" / RECORDS)) == 16


def test_a_configuration_that_fails_is_a_line_and_exit_status_1(tmp_path, monkeypatch):
    def run_group(cells, tell=None):
        yield pretend(cells[0])
        if cells[0].budget == 3_000:
            raise RuntimeError("[red] out of memory")
        yield from map(pretend, cells[1:])

    monkeypatch.setattr(run, "run_group", run_group)
    result = call("bench", "run", "--preset", "smoke", "--out", tmp_path / "new")
    assert result.exit_code == 1
    assert isinstance(result.exception, ScorefoldError)
    assert "gaussian f-npse (default) 3,000: failed, RuntimeError: [red] out of memory" in result.output
    assert "13/16 cells" in result.output
    assert "All 16 records" not in result.output
    assert len(read(tmp_path / "new" / RECORDS)) == 13


@pytest.mark.parametrize("terminal", [False, True])
def test_what_has_failed_is_not_waited_for(terminal):
    planned = cells("smoke")
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, color_system=None, width=200)
    with Watch(planned, console) as watch:
        for group, own in grouped(planned).items():
            watch(Event("sent", group))
            if group.budget == 3_000:
                watch(Event("failed", group, error="out of memory"))
                continue
            for cell in own:
                watch(Event("record", group, pretend(cell)))
    assert "3,000: failed, out of memory" in output.getvalue()
    if terminal:
        assert "100%" in output.getvalue()
    else:
        assert "4 configurations sent to the workers" in output.getvalue()
        assert "about 0 s left" in output.getvalue().splitlines()[-1]


def test_figures(folder):
    result = call("bench", "figures", folder)
    assert result.exit_code == 0, result.output
    assert {path.name for path in (folder / "figures").iterdir()} == {
        "budget_mmd2.png", "budget_c2st.png", "n_mmd2.png", "n_c2st.png",
    }  # fmt: skip


def test_report_of_a_benchmark(folder):
    result = call("report", folder)
    assert result.exit_code == 0, result.output
    assert "<!doctype html>" in (folder / "report.html").read_text()


def test_report_of_an_inference(tmp_path):
    summary = {"settings": {"task": "sir", "method": "npse", "budget": 100, "n": 1, "draws": 20}, "measures": {"C2ST": 0.5}}
    (tmp_path / "summary.json").write_text(json.dumps({**summary, "seconds": {}, "converged": True, "diverged": False}))
    assert call("report", tmp_path, "--out", tmp_path / "a" / "page.html").exit_code == 0
    assert "One inference" in (tmp_path / "a" / "page.html").read_text()


USAGE = {
    "preset": (["bench", "run", "--out", "OUT", "--preset", "smok"], "Did you mean 'smoke'?"),
    "only": (["bench", "run", "--out", "OUT", "--only", "tusk=sir"], "Did you mean 'task'?"),
    "nothing left": (["bench", "run", "--out", "OUT", "--only", "task=sir"], "leaves none"),
    "executor": (["bench", "run", "--out", "OUT", "--executor", "cluster"], "expected the executor"),
    "no folder": (["bench", "run"], "--out"),
    "no records": (["bench", "figures", "OUT"], "expected a folder with records"),
    "no report": (["report", "OUT"], "expected a folder with records.jsonl"),
}


@pytest.mark.parametrize("what", USAGE)
def test_wrong_usage(what, tmp_path):
    argv, words = USAGE[what]
    result = call(*(tmp_path / "out" if word == "OUT" else word for word in argv))
    assert result.exit_code == 2
    assert words in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "out").exists(), "nothing was done"


@pytest.mark.parametrize(("seconds", "words"), [(3.2, "3 s"), (99.9, "100 s"), (120.0, "2 min"), (7_200.0, "2.0 h")])
def test_durations(seconds, words):
    assert duration(seconds) == words
