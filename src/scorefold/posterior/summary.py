"""Draws in a table: mean, sd, median and a central interval of each parameter."""

from dataclasses import dataclass

import numpy as np

from scorefold.posterior.trust import Trust
from scorefold.shown import html_table, text_table


@dataclass(frozen=True, eq=False)
class Summary:
    """What `draws.summary()` returns: print it, show it in a notebook, or take its numbers.

    Example:
        >>> summary = Summary(("v",), *np.array([[1.5], [0.25], [1.1], [1.5], [1.9]]), 0.9, ("converged",))
        >>> print(summary)
        parameter  mean    sd  5 %  median  95 %
        v           1.5  0.25  1.1     1.5   1.9
        <BLANKLINE>
        converged
    """

    names: tuple[str, ...]
    mean: np.ndarray
    """(dim,)"""
    sd: np.ndarray
    """(dim,)"""
    low: np.ndarray
    """(dim,) the lower end of the interval"""
    median: np.ndarray
    """(dim,)"""
    high: np.ndarray
    """(dim,) the upper end of the interval"""
    level: float
    """The probability of the interval."""
    notes: tuple[str, ...] = ()
    """What else to know of the draws, a sentence each."""
    trust: Trust | None = None
    """How far they may be from the true posterior."""

    @property
    def head(self) -> tuple[str, ...]:
        """The heads of the columns."""
        tail = 50 * (1 - self.level)
        own = ("parameter", "mean", "sd", f"{tail:.4g} %", "median", f"{100 - tail:.4g} %")
        return (*own, "expected shift (sd)", "width off by") if self._expected else own

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """A row for each parameter, numbers in four digits."""
        columns: tuple[np.ndarray, ...] = (self.mean, self.sd, self.low, self.median, self.high)
        digits = [".4g"] * len(columns) + [".2f"] * len(self._expected)
        columns += self._expected
        return [
            (name, *(f"{column[i]:{form}}" for column, form in zip(columns, digits, strict=True)))
            for i, name in enumerate(self.names)
        ]

    @property
    def _expected(self) -> tuple[np.ndarray, ...]:
        """Shift and factor of the width, where something is known of them."""
        if self.trust is None or self.trust.shift is None or self.trust.width is None:
            return ()
        return self.trust.shift, self.trust.width

    def __str__(self) -> str:
        return "\n".join([text_table(self.head, self.rows), *(("", *self.notes) if self.notes else ())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table("Draws", self.head, self.rows, self.notes)


def summarise(
    names: tuple[str, ...], theta: np.ndarray, level: float, notes: tuple[str, ...], trust: Trust | None = None
) -> Summary:
    """The summary of draws (draws, dim), with a central interval of this probability; a single draw has sd 0."""
    low, median, high = np.quantile(theta, [(1 - level) / 2, 0.5, (1 + level) / 2], axis=0)
    sd = theta.std(axis=0, ddof=min(1, len(theta) - 1))
    return Summary(names, theta.mean(axis=0), sd, low, median, high, level, notes, trust)


def shortest(theta: np.ndarray, level: float) -> list[tuple[float, float]]:
    """For each parameter of draws (draws, dim), the shortest interval that holds this share of them."""
    ordered = np.sort(theta, axis=0)
    held = min(len(theta), max(1, int(np.ceil(level * len(theta)))))
    widths = ordered[held - 1 :] - ordered[: len(theta) - held + 1]
    first = widths.argmin(axis=0)
    return [(float(ordered[i, k]), float(ordered[i + held - 1, k])) for k, i in enumerate(first)]
