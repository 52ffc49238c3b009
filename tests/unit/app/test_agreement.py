"""Which of the paper's statements records agree with: numbers and verdicts, on records made up so that the answer is known."""

import json
from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest

import agreement
from agreement import AGREES, DISAGREES, FEW, UNDECIDED, contest, estimate, every, findings, markdown, most, within
from scorefold.app.bench.bench_plan import Cell
from scorefold.app.bench.record import RECORDS, described

TASKS = ("gaussian", "sir")
NOISE = 0.004


def cell(task, method, setting, n, training, p, budget=10_000, **other):
    m = {"pf-npse": 6, "npse": 30, "npe": 30}.get(method, 1)
    one = Cell(task, method, setting, budget, m, training, (0, 1, 2), 1_000 + 6 * training + p, n, 1_000)
    return replace(one, **other)


def record(one, error):
    """The data set's difficulty is shared by all methods; a little noise, the same in every run, is not."""
    shared = 0.1 * np.random.default_rng([one.n, one.parameters]).random()
    of = (one.task, one.method, one.setting, one.budget, one.m, one.n, one.parameters, one.sampler, one.conservative)
    value = error + shared + NOISE * np.random.default_rng(crc32(repr(of).encode())).normal()
    measures = {"c2st": 0.5 + value, "mmd2": value, "shift": None, "sd_ratio": None}
    return described(one) | {"measures": measures, "converged": True, "diverged": False}


def cells(variants, sizes=(1, 8, 22), tasks=TASKS, **other):
    """Three trainings with two parameter draws each."""
    return [
        cell(task, method, setting, n, training, p, **other)
        for task in tasks
        for method, setting in variants
        for n in sizes
        for training in range(3)
        for p in range(2)
    ]


def made(errors, **other):
    """Records of every method in both settings; `errors` by method."""
    variants = [(name, s) for name in errors for s in (("paper", "default") if name in agreement.SCORES else ("default",))]
    return [record(one, errors[one.method]) for one in cells(variants, **other)]


def verdict(records, words, setting="paper", measure="c2st"):
    (found,) = [f for f in findings(records) if words in f.statement and (f.setting, f.measure) == (setting, measure)]
    return found.verdict


GOOD_PF = {"f-npse": 0.2, "pf-npse": 0.1, "npse": 0.25, "npe": 0.3}
GOOD_NPE = {"f-npse": 0.2, "pf-npse": 0.15, "npse": 0.12, "npe": 0.1}


@pytest.mark.parametrize("setting", ["paper", "default"])
@pytest.mark.parametrize("measure", ["c2st", "mmd2"])
@pytest.mark.parametrize("words", [claim.statement for claim in agreement.CLAIMS[:4]])
def test_who_is_best(words, setting, measure):
    assert verdict(made(GOOD_PF), words, setting, measure) == AGREES
    assert verdict(made(GOOD_NPE), words, setting, measure) == DISAGREES
    assert verdict(made({"npe": 0.1}), words, setting, measure) == FEW


def test_few_observations_are_apart():
    good_f = {**GOOD_PF, "f-npse": 0.05}
    assert verdict(made(good_f, sizes=(1, 8)), "F-NPSE is better than") == AGREES
    assert verdict(made(GOOD_PF, sizes=(1, 8)), "F-NPSE is better than") == DISAGREES
    assert verdict(made(good_f, sizes=(22, 30)), "F-NPSE is better than") == FEW


def test_a_method_that_lacks_trainings_takes_no_part():
    """NPE is best where it is there, but it was trained once only."""
    records = made({**GOOD_PF, "npe": 0.01})
    assert verdict(records, "best of all methods") == DISAGREES
    once = [r for r in records if r["cell"]["method"] != "npe" or r["cell"]["training"] == 0]
    assert verdict(once, "best of all methods") == AGREES
    assert verdict(once, "outperforms NPE and NRE") == FEW


def test_nle_is_apart():
    records = made({**GOOD_PF, "nle": 0.01})
    assert verdict(records, "best of all methods") == AGREES
    assert verdict(records, "better than NLE") == DISAGREES
    assert verdict(made({**GOOD_PF, "nle": 0.5}), "better than NLE") == AGREES


def test_a_contest_is_on_the_same_data_sets():
    """The easy data sets that only one method has do not count."""
    f = {(r, p): 0.3 for r in range(3) for p in range(2)}
    pf = {(r, p): 0.4 + 0.01 * r for r in range(3) for p in range(2)} | {(9, 0): 0.0, (9, 1): 0.0}
    found = contest({"f-npse": f, "pf-npse": pf})
    assert found.best == "f-npse"
    assert found.near == {"f-npse"}
    assert found.means["pf-npse"].mean == pytest.approx(0.41)
    assert contest({"f-npse": f, "pf-npse": {(0, 0): 0.1, (0, 1): 0.1}}) is None, "one training has no error"


def test_where_all_are_alike_nothing_is_decided():
    saturated = {(r, 0): 1.0 for r in range(3)}
    assert not contest({"f-npse": saturated, "pf-npse": dict(saturated)}).decided
    worst = [r | {"measures": {**r["measures"], "c2st": 1.0}} for r in made(GOOD_PF)]
    assert verdict(worst, "best of all methods") == FEW


