"""Named arrays in the safetensors format, read by a reader that trusts nothing.

    8 bytes       the header's length, little endian
    header        {"name": {"dtype": "F32", "shape": […], "data_offsets": [start, stop]}, …}, padded with spaces
    data          the arrays one after the other

The format's own library accepts a key twice (the last one counts), names and metadata nobody asked for, and NaN. Here the
header must name exactly the arrays that are expected, each once, with its type and shape, and the data must be theirs to the
last byte, without gaps, overlaps or a rest; only then is anything allocated. The SHA-256 and the finiteness of every number
are checked as they are read.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import BinaryIO, NamedTuple

import numpy as np
from safetensors.numpy import save

from scorefold.disk import strict
from scorefold.errors import ModelError

LONGEST_HEADER = 1 << 20
MOST_ARRAYS = 10_000
MOST_AXES = 8
TYPES: dict[str, np.dtype] = {
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
}
MOST_PLACES = 2**40
"""In an array whose empty axes are counted as one: what NumPy can hold without numbers in it."""

Arrays = dict[str, np.ndarray]


class Spec(NamedTuple):
    """The shape and type that an array in a file should have, and whether all its numbers must be finite."""

    shape: tuple[int, ...]
    dtype: np.dtype
    finite: bool = True
    """Whether NaN and infinity are refused."""


class Header(NamedTuple):
    """What a file of arrays says it holds: the shape and type of each by name, in the order of the data."""

    arrays: dict[str, Spec]
    raw: bytes
    """As it is in the file, with its length."""

    @property
    def numbers(self) -> int:
        """How many numbers all arrays hold together."""
        return sum(math.prod(spec.shape) for spec in self.arrays.values())


def content(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a safetensors file.

    Args:
        arrays: What it holds, by name.

    Returns:
        The bytes; equal arrays give equal bytes.

    Raises:
        ModelError: An array has another type than those in `TYPES`.
    """
    for name, array in arrays.items():
        if array.dtype not in TYPES.values():
            raise ModelError(f"expected arrays of type {', '.join(TYPES)}; {name} is {array.dtype}")
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def read_header(file: BinaryIO, size: int) -> Header:
    """Read the header of a file of `size` bytes, and check that the arrays it names fill the file exactly, one after the other;
    nothing is allocated for them yet.
    """
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or not 2 <= length <= min(LONGEST_HEADER, size - 8):
        raise ModelError(f"expected a header of 2 to {LONGEST_HEADER:,} bytes within the file; got {length:,}")
    raw = file.read(length)
    entries = strict.parse(raw, "the header of the weights")
    if len(entries) > MOST_ARRAYS:
        raise ModelError(f"expected at most {MOST_ARRAYS:,} arrays; got {len(entries):,}")
    places = [(*_entry(name, entry), name) for name, entry in entries.items()]
    end = 0
    for first, stop, _, name in sorted(places, key=lambda place: place[:2]):
        if first != end:
            raise ModelError(f"expected the arrays one after the other; {name!r:.60} starts at {first}, not at {end}")
        end = stop
    if end != size - 8 - length:
        raise ModelError(f"expected {size - 8 - length:,} bytes of arrays; the header speaks of {end:,}")
    ordered = sorted(places, key=lambda place: place[:2])
    return Header({name: spec for _, _, spec, name in ordered}, start + raw)


def _entry(name: str, entry: object) -> tuple[int, int, Spec]:
    where = f"the array {name!r:.60}"
    described = strict.keys(entry, ("dtype", "shape", "data_offsets"), where)
    dtype = TYPES[strict.one_of(described["dtype"], TYPES, f"the type of {where}")]
    shape = [strict.whole(n, f"an axis of {where}", 0, 2**40) for n in strict.listed(described["shape"], where, MOST_AXES)]
    offsets = strict.listed(described["data_offsets"], f"the place of {where}", 2)
    if len(offsets) != 2:
        raise ModelError(f"expected {where} to have a start and an end; got {offsets}")
    first, stop = (strict.whole(n, f"the place of {where}", 0, 2**50) for n in offsets)
    if stop - first != math.prod(shape) * dtype.itemsize or math.prod(max(n, 1) for n in shape) > MOST_PLACES:
        raise ModelError(f"expected {where} of shape {tuple(shape)} to have other than {stop - first} bytes")
    return first, stop, Spec(tuple(shape), dtype)


def read_arrays(file: BinaryIO, header: Header, expected: Mapping[str, Spec], sha256: str) -> Arrays:
    """Read the arrays, once the header names exactly the expected ones; every number is checked to be finite where it should
    be, and all of them by the SHA-256. A ModelError says what is wrong.
    """
    compare(header.arrays, expected)
    digest = hashlib.sha256(header.raw)
    arrays = {}
    for name, spec in header.arrays.items():
        array = np.empty(spec.shape, spec.dtype)
        view = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        if file.readinto(view) != len(view):  # type: ignore[attr-defined]
            raise ModelError("expected the weights to stay as long as they were; they were cut while being read")
        digest.update(view)
        if expected[name].finite and not np.isfinite(array).all():
            raise ModelError(f"expected finite numbers; the array {name} has {np.sum(~np.isfinite(array)):,} that are not")
        arrays[name] = array
    if digest.hexdigest() != sha256:
        raise ModelError("expected the weights to have the SHA-256 that they were written with; they have been changed")
    return arrays


def compare(found: Mapping[str, Spec], expected: Mapping[str, Spec]) -> None:
    """Check that a file holds what it should.

    Args:
        found: Shapes and types in the file, by name.
        expected: Those that there should be.

    Raises:
        ModelError: They differ; the message names the first difference.
    """
    strict.keys(dict(found), expected, "the weights")
    for name, spec in expected.items():
        got = found[name]
        if (got.shape, got.dtype) != (spec.shape, spec.dtype):
            raise ModelError(f"expected {name} to be {spec.dtype} of shape {spec.shape}; got {got.dtype} of shape {got.shape}")
