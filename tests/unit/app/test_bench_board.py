"""The board: its cells, how methods stand, its page and its table."""

import json
import math
import re

import numpy as np
import pytest
from pretended import pretended
from typer.testing import CliRunner

from scorefold.app.bench import bench_cells, estimate
from scorefold.app.bench.bench_cells import DrawnCloud, Trained, collect, draw
from scorefold.app.bench.bench_plan import BOARD_SIZES, BOARD_TASKS, PEERS, cells, grouped
from scorefold.app.bench.board_page import board_page, looks_of
from scorefold.app.bench.points import pick, series
from scorefold.app.bench.record import RECORDS, appending
from scorefold.app.bench.setups import configured, simulated_before
from scorefold.app.bench.standings import comparable, cost, gathered, markdown, standings
from scorefold.app.cli import app
from scorefold.errors import ScorefoldError
from scorefold.report.page import LARGEST_PAGE

ONLY = "task=gaussian,task=sir,training=0,parameters=1000,n=8,n=30"


def some_records():
    """Ours and the peers', of which NLE was not finished at n = 30."""
    records = pretended("many-observations", ONLY) + pretended("peers", ONLY)
    for record in records:
        cell = record["cell"]
        if cell["setting"] == "peer":
            record["peer"] = {"versions": {"package": "1.2.3"}, "settings": {"training": "<defaults>"}}
        if (cell["method"], cell["n"]) == ("sbi-nle", 30):
            record["measures"] = dict.fromkeys(record["measures"])
            record["failed"] = "not finished: over 600 s"
            del record["seconds"]["draw"]
    return records


RECORDS_HERE = some_records()


@pytest.fixture
def folders(tmp_path):
    """Ours in one folder, the peers' in another."""
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        with appending(tmp_path / name / RECORDS) as append:
            for record in RECORDS_HERE:
                if (record["cell"]["setting"] == "peer") == (name == "theirs"):
                    append(record)
    return [tmp_path / "ours", tmp_path / "theirs"]


def test_peers_get_the_cells_that_our_methods_get():
    ours, theirs = cells("many-observations"), cells("peers")
    for field in ("task", "n", "budget", "training", "parameters", "draws", "m", "together"):
        assert {getattr(cell, field) for cell in ours} == {getattr(cell, field) for cell in theirs}
    assert {cell.task for cell in ours} == set(BOARD_TASKS)
    assert {cell.n for cell in ours} == set(BOARD_SIZES)
    assert {(cell.method, cell.sampler) for cell in theirs} == {(name, way) for name, ways in PEERS.items() for way in ways}


def test_trainings_of_the_board_are_apart_so_that_seconds_are_those_of_one():
    assert all(cell.together == (cell.training,) for cell in cells("many-observations"))


def test_ways_of_composing_share_a_training():
    groups = grouped(cells("peers", "task=sir,method=sbi-npse,training=0"))
    assert [len(own) for own in groups.values()] == [4 * 5 * 3]


def test_a_refined_posterior_costs_no_more_simulations():
    assert simulated_before(10_000, "refined") == 4_000
    assert simulated_before(10_000, "default") == 10_000
    assert configured("nle", "refined", 1, 0, False) == configured("nle", "default", 1, 0, False)


def test_a_peer_is_not_run_here():
    events = collect(cells("peers", "task=sir,method=sbi-nre,training=0,n=1"))
    assert [event.what for event in events] == ["failed"]
    assert "make peers" in events[0].error


def test_refining_is_asked_for_the_rest_of_the_budget_and_timed(monkeypatch):
    cell = cells("many-observations", "task=gaussian,method=nle,setting=refined,training=0,parameters=1000,n=1")[0]
    asked = []

    class Start:
        history = None

        def refine(self, x_obs, simulator, budget, seed, sims):
            asked.append((x_obs.shape, budget, seed, sims))
            return self

    monkeypatch.setattr(bench_cells, "_clouds", lambda own, some, x_obs: [DrawnCloud(np.zeros((1_000, 10)), True, False)])
    monkeypatch.setattr(bench_cells, "_history", lambda posterior: {})
    (drawn,) = draw([cell], Trained({0: Start()}, {0: "simulations"}, {"train": 2.0}))
    assert asked == [((1, 10), 6_000, 1_000, "simulations")]
    assert set(drawn.record["seconds"]) == {"train", "refine", "draw"}
    assert drawn.theta.shape == (1_000, 10)


@pytest.mark.parametrize("preset", ["many-observations", "peers"])
def test_the_board_can_be_estimated(preset):
    parts = {estimate.part(cell) for cell in cells(preset)}
    assert parts <= {"budgets × n, default setting", "other methods", "refined", "peers"}
    assert estimate.seconds(cells(preset, "task=sir"), estimate.MACHINES["two cores"]) > 60


