"""The command line: what it prints and writes, its exit status, and how soon it answers."""

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import call

import scorefold as sf
from scorefold import tasks
from scorefold.app.cli import main
from scorefold.errors import Interrupted, ScorefoldError

SCOREFOLD = shutil.which("scorefold", path=str(Path(sys.executable).parent))
PICTURES = {"corner.png", "training.png", "sampler.png", "predictive.png", "sequence.png"}
FILES = PICTURES | {"draws.npz", "summary.json", "report.html"}
# The numbers of tests/test_posterior.py, so that what they compile serves both. With the defaults it takes a minute.
TINY = sf.NPSE(width=16, depth=1, correction=False, training=sf.Training(steps=150, members=2))
SMALL = {"--budget": "2000", "--n": "5", "--draws": "100", "--seed": "3"}


def small(out, **changes):
    return [part for option in {**SMALL, **changes, "--out": out}.items() for part in option]


# The installed command


def test_help_is_there_at_once(figure):
    # JAX takes a second to import. Time of the processor, whatever else the machine does; the best of three.
    seconds = []
    for _ in range(3):
        started = processor_time_of_children()
        done = subprocess.run([SCOREFOLD, "--help"], capture_output=True, text=True)
        seconds.append(processor_time_of_children() - started)
        assert done.returncode == 0
        assert "infer" in done.stdout
        assert "tasks" in done.stdout
    figure(f"{min(seconds):.2f} s")
    assert min(seconds) < 0.5, seconds


def processor_time_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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


@pytest.mark.parametrize("text", ["1e4", "10_000", "10000", "10000.0"])
def test_a_count_may_be_written_as_in_python(text, tmp_path, monkeypatch, unchecked):
    """It gets as far as the work, with that many."""
    asked = []
    monkeypatch.setattr("scorefold.app.infer.infer", lambda *args: asked.append(args))
    call("infer", "--budget", text, "--out", tmp_path / "out")
    assert "budget=10000" in str(asked[0]) or 10_000 in asked[0]


@pytest.mark.parametrize("text", ["1.5e-1", "nan", "inf", "1e400", "ten", ""])
def test_what_is_no_count_says_how_to_write_one(text, tmp_path):
    result = call("infer", "--budget", text, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "expected a whole number ≥ 100, such as 1000 or 1e3" in " ".join(result.output.replace("│", " ").split())


def test_nothing_is_eaten_from_the_help():
    """Brackets would be read as markup."""
    for command in ("sample", "evidence"):
        text = " ".join(call(command, "--help").output.replace("│", " ").split())
        assert "A TOML file with another prior of the same parameters." in text


def test_where_draws_cannot_go_is_refused_before_they_are_made(tmp_path):
    (tmp_path / "x.csv").write_text("0.5,0.7\n")
    result = call("sample", tmp_path / "no.model", tmp_path / "x.csv", "--out", tmp_path / "nowhere" / "draws.csv")
    assert result.exit_code == 2
    assert "expected a folder that is there" in " ".join(result.output.replace("│", " ").split())


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
    [
        (ScorefoldError("expected this; got that"), "scorefold: expected this; got that\n"),
        (KeyboardInterrupt(), "scorefold: stopped\n"),
        (Interrupted("so much is kept"), "scorefold: so much is kept\n"),
    ],
)
def test_failures_are_one_paragraph(error, said, monkeypatch, capsys):
    status = fail_with(error, monkeypatch)
    printed = capsys.readouterr().err
    assert status == 1
    assert printed.endswith(said)
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