def test_trainings_are_the_unit():
    """Three means 1, 2, 6 whatever is within them: mean 3, sd √7."""
    values = {(0, 0): 0.0, (0, 1): 2.0, (1, 0): 2.0, (2, 0): 5.0, (2, 1): 6.0, (2, 2): 7.0}
    found = estimate(values)
    assert found.mean == pytest.approx(3.0)
    assert found.error == pytest.approx((7 / 3) ** 0.5)
    assert found.trainings == 3
    assert np.isnan(estimate({(0, 0): 1.0, (0, 1): 3.0}).error)


@pytest.mark.parametrize(("best", "expected"), [(3, AGREES), (6, AGREES), (1, DISAGREES), (30, DISAGREES)])
def test_the_best_m(best, expected):
    def error(m):
        return 0.1 + 0.05 * abs(np.log(m / best))

    sets = [record(replace(one, m=m), error(m)) for m in (3, 6, 12, 30) for one in cells([("pf-npse", "paper")], (22,))]
    whole = sets + [record(one, error(1)) for one in cells([("f-npse", "paper")], (22,))]
    assert verdict(whole, "best m is 3 or 6") == expected
    assert verdict(whole, "best m is 3 or 6", "default") == FEW
    assert verdict(sets, "best m is 3 or 6") == FEW, "without m = 1 nobody knows"


@pytest.mark.parametrize(("change", "expected"), [(0.02, AGREES), (0.15, DISAGREES), (-0.1, DISAGREES), (0.05, UNDECIDED)])
def test_algorithm_2(change, expected):
    base = cells([("pf-npse", "paper")])
    second = [record(replace(one, sampler="transitions"), 0.2 + change) for one in base]
    assert verdict([record(one, 0.2) for one in base] + second, "Algorithm 2") == expected
    assert verdict(second, "Algorithm 2") == FEW


@pytest.mark.parametrize(("change", "expected"), [(0.01, AGREES), (-0.01, AGREES), (0.2, DISAGREES)])
def test_conservative_networks_and_langevin_steps(change, expected):
    """On the last task alone, the opposite on the first does not make up for it."""
    base = cells([("pf-npse", "paper")])
    sign = {"gaussian": -1, "sir": 1}
    others = [replace(one, conservative=True) for one in base] + [replace(one, sampler="langevin a=0.3 L=10") for one in base]
    records = [record(one, 0.3) for one in base] + [record(one, 0.3 + sign[one.task] * change) for one in others]
    assert verdict(records, "Conservative") == expected
    assert verdict(records, "Langevin steps") == expected
    two_steps = [record(replace(one, sampler="langevin a=0.3 L=2"), 0.9) for one in base]
    assert verdict(records + two_steps, "Langevin steps") == expected
    assert verdict(records[:1], "Conservative") == FEW


def test_ours_and_the_budget():
    paper, default = cells([("pf-npse", "paper")]), cells([("pf-npse", "default")])
    good = [record(one, 0.3) for one in paper] + [record(one, 0.1) for one in default]
    bad = [record(one, 0.1) for one in paper] + [record(one, 0.3) for one in default]
    where = {"setting": "default − paper"}
    assert verdict(good, "(ours)", **where) == AGREES
    assert verdict(bad, "(ours)", **where) == DISAGREES
    fewer = [record(replace(one, budget=1_000), 0.2) for one in paper]
    assert verdict(good + fewer, "improve with the budget") == DISAGREES
    assert verdict(bad + fewer, "improve with the budget") == AGREES
    assert verdict(good, "improve with the budget") == FEW


def test_rules():
    one = agreement.Estimate(0.03, 0.01, 5)
    assert [within(one, *to) for to in ((0, 0.05), (0.06, 1), (0, 0.04), (-1, 0))] == [AGREES, DISAGREES, UNDECIDED, DISAGREES]
    assert every([AGREES, AGREES, FEW]) == AGREES
    assert every([AGREES, DISAGREES, UNDECIDED]) == DISAGREES
    assert every([AGREES, UNDECIDED]) == UNDECIDED
    assert every([AGREES, FEW]) == FEW
    assert [most(held, 4) for held in (3, 2, 1)] == [AGREES, UNDECIDED, DISAGREES]


def test_the_text():
    records = made(GOOD_PF)
    records[0] |= {"failed": "not finite", "converged": False, "diverged": True}
    records[1] |= {"converged": False}
    strange = record(replace(cell("gaussian", "f-npse", "paper", 1, 0, 0), draws=200), 0.9)
    text = markdown([*records, strange])
    assert "| paper | Gaussian | 54 | 1 | 0 | 1 | 3.7 % |" in text
    assert f"From {len(records)} records; 1 with another number of draws" in text
    assert "| PF-NPSE | 2 (2) of 2 | 2 (2) of 2 | 2 (2) of 2 | 6 (6) of 6 |" in text
    assert "**not enough records**: no records" in text
    assert markdown([]).count("no records") > 10


def test_the_command(tmp_path, capsys):
    records = made(GOOD_PF, sizes=(1,), tasks=("sir",))
    (tmp_path / RECORDS).write_text("".join(json.dumps(one) + "\n" for one in records))
    agreement.main([str(tmp_path), "--out", str(tmp_path / "agreement.md")])
    agreement.main([str(tmp_path)])
    assert capsys.readouterr().out == (tmp_path / "agreement.md").read_text() == markdown(records)
    with pytest.raises(SystemExit):
        agreement.main([str(tmp_path / "none")])
    assert "expected a folder with records" in capsys.readouterr().err
