"""`scorefold simulate` and `scorefold store`: what they print, write and answer."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import call

import scorefold
from scorefold.errors import ScorefoldError
from scorefold.simulation.store import export
from scorefold.simulation.store.store import Store

MODEL = """
import numpy as np

def simulate(theta, rng):
    x = np.outer(theta, rng.normal(size=3))
    return x * np.nan if x[0, 0] > 2 else x
"""
RUN = """
[prior]
a = { distribution = "norm" }
x = { distribution = "uniform" }
[simulator]
function = "model_for_commands:simulate"
[simulate]
budget = 200
seed = 3
workers = 0
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("model_for_commands", None)
    (tmp_path / "model_for_commands.py").write_text(MODEL)
    (tmp_path / "run.toml").write_text(RUN)
    return tmp_path / "run.toml"


@pytest.fixture
def store(run):
    done = call("simulate", run)
    assert done.exit_code == 0, done.output
    return run.parent / "run-simulations"


def test_simulating_from_a_file(run):
    done = call("simulate", run)
    assert done.exit_code == 0, done.output
    assert "simulating: 200 of 200 (100%)" in done.stderr
    assert "failed" in done.stdout
    assert "3 failed" in done.stderr
    assert "cases from 200 simulator calls" in done.stdout
    assert "scorefold store info" in done.stdout
    assert "not finite" in done.stderr
    assert Store.open(run.parent / "run-simulations").stop() == 200
    run.write_text(RUN.replace("200", "250"))
    done = call("simulate", run)
    assert "simulating: 250 of 250 (100%)" in done.stderr
    assert Store.open(run.parent / "run-simulations").stop() == 250


def test_a_wrong_file_is_wrong_usage(run):
    run.write_text(RUN.replace("budget", "budgt"))
    done = call("simulate", run)
    assert done.exit_code == 2
    assert "Did you mean 'budget'" in done.output


def test_another_seed_is_refused(store, run):
    run.write_text(RUN.replace("seed = 3", "seed = 4"))
    done = call("simulate", run)
    assert isinstance(done.exception, ScorefoldError)
    assert "in the store: 3" in str(done.exception)


def test_info(store):
    done = call("store", "info", store)
    assert done.exit_code == 0, done.output
    for text in ("ok", "not finite", "simulate (code", "3, 1", "2×3", "1 shards", "none before the last one", "median"):
        assert text in done.stdout


def test_verify(store):
    assert call("store", "verify", store).exit_code == 0
    (shard,) = (store / "shards").iterdir()
    shard.write_bytes(shard.read_bytes()[:-1])
    done = call("store", "verify", store)
    assert done.exit_code == 1
    assert "1 files are damaged and were set aside" in done.stdout
    assert "should have" in done.stderr


@pytest.mark.parametrize("command", ["info", "verify"])
def test_no_store(tmp_path, command):
    done = call("store", command, tmp_path)
    assert isinstance(done.exception, ScorefoldError)
    assert "found no description" in str(done.exception)


def expected(store):
    ((_, part),) = Store.open(store).read()
    return part


def test_parquet(store):
    parquet = pytest.importorskip("pyarrow.parquet")
    done = call("store", "export", store, "--to", "parquet")
    assert done.exit_code == 0, done.output
    table, part = parquet.read_table(store.with_suffix(".parquet")), expected(store)
    assert table.column_names == ["simulation", "case", "status", "seconds", "a", "theta_x", "x"]
    np.testing.assert_array_equal(table["simulation"], np.arange(200))
    np.testing.assert_array_equal(np.column_stack([table["a"], table["theta_x"]]), part["theta"])
    np.testing.assert_array_equal(np.array(table["x"].to_pylist(), np.float32).reshape(-1, 2, 3), part["x"])
    np.testing.assert_array_equal(np.array(table["status"].to_pylist()) == "ok", part["status"] == 0)
    assert json.loads(table.schema.metadata[b"scorefold"])["seed"] == 3


