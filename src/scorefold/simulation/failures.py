"""Simulations that failed: which, how, what to write instead, and when there are too many of them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten

import numpy as np

from scorefold.errors import SimulatorError
from scorefold.shown import listed, one_line
from scorefold.simulation.calls import Calls
from scorefold.simulation.outcome import FAILURES_KEPT, MISSING, OK, STATUS, Block

ALL_FAILED = 20
"""A run is given up once so many simulations were made and every one of them failed."""
ENOUGH_TO_JUDGE = 100
"""Before so many simulations the fraction that fails says little."""
MOST_UNPACKED = 6
"""Parameters that advice writes out."""
LONGEST_SAID = 300
"""Of what is said of a failure in one line."""
EARLIER = "in an earlier run, which said how"


@dataclass(frozen=True)
class Failure:
    """One simulation that gave no observation: which it was, and how it failed. `Simulations.failures` holds the first ones of
    a run.
    """

    index: int
    """Which simulation it was."""
    theta: np.ndarray
    """(dim,) its parameters"""
    status: str
    """How it failed: 'raised', 'not finite', 'wrong shape', 'timed out', 'crashed' or 'out of memory'."""
    text: str
    """What was wrong, in words or as a traceback; a store does not keep it."""


def failures(calls: Calls, status: np.ndarray, texts: Mapping[int, str]) -> tuple[Failure, ...]:
    """The first simulations that failed, in order.

    Args:
        calls: All calls of the run.
        status: (calls,), what became of each.
        texts: What was wrong with each of them, by number, as far as it is known.

    Returns:
        A `Failure` for each of the first FAILURES_KEPT.
    """
    failed = np.flatnonzero((status != OK) & (status != MISSING))[:FAILURES_KEPT].tolist()
    return tuple(Failure(i, calls.rows(i, i + 1)[0], STATUS[status[i]], texts.get(i, EARLIER)) for i in failed)


class Guard:
    """Counts what comes from a simulator, and stops a run that fails too often.

    Args:
        max_failures: The fraction of simulations that may fail.
        describe: Gives a call's parameters in words, for messages.
        names: Of the parameters, for advice on a simulator's usual mistakes.
    """

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
        """Count a block, and give the run up as soon as it is clear that too many simulations fail.

        Raises:
            SimulatorError: More fail than chance would make of the allowed fraction, or every one of the first ALL_FAILED.
        """
        self.counts.update(STATUS[code] for code in block.status.tolist())
        if block.failures:
            together = {**self.seen, **{index: (code, text) for index, code, text in block.failures}}
            self.seen = dict(sorted(together.items())[:FAILURES_KEPT])
        p, done, failed = self.max_failures, self.done, self.failed
        beyond_chance = failed > p * done + 3 * np.sqrt(p * (1 - p) * done)
        if p < 1 and ((done >= ENOUGH_TO_JUDGE and beyond_chance) or failed == done >= ALL_FAILED or (p == 0 and failed)):
            raise self.error()

    def finish(self, status: np.ndarray) -> None:
        """Judge a run that has come to its end by the fraction of all simulations that failed, those of earlier runs included.

        Args:
            status: (calls,), what became of each.

        Raises:
            SimulatorError: It is more than is allowed; a single failure among several never is.
        """
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
        """How many failures there are of each kind, in words."""
        return ", ".join(f"{self.counts[name]:,} {name}" for name in STATUS[1:] if self.counts[name])

    def sentence(self, consequence: str) -> str:
        """How many failed and of which kinds, what was done about it, and the first of them in one line."""
        index, (code, text) = next(iter(self.seen.items()))
        return (
            f"{self.failed:,} of {self.done:,} simulations failed ({self.summary()}) {consequence}. The first was simulation "
            f"{index}, θ = {self.describe(index)}, {STATUS[code]}: {_said(text).removesuffix('.')}."
        )

    def error(self) -> SimulatorError:
        """The error that ends a run: how many failed, what to write instead where that is plain, and the first failure with its
        parameters and its traceback.
        """
        index, (code, text) = next(iter(self.seen.items()))
        return SimulatorError(
            f"expected at most a fraction {self.max_failures:g} (max_failures) of simulations to fail; got {self.failed:,} of "
            f"{self.done:,}: {self.summary()}. The run was stopped; what was finished is kept where there is a store. "
            f"Mend the simulator, narrow the prior or raise max_failures.\n{advice(text, self.names)}"
            f"The first to fail was simulation {index}, θ = {self.describe(index)}, {STATUS[code]}: {text}"
        )


def advice(text: str, names: Sequence[str]) -> str:
    """A sentence on what to write instead, for the traceback of a simulator's usual mistakes.

    Args:
        text: The traceback, or what else was wrong.
        names: Of the parameters.

    Returns:
        The sentence; nothing for a mistake that is not a usual one.
    """
    last = text.strip().splitlines()[-1] if text.strip() else ""
    if "expected an observation to be numbers; got NoneType" in last:
        return "The simulator returned nothing: end it with `return x`.\n"
    if "expected an observation to be numbers; got dict" in last:
        return "Return the numbers in one array, always in the same order; x_names=… of sf.simulate is for their names.\n"
    by_name = last.startswith("IndexError: only integers, slices") or (
        last.startswith("AttributeError: 'numpy.ndarray' object has no attribute")
        and any(last.split("attribute")[-1].strip(" '.\"").startswith(name) for name in names)
    )
    if not by_name or not names:
        return ""
    words = [_word(name) for name in names]
    unpacked = f", or `{', '.join(words)} = theta`" if 1 < len(names) <= MOST_UNPACKED else ""
    return f"θ is an array in the order of the prior, {listed(names)}: write theta[0] for {one_line(names[0])}{unpacked}.\n"


def _word(name: str) -> str:
    """A name that Python takes."""
    return name if name.isidentifier() else "".join(one if f"_{one}".isidentifier() else "_" for one in f"p_{name}")


def _said(text: str) -> str:
    """What was wrong, in one line: of a traceback the exception, whose message may have lines of its own."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    inner = [i for i, line in enumerate(lines) if line.startswith("  ")] if text.startswith("Traceback") else []
    frames = [i for i in inner if lines[i].startswith("  File ")] or inner
    last = next((i for i in range(frames[-1] + 1, len(lines)) if not lines[i].startswith("  ")), 0) if frames else 0
    return shorten(one_line(" ".join(lines[last:])), LONGEST_SAID, placeholder=" …")
