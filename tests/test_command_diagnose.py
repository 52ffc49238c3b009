"""`scorefold diagnose`: what it prints and writes, and its exit status."""

import json

import pytest
from typer.testing import CliRunner

import scorefold as sf
from scorefold import methods
from scorefold.cli import app

pytestmark = pytest.mark.usefixtures("quick_to_compile")

TINY = sf.NPSE(width=16, depth=1, control=False, training=sf.Training(steps=150, members=2))


def call(*argv):
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [str(a) for a in argv])


@pytest.mark.full
def test_a_small_run(monkeypatch, tmp_path):
    monkeypatch.setitem(methods.METHODS, "f-npse", TINY)
    small = ["--budget", 2_000, "--n", 3, "--sims", 40, "--draws", 60, "--observe", 1, "--out", tmp_path]
    result = call("diagnose", "--task", "gaussian", *small)
    assert result.exit_code == 0, result.output
    for word in (
        "40 data sets, 120 simulator calls",
        "theta_10",
        "log-likelihood",
        "joint test",
        "observations that move it most",
    ):
        assert word in result.output
    assert {"ranks.png", "influence.png", "predictive.png", "diagnosis.json"} <= {path.name for path in tmp_path.iterdir()}
    assert json.loads((tmp_path / "diagnosis.json").read_text())["data sets"]["used"] == 40


@pytest.mark.parametrize(
    ("argv", "status", "says"),
    [
        (["--help"], 0, "MODEL"),
        (["--task", "gausian"], 2, "Did you mean 'gaussian'?"),
        (["--method", "f-nps"], 2, "Did you mean 'f-npse'?"),
        (["--sims", "5"], 2, "20"),
        (["--out", "/dev/null/x"], 2, "cannot write there"),
    ],
)
def test_usage(argv, status, says):
    result = call("diagnose", *argv)
    assert result.exit_code == status
    assert says in " ".join(result.output.split())
