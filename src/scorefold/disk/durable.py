"""Files and folders that are there whole or not at all, also after a kill or a power cut.

A file is written under another name in a folder for such files, synced, linked to the final name (which fails if that exists),
and the folder synced. The writer holds a lock on the temporary file, which ends with the process: files of dead writers can be
told and are swept.

The files of a folder are written into a hidden folder beside it, each one synced, then the folder itself; one rename gives it
its name, and the folder around it is synced. A single file that may take the place of an older one is written likewise. A
folder that is replaced is first renamed out of the way and removed when the new
one is in place: a crash between the two renames leaves both, whole, under hidden names beside the place, and nothing under the
name.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from scorefold.disk import locks


def write_once(path: Path, content: bytes, temporary: Path) -> bool:
    """Put `content` at `path`, whole or not at all, by way of the folder `temporary`; False, with nothing changed, if the file
    exists. Several processes may try at once: one of them writes. The two folders are made where they are missing, but not
    those around them: a file has no business in a place that has vanished.
    """
    for folder in {path.parent, temporary}:
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            sync(folder.parent)
    while True:
        unnamed = temporary / secrets.token_hex(16)
        descriptor = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            locks.wait(descriptor)
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
            _link(unnamed, path)
        except FileExistsError:
            return False
        except FileNotFoundError:
            if unnamed.exists() or not path.parent.is_dir():
                raise
            continue  # somebody swept between the opening and the locking
        finally:
            unnamed.unlink(missing_ok=True)
            os.close(descriptor)
        sync(path.parent)
        return True


def make(folder: Path) -> None:
    """Make a folder and those it lies in, where they are missing, so that they are still there after a power cut: each new one
    is synced to the disk with the folder around it.
    """
    if not folder.is_dir():
        make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def _link(unnamed: Path, path: Path) -> None:
    try:
        os.link(unnamed, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP):
            raise
        if path.exists():  # a file system without links: the next best
            raise FileExistsError(path) from None
        os.rename(unnamed, path)


def sync(folder: Path) -> None:
    """Wait until the names of the files in this folder have reached the disk, without which a synced file may be nameless after
    a power cut.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(temporary: Path) -> int:
    """Remove the temporary files that dead writers have left, and return how many there were.

    A writer holds a lock on its file, so that those of living ones are told and stay.
    """
    count = 0
    for path in temporary.glob("*"):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if locks.take(descriptor):
                path.unlink(missing_ok=True)
                count += 1
        except OSError:
            continue  # not ours to remove
        finally:
            os.close(descriptor)
    return count


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Another path beside this one, with the same ending, for a file (or a folder) to be written to.

    It takes the place of what may be there when all went well; after an error that is untouched, and nothing else is left.
    """
    part = path.with_name(f".{secrets.token_hex(8)}{path.suffix}")
    try:
        yield part
        if part.is_file():
            with open(part, "rb") as file:
                os.fsync(file.fileno())
        os.replace(part, path)
        sync(path.parent)
    finally:
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


def replace(path: Path, content: bytes) -> None:
    """Put `content` at `path`, whole or not at all, in place of the file that may be there."""
    with replacing(path) as part:
        part.write_bytes(content)


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put these files, by name, into a folder of this name, whole or not at all, in place of the folder that may be there.

    After an error the old folder is back in its place.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    hidden = folder.parent / f".{folder.name}.{secrets.token_hex(8)}"
    part, old = hidden.with_name(hidden.name + ".part"), hidden.with_name(hidden.name + ".old")
    part.mkdir()
    try:
        for name, content in files.items():
            with open(part / name, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        sync(part)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if old.exists() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
