"""The command line: what it prints and writes, its exit status, and how soon it answers."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import scorefold as sf
from scorefold import methods, tasks
from scorefold.app.cli import app, main
from scorefold.errors import ScorefoldError

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SCOREFOLD = shutil.which("scorefold", path=str(Path(sys.executable).parent))
PICTURES = {"corner.png", "training.png", "sampler.png", "predictive.png", "sequence.png"}
FILES = PICTURES | {"draws.npz", "summary.json", "report.html"}
# The numbers of tests/test_posterior.py, so that what they compile serves both. With the defaults it takes a minute.
TINY = sf.NPSE(width=16, depth=1, correction=False, training=sf.Training(steps=150, members=2))
SMALL = {"--budget": "2000", "--n": "5", "--draws": "100", "--seed": "3"}


def call(*argv):
    """The command in this process, on a wide terminal."""
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [str(a) for a in argv])


def small(out, **changes):
    return [part for option in {**SMALL, **changes, "--out": out}.items() for part in option]


# The installed command


def test_help_is_there_at_once():
    # JAX takes a second to import; the best of three, for other work on the machine.
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        done = subprocess.run([SCOREFOLD, "--help"], capture_output=True, text=True)
        seconds.append(time.perf_counter() - started)
        assert done.returncode == 0
        assert "infer" in done.stdout
        assert "tasks" in done.stdout
    assert min(seconds) < 1.5, seconds


def test_help_does_not_import_jax():
    code = "import sys, scorefold.app.cli; assert not {'jax', 'numpy', 'matplotlib'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_wrong_usage_of_the_installed_command():
    done = subprocess.run([SCOREFOLD, "infer", "--task", "gausian"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "Did you mean 'gaussian'?" in " ".join(done.stderr.split())
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


# Help, tasks


@pytest.mark.parametrize(("argv", "status"), [(["--help"], 0), (["infer", "--help"], 0), (["tasks", "--help"], 0), ([], 2)])
def test_help(argv, status):
    result = call(*argv)
    assert result.exit_code == status
    assert "Usage" in result.output


def test_help_names_every_option_and_its_default():
    text = call("infer", "--help").output
    for option in (*SMALL, "--task", "--method", "--out"):
        assert option in text
    for default in ("gaussian", "f-npse", "10000", "1000"):
        assert default in text


def test_tasks_are_listed():
    result = call("tasks")
    assert result.exit_code == 0
    lines = [line.split() for line in result.output.splitlines()]
    for name in tasks.names():
        task = tasks.get(name)
        row = next(line for line in lines if line and line[0] == name)
        assert row[1] == str(task.prior.dim)
        assert task.reference_kind in row
        assert task.description.split(". ")[0][:40] in result.output


# infer


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What one small run prints, and the folder it writes."""
    out = tmp_path_factory.mktemp("cli") / "new" / "folder"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(methods.METHODS, "f-npse", TINY)
        result = call("infer", *small(out))
    assert result.exit_code == 0, result.output
    return result.output, out


def test_infer_writes_its_files(written):
    output, out = written
    assert {path.name for path in out.iterdir()} == FILES
    for name in PICTURES:
        assert (out / name).read_bytes().startswith(b"\x89PNG")
        assert 5_000 < (out / name).stat().st_size < 3_000_000
    assert str(out) in output.replace("\n", "")
    assert "The page is" in output
    assert (out / "report.html").read_text().count("<figure>") == len(PICTURES)


def test_infer_summary(written):
    output, out = written
    summary = json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail)
    asked = {"task": "gaussian", "method": "f-npse", "budget": 2000, "n": 5, "draws": 100, "seed": 3}
    assert summary["settings"] == {**asked, "set_size": 1, "rule": None, "sampler": None, "rounds": 0}
    measures = {"squared MMD", "C2ST", "sliced Wasserstein", "mean shift, root mean square", "mean shift, largest"}
    assert set(summary["measures"]) == measures | {f"sd ratio, {which}" for which in ("mean", "smallest", "largest")}
    assert set(summary["seconds"]) == {"simulate", "train", "draw, with compilation", "draw again", "draw given fewer"}
    assert all(np.isfinite(v) for part in ("measures", "seconds") for v in summary[part].values())
    assert summary["converged"] is True
    assert summary["diverged"] is False
    assert set(summary["given fewer"]) == {"1"}
    assert f"{summary['measures']['C2ST']:.3f}" in output
    assert f"{summary['measures']['sliced Wasserstein']:.3f}" in output
    assert "sliced Wasserstein" in (out / "report.html").read_text()
    assert "converged" in output


