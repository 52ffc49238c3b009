"""Full disks, folders that can only be read, belong to others or vanish: one typed error each, and nothing half-written."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from untrained import untrained

import scorefold as sf
from scorefold.app.bench.record import appending
from scorefold.app.commands.model_commands import _write as write_draws
from scorefold.disk import durable
from scorefold.errors import DiskFull, FolderVanished, NoPermission, ReadOnly, StorageError
from scorefold.report import results_folder
from scorefold.report.canvas import figure_of, save
from scorefold.simulation.store.export import to_parquet
from scorefold.simulation.store.store import Store

PRIOR = sf.Prior({"a": stats.norm(0, 1)})


def simulator(theta, rng):
    return theta + rng.normal(size=3)


def digest(path):
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "folder"
        for file in sorted(Path(path).rglob("*"))
    }


def shards(path):
    return {
        name: sha for name, sha in digest(path).items() if not name.startswith(("store/runtimes", "store/tmp", "store/lock"))
    }


# Whatever the system says is one typed error

SAID = {
    errno.ENOSPC: DiskFull,
    errno.EDQUOT: DiskFull,
    errno.EFBIG: DiskFull,
    errno.EROFS: ReadOnly,
    errno.EACCES: NoPermission,
    errno.EPERM: NoPermission,
    errno.ENOENT: FolderVanished,
    errno.ESTALE: FolderVanished,
    errno.EIO: StorageError,
}


@pytest.fixture(scope="module")
def posterior():
    return sf.fit(sf.simulate(PRIOR, simulator, 200), "abc")


ACTS = {
    "a model": lambda folder, posterior: posterior.save(folder / "model", overwrite=True),
    "a store": lambda folder, posterior: sf.simulate(PRIOR, simulator, 300, store=folder / "store", workers=0),
    "results": lambda folder, posterior: results_folder.write(folder, "summary.json", {"a": 2}, {}, lambda *parts: "page"),
    "a figure": lambda folder, posterior: save(figure_of(1.0, 1.0), folder / "figure.png"),
    "draws": lambda folder, posterior: write_draws(posterior.sample([[0.1, 0.2, 0.3]], 10), folder / "draws.csv"),
    "an export": lambda folder, posterior: to_parquet(Store.open(folder / "store"), folder / "new.parquet"),
    "a description": lambda folder, posterior: Store.open(folder / "store").accept(np.add),
}


@pytest.mark.parametrize("number", SAID, ids=errno.errorcode.get)
@pytest.mark.parametrize("name", ACTS)
def test_what_the_system_says_is_one_typed_error_and_nothing_changes(tmp_path, monkeypatch, posterior, name, number):
    posterior.save(tmp_path / "model")
    sf.simulate(PRIOR, simulator, 200, store=tmp_path / "store", workers=0)
    for file in ("summary.json", "report.html", "figure.png", "draws.csv"):
        (tmp_path / file).write_text("old")
    before = shards(tmp_path)

    def says(descriptor):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(durable.os, "fsync", says)
        with pytest.raises(StorageError) as error:
            ACTS[name](tmp_path, posterior)
    assert type(error.value) is SAID[number]
    assert os.strerror(number) in str(error.value)
    assert shards(tmp_path) == before
    ACTS[name](tmp_path, posterior)


def test_records_before_a_full_disk_are_whole(tmp_path, monkeypatch):
    path = tmp_path / "records.jsonl"
    with appending(path) as append:
        append({"key": "a"})
        monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(DiskFull, match="The records before are whole"):
            append({"key": "b"})
    assert json.loads(path.read_text().splitlines()[0]) == {"key": "a"}


# Disks as they are

SCRIPT = Path(__file__).parents[1] / "support" / "small_disk.py"
ALONE = (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"])


def own_mounts():
    """How to start a process that may mount what it likes, or None where that is not allowed."""
    for command in ALONE if shutil.which("unshare") else ():
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([*command, "mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True)
        if done.returncode == 0:
            return command
    return None


MOUNTS = own_mounts()


@pytest.mark.parametrize("how", ["limited", *(["mounted"] if MOUNTS else [])])
def test_a_disk_that_is_too_small_and_then_large_enough(tmp_path, how):
    command = [*(MOUNTS if how == "mounted" else []), sys.executable, str(SCRIPT), how, str(tmp_path / "disk")]
    env = {**os.environ, "PYTHONPATH": str(Path(sf.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["small"].values()) == {"DiskFull"}
    assert "model" not in found["left"]
    assert not [name for name in found["left"] if name.startswith(".")]
    assert not found["half a runtime"]
    assert found["in out"] in ([], ["summary.json"])
    assert 0 < found["kept"] < 2_000 if how == "mounted" else found["kept"] >= 0
    assert set(found["large"].values()) == {"done"}
    assert found["the same"]
    if how == "mounted":
        assert found["read-only"] == {
            "simulate": "done",  # nothing is missing, so that nothing need be written
            "save": "ModelError",  # there is one already
            "write a page": "ReadOnly",
            "read": "done",
            "map": "done",
            "extend": "ReadOnly",
            "begin": "ReadOnly",
            "save again": "ReadOnly",
        }


@contextmanager
def forbidden(*folders):
    """Folders that can be read but belong to somebody else."""
    for folder in folders:
        folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if user == 0:
            os.seteuid(0)
        for folder in folders:
            folder.chmod(0o755)


@pytest.fixture
def reachable():
    """A folder that every user can get to."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_folder_of_somebody_else(reachable, posterior):
    store = reachable / "store"
    sims = sf.simulate(PRIOR, simulator, 200, store=store, workers=0)
    with forbidden(store, reachable):
        with pytest.raises(NoPermission, match=r"Permission denied.*Name a folder of your own"):
            posterior.save(reachable / "model")
        with pytest.raises(NoPermission, match="write to the store"):
            sf.simulate(PRIOR, simulator, 200, store=reachable / "other", workers=0)
        with pytest.raises(NoPermission, match="write to the store"):
            sf.simulate(PRIOR, simulator, 300, store=store, workers=0)
        with pytest.raises(NoPermission, match="keep checkpoints in"):
            sf.fit(sims, sf.NPSE(width=4, depth=1), checkpoint=reachable / "training")
        again = Store.open(store).simulations()
        same = sf.simulate(PRIOR, simulator, 200, store=store, workers=0)
    np.testing.assert_array_equal(again.x, sims.x)
    np.testing.assert_array_equal(same.x, sims.x)
    assert os.listdir(reachable) == ["store"]


