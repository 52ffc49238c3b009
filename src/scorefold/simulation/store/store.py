"""Simulations on disk: a folder that survives kills, power cuts and several writers at once.

    description.json          written once: schema, prior, simulator, seed, set size, shapes, versions
    prior-SHA256.safetensors  the draws of a prior that is known from draws only
    shards/      FIRST-STOP-SHA256.safetensors: θ (rows, dim), x (rows, …), case and status of simulations FIRST … STOP-1
    runtimes/    FIRST-STOP.safetensors: seconds of the same simulations
    quarantine/  files that were found damaged
    tmp/         files that are being written

A shard is never changed. What comes in is written at once as a small shard (`disk/durable.py`); when all of an aligned range of
`rows` simulations is there, or the run's last one, it is written again as one shard and the small ones are removed. So a
finished store is the same, byte for byte, whoever wrote it in whatever order. Runtimes are the exception, as no clock repeats
itself; hence they are kept apart. The budget is not part of the description: a larger one continues the store.

Names carry the range and the SHA-256 of the content. Opening checks names, lengths, hashes and contents, and moves what is
damaged to quarantine/; those simulations are then missing and made again. Files that are whole but hold other parameters or
shapes than the description says are an error, and nothing is moved: the description was changed. Opening for reading needs no
right to write.

The process that fills a store holds `lock`; others that want to fill it wait, and then make what is still missing. Where a
file system has no locks, two writers may do work twice, but cannot harm: equal content has an equal name, and a shard is only
removed once a longer one (or, of equal length, one first in the alphabet) holds its range.
"""

import contextlib
import itertools
import os
import secrets
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from scorefold import settings
from scorefold.disk import durable
from scorefold.disk.trouble import told
from scorefold.errors import FolderVanished, ScorefoldError, ScorefoldWarning
from scorefold.prior import Prior
from scorefold.prior import codec as prior_files
from scorefold.simulation.calls import Calls, plan
from scorefold.simulation.holes import opened
from scorefold.simulation.outcome import STATUS, Block
from scorefold.simulation.simulations import IN_MEMORY, Simulations, gather
from scorefold.simulation.store import agreement, description, shard
from scorefold.simulation.store.agreement import Derived
from scorefold.simulation.store.fingerprint import fingerprint
from scorefold.simulation.store.runtimes import Runtimes
from scorefold.simulation.store.shard import Disagrees, Shard

SMALL_SHARDS = 256
"""So many small shards of one range are merged before it is complete."""
ATTEMPTS = 5
"""To read a range whose files another process replaces meanwhile."""


