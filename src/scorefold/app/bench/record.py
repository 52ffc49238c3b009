"""Results as records: one line of strict JSON each, only ever appended.

    {"key": …, "cell": {…}, "measures": {…}, …, "seconds": {…}}

`key` is the hash of the description in `cell`. A line is on the disk before the next is written; a last line that a kill tore
is dropped, on reading and before anything is appended. `seconds`, `memory` and `device` differ from run to run; all else
is the same.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, Required, TypedDict

from scorefold.app.bench.bench_plan import Cell
from scorefold.disk import locks
from scorefold.disk.trouble import told
from scorefold.errors import ScorefoldError

RECORDS, RUNS = "records.jsonl", "runs.jsonl"


class Record(TypedDict, total=False):
    """The result of one cell, as strict JSON can hold it."""

    key: Required[str]
    cell: Required[dict[str, Any]]
    """The fields of `Cell`."""
    truth: list[float | None]
    """The true parameters."""
    training: dict[str, float]
    """The learning rate that was kept and its validation loss."""
    converged: bool
    diverged: bool
    failed: str
    """Why the draws were refused, if they were."""
    draws: list[list[float | None]]
    """Some of them, of the tasks with a figure that shows draws."""
    measures: dict[str, float | None]
    """c2st, mmd2, shift, sd_ratio and sliced_wasserstein, which older records do not have."""
    seconds: dict[str, float]
    memory: dict[str, int]
    """MB: the most that the process had until then, and the accelerator."""
    device: str
    peer: dict[str, Any]
    """Of another package: its versions and settings."""


class Event(NamedTuple):
    """Something that happened to a configuration."""

    what: str
    """"start" (it is begun), "sent" (it waits for a worker or is with one), "record" or "failed"."""
    group: Cell
    record: Record | None = None
    error: str = ""
    """In one line."""


def described(cell: Cell) -> Record:
    """A record before its results."""
    return {"key": cell.key, "cell": {**vars(cell), "together": list(cell.together)}}


def cell_of(record: Record) -> Cell:
    """The description a record belongs to; a ScorefoldError where it has been changed."""
    try:
        cell = Cell(**{**record["cell"], "together": tuple(record["cell"]["together"])})
    except (KeyError, TypeError) as error:
        raise ScorefoldError(f"expected a record of a benchmark cell; got one without a description ({error})") from None
    if cell.key != record["key"]:
        raise ScorefoldError(
            f"the record {record['key']} does not belong to its description ({cell.key}): it was made by another version of "
            "the benchmark, or edited. Use another folder."
        )
    return cell


def read(path: Path) -> list[Record]:
    """The whole lines of a file, the first of each key; none if there is no file."""
    records: dict[str, Record] = {}
    for number, line in enumerate(_whole(path), 1):
        try:
            record = json.loads(line, parse_constant=_refuse)
            key = record["key"]
        except (ValueError, KeyError, TypeError) as error:
            raise ScorefoldError(f"expected one record a line in {path}; line {number} is none ({error})") from None
        records.setdefault(key, record)
    return list(records.values())


def done(path: Path) -> set[str]:
    """The keys of the cells that have a record here, each checked against its description."""
    return {cell_of(record).key for record in read(path)}


@contextmanager
def appending(path: Path) -> Iterator["Appender"]:
    """The file, for one process at a time, without a torn last line."""
    with told(f"write to {path}"):
        file = open(path, "ab", buffering=0)  # noqa: SIM115
    with file:
        if not locks.take(file):
            raise ScorefoldError(f"another run is writing to {path}. Wait for it, or use another folder.")
        whole = sum(len(line) + 1 for line in _whole(path))
        if whole < path.stat().st_size:
            file.truncate(whole)
        yield Appender(file)


class Appender:
    """Appends records, each on the disk when the call returns."""

    def __init__(self, file: FileIO) -> None:
        self._file = file

    def __call__(self, record: Mapping[str, Any]) -> None:
        """One line, written through."""
        line = (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode()
        with told(f"write to {self._file.name}", "The records before are whole; run it again to continue."):
            view = memoryview(line)
            while view:
                view = view[self._file.write(view) or 0 :]
            os.fsync(self._file.fileno())


def _whole(path: Path) -> Sequence[bytes]:
    """The lines that end; a last one that is cut, or that ends but is not JSON, was torn."""
    if not path.exists():
        return []
    *lines, torn = path.read_bytes().split(b"\n")
    if lines and not torn and not _is_json(lines[-1]):
        lines.pop()
    return lines


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