def test_cost_is_that_of_one_training_without_simulations_from_the_prior():
    record = {"cell": {"together": [0, 1]}, "seconds": {"simulate": 5.0, "train": 20.0, "refine": 3.0, "draw": 2.0}}
    assert cost(record) == 15.0
    assert cost({"cell": {"together": [0]}, "seconds": {"train": 20.0}}) is None


def test_the_best_comes_first_and_lost_cells_have_a_word():
    found = standings(RECORDS_HERE, 30, "gaussian")
    assert [one.mean for one in found[:-1]] == sorted(one.mean for one in found[:-1])
    assert (found[-1].line.method, found[-1].mean, found[-1].seconds) == ("sbi-nle", None, None)
    assert (found[-1].cells, found[-1].finished, found[-1].word) == (1, 0, "not finished")


def test_over_all_tasks_a_lost_cell_is_wholly_wrong():
    lost = [one for one in standings(RECORDS_HERE, 30) if one.line.method == "sbi-nle"]
    assert [(one.mean, one.tasks) for one in lost] == [(1.0, 2)]
    half = [r for r in RECORDS_HERE if r["cell"]["method"] == "sbi-nle" and r["cell"]["task"] == "sir"]
    half += pick(RECORDS_HERE, method="sbi-nle", task="gaussian", n=8)
    moved = [{**r, "cell": {**r["cell"], "n": 30}} for r in half]
    measured = [r["measures"]["c2st"] for r in half if r["measures"]["c2st"] is not None]
    sir, gaussian = (1 + measured[0]) / 2, measured[1]
    assert math.isclose(standings(moved, 30)[0].mean, (sir + gaussian) / 2)


def test_records_of_others_are_taken_in_and_checked(folders):
    assert len(gathered(folders)) == len(RECORDS_HERE)
    assert len(gathered([*folders, folders[0]])) == len(RECORDS_HERE)
    record = {**RECORDS_HERE[0], "cell": {**RECORDS_HERE[0]["cell"], "n": 9}}
    (folders[0] / RECORDS).write_text(json.dumps(record) + "\n")
    with pytest.raises(ScorefoldError, match="edited"):
        gathered(folders)
    with pytest.raises(ScorefoldError, match="expected folders with records"):
        gathered([folders[0] / "none"])


def test_methods_are_compared_on_the_data_sets_that_all_have():
    def one(method, n, parameters):
        return {**RECORDS_HERE[0], "cell": {**RECORDS_HERE[0]["cell"], "method": method, "n": n, "parameters": parameters}}

    both, apart = [one(method, 1, 1_000) for method in ("nle", "f-npse")], [one("nle", 8, 0), one("f-npse", 8, 1)]
    assert comparable([*both, one("nle", 1, 1_001), *apart]) == [*both, *apart]


def test_the_table_has_every_method_and_the_words():
    lines = markdown(RECORDS_HERE, [8, 30]).splitlines()
    assert lines[0] == "| C2ST, n = 8 / 30 | gaussian | sir | seconds |"
    assert len(lines) == 2 + len({series(r) for r in RECORDS_HERE})
    nle = next(line for line in lines if line.startswith("| sbi NLE "))
    assert nle.count("/ not finished |") == 2
    with pytest.raises(ScorefoldError, match="expected records"):
        markdown(RECORDS_HERE, [7])


def test_methods_can_be_told_apart():
    looks = looks_of(RECORDS_HERE)
    assert len(set(looks.values())) == len(looks) == len({series(r) for r in RECORDS_HERE})


def test_the_page_says_who_is_right_and_at_what_cost():
    text = board_page(RECORDS_HERE)
    assert len(text.encode()) < LARGEST_PAGE
    assert 'id="n30" class="tab" checked' in text
    assert "sbi NLE: not finished" in text
    assert "package: 1.2.3" in text
    assert "&lt;defaults&gt;" in text
    assert "<defaults>" not in text
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "nan" not in " ".join(re.findall(r'(?:cx|cy|d)="([^"]*)"', text))


def test_the_page_names_each_machine_once_and_warns_of_seconds():
    shared = ", one of up to {} programs at once on 16 cores"
    here = [{**r, "device": f"H{i % 2}{shared.format(i)}"} for i, r in enumerate(RECORDS_HERE)]
    assert "H0; H1, each shared by several programs. Seconds on different machines do not compare." in board_page(here)


def test_the_commands(folders, tmp_path):
    def call(*argv):
        return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [str(a) for a in argv])

    done = call("bench", "board", *folders)
    assert done.exit_code == 0, done.output
    assert (folders[0] / "board.html").read_text().startswith("<!doctype html>")
    done = call("bench", "table", *folders, "--n", 30, "--task", "sir")
    assert done.exit_code == 0, done.output
    assert done.output.startswith("| C2ST, n = 30 | sir | seconds |")
    assert call("bench", "table", *folders, "--metric", "beauty").exit_code == 2
