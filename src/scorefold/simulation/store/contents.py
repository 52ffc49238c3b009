"""What a store holds: shards, files that together cover ranges of simulations, and how small ones become long ones.

A shard is never changed. Where several hold the same simulation, the longest counts, or of equal length the one first in the
alphabet. A run of small shards is written again as one and then removed, in this order, so that a kill loses nothing.
"""

import contextlib
import itertools
import os
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import safetensors.numpy

from scorefold.disk import durable
from scorefold.errors import FolderVanished, ScorefoldError, ScorefoldWarning
from scorefold.simulation.outcome import Block
from scorefold.simulation.store import agreement, shard
from scorefold.simulation.store.agreement import Derived
from scorefold.simulation.store.runtimes import Runtimes
from scorefold.simulation.store.shard import Disagrees, Shard

SMALL_SHARDS = 256
"""So many small shards of one range are merged before it is complete."""
READS_TRIED = 5
"""To read a range whose files another process replaces meanwhile."""


class Contents:
    """The shards of a store and the seconds that simulations took.

    Args:
        path: The store's folder.
        rows: Simulations in a range, and in a shard at most.
        sizes: How many parameters there are, and the shape of an observation.
        derived: Gives the parameters that follow from the store's description, which shards must agree with.
    """

    def __init__(self, path: Path, rows: int, sizes: tuple[int, tuple[int, ...]], derived: Callable[[], Derived]):
        self.path, self.rows, self._sizes, self._derived = path, rows, sizes, derived
        self.quarantined: list[str] = []
        self.runtimes = Runtimes(path / "runtimes")
        self._shards: dict[int, list[Shard]] = {}

    def scan(self) -> None:
        """Look at the folder anew: check files not seen before, quarantine bad ones, remove what longer shards hold."""
        if not (self.path / "description.json").is_file():
            raise FolderVanished(f"expected the store {self.path}, which was there before; it is gone. Was it removed?")
        known = {one.name: one for one in self._all()}
        durable.sweep(self.path / "tmp")
        found, bad, other = [], {}, {}
        derived = self._derived()
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
        found = shard.check(path, self.rows, *self._sizes)
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

    def read(self, stop: int) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """All simulations below `stop` in order, a shard at a time: (index of the first, what it holds)."""
        for number in range(-(-stop // self.rows)):
            for start, part in self._read_range(number):
                keep = min(stop, start + len(part["status"])) - start
                if keep > 0:
                    yield start, {key: value[:keep] for key, value in part.items()}

    def _read_range(self, number: int) -> list[tuple[int, dict[str, np.ndarray]]]:
        for _ in range(READS_TRIED):
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

    def add(self, block: Block, theta: np.ndarray, case: np.ndarray) -> None:
        """Write simulations as small shards, one for each range that they lie in, and merge ranges that are complete."""
        at, end = block.start, block.start + len(block.status)
        while at < end:
            stop = min(end, (at // self.rows + 1) * self.rows)
            cut = slice(at - block.start, stop - block.start)
            part = {"theta": theta[cut], "x": block.x[cut], "case": case[cut], "status": block.status[cut]}
            self.runtimes.write(at, block.seconds[cut])
            self._commit(at, part)
            number = at // self.rows
            there = len(self._shards[number])
            if there >= SMALL_SHARDS or (there > 1 and self._complete(number, (number + 1) * self.rows)):
                self.merge(number)
            at = stop

    def _commit(self, start: int, part: Mapping[str, np.ndarray]) -> None:
        one, content = shard.encode(start, part, *self._sizes)
        durable.write_once(self.path / "shards" / one.name, content, self.path / "tmp")
        here = self._shards.setdefault(start // self.rows, [])
        if one not in here:
            here.append(one)

    def merge(self, number: int) -> None:
        """Write each unbroken run of small files in a range as one, then remove them; a kill in between loses nothing, as what
        is held twice is dropped at the next look.

        Args:
            number: Which range: that of simulations number × rows and on.
        """
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
        self.runtimes.merge(number * self.rows, (number + 1) * self.rows)

    def tidy(self, stop: int) -> None:
        """Merge the small files of every range that is complete as far as `stop`, so that a finished store has few files."""
        for number in sorted(self._shards):
            if len(self._shards[number]) > 1 and self._complete(number, min((number + 1) * self.rows, stop)):
                self.merge(number)

    def _complete(self, number: int, end: int) -> bool:
        return sum(max(0, min(b, end) - a) for a, b, _ in self._pieces(number)) == end - number * self.rows

    def _drop_held_twice(self, number: int) -> None:
        kept: list[Shard] = []
        for one in sorted(self._shards[number], key=lambda one: one.rank):
            if any(other.start <= one.start and one.stop <= other.stop for other in kept):
                with contextlib.suppress(OSError):  # where nothing can be removed it does no harm
                    (self.path / "shards" / one.name).unlink(missing_ok=True)
            else:
                kept.append(one)
        self._shards[number] = kept