class Store:
    """A folder of simulations, open: made by `sf.simulate(..., store=folder)`, looked into with `sf.Store.open(folder)`.

    Use it to get at simulations without the script that made them. `simulations()` are the training cases, `counts()` says
    how many have which status, `missing(stop)` which are not there, `runtimes(start, stop)` how long they took, and `read()`
    goes through them as they lie on the disk. `prior`, `shape` (of an observation) and `about` (the description) are plain
    attributes. Opening checks every file; damaged ones are moved to quarantine/ with a ScorefoldWarning. A store that can only
    be read is opened all the same. `accept(simulator)` lets a store be continued by a simulator that only looks different.

    Example:
        >>> import tempfile, scipy.stats, scorefold as sf
        >>> prior = sf.Prior({"rate": scipy.stats.norm(0, 1)})
        >>> def simulator(theta, rng):
        ...     return theta + rng.normal(size=3)
        >>> folder = tempfile.mkdtemp()
        >>> sims = sf.simulate(prior, simulator, budget=100, store=folder, workers=0)
        >>> again = sf.Store.open(folder).simulations()
        >>> bool((again.x == sims.x).all())
        True
        >>> sf.Store.open(folder).counts()["ok"]
        100
    """

    def __init__(self, path: Path, about: dict[str, Any], prior: Prior):
        self.path, self.about, self.prior = path, about, prior
        self.shape: tuple[int, ...] = tuple(about["shape"])
        self.x_names, self.input_names = description.names_of(about)
        self.rows: int = about["rows"]
        self.quarantined: list[str] = []
        self._runtimes = Runtimes(path / "runtimes")
        self._shards: dict[int, list[Shard]] = {}
        with told(f"read the store {path}"):
            self.scan()

    def __repr__(self) -> str:
        there = [f"{count:,} {name}" for name, count in self.counts().items() if count]
        return f"Store({self.path}: {', '.join(there) or 'nothing yet'}; {self.prior!r})"

    @classmethod
    def exists(cls, path: str | os.PathLike[str]) -> bool:
        """Whether there is a description."""
        return (Path(path) / "description.json").is_file()

    @classmethod
    def create(cls, path: str | os.PathLike[str], prior: Prior, about: dict[str, Any]) -> "Store":
        """A store with this description: a new one, or the one that is there if it is about the same."""
        path = settings.folder(path)
        description.refuse_other(path)
        if cls.exists(path):
            return cls.open(path, about)
        with _writing(path):
            durable.make(path)
            if draws := prior_files.arrays(prior):
                durable.write_once(_draws_file(path, about), safetensors.numpy.save(draws), path / "tmp")
            durable.write_once(path / "description.json", description.text(about).encode(), path / "tmp")
        return cls.open(path, about)

    @classmethod
    def open(cls, path: str | os.PathLike[str], expected: Mapping[str, Any] | None = None) -> "Store":
        """The store at this path, all its files checked; refused if it is not about what is expected."""
        path = settings.folder(path)
        about = description.read(path)
        if expected is not None:
            description.refuse_difference(path, about, expected)
        arrays = {}
        if about["prior"].get("kind") == "draws":
            try:
                arrays = safetensors.numpy.load(_draws_file(path, about).read_bytes())
            except (OSError, SafetensorError) as error:
                raise ScorefoldError(f"expected the prior's draws in {_draws_file(path, about)}; got {error}") from error
        return cls(path, about, prior_files.restore(about["prior"], arrays))

    def accept(self, simulator: Any) -> None:
        """Let this simulator continue the store: you vouch that it computes the same as the one that began it.

        For code that was moved, renamed inside or written otherwise without a change of what it returns. The description is
        written anew, and names it from now on.
        """
        about = {**self.about, "simulator": fingerprint(simulator)}
        with _writing(self.path):
            durable.replace(self.path / "description.json", description.text(about).encode())
        self.about = about

    # What is there

    def scan(self) -> None:
        """Look at the folder anew: check files not seen before, quarantine bad ones, remove what longer shards hold."""
        if not self.exists(self.path):
            raise FolderVanished(f"expected the store {self.path}, which was there before; it is gone. Was it removed?")
        known = {one.name: one for one in self._all()}
        durable.sweep(self.path / "tmp")
        found, bad, other = [], {}, {}
        derived = Derived(self.prior, self.about["set_size"], self.about["seed"])
        folder = self.path / "shards"
        for name in sorted(os.listdir(folder)) if folder.is_dir() else []:
            try:
                found.append(known[name] if name in known else self._check(folder / name, derived))
            except FileNotFoundError:
                continue  # another writer has merged it
            except Disagrees as error:
                other[name] = str(error)
            except ScorefoldError as error:
                bad[name] = str(error)
        agreement.refuse(self.path, other, len(found))
        self._quarantine(bad)
        self._shards = {}
        for one in found:
            self._shards.setdefault(one.start // self.rows, []).append(one)
        for number in self._shards:
            self._drop_held_twice(number)

    def _all(self) -> list[Shard]:
        return [one for number in sorted(self._shards) for one in sorted(self._shards[number])]

    def _check(self, path: Path, derived: Derived) -> Shard:
        found = shard.check(path, self.rows, self.prior.dim, self.shape)
        derived.compare(found)
        return found.shard

    def _quarantine(self, bad: dict[str, str]) -> None:
        if not bad:
            return
        folder, moved = self.path / "quarantine", True
        for name in bad:
            try:
                folder.mkdir(exist_ok=True)
                os.replace(self.path / "shards" / name, folder / f"{name}.{secrets.token_hex(4)}")
            except FileNotFoundError:
                continue  # another process was quicker
            except OSError:
                moved = False
        self.quarantined += bad
        first, why = next(iter(bad.items()))
        done = f"were moved to {folder}" if moved else "are passed over, as nothing can be moved there"
        warnings.warn(
            f"{len(bad):,} of the files in {self.path / 'shards'} are damaged and {done}: {first}: {why}"
            f"{'; and others' if len(bad) > 1 else ''}. What they held counts as missing; simulate again to make up for it.",
            ScorefoldWarning,
            stacklevel=2,
        )

    def _pieces(self, number: int) -> list[tuple[int, int, Shard]]:
        """Which simulations of a range to read from which shard: (start, stop, shard), without overlaps, in order."""
        shards = sorted(self._shards.get(number, []), key=lambda one: one.rank)
        owner = np.full(self.rows, -1)
        first = number * self.rows
        for place, one in reversed(list(enumerate(shards))):
            owner[one.start - first : one.stop - first] = place
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
        return max((one.stop for one in self._all()), default=0)

    def read(self, stop: int | None = None) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """All simulations below `stop` in order, a shard at a time: (index of the first, θ, x, case and status).

        x are as they lie on the disk, where a missing number is `HOLE` of `simulation/with_holes.py`.
        """
        stop = self.stop() if stop is None else stop
        for number in range(-(-stop // self.rows)):
            for start, part in self._read_range(number):
                keep = min(stop, start + len(part["status"])) - start
                if keep > 0:
                    yield start, {key: value[:keep] for key, value in part.items()}

    def _read_range(self, number: int) -> list[tuple[int, dict[str, np.ndarray]]]:
        for _ in range(ATTEMPTS):
            try:
                parts = []
                for start, stop, one in self._pieces(number):
                    content = safetensors.numpy.load((self.path / "shards" / one.name).read_bytes())
                    cut = slice(start - one.start, stop - one.start)
                    parts.append((start, {key: value[cut] for key, value in content.items()}))
                return parts
            except FileNotFoundError:  # another writer has merged it
                self.scan()
        raise FolderVanished(
            f"expected to read the store {self.path}; its files vanish while they are read. Is somebody removing them?"
        )

    # What comes in

    def add(self, block: Block, theta: np.ndarray, case: np.ndarray) -> None:
        """Commit simulations; each row of θ and each case number belongs to a row of the block."""
        with _writing(self.path):
            self._add(block, theta, case)

    def _add(self, block: Block, theta: np.ndarray, case: np.ndarray) -> None:
        at, end = block.start, block.start + len(block.status)
        while at < end:
            stop = min(end, (at // self.rows + 1) * self.rows)
            cut = slice(at - block.start, stop - block.start)
            part = {"theta": theta[cut], "x": block.x[cut], "case": case[cut], "status": block.status[cut]}
            self._runtimes.write(at, block.seconds[cut])
            self._commit(at, part)
            number = at // self.rows
            there = len(self._shards[number])
            if there >= SMALL_SHARDS or (there > 1 and self._complete(number, (number + 1) * self.rows)):
                self.merge(number)
            at = stop

    def _commit(self, start: int, part: Mapping[str, np.ndarray]) -> None:
        one, content = shard.encode(start, part, self.prior.dim, self.shape)
        durable.write_once(self.path / "shards" / one.name, content, self.path / "tmp")
        here = self._shards.setdefault(start // self.rows, [])
        if one not in here:
            here.append(one)

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
        self._runtimes.merge(number * self.rows, (number + 1) * self.rows)

    def tidy(self, stop: int) -> None:
        """Merge every range that is complete as far as `stop`."""
        for number in sorted(self._shards):
            if len(self._shards[number]) > 1 and self._complete(number, min((number + 1) * self.rows, stop)):
                self.merge(number)

    def _complete(self, number: int, end: int) -> bool:
        return sum(max(0, min(b, end) - a) for a, b, _ in self._pieces(number)) == end - number * self.rows

    def finish(self, stop: int) -> None:
        """The last look: what other writers have left, merged and swept."""
        with _writing(self.path):
            self.scan()
            self.tidy(stop)
            durable.sweep(self.path / "tmp")

    def _drop_held_twice(self, number: int) -> None:
        kept: list[Shard] = []
        for one in sorted(self._shards[number], key=lambda one: one.rank):
            if any(other.start <= one.start and one.stop <= other.stop for other in kept):
                with contextlib.suppress(OSError):  # where nothing can be removed it does no harm
                    (self.path / "shards" / one.name).unlink(missing_ok=True)
            else:
                kept.append(one)
        self._shards[number] = kept

    # What it is for

    def statuses(self, stop: int | None = None) -> np.ndarray:
        """(simulations,) what became of each of those that are there; the codes are places in `outcome.STATUS`."""
        parts = [part["status"] for _, part in self.read(stop)]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint8)

    def counts(self, stop: int | None = None) -> dict[str, int]:
        """How many simulations have each status."""
        return dict(zip(STATUS, np.bincount(self.statuses(stop), minlength=len(STATUS)).tolist(), strict=True))

    def runtimes(self, start: int, stop: int) -> np.ndarray:
        """Seconds of simulations start … stop-1; NaN where they were not kept."""
        return self._runtimes.read(start, stop)

    def simulations(self, stop: int | None = None) -> Simulations:
        """The first `stop` simulations (all by default) as training cases; mapped from disk where they are large.

        Raises a ScorefoldError if some of them are missing: run the same simulation on the store again to make them.
        """
        end = self.stop()
        stop = end if stop is None else settings.count("stop, the number of simulations", stop, 1)
        gaps = [*self.missing(min(stop, end)), *([(end, stop)] if stop > end else [])]
        if gaps:
            count = sum(b - a for a, b in gaps)
            raise ScorefoldError(
                f"expected {stop:,} simulations in the store {self.path}; {count:,} are missing, the first of them number "
                f"{gaps[0][0]}. Run the same simulation on it again to make them."
            )
        if stop == 0:
            raise ScorefoldError(f"expected simulations in the store {self.path}; it is empty")
        return self.gather(plan(self.prior, stop, self.about["set_size"], self.about["seed"]), self.statuses(stop))

    def gather(self, calls: Calls, status: np.ndarray) -> Simulations:
        """The simulations of these calls, which are all there and have this status, as training cases."""

        def allocate(shape: tuple[int, ...]) -> np.ndarray:
            if 4 * int(np.prod(shape)) <= IN_MEMORY:
                return np.zeros(shape, np.float32)
            return self._mapped(shape)

        blocks, names = self._observations(calls.budget), (self.x_names, self.input_names)
        sims = gather(self.prior, calls, status, blocks, self.shape, allocate, *names)
        return opened(sims) if description.HOLES in self.about else sims

    def _observations(self, stop: int) -> Iterator[tuple[int, np.ndarray]]:
        """x of the first `stop` simulations, in order and without a gap."""
        at = 0
        for start, part in self.read(stop):
            if start == at:
                yield start, part["x"]
            at = start + len(part["x"]) if start == at else -1
        if at != stop:
            raise FolderVanished(
                f"expected {stop:,} simulations in the store {self.path}; some are no longer there. Were files removed?"
            )

    def _mapped(self, shape: tuple[int, ...]) -> np.ndarray:
        """An array of zeros in a file beside the shards that has no name any more, and ends when nobody maps it."""
        size, tmp = 4 * int(np.prod(shape)), self.path / "tmp"
        beside = tmp if os.access(tmp, os.W_OK) else None  # a store that can only be read
        with told(f"map {size:,} bytes of simulations from the disk"), tempfile.TemporaryFile(dir=beside) as file:
            if hasattr(os, "posix_fallocate"):  # else a full disk would be noticed as a crash, when a page is written
                os.posix_fallocate(file.fileno(), 0, max(1, size))
            return np.memmap(file, np.float32, "w+", shape=shape)


def _writing(path: Path) -> contextlib.AbstractContextManager[None]:
    """What the disk says, in words."""
    then = "What was finished is kept; once it can be written to, run the same simulation again to continue."
    return told(f"write to the store {path}", then)


def _draws_file(path: Path, about: Mapping[str, Any]) -> Path:
    """Where the draws of the prior are; the description of such a prior has been checked or is ours."""
    sha256 = about["prior"].get("sha256")
    known = isinstance(sha256, str) and sha256.isalnum()
    return path / (f"prior-{sha256}.safetensors" if known else "prior-unknown.safetensors")
