"""`scorefold compare`: what it prints and writes, and its exit status."""

import json

import pytest
from command_line import call, gives_up_what_hangs
from scipy import stats

import scorefold as sf
from scorefold.app.commands.usage import screen
from scorefold.report.comparison_table import table

OWN = """
[prior]
a = { distribution = "norm" }
[simulator]
function = "own_line_compared:simulate"
[simulate]
budget = 100
"""


def line(theta, rng):
    return theta + rng.standard_normal(2)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder with a user's simulator, its TOML file, and models: good, loose, for fewer observations, of another prior."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.toml").write_text(OWN)
    (folder / "own_line_compared.py").write_text("def simulate(theta, rng):\n    return theta + rng.standard_normal(2)\n")
    prior = sf.Prior({"a": stats.norm(0, 1)})
    sims = sf.simulate(prior, line, 4_500, set_size=3)
    sf.fit(sims, sf.ABC(accept=0.05)).save(folder / "good")
    sf.fit(sims, sf.ABC(accept=0.9, adjust=False)).save(folder / "loose")
    sf.fit(sf.simulate(prior, line, 500, set_size=1), "abc").save(folder / "single")
    sf.fit(sf.simulate(sf.Prior({"a": stats.norm(0, 2)}), line, 500), "abc").save(folder / "other")
    (folder / "nested").mkdir()
    sf.fit(sims, "abc").save(folder / "nested" / "good")
    return folder


# The loose one is nearly as wide as the prior: 9 ± 1.2 standard errors behind with 200 data sets.
@pytest.mark.false_failure(1e-6)
def test_table_verdict_and_folder(own, tmp_path):
    models = [own / "loose", own / "good", own / "single"]
    out = tmp_path / "new" / "folder"
    few = ["--n", 3, "--sims", 200, "--draws", 40]
    result = call("compare", *models, "--config", own / "own.toml", *few, "--out", out)
    assert result.exit_code == 0, result.output
    for words in (
        "own.toml, given 3 observations: 200 data sets, 600 simulator calls",
        "Take good: ",
        "behind",
        "not compared",
    ):
        assert words in result.output.replace("\n", "")
    summary = json.loads((out / "comparison.json").read_text(), parse_constant=pytest.fail)
    assert summary["take"] == "good"
    assert set(summary["refused"]) == {"single"}
    assert summary["about"]["loose"] == str(own / "loose")
    page = (out / "report.html").read_text()
    assert "own_line_compared:simulate" in page
    assert call("report", out).exit_code == 0
    assert (out / "report.html").read_text() == page


def test_no_number_is_broken_in_a_pipe(monkeypatch):
    """rich takes 80 letters there, in which '0.123 ± 0.041' had two lines."""
    monkeypatch.delenv("COLUMNS", raising=False)
    console = screen()
    with console.capture() as shown:
        score, share = {"mean": 0.123, "error": 0.041}, {"mean": 0.5, "error": 0.08}
        one = {"energy score": score, "behind the best": score, "50 % holds": share, "90 % holds": share, "p": 0.5}
        one |= {"seconds": 4.6, "calibrated": True, "diverged": 0, "not converged": 0}
        head = {"verdict": "take a: it is.", "data sets": {"used": 20, "failed": 0}, "n": 10, "draws": 50}
        posteriors = {"nle.model": one, "abc.model": one}
        console.print(table({**head, "posteriors": posteriors, "tied": ["nle.model"], "take": "nle.model", "refused": {}}))
    assert "abc.model  0.123 ± 0.041  0.123 ± 0.041  50% ± 8%  50% ± 8%  0.500  4.6      worse" in shown.get()


def test_nothing_is_written_unless_asked_and_folders_of_one_name_keep_their_paths(own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models = [own / "good", own / "nested" / "good"]
    result = call("compare", *models, "--config", own / "own.toml", "--n", 3, "--sims", 20, "--draws", 20)
    assert result.exit_code == 0, result.output
    assert all(str(model) in result.output.replace("\n", "") for model in models)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("argv", "status", "says"),
    [
        (["good"], 2, "expected two models or more; for a single one use"),
        ([], 2, "Missing argument"),
        (["good", "good"], 2, "expected different models"),
        (["good", "loose"], 2, "expected the simulator that the model was trained on, with parameters a; got one with theta_1"),
        (["good", "loose", "--task", "gausian"], 2, "Did you mean 'gaussian'?"),
        (["good", "loose", "--config", "other.toml"], 2, "expected a TOML file"),
        (["good", "loose", "--config", "own.toml", "--sims", "5"], 2, "20"),
        (["good", "loose", "--config", "own.toml", "--n", "0"], 2, "1"),
        (["good", "loose", "--config", "own.toml", "--out", "/dev/null/x"], 2, "cannot write there"),
        (["good", "none", "--config", "own.toml"], 1, "none"),
        (["good", "other", "--config", "own.toml"], 1, "expected posteriors of one prior"),
        (["single", "other", "--config", "own.toml"], 1, "expected posteriors of one prior"),
        (["--help"], 0, "MODEL MODEL"),
    ],
)
def test_wrong_usage_and_failures(own, monkeypatch, argv, status, says):
    monkeypatch.chdir(own)
    result = call("compare", *argv)
    assert result.exit_code == status, result.output
    assert says in " ".join(f"{result.output} {result.exception}".replace("│", " ").split())


@pytest.mark.full
def test_workers_and_limits_of_the_file_are_kept(own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv = [own / "good", own / "loose", "--n", 3, "--sims", 60, "--draws", 20]
    gives_up_what_hangs(tmp_path, "compare", argv, OWN)
