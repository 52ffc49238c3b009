"""`scorefold check`: what it prints and writes, and its exit status."""

import json

import numpy as np
import pytest
from command_line import call, gives_up_what_hangs
from linear_posterior import linear_posterior, simulator, spoiled

import scorefold as sf

OWN = """
[prior]
a = { distribution = "norm" }
b = { distribution = "norm" }
[simulator]
function = "own_line_checked:simulate"
[simulate]
budget = 100
"""
SOURCE = """
import numpy as np
def simulate(theta, rng):
    return theta + np.array([0.7, 1.3]) * rng.standard_normal(2)
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder with a user's simulator, its TOML file, observations and a spoiled model."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.toml").write_text(OWN)
    (folder / "own_line_checked.py").write_text(SOURCE)
    rng = np.random.default_rng(0)
    np.savetxt(folder / "x.csv", [simulator(np.array([0.5, 0.0]), rng) for _ in range(8)], delimiter=",")
    spoiled(linear_posterior(), offset=(1.0, 0.0)).save(folder / "model")
    return folder


@pytest.mark.full
@pytest.mark.false_failure(1e-6)
def test_a_spoiled_model_is_found_out_and_mended(own, tmp_path):
    out, mended = tmp_path / "checked", tmp_path / "mended"
    asked = ["--config", own / "own.toml", "--sims", 1_000, "--out", out, "--save", mended]
    result = call("check", own / "model", own / "x.csv", *asked)
    assert result.exit_code == 0, result.output
    assert "not to be trusted: a is most off, by +" in result.output
    summary = json.loads((out / "check.json").read_text(), parse_constant=pytest.fail)
    assert summary["shift"]["a"] > 0.8
    assert abs(summary["shift"]["b"]) < 0.6
    page = (out / "report.html").read_text()
    assert "Is this answer right?" in page
    assert call("report", out).exit_code == 0
    assert (out / "report.html").read_text() == page
    assert sf.load(mended).local is not None
    drawn = call("sample", mended, own / "x.csv", "--out", tmp_path / "draws.npz")
    assert drawn.exit_code == 0, drawn.output
    assert "expected shift" in drawn.output
    with np.load(tmp_path / "draws.npz") as kept:
        assert str(kept["trust"]) in ("good", "usable")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["model", "x.csv", "--task", "gaussian"], "with parameters a, b"),
        (["model", "x.txt", "--config", "own.toml"], "expected a file that ends in"),
        (["model", "x.csv", "--config", "own.toml", "--save", "model"], "exists already"),
    ],
)
def test_wrong_usage(own, monkeypatch, argv, words):
    monkeypatch.chdir(own)
    result = call("check", *argv)
    assert result.exit_code == 2
    assert words in result.output.replace("\n", " ")


def test_workers_and_limits_of_the_file_are_kept(own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv = [own / "model", own / "x.csv", "--sims", 300]
    gives_up_what_hangs(tmp_path, "check", argv, OWN, sd=(0.7, 1.3))


def test_rows_of_a_table_with_names_are_counted_not_its_columns(own, tmp_path, monkeypatch):
    def stop(*args, **kwargs):
        raise sf.errors.ScorefoldError("far enough")

    monkeypatch.setattr(sf.Posterior, "check", stop)
    (tmp_path / "named.csv").write_text("p,q\n" + (own / "x.csv").read_text())
    result = call("check", own / "model", tmp_path / "named.csv", "--config", own / "own.toml")
    assert "given 8 observations" in result.output
