"""What the presets hold, how --only chooses, and what is refused before any work."""

from dataclasses import replace
from functools import cache

import pytest

from scorefold.app.bench import estimate
from scorefold.app.bench.bench_plan import PRESETS, Cell, cells, check, grouped, parse_only
from scorefold.app.bench.setups import configured
from scorefold.errors import ScorefoldError
from scorefold.methods import METHODS
from scorefold.sample import Langevin
from scorefold.tasks.stored import BENCHMARK_SEEDS, BENCHMARK_SIZES

planned_cells = cache(cells)
CELL = planned_cells("tiny")[0]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_the_same_every_time_and_holds_every_cell_once(preset):
    planned = planned_cells(preset)
    assert planned == list(dict.fromkeys(PRESETS[preset]()))
    assert len({cell.key for cell in planned}) == len(planned)
    assert all(cell.training in cell.together for cell in planned)


@pytest.mark.parametrize("preset", PRESETS)
def test_trainings_share_no_parameter_draws(preset):
    owners: dict[int, set[int]] = {}
    for cell in planned_cells(preset):
        owners.setdefault(cell.parameters, set()).add(cell.training)
    assert all(len(trainings) == 1 for trainings in owners.values())


def test_the_paper_grid_is_whole():
    planned = planned_cells("paper")
    for method, m in (("f-npse", 1), ("pf-npse", 6), ("npse", 30)):
        for setting in ("paper", "default"):
            for task in ("gaussian", "mixture", "sir", "lotka_volterra"):
                own = [c for c in planned if (c.method, c.m, c.setting, c.task) == (method, m, setting, task)]
                own = [c for c in own if not c.sampler and not c.conservative]
                assert len(own) == 4 * 5 * 6 * 5
                assert {c.budget for c in own} == {1_000, 3_000, 10_000, 30_000}
                assert {c.n for c in own} == set(BENCHMARK_SIZES)
                assert {c.parameters for c in own} == set(BENCHMARK_SEEDS)
    study = {c.m for c in planned if c.method == "pf-npse" and c.budget == 10_000}
    assert study == {3, 6, 12, 18, 30}
    assert {"transitions", "langevin a=0.3 L=10"} <= {c.sampler for c in planned}
    assert {c.method for c in planned if c.conservative} == {"f-npse", "pf-npse", "npse"}
    assert {"bimodal", "weinberg"} <= {c.task for c in planned}


def test_baselines_join_once_they_are_known(monkeypatch):
    for name in ("npe", "nre", "nle"):
        monkeypatch.setitem(METHODS, name, object.__new__(type("Other", (type(METHODS["npse"]).__base__,), {"train": None})))
    joined = {(c.method, c.m, c.setting) for c in cells("paper", "task=sir,method=npe,method=nre,method=nle")}
    assert joined == {("npe", 30, "default"), ("nre", 1, "default"), ("nle", 1, "default")}


def test_the_paper_setting():
    method = configured("pf-npse", "paper", 6, 0, False)
    assert (method.base, method.correction, method.schedule, method.T) == (False, False, "linear-beta", 400)
    assert (method.rule, method.sampler, Langevin()) == ("tempered", "langevin", Langevin(0.3, 5))
    assert (method.training.members, method.training.learning_rates) == (1, (1e-3, 1e-4))
    assert configured("npse", "paper", 30, 0, False).sampler == "ancestral"


def test_only_chooses():
    chosen = cells("smoke", "setting=paper,n=8,budget=1000")
    assert chosen
    assert all((c.setting, c.n, c.budget) == ("paper", 8, 1_000) for c in chosen)
    assert parse_only("task=sir, task=gaussian,n=1") == {"task": {"sir", "gaussian"}, "n": {"1"}}


@pytest.mark.parametrize(
    ("preset", "only", "words"),
    [
        ("smok", "", "Did you mean 'smoke'?"),
        ("smoke", "tusk=gaussian", "Did you mean 'task'?"),
        ("smoke", "gaussian", "name=value"),
        ("smoke", "task=sir", "There is task = gaussian."),
    ],
)
def test_wrong_wishes_are_refused(preset, only, words):
    with pytest.raises(ScorefoldError, match=words.replace("?", r"\?")):
        cells(preset, only)


@pytest.mark.parametrize(
    "change",
    [{"method": "npee"}, {"task": "gausian"}, {"setting": "papers"}, {"sampler": "langevn"}, {"n": 0}, {"training": 9}],
    ids=str,
)
def test_a_cell_that_cannot_run_is_refused_at_planning(change):
    check(CELL)
    with pytest.raises(ScorefoldError):
        check(replace(CELL, **change))


CHANGES = {"task": "sir", "method": "npse", "setting": "paper", "budget": 999, "m": 2, "training": 1, "together": (0,)}
CHANGES |= {"parameters": 7, "n": 9, "draws": 60, "steps": 5, "conservative": True, "sampler": "probability-flow"}


@pytest.mark.parametrize("field", CHANGES)
def test_the_key_knows_every_part_of_the_description(field):
    assert set(CHANGES) == set(Cell.__dataclass_fields__)
    changed = replace(CELL, **{field: CHANGES[field]})
    assert changed.key != CELL.key
    drawn_only = field in ("training", "parameters", "n", "draws", "sampler")
    assert (changed.group == CELL.group) == drawn_only


def test_groups_hold_all_cells_in_order():
    planned = cells("smoke")
    groups = grouped(planned)
    assert [cell for own in groups.values() for cell in own] == planned
    assert all(cell.group == group for group, own in groups.items() for cell in own)


@pytest.mark.parametrize("machine", estimate.MACHINES)
def test_estimates_grow_with_what_is_to_be_done(machine):
    times = [estimate.seconds(planned_cells(preset), estimate.MACHINES[machine]) for preset in ("tiny", "smoke", "quick")]
    assert times == sorted(times)
    assert times[0] > 0
    assert estimate.MACHINES["one GPU"].score < estimate.MACHINES["two cores"].score
