"""One file of a store: FIRST-STOP-SHA256.safetensors with θ, x, case and status of simulations FIRST … STOP-1.

Equal simulations make equal bytes, and the name holds their hash. FIRST is also in the file's header, so that the hash
covers it.

A file is *damaged* where it is not what was written: its length, its hash or its form is wrong. One that is whole, but holds
other parameters or shapes than the description of the store says, *disagrees*: then the description was changed, or the file
belongs to another store.
"""

import hashlib
import json
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from scorefold.errors import ScorefoldError
from scorefold.simulation.outcome import OK, STATUS, rounded

NAME = re.compile(r"(\d{12})-(\d{12})-([0-9a-f]{64})\.safetensors")


class Disagrees(ScorefoldError):
    """A shard is whole, and not what the store says that it is about."""


class Shard(NamedTuple):
    """A file of simulations start … stop-1."""

    start: int
    stop: int
    sha256: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"{self.start:012d}-{self.stop:012d}-{self.sha256}.safetensors"

    @property
    def rank(self) -> tuple[int, str]:
        """By which shards are sorted: of several with the same simulations the first is kept."""
        return (self.start - self.stop, self.sha256)


def layout(rows: int, dim: int, shape: tuple[int, ...]) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    """Types and shapes of the arrays in a shard."""
    return {
        "case": (np.dtype(np.int64), (rows,)),
        "status": (np.dtype(np.uint8), (rows,)),
        "theta": (np.dtype(np.float64), (rows, dim)),
        "x": (np.dtype(np.float32), (rows, *shape)),
    }


def encode(start: int, part: Mapping[str, np.ndarray], dim: int, shape: tuple[int, ...]) -> tuple[Shard, bytes]:
    """A shard that begins with simulation `start`, and its content."""
    rows = len(part["status"])
    arrays = {key: np.ascontiguousarray(part[key], kind) for key, (kind, _) in layout(rows, dim, shape).items()}
    content = safetensors.numpy.save(arrays, metadata={"start": str(start)})
    return Shard(start, start + rows, hashlib.sha256(content).hexdigest()), content


class Checked(NamedTuple):
    """A shard that is whole, with what it says of its simulations."""

    shard: Shard
    theta: np.ndarray
    case: np.ndarray


def check(path: Path, rows: int, dim: int, shape: tuple[int, ...]) -> Checked:
    """The shard in this file, or an error that says what is wrong with it; `Disagrees` if it is whole all the same."""
    match = NAME.fullmatch(path.name)
    if not match:
        raise ScorefoldError("its name is not a shard's")
    start, stop = int(match[1]), int(match[2])
    if not stat.S_ISREG(path.lstat().st_mode):
        raise ScorefoldError("it is not a plain file")
    if not 0 <= start < stop:
        raise ScorefoldError(f"it cannot hold simulations {start} to {stop}")
    content = path.read_bytes()
    length, first = _header(content)
    if len(content) != length:
        raise ScorefoldError(f"it should have {length} bytes and has {len(content)}")
    if first != str(start):
        raise ScorefoldError(f"it should begin with simulation {start} and says {first!r:.20}")
    if (sha256 := hashlib.sha256(content).hexdigest()) != match[3]:
        raise ScorefoldError(f"its content has the SHA-256 {sha256[:12]}…, not the one in its name")
    try:
        part = safetensors.numpy.load(content)
    except SafetensorError as error:
        raise ScorefoldError(f"it is not a safetensors file ({error})") from error
    wanted = layout(stop - start, dim, shape)
    got = {key: (value.dtype, value.shape) for key, value in part.items()}
    if {key: (kind, axes[:1]) for key, (kind, axes) in got.items()} != {
        key: (kind, axes[:1]) for key, (kind, axes) in wanted.items()
    }:
        raise ScorefoldError(f"it should hold {wanted} and holds {got}")
    if got != wanted:
        raise Disagrees(f"it should hold {wanted} and holds {got}")
    if stop > (start // rows + 1) * rows:
        raise Disagrees(f"it holds simulations {start} to {stop}, across a multiple of {rows}")
    ok = part["status"] == OK
    if part["status"].max() >= len(STATUS) or not rounded(part["x"])[1][ok].all():
        raise ScorefoldError("it holds a status or an observation that cannot be")
    return Checked(Shard(start, stop, sha256), part["theta"], part["case"])


def _header(content: bytes) -> tuple[int, str | None]:
    """How long a shard says that it is, and with which simulation it begins."""
    try:
        head = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + head])
        first = header.pop("__metadata__", {}).get("start")
        return 8 + head + max(int(value["data_offsets"][1]) for value in header.values()), first
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ScorefoldError(f"it has no readable header ({type(error).__name__})") from error
