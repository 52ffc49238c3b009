"""Known inputs against the exact answer: y ~ N(a + b c, ½²) with a known c for each y has a Gaussian posterior."""

import numpy as np
import pytest
import scipy.stats
from typer.testing import CliRunner

import scorefold as sf
from scorefold.app.cli import app

PRIOR = sf.Prior({"a": scipy.stats.norm(0, 1), "b": scipy.stats.norm(0, 1)})
NOISE = 0.5
SHORT = sf.Training(members=2, steps=1_500)


def response(theta, rng, inputs):
    return rng.normal(theta[0] + theta[1] * inputs[0], NOISE)


def exact(y, dose):
    """Mean and covariance."""
    design = np.c_[np.ones(len(y)), dose]
    covariance = np.linalg.inv(np.eye(2) + design.T @ design / NOISE**2)
    return covariance @ design.T @ y / NOISE**2, covariance


@pytest.fixture(scope="module")
def sims():
    return sf.simulate(PRIOR, response, 6_000, inputs=lambda rng: rng.uniform(-2, 2), input_names=["dose"], x_names=["y"])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    dose = rng.uniform(-2, 2, size=10)
    return rng.normal(0.7 - 0.9 * dose, NOISE), dose


METHODS = {
    "nle": sf.NLE(training=SHORT),
    "f-npse": sf.NPSE(training=SHORT),
    "nre": sf.NRE(training=SHORT),
}


@pytest.mark.false_failure(1e-6)
@pytest.mark.full  # unit/posterior/test_posterior_inputs.py has the machinery
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_trained_posterior_uses_the_inputs(sims, data, method, quick_to_run, tmp_path):
    y, dose = data
    posterior = sf.fit(sims, method)
    draws = posterior.sample(y, 1_000, inputs=dose)
    mean, covariance = exact(y, dose)
    sd = np.sqrt(np.diag(covariance))
    assert np.abs((draws.theta.mean(axis=0) - mean) / sd).max() < 2, (
        "a posterior that ignores the inputs has b near 0, 8 sd off"
    )
    assert (draws.theta.std(axis=0) / sd).max() < 2
    assert (draws.theta.std(axis=0) / sd).min() > 0.5
    back = sf.load(posterior.save(tmp_path / "model"))
    np.testing.assert_allclose(back.sample(y, 1_000, inputs=dose).theta, draws.theta, rtol=1e-4, atol=1e-4)


@pytest.mark.full
def test_refining_and_checking_simulate_with_the_observed_inputs(sims, data):
    y, dose = data
    seen = []

    def watched(theta, rng, inputs):
        seen.append(float(inputs[0]))
        return response(theta, rng, inputs)

    tiny = sf.NPSE(width=8, depth=1, correction=False, training=sf.Training(steps=100, members=1))
    posterior = sf.fit(sims, tiny)
    found = posterior.check(y, watched, sims=100, inputs=dose)
    assert found.n == 10
    np.testing.assert_allclose(sorted(set(seen)), np.sort(dose))
    seen.clear()
    refined = posterior.refine(y, watched, budget=600, rounds=2, inputs=dose, sims=sims, training=tiny.training)
    np.testing.assert_allclose(sorted(set(seen)), np.sort(dose))
    assert refined.input_names == ("dose",)
    with pytest.warns(sf.errors.ScorefoldWarning):
        assert refined.sample(y, 50, inputs=dose).inputs.shape == (10, 1)


def test_the_command_line_takes_inputs(tmp_path, monkeypatch):
    (tmp_path / "a_model_with_inputs.py").write_text(
        "def simulate(theta, rng, inputs):\n    return rng.normal(theta[0] * inputs[0])\n"
        "def doses(rng):\n    return rng.uniform(1, 3)\n"
    )
    (tmp_path / "doses.csv").write_text("dose\n1.0\n2.0\n3.0\n")
    run = '[prior]\na = { distribution = "norm" }\n[simulator]\nfunction = "a_model_with_inputs:simulate"\n[simulate]\n'
    run += 'budget = 600\nworkers = 0\nx_names = ["y"]\n'
    (tmp_path / "table.toml").write_text(run + 'inputs = "doses.csv"\n')
    (tmp_path / "drawn.toml").write_text(run + 'inputs = "a_model_with_inputs:doses"\ninput_names = ["dose"]\n')
    (tmp_path / "both.csv").write_text("y,dose\n0.5,1.0\n")
    (tmp_path / "y.csv").write_text("y\n0.5\n")
    (tmp_path / "c.csv").write_text("dose\n1.0\n")

    def call(*argv):
        done = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [str(a) for a in argv])
        return done.exit_code, f"{done.output}{done.exception!r}"

    for name in ("table", "drawn"):
        code, says = call("simulate", tmp_path / f"{name}.toml")
        assert code == 0, says
        assert "given inputs (dose)" in says
    model = tmp_path / "model"
    assert call("fit", tmp_path / "table.toml", "--method", "abc", "--out", model)[0] == 0
    draws = []
    for own in ([tmp_path / "both.csv"], [tmp_path / "y.csv", "--inputs", tmp_path / "c.csv"]):
        code, says = call("sample", model, *own, "--draws", 50, "--out", tmp_path / "draws.npz")
        assert code == 0, says
        draws.append(np.load(tmp_path / "draws.npz")["theta"])
    np.testing.assert_array_equal(*draws)
    code, says = call("sample", model, tmp_path / "y.csv", "--out", tmp_path / "draws.npz")
    assert code != 0
    code, says = call("store", "info", tmp_path / "table-simulations")
    assert "y, dose), the last 1 known inputs" in says
    code, says = call(
        "diagnose", model, "--config", tmp_path / "table.toml", "--n", 1, "--sims", 40, "--draws", 20,
        "--observations", tmp_path / "y.csv", "--inputs", tmp_path / "c.csv", "--out", tmp_path / "page",
    )  # fmt: skip
    assert code == 0, says
