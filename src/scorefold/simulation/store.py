"""Simulations on disk: a folder that survives kills, power cuts and several writers at once.

    description.json          written once: schema, prior, simulator, seed, set size, shapes, versions
    prior-SHA256.safetensors  the draws of a prior that is known from draws only
    shards/      FIRST-STOP-SHA256.safetensors: θ (rows, dim), x (rows, …), case and status of simulations FIRST … STOP-1
    runtimes/    FIRST-STOP.safetensors: seconds of the same simulations
    quarantine/  files that were found damaged
    tmp/         files that are being written

A shard is never changed. What comes in is written at once as a small shard (`durable.py`); when all of an aligned range of
`rows` simulations is there, or the run's last one, it is written again as one shard and the small ones are removed. So a
finished store is the same, byte for byte, whoever wrote it in whatever order. Runtimes are the exception, as no clock repeats
itself; hence they are kept apart. The budget is not part of the description: a larger one continues the store.

Names carry the range and the SHA-256 of the content. Opening checks names, lengths, hashes and contents, and moves what does
not agree to quarantine/; those simulations are then missing and made again. Two writers may do work twice, but cannot harm:
equal content has an equal name, and a shard is only removed once a longer one (or, of equal length, one first in the alphabet)
holds its range.
"""

import contextlib
import hashlib
import itertools
import json
import os
import re
import secrets
import stat
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.prior import Prior
from scorefold.prior import described as prior_files
from scorefold.simulation import durable
from scorefold.simulation.cases import IN_MEMORY, Plan, Simulations, gather_blocks, plan
from scorefold.simulation.one import OK, STATUS, Block

SCHEMA = 1
SHARD_BYTES = 16 << 20
MOST_ROWS = 16_384
MANY = 256
"""So many small shards of one range are merged before it is complete."""
NAME = re.compile(r"(\d{12})-(\d{12})-([0-9a-f]{64})\.safetensors")
IDENTITY = ("schema", "prior", "simulator", "seed", "set_size", "shape", "rows")
"""What must agree to continue; the versions that wrote the store are there to be read."""


class Shard(NamedTuple):
    """A file of simulations start … stop-1."""

    start: int
    stop: int
    sha256: str
    failed: int

    @property
    def name(self) -> str:
        """Of the file."""
        return f"{self.start:012d}-{self.stop:012d}-{self.sha256}.safetensors"

    @property
    def rank(self) -> tuple[int, str]:
        """Of several with the same simulations the first by this is kept."""
        return (self.start - self.stop, self.sha256)


