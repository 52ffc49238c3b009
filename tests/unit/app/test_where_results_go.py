"""A folder that cannot be written to is wrong usage of a command, and noticed before anything is simulated or trained."""

import os

import numpy as np
import pytest
from command_line import call
from linear_posterior import linear_posterior, simulator

import scorefold as sf

OWN = """
[prior]
a = { distribution = "norm" }
b = { distribution = "norm" }
[simulator]
function = "own_line_kept:simulate"
[simulate]
budget = 100
store = "simulations"
"""
SOURCE = """
def simulate(theta, rng):
    raise AssertionError("it was simulated")
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder with two models, observations, simulations and a simulator that must not be called."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.toml").write_text(OWN)
    (folder / "own_line_kept.py").write_text(SOURCE)
    np.savetxt(folder / "x.csv", [simulator(np.zeros(2), np.random.default_rng(0)) for _ in range(8)], delimiter=",")
    posterior = linear_posterior()
    for name in ("model", "other"):
        posterior.save(folder / name)
    sf.simulate(posterior.prior, simulator, 100, store=folder / "simulations", workers=0)
    (folder / "file").write_text("")
    return folder


def commands(folder, kept):
    """Every command that ends with a model, to be kept there."""
    config = ["--config", folder / "own.toml"]
    return {
        "fit": ["fit", folder / "simulations", "--method", "nle", "--out", kept],
        "refine": ["refine", folder / "model", folder / "x.csv", *config, "--out", kept],
        "check": ["check", folder / "model", folder / "x.csv", *config, "--save", kept],
        "infer": ["infer", "--out", folder / "inferred", "--save", kept],
    }


@pytest.mark.parametrize("command", ["fit", "refine", "check", "infer"])
def test_a_model_that_could_not_be_saved_is_refused_before_any_work(own, command, monkeypatch):
    for work in ("scorefold.methods.fit.fit", "scorefold.app.infer.infer"):
        monkeypatch.setattr(work, lambda *args, **how: pytest.fail("it went to work"))
    result = call(*commands(own, own / "file" / "new" / "model")[command])
    assert result.exit_code == 2, result.output
    assert "expected a folder that can be made" in " ".join(result.output.replace("│", " ").split())
    assert not (own / "inferred").exists()


@pytest.mark.parametrize("command", ["diagnose", "compare", "check"])
def test_results_that_could_not_be_written_are_refused_before_any_work(own, command, monkeypatch, tmp_path):
    allowed = os.access

    def access(path, mode, **how):
        return (path, mode) != (tmp_path, os.W_OK) and allowed(path, mode, **how)

    monkeypatch.setattr(os, "access", access)
    models = {"compare": [own / "model", own / "other"], "check": [own / "model", own / "x.csv"]}.get(command, [own / "model"])
    result = call(command, *models, "--config", own / "own.toml", "--out", tmp_path)
    assert result.exit_code == 2, result.output
    assert "expected a folder that can be written to" in " ".join(result.output.replace("│", " ").split())