def test_a_damaged_file_that_cannot_be_moved_is_passed_over(reachable):
    store = reachable / "store"
    sf.simulate(PRIOR, simulator, 200, store=store, workers=0)
    (file,) = (store / "shards").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    with (
        forbidden(store / "shards", store),
        pytest.warns(sf.errors.ScorefoldWarning, match="damaged and are passed over, as nothing can be moved there"),
    ):
        opened = Store.open(store)
    assert opened.missing(200) == [(0, 200)]
    assert file.exists()


def test_a_store_that_vanishes_in_mid_run(tmp_path, monkeypatch):
    """Nothing is written where it was, as shards without their description would be of no use."""
    monkeypatch.setattr("scorefold.simulation.sources.source.BLOCK_SECONDS", 0.0)
    calls = iter(range(1_000))

    def vanishing(theta, rng):
        if next(calls) == 150:
            shutil.rmtree(tmp_path / "store")
        return theta

    with pytest.raises(FolderVanished, match=r"No such file or directory.*Look whether it was removed"):
        sf.simulate(PRIOR, vanishing, 300, store=tmp_path / "store", workers=0)
    assert not list(tmp_path.iterdir())


def test_an_untrained_model_where_a_folder_should_be_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"Not a directory|File exists"):
        untrained("f-npse").save(tmp_path / "file" / "model")