def test_infer_draws(written):
    _, out = written
    summary = json.loads((out / "summary.json").read_text())
    with np.load(out / "draws.npz", allow_pickle=False) as saved:
        draws = dict(saved)
    task = tasks.get("gaussian")
    assert {name: v.shape for name, v in draws.items()} == {
        "theta": (100, 10), "names": (10,), "x_obs": (5, 10), "truth": (10,), "reference": (100, 10),
    }  # fmt: skip
    assert tuple(draws["names"]) == task.prior.names
    truth, x_obs = task.observe(5, 4)  # data that the training's seed, 3, has not seen
    assert np.array_equal(draws["truth"], truth)
    assert np.array_equal(draws["x_obs"], x_obs)
    ratio = draws["theta"].std(0, ddof=1) / draws["reference"].std(0, ddof=1)
    assert ratio.mean() == pytest.approx(summary["measures"]["sd ratio, mean"])


@pytest.mark.full
def test_the_seed_decides(written, tmp_path, monkeypatch):
    _, out = written
    monkeypatch.setitem(methods.METHODS, "f-npse", TINY)
    assert call("infer", *small(tmp_path)).exit_code == 0
    one, again = (np.load(folder / "draws.npz")["theta"] for folder in (out, tmp_path))
    assert np.array_equal(one, again)


# Wrong usage: exit status 2, and what to do

USAGE = {
    "unknown task": ({"--task": "gausian"}, "unknown task 'gausian'. Did you mean 'gaussian'?"),
    "sampler of another method": ({"--method": "nle", "--sampler": "langevin"}, "expected a sampler; got 'langevin'"),
    "method without sampler": ({"--method": "npe", "--sampler": "nuts"}, "npe has no sampler"),
    "method without rule": ({"--method": "nre", "--rule": "jac"}, "nre has no rule"),
    "unknown method": ({"--method": "fnpse"}, "unknown method 'fnpse'. Did you mean 'f-npse'?"),
    "no observations": ({"--n": "0"}, "--n"),
    "half an observation": ({"--n": "2.5"}, "--n"),
    "few draws": ({"--draws": "19"}, "--draws"),
    "draws in words": ({"--draws": "many"}, "--draws"),
    "small budget": ({"--budget": "99"}, "--budget"),
    "negative seed": ({"--seed": "-1"}, "--seed"),
    "unknown option": ({"--tusk": "gaussian"}, "--tusk"),
}


@pytest.mark.parametrize("what", USAGE)
def test_wrong_usage(what, tmp_path):
    changes, words = USAGE[what]
    result = call("infer", *small(tmp_path / "out", **changes))
    assert result.exit_code == 2
    assert words in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "out").exists(), "nothing was done"


def test_unknown_command():
    assert call("infr").exit_code == 2


# Failures: exit status 1 and one paragraph


def fail_with(error, monkeypatch):
    def infer(*args):
        raise error

    monkeypatch.setattr("scorefold.app.infer.infer", infer)
    monkeypatch.setattr(sys, "argv", ["scorefold", "infer"])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


@pytest.mark.parametrize(
    ("error", "said"),
    [(ScorefoldError("expected this; got that"), "scorefold: expected this; got that\n"), (KeyboardInterrupt(), "")],
)
def test_failures_are_one_paragraph(error, said, monkeypatch, capsys):
    status = fail_with(error, monkeypatch)
    printed = capsys.readouterr().err
    assert status in (1, 130)
    assert said in printed
    assert "Traceback" not in printed


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch, capsys, unchecked):
    (tmp_path / "file").write_text("")
    worked = []
    monkeypatch.setattr("scorefold.app.infer.infer", lambda *args: worked.append(args))
    monkeypatch.setattr(sys, "argv", ["scorefold", "infer", "--out", str(tmp_path / "file" / "out")])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code in (1, 2)
    assert not worked
    assert "Traceback" not in capsys.readouterr().err
