"""Are observations like anything simulated? Judged by x alone, before anything is drawn, in milliseconds.

From the simulations are kept, for each number of an observation, its kind (constant, binary, count or continuous), its range
and its quantiles; and, where an observation has up to 64 numbers, how these hang together: with z = Φ⁻¹(rank), the correlation
R of z and the largest d² = zᵀ R⁻¹ z of the simulations. Every observation is a draw of p(x|θ) for some θ of the prior, so it
lies where the simulations lie, whatever θ is. Said is, with the names of the numbers,

- a value that a binary number or a count never has;
- numbers of which a tenth of the observations are out of the simulated range, widened by a tenth of it at either end, or one is
  out by more than the whole range;
- numbers that do not go together as simulated ones do: for a tenth of the observations, d² is above 1.5 times the largest one.

Of N simulations from the right model, one more is out of their range with probability 2 / (N + 1) for each number, and out of
the widened one far less often, unless tails are heavy. Wrong units, swapped columns and transposed arrays are recognised where
scaling, swapping or transposing makes the observations like the simulations. Columns that are simulated alike can be swapped
unnoticed.
"""

import itertools
import math
from dataclasses import dataclass, fields
from typing import Annotated

import numpy as np
from scipy.special import ndtri

from scorefold.shown import listed, one_line
from scorefold.simulation.pieces import pieces
from scorefold.simulation.simulations import Simulations
from scorefold.types import MAY_BE_NAN, Float, Int

CONSTANT, BINARY, COUNT, CONTINUOUS = range(4)
COLUMN_KINDS = ("constant", "binary", "count", "continuous")
MOST_SEEN = 20_000
"""Observations from which quantiles and correlations come."""
MOST_NUMBERS_SEEN = 1 << 23
"""Numbers of them all together: 2,048 images of 64 × 64."""
QUANTILES_SEEN = 65
INPUTS_KEPT = 1_000
MOST_TOGETHER = 64
"""Numbers of an observation whose correlations are kept."""
STRANGE_SHARE = 0.1
"""The share of observations that must be strange."""
OUT_OF_RANGE, FARTHER = 0.1, 1.5
MOST_TRIED = 8
"""Numbers among which swapped pairs are looked for."""
UNITS = (1e3, 1e-3, 100.0, 0.01, 1e6, 1e-6)
"""Factors by which units are mistaken."""


