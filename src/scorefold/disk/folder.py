"""A folder of two files: config.json, strict JSON, and weights.safetensors.

config.json has a format and a version, the size and the SHA-256 of the weights, and what its writer adds. Reading checks before
it reads: that there are these two files and no other, that neither is a link, a pipe or a device, and that they are no larger
than they may be.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from scorefold.disk import strict, tensors
from scorefold.disk.durable import write_folder
from scorefold.errors import ModelError

CONFIG, WEIGHTS = "config.json", "weights.safetensors"
MOST_BYTES = {CONFIG: 2 << 20, WEIGHTS: 1 << 30}
"""Bytes; Python takes up to 25 times as much for the JSON."""

Migrations = Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]


class Format(NamedTuple):
    """The name of a kind of folder, the version that is written now, and how older versions are brought up to it, one version
    at a time.
    """

    name: str
    version: int
    migrations: Migrations
    """From version v to v + 1, for every v before this one that can still be read."""


class Opened(NamedTuple):
    """A folder whose configuration and header of weights have been read and checked; its arrays can be read next."""

    config: dict[str, Any]
    """What the writer added."""
    header: tensors.Header
    arrays: Callable[[Mapping[str, tensors.Spec]], tensors.Arrays]
    """arrays(expected): read them, if they are these."""


def write(folder: Path, format: Format, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a folder of this format with the configuration and the arrays, whole or not at all.

    Sizes, the version and a SHA-256 are added; what would be too large to be read again is a ModelError.
    """
    weights = tensors.content(arrays)
    about = {
        "format": format.name,
        "version": format.version,
        "weights": {"bytes": len(weights), "sha256": hashlib.sha256(weights).hexdigest()},
    }
    files = {CONFIG: strict.text({**config, **about}), WEIGHTS: weights}
    for name, content in files.items():
        if len(content) > MOST_BYTES[name]:
            raise ModelError(
                f"expected at most {MOST_BYTES[name]:,} bytes in {name}; got {len(content):,}. Use a smaller model."
            )
    write_folder(folder, files)


@contextmanager
def opened(folder: Path, format: Format) -> Iterator[Opened]:
    """Open a folder of this format, of this version or an older one, and check all but the weights, which are still to be read.

    A folder that is anything else is a ModelError, which says why.
    """
    _only_files(folder)
    with _open(folder / CONFIG) as (file, size):
        config = strict.parse(file.read(size + 1), CONFIG)
    config = _of_this_version(config, format)
    weights = strict.keys(config.pop("weights", None), ("bytes", "sha256"), "'weights'")
    sha256 = strict.word(weights["sha256"], "the SHA-256", 64)
    with _open(folder / WEIGHTS) as (file, size):
        if strict.whole(weights["bytes"], "the size of the weights", 10, MOST_BYTES[WEIGHTS]) != size:
            raise ModelError(f"expected {weights['bytes']:,} bytes in {WEIGHTS}; got {size:,}. The copy is not complete.")
        header = tensors.read_header(file, size)
        yield Opened(config, header, lambda expected: tensors.read_arrays(file, header, expected, sha256))


def holds(folder: Path, format: Format) -> bool:
    """Whether there is a folder of this format, as far as its file names and the format in its configuration tell; whether it
    can be loaded only `opened` says.
    """
    try:
        _only_files(folder)
        with _open(folder / CONFIG) as (file, size):
            return strict.parse(file.read(size + 1), CONFIG).get("format") == format.name
    except (ModelError, OSError):
        return False


def _of_this_version(config: dict[str, Any], format: Format) -> dict[str, Any]:
    if config.pop("format", None) != format.name:
        raise ModelError(f"expected a {format.name}; {CONFIG} is about something else")
    version = strict.whole(config.pop("version", None), "the version", 1, 10**6)
    if version > format.version:
        raise ModelError(
            f"expected a {format.name} of version {format.version} or older; this one is of version {version}, written by a "
            "newer scorefold. Update scorefold, or save the model again with this one."
        )
    for older in range(version, format.version):
        if older not in format.migrations:
            raise ModelError(
                f"expected a {format.name} of version {format.version}; this one is of version {version}, which this scorefold "
                "no longer reads. Train and save it again."
            )
        config = format.migrations[older](config)
    return config


def _only_files(folder: Path) -> None:
    try:
        with os.scandir(folder) as entries:
            found = {entry.name: entry.stat(follow_symlinks=False).st_mode for _, entry in zip(range(4), entries, strict=False)}
    except OSError as error:
        raise ModelError(f"expected a folder that can be read; {error.strerror or error}") from None
    if set(found) != {CONFIG, WEIGHTS}:
        raise ModelError(f"expected {CONFIG} and {WEIGHTS} and nothing else; got {', '.join(sorted(found)) or 'nothing':.200}")
    for name, mode in found.items():
        if not stat.S_ISREG(mode):
            raise ModelError(f"expected {name} to be a file; it is a link or something else. Copy the file itself.")


@contextmanager
def _open(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """A plain file that is not too large, and its size."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise ModelError(f"expected {path.name} to be a file that can be read; {error.strerror or error}") from None
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_BYTES[path.name]:
            raise ModelError(
                f"expected {path.name} to be a file of at most {MOST_BYTES[path.name]:,} bytes; got {about.st_size:,}"
            )
        yield file, about.st_size
