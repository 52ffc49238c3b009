"""The trials of `benchmarks/first_hour.py` run from end to end."""

import json

import pytest

import first_hour
import scorefold as sf


@pytest.mark.full
@pytest.mark.parametrize("name", ["households"])  # the other one takes as long
def test_a_trial_runs(name, tmp_path, monkeypatch):
    """Not long enough to be right; every step is there, timed, and what was printed is kept."""
    monkeypatch.setattr(first_hour, "TRIALS", 5)
    monkeypatch.setattr(first_hour, "HOUSEHOLDS", 20)
    length = first_hour.QUICK._replace(budget=200, check=60, draws=100, training=sf.Training(members=2, steps=100))
    notes = first_hour.Notes(tmp_path / "found.json", {})
    first_hour.run(name, first_hour.BOTH[name](1), ["auto"], length, 1, notes)
    found = json.loads((tmp_path / "found.json").read_text())
    assert not any(one["failed"] for one in found["steps"]), found["printed"]
    assert [one["step"] for one in found["steps"]] == ["simulate", "exact posterior", "fit auto", "sample auto", "check"]
    assert all(one["processor"] >= 0 for one in found["steps"])
    (drawn,) = found["draws"]
    assert len(drawn["shift"]) == len(drawn["width"]) == len(drawn["parameters"])
    assert any(line.startswith("training: ") for line in found["printed"])
