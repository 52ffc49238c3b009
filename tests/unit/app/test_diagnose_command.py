"""`scorefold diagnose`: what it prints and writes, and its exit status."""

import json

import numpy as np
import pytest
from command_line import call, gives_up_what_hangs
from scipy import stats

import scorefold as sf

TINY = sf.NPSE(width=16, depth=1, correction=False, training=sf.Training(steps=150, members=2))


OWN = """
[prior]
a = { distribution = "norm" }
[simulator]
function = "own_line:simulate"
[simulate]
budget = 100
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder with a user's simulator, its TOML file, a model of it, and observations."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.toml").write_text(OWN)
    (folder / "own_line.py").write_text("def simulate(theta, rng):\n    return theta + rng.standard_normal(2)\n")
    np.savetxt(folder / "x.csv", [[0.1, 0.2], [0.3, -0.4], [1.0, 0.5]], delimiter=",")
    np.save(folder / "wrong.npy", np.zeros((3, 5)))
    prior = sf.Prior({"a": stats.norm(0, 1)})
    sims = sf.simulate(prior, lambda theta, rng: theta + rng.standard_normal(2), 3_000, set_size=3)
    sf.fit(sims, "abc").save(folder / "model")
    return folder


def test_own_simulator_and_observations(own, tmp_path):
    argv = [own / "model", "--config", own / "own.toml", "--observations", own / "x.csv", "--sims", 40, "--draws", 40]
    result = call("diagnose", *argv, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "own.toml, given 3 observations: 40 data sets, 120 simulator calls" in result.output.replace("\n", "")
    assert "observations that move it most" in result.output
    summary = json.loads((tmp_path / "diagnosis.json").read_text(), parse_constant=pytest.fail)
    assert summary["settings"]["observations"] == str(own / "x.csv")
    assert len(summary["observed"]["influence"]) == 3
    assert "own_line:simulate" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("argv", "status", "says"),
    [
        (["MODEL"], 2, "expected the simulator that the model was trained on, with parameters a; got one with theta_1"),
        (["MODEL", "--config", "own.toml", "--observe", "1"], 2, "without --observe"),
        (["MODEL", "--config", "other.toml"], 2, "expected a TOML file"),
        (["--config", "own.toml"], 2, "goes with MODEL"),
        (["MODEL", "--config", "own.toml", "--observations", "x.csv", "--sims", "30"], 2, "expected 40 or more"),
        (["MODEL", "--config", "own.toml", "--observations", "x.txt"], 2, "ends in .npy or .csv"),
        (["MODEL", "--config", "own.toml", "--observations", "none.csv"], 2, "cannot be read"),
        (["--observations", "x.csv", "--observe", "1"], 2, "one data set at a time"),
        (["MODEL", "--config", "own.toml", "--observations", "wrong.npy"], 1, "expected x_obs of shape (n, 2)"),
        (["none", "--config", "own.toml"], 1, "none"),
    ],
)
def test_wrong_models_and_observations(own, tmp_path, monkeypatch, argv, status, says):
    monkeypatch.chdir(own)
    result = call("diagnose", *["model" if word == "MODEL" else word for word in argv], "--out", tmp_path)
    assert result.exit_code == status, result.output
    assert says in " ".join(f"{result.output} {result.exception}".replace("│", " ").split())


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


@pytest.mark.full
def test_workers_and_limits_of_the_file_are_kept(own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv = [own / "model", "--n", 3, "--sims", 60, "--draws", 20, "--out", tmp_path / "out"]
    gives_up_what_hangs(tmp_path, "diagnose", argv, OWN)