def test_zarr(store, tmp_path):
    zarr = pytest.importorskip("zarr")
    done = call("store", "export", store, "--to", "zarr", "--out", tmp_path / "all.zarr")
    assert done.exit_code == 0, done.output
    group, part = zarr.open_group(tmp_path / "all.zarr", mode="r"), expected(store)
    for key in ("theta", "x", "case", "status"):
        np.testing.assert_array_equal(group[key][:], part[key])
    assert np.isfinite(group["seconds"][:]).all()
    assert group.attrs["scorefold"]["seed"] == 3


def test_exports_write_over_nothing(store):
    store.with_suffix(".parquet").touch()
    done = call("store", "export", store, "--to", "parquet")
    assert "it is there already" in str(done.exception)


@pytest.mark.parametrize("kind", export.EXPORTS)
def test_a_package_that_is_not_there_is_named(store, tmp_path, monkeypatch, kind):
    for name in ("pyarrow", "pyarrow.parquet", "zarr"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ScorefoldError, match=r"needs (pyarrow|zarr): pip install 'scorefold\[export\]'"):
        export.EXPORTS[kind](Store.open(store), tmp_path / "out")


DOCS = Path(__file__).parents[3] / "docs" / "simulating.md"


def test_the_documented_run_runs(tmp_path):
    found = re.findall(r"```(python|toml)\n(.*?)```", DOCS.read_text().split("## Clusters")[0], flags=re.DOTALL)
    blocks = dict(reversed(found))  # the first of each
    (tmp_path / "my_model.py").write_text(blocks["python"].replace("10_000", "200").replace("Workers(4", "Workers(1"))
    (tmp_path / "run.toml").write_text(blocks["toml"].replace("10_000", "250").replace("workers = 4", "workers = 1"))
    own = {**os.environ, "PYTHONPATH": str(Path(scorefold.__file__).parent.parent)}
    command = "import sys; sys.argv = ['scorefold', 'simulate', 'run.toml']; from scorefold.app.cli import main; main()"
    for argv in (["my_model.py"], ["-c", command]):  # the second continues what the first has begun
        subprocess.run([sys.executable, *argv], cwd=tmp_path, env=own, check=True, timeout=120)
        assert Store.open(tmp_path / "simulations").shape == (20,)
    assert Store.open(tmp_path / "simulations").stop() == 250


def test_ctrl_c_says_what_is_kept(run):
    """As on a terminal: typer alone would end it without a word."""
    (run.parent / "model_for_commands.py").write_text(MODEL.replace("import numpy as np", "import numpy as np, time").replace(
        "    x =", "    time.sleep(0.05)\n    x ="
    ))  # fmt: skip
    own = {**os.environ, "PYTHONPATH": str(Path(scorefold.__file__).parent.parent)}
    command = "import sys; sys.argv = ['scorefold', 'simulate', 'run.toml']; from scorefold.app.cli import main; main()"
    child = subprocess.Popen([sys.executable, "-c", command], cwd=run.parent, env=own, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not list(run.parent.glob("run-simulations/shards/*")) and time.monotonic() < until:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    said = child.communicate(timeout=60)[1]
    assert child.returncode == 1
    assert re.search(r"scorefold: simulating was interrupted after \d+ of 200 simulations; they are kept in .*continues", said)
    assert "Traceback" not in said
    assert 0 < Store.open(run.parent / "run-simulations").stop() < 200


def test_help_says_that_the_file_runs_code():
    for argv in (("simulate",), ("check",), ("compare",), ("diagnose",), ("store", "accept")):
        words = " ".join(call(*argv, "--help").stdout.replace("│", " ").split())
        assert "Python code" in words
    assert "run with all your rights: use only files that you trust" in " ".join(call("simulate", "--help").stdout.split())


def test_a_simulator_that_looks_different_is_accepted_when_told(store, run):
    (run.parent / "model_for_commands.py").write_text(MODEL.replace("    x = np.outer", "    n = 3\n    x = np.outer"))
    sys.modules.pop("model_for_commands")
    refused = call("simulate", run)
    assert isinstance(refused.exception, ScorefoldError)
    assert "`scorefold store accept`" in str(refused.exception)
    done = call("store", "accept", store, run)
    assert done.exit_code == 0, done.output
    assert "was begun with simulate, and may now be continued with simulate" in done.stdout.replace("\n", " ")
    assert call("simulate", run).exit_code == 0
