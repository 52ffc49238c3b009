"""Compiled programs on the disk: found again by another process, harmless when broken, in the user's folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scorefold.disk import program_cache as compiled
from scorefold.errors import ScorefoldError

PROGRAM = """
import sys, jax, jax.numpy as jnp, scorefold as sf
from scorefold.disk import program_cache as compiled
compiled.SHORTEST_COMPILATION = 0.0
print(sf.cache(*sys.argv[1:2]))
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
value = jax.jit(lambda x: jnp.linalg.svd(x @ x)[1].sum())(jnp.ones((20, 20)))
print(float(value), hits.count("/jax/compilation_cache/cache_hits"))
"""


def run(*arguments, **environment):
    clean = {name: value for name, value in os.environ.items() if "_CACHE" not in name}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], env={**clean, **environment}, capture_output=True, text=True, check=True
    )
    folder, told = done.stdout.splitlines()
    value, hits = told.split()
    return folder, float(value), int(hits)


def test_a_second_process_finds_the_programs_of_the_first_and_mends_what_broke(tmp_path):
    folder, value, hits = run(SCOREFOLD_CACHE=str(tmp_path))
    assert Path(folder).parent == tmp_path / "compiled"
    assert hits == 0
    entries = list(Path(folder).glob("*-cache"))
    assert entries
    assert run(SCOREFOLD_CACHE=str(tmp_path))[1:] == (value, len(entries))
    for entry in entries:  # as after a kill in the middle of writing
        entry.write_bytes(entry.read_bytes()[:100])
        entry.with_name(entry.name.removesuffix("-cache") + "-atime").unlink()
    assert run(SCOREFOLD_CACHE=str(tmp_path))[1:] == (value, 0)
    assert run(SCOREFOLD_CACHE=str(tmp_path))[1:] == (value, len(entries))


def test_a_folder_that_jax_was_told_to_use_stays(tmp_path):
    own = str(tmp_path / "own")
    assert run(JAX_COMPILATION_CACHE_DIR=own, SCOREFOLD_CACHE=str(tmp_path))[0] == own


def test_where_nothing_can_be_written_everything_works_without(tmp_path):
    (tmp_path / "file").write_text("")
    folder, _, hits = run(SCOREFOLD_CACHE=str(tmp_path / "file"))
    assert (folder, hits) == ("None", 0)


@pytest.mark.parametrize("arguments", [(None, 0), (None, True), (None, "2"), (5,)])
def test_what_cannot_be_right_is_refused(arguments):
    with pytest.raises(ScorefoldError, match="expected"):
        compiled.cache(*arguments)


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ScorefoldError, match="can be written to"):
        compiled.cache(tmp_path / "file")


def test_the_default_folder_is_the_users(monkeypatch):
    monkeypatch.delenv("SCOREFOLD_CACHE", raising=False)
    assert compiled.user_folder().name == "scorefold"
    assert compiled.user_folder() != Path("scorefold")
