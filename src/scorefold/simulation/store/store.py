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
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from scorefold import settings
from scorefold.disk import durable
from scorefold.disk.trouble import told
from scorefold.errors import FolderVanished, ScorefoldError
from scorefold.prior import Prior
from scorefold.prior import codec as prior_files
from scorefold.simulation.calls import Calls, plan
from scorefold.simulation.holes import opened
from scorefold.simulation.outcome import STATUS, Block
from scorefold.simulation.simulations import IN_MEMORY, Results, Simulations, gather
from scorefold.simulation.store import description
from scorefold.simulation.store.agreement import Derived
from scorefold.simulation.store.contents import Contents
from scorefold.simulation.store.fingerprint import fingerprint


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
        self._contents = Contents(path, self.rows, (prior.dim, self.shape), self._derived)
        with told(f"read the store {path}"):
            self.scan()

    def __repr__(self) -> str:
        there = [f"{count:,} {name}" for name, count in self.counts().items() if count]
        return f"Store({self.path}: {', '.join(there) or 'nothing yet'}; {self.prior!r})"

    @classmethod
    def exists(cls, path: str | os.PathLike[str]) -> bool:
        """Whether there is a store at this path.

        Args:
            path: A folder, which need not be there.

        Returns:
            Whether it holds a store's description.
        """
        return (Path(path) / "description.json").is_file()

    @classmethod
    def create(cls, path: str | os.PathLike[str], prior: Prior, about: dict[str, Any]) -> "Store":
        """Make a store, or open the one that is there if it is about the same; `sf.simulate(…, store=folder)` does this for
        you.

        Args:
            path: The folder. Its parents must be there.
            prior: What parameters are drawn from; it is kept with the store.
            about: The description, as `store/description.py` writes it: prior, simulator, seed, set size and what else results
                depend on.

        Returns:
            The open store.

        Raises:
            ScorefoldError: There is something else in the folder, or a store about other simulations.
            StorageError: The folder cannot be written to.
        """
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
        """The store at this path, all its files checked.

        Args:
            path: The folder that `sf.simulate(..., store=folder)` filled.
            expected: A description that it must have. Default None: any.

        Returns:
            The store, to read from.

        Raises:
            ScorefoldError: There is no store, its description is not what is expected, or somebody has changed it. Files that
                are damaged are no error: they are moved to quarantine/, with a ScorefoldWarning.

        The example of `Store` opens one.
        """
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

        Args:
            simulator: The function as it is now.

        Raises:
            StorageError: The store cannot be written to.
        """
        about = {**self.about, "simulator": fingerprint(simulator)}
        with _writing(self.path):
            durable.replace(self.path / "description.json", description.text(about).encode())
        self.about = about

    def _derived(self) -> Derived:
        """The parameters that follow from the description."""
        return Derived(self.prior, self.about["set_size"], self.about["seed"])

    # What is there

    def scan(self) -> None:
        """Look at the folder anew, as other processes may write to the same store.

        Files not seen before are checked, bad ones are moved to the folder `quarantine`, and small files are removed once
        longer ones hold what they held.

        Raises:
            FolderVanished: The store is gone.
            ScorefoldError: Files that are whole do not agree with the description.
        """
        self._contents.scan()

    @property
    def quarantined(self) -> list[str]:
        """The names of the files that were found damaged since the store was opened."""
        return self._contents.quarantined

    def missing(self, stop: int) -> list[tuple[int, int]]:
        """Which simulations below `stop` are not there, and so are made next.

        Args:
            stop: How many simulations there should be.

        Returns:
            Ranges (first, one after the last) in order; none goes across a multiple of `rows`.
        """
        return self._contents.missing(stop)

    def stop(self) -> int:
        """One after the last simulation that is there, whether or not some before it are missing; 0 where there are none."""
        return self._contents.stop()

    def read(self, stop: int | None = None) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """All simulations in order, a shard at a time, failed ones included; a store larger than memory can be gone through.

        Args:
            stop: Simulations from here on are left out. Default None: all that are there.

        Yields:
            The index of the shard's first simulation, and its arrays: "theta", "x", "case" and "status". x are as they lie on
            the disk, where a missing number is `HOLE` of `simulation/wrapped.py`.
        """
        return self._contents.read(self.stop() if stop is None else stop)

    # What comes in

    def add(self, block: Block, theta: np.ndarray, case: np.ndarray) -> None:
        """Keep simulations on the disk; once this returns, a kill cannot take them away.

        Args:
            block: Consecutive simulations with what became of each.
            theta: (rows, dim), their parameters.
            case: (rows,), which case each of them belongs to.

        Raises:
            StorageError: The disk is full, or cannot be written to.
        """
        with _writing(self.path):
            self._contents.add(block, theta, case)

    def finish(self, stop: int) -> None:
        """The last look after a run: what other processes have written is taken in, small files are merged, and what was left
        half-written is swept away.

        Args:
            stop: How many simulations the run was asked for.
        """
        with _writing(self.path):
            self._contents.scan()
            self._contents.tidy(stop)
            durable.sweep(self.path / "tmp")

    # What it is for

    def statuses(self, stop: int | None = None) -> np.ndarray:
        """What became of each simulation that is there.

        Args:
            stop: Only the first so many. Default None: all.

        Returns:
            (simulations,) codes: 0 is "ok", and the others are the places of the words that `counts()` has, in that order.
        """
        parts = [part["status"] for _, part in self.read(stop)]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint8)

    def counts(self, stop: int | None = None) -> dict[str, int]:
        """How many simulations have each status.

        Args:
            stop: Of the first so many. Default None: of all.

        Returns:
            A number for each word: ok, raised, not finite, wrong shape, timed out, …
        """
        return dict(zip(STATUS, np.bincount(self.statuses(stop), minlength=len(STATUS)).tolist(), strict=True))

    def runtimes(self, start: int, stop: int) -> np.ndarray:
        """How long simulations took.

        Args:
            start: The first of them.
            stop: One after the last.

        Returns:
            (stop - start,) seconds; NaN where they were not kept.
        """
        return self._contents.runtimes.read(start, stop)

    def simulations(self, stop: int | None = None) -> Simulations:
        """The simulations as training cases, for `sf.fit`.

        Args:
            stop: The first so many of them. Default None: all.

        Returns:
            What `sf.simulate` returned; observations are mapped from the disk where they are large.

        Raises:
            ScorefoldError: Some of them are missing: run the same simulation on the store again to make them.
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
        """Put the simulations of some calls into training cases.

        Args:
            calls: The calls, all of which have been made.
            status: (calls,), what became of each.

        Returns:
            The cases; in memory, or in a mapped file where they are large.
        """

        def allocate(shape: tuple[int, ...]) -> np.ndarray:
            if 4 * int(np.prod(shape)) <= IN_MEMORY:
                return np.zeros(shape, np.float32)
            return self._mapped(shape)

        results = Results(status, self._observations(calls.budget), self.shape, self.x_names, self.input_names)
        sims = gather(self.prior, calls, results, allocate)
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
