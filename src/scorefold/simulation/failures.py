"""Simulations that failed: which, how, and when there are too many of them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten

import numpy as np

from scorefold.errors import SimulatorError
from scorefold.shown import one_line
from scorefold.simulation.advice import advice
from scorefold.simulation.calls import Calls
from scorefold.simulation.outcome import FAILURES_KEPT, MISSING, OK, STATUS, Block

ALL_FAILED = 20
"""A run is given up once so many simulations were made and every one of them failed."""
ENOUGH_TO_JUDGE = 100
"""Before so many simulations the fraction that fails says little."""
LONGEST_SAID = 300
"""Of what is said of a failure in one line."""
EARLIER = "in an earlier run, which said how"


@dataclass(frozen=True)
class Failure:
    """One simulation that gave no observation."""

    index: int
    """Which simulation it was."""
    theta: np.ndarray
    """(dim,) its parameters"""
    status: str
    """How it failed: 'raised', 'not finite', 'wrong shape', 'timed out', 'crashed' or 'out of memory'."""
    text: str
    """What was wrong, in words or as a traceback; a store does not keep it."""


def failures(calls: Calls, status: np.ndarray, texts: Mapping[int, str]) -> tuple[Failure, ...]:
    """The first FAILURES_KEPT of the simulations whose status says that they failed."""
    failed = np.flatnonzero((status != OK) & (status != MISSING))[:FAILURES_KEPT].tolist()
    return tuple(Failure(i, calls.rows(i, i + 1)[0], STATUS[status[i]], texts.get(i, EARLIER)) for i in failed)


class Guard:
    """Counts what came, and stops a run that fails too often."""

    def __init__(self, max_failures: float, describe: Callable[[int], str], names: Sequence[str] = ()):
        self.max_failures, self.describe, self.names = max_failures, describe, names
        self.counts: Counter[str] = Counter()
        self.seen: dict[int, tuple[int, str]] = {}
        """Status and text of the first failures, by number."""

    @property
    def done(self) -> int:
        """Simulations seen."""
        return self.counts.total()

    @property
    def failed(self) -> int:
        """Those without an observation."""
        return self.done - self.counts[STATUS[OK]]

    @property
    def texts(self) -> dict[int, str]:
        """What was wrong with those that failed, by number."""
        return {index: text for index, (_, text) in self.seen.items()}

    def see(self, block: Block) -> None:
        """Count a block."""
        self.counts.update(STATUS[code] for code in block.status.tolist())
        if block.failures:
            together = {**self.seen, **{index: (code, text) for index, code, text in block.failures}}
            self.seen = dict(sorted(together.items())[:FAILURES_KEPT])
        p, done, failed = self.max_failures, self.done, self.failed
        beyond_chance = failed > p * done + 3 * np.sqrt(p * (1 - p) * done)
        if p < 1 and ((done >= ENOUGH_TO_JUDGE and beyond_chance) or failed == done >= ALL_FAILED or (p == 0 and failed)):
            raise self.error()

    def finish(self, status: np.ndarray) -> None:
        """At the end the fraction of all is what counts, those of earlier runs included."""
        counts = np.bincount(status, minlength=len(STATUS)).tolist()
        self.counts = Counter(dict(zip(STATUS, counts[: len(STATUS)], strict=True)))
        if self.failed and not self.seen:
            first = int(np.flatnonzero(status != OK)[0])
            self.seen = {first: (int(status[first]), EARLIER)}
        # In a handful of simulations one failure is a large fraction, and says nothing.
        single = self.failed == 1 < self.done and self.max_failures > 0
        if self.failed > self.max_failures * self.done and not single:
            raise self.error()

    def summary(self) -> str:
        """Of the failures, by kind."""
        return ", ".join(f"{self.counts[name]:,} {name}" for name in STATUS[1:] if self.counts[name])

    def sentence(self, consequence: str) -> str:
        """How many failed and of which kinds, what was done about it, and the first of them in one line."""
        index, (code, text) = next(iter(self.seen.items()))
        return (
            f"{self.failed:,} of {self.done:,} simulations failed ({self.summary()}) {consequence}. The first was simulation "
            f"{index}, θ = {self.describe(index)}, {STATUS[code]}: {_said(text).removesuffix('.')}."
        )

    def error(self) -> SimulatorError:
        """With the first failure."""
        index, (code, text) = next(iter(self.seen.items()))
        return SimulatorError(
            f"expected at most a fraction {self.max_failures:g} (max_failures) of simulations to fail; got {self.failed:,} of "
            f"{self.done:,}: {self.summary()}. The run was stopped; what was finished is kept where there is a store. "
            f"Mend the simulator, narrow the prior or raise max_failures.\n{advice(text, self.names)}"
            f"The first to fail was simulation {index}, θ = {self.describe(index)}, {STATUS[code]}: {text}"
        )


def _said(text: str) -> str:
    """What was wrong, in one line: of a traceback the exception, whose message may have lines of its own."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    frames = [i for i, line in enumerate(lines) if line.startswith("  File ")]
    last = next((i for i in range(frames[-1] + 1, len(lines)) if not lines[i].startswith("  ")), 0) if frames else 0
    return shorten(one_line(" ".join(lines[last:])), LONGEST_SAID, placeholder=" …")
