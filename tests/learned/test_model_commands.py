"""`scorefold simulate`, `fit`, `sample` and `diagnose`: a user's own simulator from a TOML file to draws in a file."""

import signal

import numpy as np
import pytest
from command_line import call

import scorefold as sf
from scorefold import methods
from scorefold.errors import ScorefoldWarning
from scorefold.train import checkpoint

TINY = sf.NPSE(width=8, depth=1, correction=False, training=sf.Training(steps=100, members=1))
MODEL = "def simulate(theta, rng):\n    return theta + rng.normal(size=2)\n"
RUN = """
[prior]
a = { distribution = "norm" }
b = { distribution = "uniform" }
[simulator]
function = "model_to_fit:simulate"
[simulate]
budget = 400
workers = 0
store = "sims"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "model_to_fit.py").write_text(MODEL)
    (folder / "run.toml").write_text(RUN)
    np.savetxt(folder / "x.csv", np.random.default_rng(0).normal(size=(3, 2)), delimiter=",", header="one,two", comments="")
    np.save(folder / "x.npy", np.loadtxt(folder / "x.csv", delimiter=",", skiprows=1))
    done = call("simulate", folder / "run.toml")
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="module")
def model(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(methods.METHODS, "f-npse", TINY)
        done = call("fit", folder / "run.toml", "--method", "f-npse", "--out", folder / "model")
    assert done.exit_code == 0, done.output
    assert "scorefold sample" in done.output
    assert not (folder / "model.checkpoint").exists()
    return folder / "model"


@pytest.mark.parametrize("out", ["draws.npz", "draws.csv", "draws.nc"])
def test_sampling_into_a_file(folder, model, out):
    done = call("sample", model, folder / "x.csv", "--draws", 50, "--seed", 4, "--out", folder / out)
    assert done.exit_code == 0, done.output
    assert "50 draws are in" in done.output
    theta = sf.load(model).sample(np.load(folder / "x.npy"), 50, seed=4).theta
    if out.endswith("npz"):
        assert np.array_equal(np.load(folder / out)["theta"], theta)
    elif out.endswith("csv"):
        lines = (folder / out).read_text().splitlines()
        assert lines[0] == "a,b"
        np.testing.assert_allclose(np.loadtxt(lines[1:], delimiter=","), theta)
    else:
        import arviz

        assert np.array_equal(arviz.from_netcdf(folder / out).posterior["b"].to_numpy()[0], theta[:, 1])


def test_the_sets_and_the_reason_for_them_are_shown(folder, model):
    for asked, says in (([], "as trained"), (["--set-size", "auto"], "there was nothing to choose from")):
        done = call("sample", model, folder / "x.csv", "--draws", 50, *asked, "--out", folder / "sets.npz")
        assert done.exit_code == 0, done.output
        assert "Sets: 3; sets of up to 1" in done.output
        assert says in done.output


def test_both_kinds_of_files_give_the_same_draws(folder, model):
    for kind in ("csv", "npy"):
        call("sample", model, folder / f"x.{kind}", "--draws", 20, "--out", folder / f"{kind}.npz")
    assert np.array_equal(np.load(folder / "csv.npz")["theta"], np.load(folder / "npy.npz")["theta"])


def test_a_models_own_simulator_is_diagnosed(folder, model):
    small = ["--n", 2, "--sims", 20, "--draws", 20, "--out", folder / "diagnosis"]
    done = call("diagnose", model, "--config", folder / "run.toml", *small)
    assert done.exit_code == 0, done.output
    assert "run.toml, given 2 observations" in done.output


@pytest.mark.full
def test_a_model_of_ones_own_is_refined(folder, model, short_likelihood):
    out = folder / "refined"
    argv = ["refine", model, folder / "x.csv", "--config", folder / "run.toml", "--out", out, "--budget", 600, "--rounds", 2]
    done = call(*argv)
    assert done.exit_code == 0, done.output
    assert "for one data set of n = 3 and its neighbourhood" in done.output
    assert f"scorefold sample {out}" in done.output
    assert sf.load(out).n == 3
    assert call("sample", out, folder / "x.csv", "--draws", 50, "--out", folder / "near.npz").exit_code == 0
    assert sorted(one.name for one in (folder / "refined.rounds").iterdir())[0] == "round-1"
    again = call(*argv)
    assert again.exit_code == 2
    assert "--overwrite replaces a model" in again.output
    assert call(*argv, "--overwrite").exit_code == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--config": "nowhere.toml"}, "expected a TOML file at"),
        ({"OBSERVATIONS": "x.txt"}, "expected a file that ends in .npy or .csv"),
    ],
)
def test_refining_is_refused_before_anything_runs(folder, model, change, message):
    data = folder / change.get("OBSERVATIONS", "x.csv")
    done = call("refine", model, data, "--config", folder / change.get("--config", "run.toml"), "--out", folder / "none")
    assert done.exit_code == 2
    assert message in done.output
    assert not (folder / "none.rounds").exists()


def test_a_training_that_was_stopped_goes_on(folder, monkeypatch):
    monkeypatch.setitem(methods.METHODS, "f-npse", TINY)
    out = folder / "stopped"
    argv = ["fit", folder / "sims", "--method", "f-npse", "--out", out]
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Watch, "stopped", [signal.SIGINT])  # as if Ctrl-C had come in the first round
        stopped = call(*argv)
    assert stopped.exit_code == 1
    assert "Go on with --resume" in stopped.output
    assert f"the best networks so far are saved as the model {out}.so-far" in stopped.output
    with pytest.warns(ScorefoldWarning, match="not finished: it holds the best networks of a training that was stopped"):
        so_far = sf.load(f"{out}.so-far")
    assert so_far.history.train.shape == (1, 1)
    with pytest.warns(ScorefoldWarning, match="not finished"):
        so_far.sample(np.load(folder / "x.npy"), 20)
    assert "not finished" in call("sample", f"{out}.so-far", folder / "x.csv", "--out", folder / "unfinished.npz").output
    assert not out.exists()
    refused = call(*argv)
    assert refused.exit_code == 2
    assert "--resume" in refused.output
    assert call(*argv, "--resume").exit_code == 0
    assert sf.load(out).made.budget == 400
    assert sf.load(out).history.train.shape == (1, 2)
    assert not list(folder.glob("stopped.*"))


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["fit", "{}/run.toml", "--out", "{}/new", "--method", "f-nspe"], "Did you mean 'f-npse'"),
        (["fit", "{}/run.toml", "--out", "{}/x.csv"], "exists already"),
        (["sample", "{}/model", "{}/x.txt"], ".npy or .csv"),
        (["sample", "{}/model", "{}/none.csv"], "cannot be read"),
        (["sample", "{}/model", "{}/x.csv", "--out", "{}/x.xlsx"], ".npz, .csv, .nc"),
        (["sample", "{}/model", "{}/x.csv", "--set-size", "six"], "whole number or auto"),
        (["diagnose", "--config", "{}/run.toml"], "goes with MODEL"),
    ],
)
def test_wrong_usage(folder, argv, says):
    done = call(*(word.format(folder) for word in argv))
    assert done.exit_code == 2
    assert says in " ".join(done.output.replace("│", " ").split())


def test_sampling_under_another_prior_and_given_a_parameter(folder, model):
    other, a, b = folder / "other.toml", '{ distribution = "norm", loc = 1.0, scale = 0.01 }', '{ distribution = "uniform" }'
    other.write_text(f"[prior]\na = {a}\nb = {b}\n")
    done = call("sample", model, folder / "x.csv", "--draws", 50, "--prior", other, "--out", folder / "other.npz")
    assert done.exit_code == 0, done.output
    assert np.abs(np.load(folder / "other.npz")["theta"][:, 0] - 1).max() < 0.1
    done = call("sample", model, folder / "x.csv", "--draws", 50, "--given", "b=0.25", "--out", folder / "given.npz")
    assert done.exit_code == 0, done.output
    np.testing.assert_allclose(np.load(folder / "given.npz")["theta"][:, 1], 0.25, atol=1e-6)
    assert call("sample", model, folder / "x.csv", "--given", "b").exit_code == 2
    (folder / "none.toml").write_text("[simulate]\n")
    assert call("sample", model, folder / "x.csv", "--prior", folder / "none.toml").exit_code == 2


@pytest.mark.full
def test_evidence(folder, model):
    done = call("evidence", model, folder / "x.csv")
    assert done.exit_code == 0, done.output
    assert "log p(x_1 … x_n) - Σ_j log p(x_j) =" in done.output