def description(
    prior: Prior, simulator: Mapping[str, str], seed: int, set_size: int, shape: tuple[int, ...], version: str
) -> dict[str, Any]:
    """What a store is about."""
    row = 8 * prior.dim + 4 * int(np.prod(shape)) + 9
    rows = 1 << max(4, min(MOST_ROWS, SHARD_BYTES // row).bit_length() - 1)
    return {
        "schema": SCHEMA,
        "scorefold": version,
        "prior": prior_files.describe(prior),
        "simulator": dict(simulator),
        "seed": int(seed),
        "set_size": int(set_size),
        "shape": list(shape),
        "rows": rows,
    }


class Store:
    """An open store."""

    def __init__(self, path: Path, about: dict[str, Any], prior: Prior):
        self.path, self.about, self.prior = path, about, prior
        self.shape: tuple[int, ...] = tuple(about["shape"])
        self.rows: int = about["rows"]
        self.quarantined: list[str] = []
        self._shards: dict[int, list[Shard]] = {}
        self.scan()

    @classmethod
    def exists(cls, path: str | os.PathLike[str]) -> bool:
        """Whether there is a description."""
        return (Path(path) / "description.json").is_file()

    @classmethod
    def create(cls, path: str | os.PathLike[str], prior: Prior, about: dict[str, Any]) -> "Store":
        """A store with this description: a new one, or the one that is there if it is about the same."""
        path = Path(path)
        refuse_other(path)
        if draws := prior_files.arrays(prior):
            durable.write_once(path / _draws_name(about), safetensors.numpy.save(draws), path / "tmp")
        text = json.dumps(about, indent=1, sort_keys=True, allow_nan=False) + "\n"
        durable.write_once(path / "description.json", text.encode(), path / "tmp")
        return cls.open(path, about)

    @classmethod
    def open(cls, path: str | os.PathLike[str], expected: Mapping[str, Any] | None = None) -> "Store":
        """The store at this path, all its files checked; refused if it is not about what is expected."""
        path = Path(path)
        about = read_description(path)
        if expected is not None:
            refuse_difference(path, about, expected)
        arrays = {}
        if about["prior"]["kind"] == "draws":
            try:
                arrays = safetensors.numpy.load((path / _draws_name(about)).read_bytes())
            except (OSError, SafetensorError) as error:
                raise ScorefoldError(f"expected the prior's draws in {path / _draws_name(about)}; got {error}") from error
        return cls(path, about, prior_files.restore(about["prior"], arrays))

    # What is there

    def scan(self) -> None:
        """Look at the folder anew: check files not seen before, quarantine bad ones, remove what longer shards hold."""
        known = {shard.name: shard for shard in self._all()}
        durable.sweep(self.path / "tmp")
        found, bad = [], {}
        folder = self.path / "shards"
        for name in sorted(os.listdir(folder)) if folder.is_dir() else []:
            try:
                found.append(known[name] if name in known else self._checked(folder / name))
            except FileNotFoundError:
                continue  # another writer has merged it
            except ScorefoldError as error:
                bad[name] = str(error)
        self._quarantine(bad)
        self._shards = {}
        for shard in found:
            self._shards.setdefault(shard.start // self.rows, []).append(shard)
        for number in self._shards:
            self._drop_held_twice(number)

    def _all(self) -> list[Shard]:
        return [shard for number in sorted(self._shards) for shard in sorted(self._shards[number])]

    def _checked(self, path: Path) -> Shard:
        """The shard in this file, or an error that says what is wrong with it."""
        match = NAME.fullmatch(path.name)
        if not match:
            raise ScorefoldError("its name is not a shard's")
        start, stop = int(match[1]), int(match[2])
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ScorefoldError("it is not a plain file")
        if not 0 <= start < stop <= (start // self.rows + 1) * self.rows:
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
        wanted = self._layout(stop - start)
        got = {key: (value.dtype, value.shape) for key, value in part.items()}
        if got != wanted:
            raise ScorefoldError(f"it should hold {wanted} and holds {got}")
        good = part["status"] == OK
        if part["status"].max() >= len(STATUS) or not np.isfinite(part["x"][good]).all():
            raise ScorefoldError("it holds statuses or observations that cannot be")
        return Shard(start, stop, sha256, int((~good).sum()))

    def _layout(self, rows: int) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        return {
            "case": (np.dtype(np.int64), (rows,)),
            "status": (np.dtype(np.uint8), (rows,)),
            "theta": (np.dtype(np.float64), (rows, self.prior.dim)),
            "x": (np.dtype(np.float32), (rows, *self.shape)),
        }

    def _quarantine(self, bad: dict[str, str]) -> None:
        if not bad:
            return
        folder = self.path / "quarantine"
        folder.mkdir(exist_ok=True)
        for name in bad:
            with contextlib.suppress(FileNotFoundError):  # another process was quicker
                os.replace(self.path / "shards" / name, folder / f"{name}.{secrets.token_hex(4)}")
        self.quarantined += bad
        first, why = next(iter(bad.items()))
        warnings.warn(
            f"{len(bad):,} of the files in {self.path / 'shards'} are damaged and were moved to {folder}: {first}: {why}"
            f"{'; and others' if len(bad) > 1 else ''}. What they held counts as missing; simulate again to make up for it.",
            ScorefoldWarning,
            stacklevel=2,
        )

    def _pieces(self, number: int) -> list[tuple[int, int, Shard]]:
        """Which simulations of a range to read from which shard: (start, stop, shard), without overlaps, in order."""
        shards = sorted(self._shards.get(number, []), key=lambda shard: shard.rank)
        owner = np.full(self.rows, -1)
        first = number * self.rows
        for place, shard in reversed(list(enumerate(shards))):
            owner[shard.start - first : shard.stop - first] = place
        edges = np.flatnonzero(np.diff(owner, prepend=-2, append=-2))
        pieces = itertools.pairwise(edges)
        return [(first + int(a), first + int(b), shards[owner[a]]) for a, b in pieces if owner[a] >= 0]

    def missing(self, stop: int) -> list[tuple[int, int]]:
        """Ranges of simulations below `stop` that are not there; none goes across a multiple of `rows`."""
        gaps = []
        for number in range(-(-stop // self.rows)):
            at, end = number * self.rows, min((number + 1) * self.rows, stop)
            for start, upto, _ in self._pieces(number):
                if start > at:
                    gaps.append((at, min(start, end)))
                at = max(at, upto)
            if at < end:
                gaps.append((at, end))
        return [gap for gap in gaps if gap[0] < gap[1]]

    def stop(self) -> int:
        """One after the last simulation there is."""
        return max((shard.stop for shard in self._all()), default=0)

    def read(self, stop: int | None = None) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """All simulations below `stop` in order, a shard at a time: (index of the first, θ, x, case and status)."""
        stop = self.stop() if stop is None else stop
        for number in range(-(-stop // self.rows)):
            for start, part in self._read_range(number):
                keep = min(stop, start + len(part["status"])) - start
                if keep > 0:
                    yield start, {key: value[:keep] for key, value in part.items()}

    def _read_range(self, number: int) -> list[tuple[int, dict[str, np.ndarray]]]:
        for attempt in range(5):
            try:
                parts = []
                for start, stop, shard in self._pieces(number):
                    content = safetensors.numpy.load((self.path / "shards" / shard.name).read_bytes())
                    cut = slice(start - shard.start, stop - shard.start)
                    parts.append((start, {key: value[cut] for key, value in content.items()}))
                return parts
            except FileNotFoundError:  # another writer has merged it
                if attempt == 4:
                    raise
                self.scan()
        raise AssertionError

    # What comes in

    def add(self, block: Block, theta: np.ndarray, case: np.ndarray) -> None:
        """Commit simulations; each row of θ and each case number belongs to a row of the block."""
        at, end = block.start, block.start + len(block.status)
        while at < end:
            stop = min(end, (at // self.rows + 1) * self.rows)
            cut = slice(at - block.start, stop - block.start)
            part = {"theta": theta[cut], "x": block.x[cut], "case": case[cut], "status": block.status[cut]}
            self._write_runtimes(at, stop, block.seconds[cut])
            self._commit(at, part)
            number = at // self.rows
            there = len(self._shards[number])
            if there >= MANY or (there > 1 and self._complete(number, (number + 1) * self.rows)):
                self.merge(number)
            at = stop

    def _commit(self, start: int, part: Mapping[str, np.ndarray]) -> None:
        layout = self._layout(len(part["status"]))
        arrays = {key: np.ascontiguousarray(part[key], kind) for key, (kind, _) in layout.items()}
        content = safetensors.numpy.save(arrays, metadata={"start": str(start)})
        failed = int((part["status"] != OK).sum())
        shard = Shard(start, start + len(part["status"]), hashlib.sha256(content).hexdigest(), failed)
        durable.write_once(self.path / "shards" / shard.name, content, self.path / "tmp")
        here = self._shards.setdefault(start // self.rows, [])
        if shard not in here:
            here.append(shard)

    def merge(self, number: int) -> None:
        """Write each unbroken run of small shards in a range as one, then remove them."""
        runs: list[list[tuple[int, dict[str, np.ndarray]]]] = []
        for start, part in self._read_range(number):
            if runs and (last := runs[-1][-1])[0] + len(last[1]["status"]) == start:
                runs[-1].append((start, part))
            else:
                runs.append([(start, part)])
        for run in runs:
            if len(run) > 1:
                self._commit(run[0][0], {key: np.concatenate([part[key] for _, part in run]) for key in run[0][1]})
        self._drop_held_twice(number)
        self._merge_runtimes(number)

    def tidy(self, stop: int) -> None:
        """Merge every range that is complete as far as `stop`."""
        for number in sorted(self._shards):
            if len(self._shards[number]) > 1 and self._complete(number, min((number + 1) * self.rows, stop)):
                self.merge(number)

    def _complete(self, number: int, end: int) -> bool:
        return sum(max(0, min(b, end) - a) for a, b, _ in self._pieces(number)) == end - number * self.rows

    def finish(self, stop: int) -> None:
        """The last look: what other writers have left, merged and swept."""
        self.scan()
        self.tidy(stop)
        durable.sweep(self.path / "tmp")

    def _drop_held_twice(self, number: int) -> None:
        kept: list[Shard] = []
        for shard in sorted(self._shards[number], key=lambda shard: shard.rank):
            if any(other.start <= shard.start and shard.stop <= other.stop for other in kept):
                (self.path / "shards" / shard.name).unlink(missing_ok=True)
            else:
                kept.append(shard)
        self._shards[number] = kept

    # Runtimes

    def _write_runtimes(self, start: int, stop: int, seconds: np.ndarray) -> None:
        folder = self.path / "runtimes"
        folder.mkdir(exist_ok=True)
        temporary = folder / f".{secrets.token_hex(8)}"
        temporary.write_bytes(safetensors.numpy.save({"seconds": np.ascontiguousarray(seconds, np.float32)}))
        os.replace(temporary, folder / f"{start:012d}-{stop:012d}.safetensors")

    def runtimes(self, start: int, stop: int) -> np.ndarray:
        """Seconds of simulations start … stop-1; NaN where they were not kept."""
        seconds = np.full(stop - start, np.nan, np.float32)
        for (first, last), path in self._runtime_files():
            a, b = max(first, start), min(last, stop)
            if a < b:
                try:
                    values = safetensors.numpy.load(path.read_bytes())["seconds"]
                    seconds[a - start : b - start] = values[a - first : b - first]
                except (OSError, SafetensorError, KeyError, ValueError):
                    continue
        return seconds

    def _runtime_files(self) -> list[tuple[tuple[int, int], Path]]:
        paths = sorted((self.path / "runtimes").glob("*-*.safetensors"))
        return [((int(path.name[:12]), int(path.name[13:25])), path) for path in paths]

    def _merge_runtimes(self, number: int) -> None:
        first = number * self.rows
        files = [(span, path) for span, path in self._runtime_files() if first <= span[0] < first + self.rows]
        if len(files) > 1:
            last = max(span[1] for span, _ in files)
            self._write_runtimes(first, last, self.runtimes(first, last))
            for span, path in files:
                if span != (first, last):
                    path.unlink(missing_ok=True)

    # What it is for

    def counts(self, stop: int | None = None) -> dict[str, int]:
        """How many simulations have each status."""
        total = np.zeros(len(STATUS), int)
        for _, part in self.read(stop):
            total += np.bincount(part["status"], minlength=len(STATUS))
        return dict(zip(STATUS, total.tolist(), strict=True))

    def failed(self) -> int:
        """How many simulations failed; without reading, so those in two shards count twice."""
        return sum(shard.failed for shard in self._all())

    def simulations(self, stop: int | None = None, planned: Plan | None = None) -> Simulations:
        """The first `stop` simulations as training cases; mapped from disk where they are large."""
        stop = self.stop() if stop is None else stop
        if gaps := self.missing(stop):
            count = sum(b - a for a, b in gaps)
            raise ScorefoldError(
                f"expected {stop:,} simulations in the store {self.path}; {count:,} are missing, the first of them number "
                f"{gaps[0][0]}. Run the same simulation on it again to make them."
            )
        if stop == 0:
            raise ScorefoldError(f"expected simulations in the store {self.path}; it is empty")
        seed, set_size = self.about["seed"], self.about["set_size"]
        planned = planned or plan(self.prior, stop, set_size, seed)
        good = np.concatenate([part["status"] == OK for _, part in self.read(stop)])

        def allocate(shape: tuple[int, ...]) -> np.ndarray:
            if 4 * int(np.prod(shape)) <= IN_MEMORY:
                return np.zeros(shape, np.float32)
            return self._mapped(shape)

        blocks = ((start, part["x"]) for start, part in self.read(stop))
        return gather_blocks(self.prior, planned, good, blocks, self.shape, set_size, seed, allocate)

    def _mapped(self, shape: tuple[int, ...]) -> np.ndarray:
        """An array of zeros in a file beside the shards that has no name any more, and ends when nobody maps it."""
        (self.path / "tmp").mkdir(exist_ok=True)
        path = self.path / "tmp" / secrets.token_hex(16)
        array = np.memmap(path, np.float32, "w+", shape=shape)
        path.unlink(missing_ok=True)
        return array


def _draws_name(about: Mapping[str, Any]) -> str:
    return f"prior-{about['prior']['sha256']}.safetensors"


def _header(content: bytes) -> tuple[int, str | None]:
    """How long a shard says that it is, and with which simulation it begins."""
    try:
        head = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + head])
        first = header.pop("__metadata__", {}).get("start")
        return 8 + head + max(int(value["data_offsets"][1]) for value in header.values()), first
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ScorefoldError(f"it has no readable header ({type(error).__name__})") from error


def read_description(path: Path) -> dict[str, Any]:
    """The description of the store at this path, every field of the right kind."""
    try:
        about = json.loads((path / "description.json").read_text())
    except FileNotFoundError:
        raise ScorefoldError(f"expected a store at {path}; found no description.json there") from None
    except (OSError, ValueError) as error:
        raise ScorefoldError(f"expected a readable {path / 'description.json'}; got {type(error).__name__}: {error}") from error
    kinds = {
        "schema": int,
        "scorefold": str,
        "prior": dict,
        "simulator": dict,
        "seed": int,
        "set_size": int,
        "shape": list,
        "rows": int,
    }
    wrong = [key for key, kind in kinds.items() if not isinstance(about, dict) or type(about.get(key)) is not kind]
    if wrong or set(about) != set(kinds) or about["schema"] != SCHEMA:
        what = (
            f"the fields {', '.join(wrong or sorted(set(about) ^ set(kinds)))}"
            if wrong or set(about) != set(kinds)
            else "the schema"
        )
        raise ScorefoldError(
            f"expected a description of schema {SCHEMA} in {path}; {what} cannot be read. It was changed, or written by "
            "another version of scorefold."
        )
    whole = [about["seed"] + 1, about["set_size"], about["rows"], *(1 + n if type(n) is int else 0 for n in about["shape"])]
    if min(whole) < 1:
        raise ScorefoldError(f"expected counts and shapes in {path / 'description.json'}; it was changed")
    return about


def refuse_other(path: Path) -> None:
    """An error if there is something else where a store should be."""
    try:
        there = os.listdir(path) if path.exists() else []
    except OSError as error:
        raise ScorefoldError(f"expected a store or an empty folder at {path}; got {error.strerror or error}") from error
    if "description.json" not in there and any(name != "tmp" and not name.startswith("prior-") for name in there):
        raise ScorefoldError(f"expected a store or an empty folder at {path}; got a folder with other files. Name another one.")


def refuse_difference(path: Path, about: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """An error that shows how a store differs from what is to be simulated, if it does."""
    lines = []
    for key in IDENTITY:
        there, here = about[key], expected.get(key, about[key])
        if key == "simulator":
            same = there.get("sha256") == here.get("sha256")
            there, here = (f"{one.get('name')} (code {str(one.get('sha256'))[:12]}…)" for one in (there, here))
        else:
            same = there == here
            there, here = (json.dumps(one, ensure_ascii=False) for one in (there, here))
        if not same:
            lines.append(f"  {key}\n    in the store: {there:.2000}\n    now:          {here:.2000}")
    if lines:
        raise ScorefoldError(
            f"expected to continue the store {path} with what it was begun with; got something else:\n"
            + "\n".join(lines)
            + "\n"
            "Use another folder, or the prior, simulator and seed of before."
        )