@dataclass(frozen=True, eq=False)
class Seen:
    """What the numbers of simulated observations look like; saved with a model."""

    names: tuple[str, ...]
    """Of the numbers, where they have some."""
    kind: Int[np.ndarray, " x"]
    """Places in `COLUMN_KINDS`."""
    low: Float[np.ndarray, " x"]
    """The least of each."""
    high: Float[np.ndarray, " x"]
    """The largest of each."""
    quantiles: Float[np.ndarray, "quantiles x"]
    precision: Annotated[Float[np.ndarray, "together together"], MAY_BE_NAN]
    """R⁻¹, or nothing where there are too many numbers."""
    farthest: float
    """The largest d² of a simulated observation."""
    input_names: tuple[str, ...]
    """Of the known inputs, the last of the numbers; none where there are none."""
    inputs: Float[np.ndarray, "some inputs"] | None
    """Up to 1,000 of the simulated inputs: where others of their kind are drawn from; None where there are none."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seen) and all(
            np.array_equal(getattr(self, one.name), getattr(other, one.name)) for one in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]

    def fault(self) -> str:
        """What is wrong with one that comes from a file; nothing where all is right."""
        numbers = len(self.kind)
        good = (
            len(self.names) in (0, numbers)
            and ((self.kind >= 0) & (self.kind < len(COLUMN_KINDS))).all()
            and (self.low <= self.high).all()
            and len(self.quantiles) > 1
            and (np.diff(self.quantiles, axis=0) >= 0).all()
            and len(self.precision) in (0, numbers)
            and self._has_its_inputs()
        )
        return "" if good else "what the simulated observations look like should be ranges and quantiles in order"

    def _has_its_inputs(self) -> bool:
        """Whether the inputs are the last of the numbers, and there is a table of them if there are some."""
        if self.inputs is None:
            return not self.input_names
        count, rows = len(self.input_names), len(self.inputs)
        return (
            0 < count < len(self.names)
            and self.names[-count:] == self.input_names
            and rows > 0
            and self.inputs.shape[1] == count
        )

    def name(self, number: int) -> str:
        """The name of one of the numbers."""
        return one_line(self.names[number]) if self.names else f"number {number}"

    def recognised(self) -> list[str]:
        """The outcomes that are not continuous, in words."""
        outcomes = self.kind[: len(self.kind) - len(self.input_names)]
        return [f"{self.name(i)} as {COLUMN_KINDS[kind]}" for i, kind in enumerate(outcomes) if kind != CONTINUOUS]


def kinds_of(x: np.ndarray) -> np.ndarray:
    """What kind each number of an observation is of: constant, binary, a count or continuous, judged by the values in x
    (observations, features).
    """
    whole = (x == np.round(x)).all(axis=0) & (x >= 0).all(axis=0)
    low, high = x.min(axis=0), x.max(axis=0)
    two = ((x == low) | (x == high)).all(axis=0)
    return np.select([low == high, two, whole], [CONSTANT, BINARY, COUNT], CONTINUOUS)


def look(sims: Simulations) -> Seen:
    """What simulated observations look like: kinds, ranges and quantiles of their numbers, by which real ones are recognised.

    Args:
        sims: The simulations; of very many a part is looked at.

    Returns:
        A `Seen`, which is saved with the posterior.
    """
    parts, count = [], int(sims.sizes.sum())
    every = max(1, count // MOST_SEEN, -(-count * math.prod(sims.shape) // MOST_NUMBERS_SEEN))
    for at in pieces(sims.x):
        part = sims.x[at][np.arange(sims.set_size) < sims.sizes[at, None]].reshape(sims.sizes[at].sum(), -1)
        some = part[::every].copy()  # a view would hold the whole piece in memory
        parts.append((part.min(axis=0), part.max(axis=0), kinds_of(part), some))
    low, high = np.min([one[0] for one in parts], axis=0), np.max([one[1] for one in parts], axis=0)
    some = np.concatenate([one[3] for one in parts]).astype(np.float64)
    kind = _joined([one[2] for one in parts], low, high, some)
    quantiles = np.quantile(some, np.linspace(0, 1, QUANTILES_SEEN), axis=0)
    quantiles[0], quantiles[-1] = low, high
    precision, farthest = np.zeros((0, 0)), 0.0
    if some.shape[1] <= MOST_TOGETHER:
        z = _scores(some, quantiles)
        precision = np.linalg.pinv(np.cov(z, rowvar=False).reshape(z.shape[1], -1), rcond=1e-6, hermitian=True)
        farthest = float(np.einsum("ni,ij,nj->n", z, precision, z).max())
    low, high = low.astype(np.float64), high.astype(np.float64)
    own = tuple(sims.input_names)
    inputs = some[:: -(-len(some) // INPUTS_KEPT), -len(own) :] if own else None
    return Seen(tuple(sims.x_names), kind, low, high, quantiles, precision, farthest, own, inputs)


def _joined(kinds: list[np.ndarray], low: np.ndarray, high: np.ndarray, some: np.ndarray) -> np.ndarray:
    """The kinds of all pieces together: the most general, which is found anew where a piece is only part of the range."""
    most = np.max(kinds, axis=0)
    two = ((some == low) | (some == high)).all(axis=0)
    whole = (some == np.round(some)).all(axis=0) & (low >= 0)
    wider = np.select([low == high, two, whole], [CONSTANT, BINARY, COUNT], CONTINUOUS)
    return np.where(most == CONTINUOUS, CONTINUOUS, np.maximum(most, wider))


def _scores(x: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
    """z = Φ⁻¹(rank) of each number; what lies on several quantiles, as a count does, is put in the middle of them."""
    ranks, grid = np.empty(x.shape), np.linspace(0, 1, len(quantiles))
    for j, column in enumerate(quantiles.T):
        values, inverse = np.unique(column, return_inverse=True)
        middle = np.bincount(inverse, grid) / np.bincount(inverse)
        ranks[:, j] = np.interp(x[:, j], values, middle)
    edge = 0.5 / len(quantiles)
    return ndtri(np.clip(ranks, edge, 1 - edge))


class _Strange:
    """What is strange about observations (n, numbers)."""

    def __init__(self, seen: Seen, x: np.ndarray):
        most = np.finfo(np.float32).max
        x = np.clip(x, -most, most).astype(np.float32).astype(np.float64)  # as the simulations were kept
        size = np.maximum(seen.high - seen.low, 1e-6 * np.maximum(np.abs(seen.low), np.abs(seen.high)))
        out = np.maximum(seen.low - x, x - seen.high) / np.where(size > 0, size, 1.0)
        self.values = ((seen.kind == BINARY) & ((x != seen.low) & (x != seen.high)).any(axis=0)) | (
            (seen.kind == COUNT) & (x != np.round(x)).any(axis=0)
        )
        self.range = ((out > OUT_OF_RANGE).mean(axis=0) > STRANGE_SHARE) | (out > 1).any(axis=0)
        self.together: tuple[int, ...] = ()
        if len(seen.precision) and not self.values.any() and not self.range.any():
            z = _scores(x, seen.quantiles)
            pull = z * (z @ seen.precision)
            far = pull.sum(axis=1) > FARTHER * seen.farthest
            if far.mean() > STRANGE_SHARE:
                self.together = tuple(sorted(np.argsort(-pull[far].mean(axis=0))[:2].tolist()))

    def __bool__(self) -> bool:
        return bool(self.values.any() or self.range.any() or self.together)


def unlike(seen: Seen, x: np.ndarray) -> str:
    """Whether observations differ from the simulated ones in a way that has a plain reason, such as another unit.

    Args:
        seen: What the simulated ones look like.
        x: (n, features), the observations.

    Returns:
        A sentence that says what is strange about which number; empty where nothing is.
    """
    middle = np.where(seen.kind == CONTINUOUS, seen.quantiles[len(seen.quantiles) // 2], seen.low)
    x = np.where(np.isnan(x), middle, x)  # what was not observed is not strange
    found = _Strange(seen, x)
    if not found:
        return ""
    said = [_values(seen, x, j) for j in np.flatnonzero(found.values)[:3].tolist()]
    said += [_range(seen, x, j) for j in np.flatnonzero(found.range & ~found.values)[:3].tolist()]
    more = int((found.values | found.range).sum()) - len(said)
    if more > 0:
        said.append(f"and {more:,} more numbers are out of their range")
    if found.together:
        said.append(f"{' and '.join(seen.name(j) for j in found.together)} do not go together as simulated ones do")
    return f"The observations are unlike anything simulated: {'; '.join(said)}.{_hint(seen, x)}"


def _values(seen: Seen, x: np.ndarray, j: int) -> str:
    wanted = f"only {seen.low[j]:.4g} or {seen.high[j]:.4g}" if seen.kind[j] == BINARY else "whole numbers only"
    wrong = x[:, j][(x[:, j] != seen.low[j]) & (x[:, j] != seen.high[j])] if seen.kind[j] == BINARY else x[:, j]
    wrong = wrong[wrong != np.round(wrong)] if seen.kind[j] == COUNT else wrong
    return f"{seen.name(j)} was simulated as {wanted}, and is {wrong[0]:.4g} here"


def _range(seen: Seen, x: np.ndarray, j: int) -> str:
    low, high = x[:, j].min(), x[:, j].max()
    here = f"is {low:.4g}" if low == high else f"goes from {low:.4g} to {high:.4g}"
    return f"{seen.name(j)} was simulated from {seen.low[j]:.4g} to {seen.high[j]:.4g}, and {here} here"


def _hint(seen: Seen, x: np.ndarray) -> str:
    """What would make the observations like the simulations, if it is found."""
    numbers = x.shape[1]
    if x.shape == (numbers, numbers) and numbers > 1 and not _Strange(seen, x.T):
        return " Transposed they would be like them: the first axis counts observations."
    if numbers <= MOST_TRIED:
        for i, j in itertools.combinations(range(numbers), 2):
            swapped = x.copy()
            swapped[:, [i, j]] = x[:, [j, i]]
            if not _Strange(seen, swapped):
                return f" With {listed([seen.name(i)])} and {listed([seen.name(j)])} swapped they would be like them."
    return _units(seen, x)


def _units(seen: Seen, x: np.ndarray) -> str:
    """Which factor makes strange numbers like the simulated ones; of several, the one after which they are of their size."""
    strange, like = np.flatnonzero(_Strange(seen, x).range).tolist(), {}
    usual = np.array([_size(seen.quantiles[:, j]) for j in strange])
    for factor in UNITS:
        scaled = x.copy()
        scaled[:, strange] /= factor
        if not _Strange(seen, scaled):
            sizes = np.array([_size(scaled[:, j]) for j in strange])
            like[factor] = float(np.abs(np.log(sizes / usual)).max())
    if like:
        best = min(like, key=lambda factor: like[factor])
        return f" Divided by {best:,g}, {listed([seen.name(j) for j in strange])} would be like them: look at the units."
    return " Look at units, at the order of columns, and at what the simulator leaves out."


def _size(values: np.ndarray) -> float:
    """How large numbers usually are, whatever their signs, those that are 0 left out."""
    sizes = np.abs(values[values != 0])
    return float(np.median(sizes)) if len(sizes) else float(np.finfo(np.float32).tiny)
