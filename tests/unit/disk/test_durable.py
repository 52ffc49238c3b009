"""Files that are whole or not there."""

import errno
import fcntl
import os

import pytest

from scorefold.disk.durable import make, replace, replacing, sweep, sync, write_once


def test_what_is_written_is_there_and_nothing_else(tmp_path):
    path, temporary = tmp_path / "a" / "b", tmp_path / "tmp"
    assert write_once(path, b"content", temporary)
    assert path.read_bytes() == b"content"
    assert not list(temporary.iterdir())


def test_new_folders_reach_the_disk_too(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("scorefold.disk.durable.sync", synced.append)
    make(tmp_path / "a" / "b")
    write_once(tmp_path / "a" / "b" / "c" / "d", b"content", tmp_path / "a" / "b" / "c")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]


def test_nothing_is_written_to_a_place_that_has_vanished(tmp_path, monkeypatch):
    """Neither at once, nor where the folder goes between the first byte and the name."""
    with pytest.raises(FileNotFoundError):
        write_once(tmp_path / "gone" / "shards" / "a", b"content", tmp_path / "gone" / "tmp")
    (tmp_path / "shards").mkdir()
    monkeypatch.setattr(os, "fsync", lambda descriptor: (tmp_path / "shards").rmdir())
    with pytest.raises(FileNotFoundError):
        write_once(tmp_path / "shards" / "a", b"content", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    replace(path, b"old")

    def failing(part):
        part.write_bytes(b"half of the n")
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"), replacing(path) as part:
        failing(part)
    assert path.read_bytes() == b"old"
    replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["page.html"]


def test_a_folder_is_put_in_place_when_it_is_whole(tmp_path):
    def stopped(part):
        part.mkdir()
        (part / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "out.zarr") as part:
        stopped(part)
    assert not os.listdir(tmp_path)
    with replacing(tmp_path / "out.zarr") as part:
        part.mkdir()
    assert os.listdir(tmp_path) == ["out.zarr"]


def test_nothing_is_written_over(tmp_path):
    path, temporary = tmp_path / "b", tmp_path / "tmp"
    assert write_once(path, b"first", temporary)
    assert not write_once(path, b"second", temporary)
    assert path.read_bytes() == b"first"
    assert not list(temporary.iterdir())


def test_only_dead_writers_are_swept(tmp_path):
    (tmp_path / "dead").write_bytes(b"half")
    with (tmp_path / "alive").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert sweep(tmp_path) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["alive"]
    assert sweep(tmp_path) == 1
    assert sweep(tmp_path / "not there") == 0


def test_a_swept_writer_writes_again(tmp_path, monkeypatch):
    temporary, real, swept = tmp_path / "tmp", fcntl.flock, []

    def late(descriptor, how):
        if not swept:
            swept.append([path.unlink() for path in temporary.iterdir()])
        return real(descriptor, how)

    monkeypatch.setattr("scorefold.disk.locks.fcntl.flock", late)
    assert write_once(tmp_path / "b", b"content", temporary)
    assert (tmp_path / "b").read_bytes() == b"content"
    assert len(swept) == 1


def test_an_interrupted_writer_leaves_nothing_under_the_name(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_once(tmp_path / "b", b"content", tmp_path / "tmp")
    assert not (tmp_path / "b").exists()
    assert not list((tmp_path / "tmp").iterdir())


def test_a_file_system_without_links_will_do(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert write_once(tmp_path / "b", b"first", tmp_path / "tmp")
    assert not write_once(tmp_path / "b", b"second", tmp_path / "tmp")
    assert (tmp_path / "b").read_bytes() == b"first"
    assert not list((tmp_path / "tmp").iterdir())


def test_a_folder_is_synced(tmp_path):
    sync(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        sync(tmp_path / "file")
