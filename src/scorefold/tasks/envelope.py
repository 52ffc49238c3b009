"""Exact draws in one or two dimensions, by rejection under an envelope that refines itself.

Wanted: a log density ℓ over a box, and for any smaller box a number that ℓ nowhere in it exceeds. The boxes' bounds
are the steps of an envelope: pick a box by the envelope's mass, a point inside it uniformly, and accept it
with probability exp(ℓ - bound). However coarse the boxes, accepted points have the density exp ℓ exactly.

Boxes whose bound lies `DEPTH` below the best centre are dropped. The others are halved along every side, those
first where the envelope stands highest above exp ℓ, until about a third of the proposals are accepted.
"""

from typing import NamedTuple

import numpy as np

from scorefold.errors import ScorefoldError
from scorefold.types import Callable, Float

DEPTH = 35.0
"""How far below the maximum log density still counts: dropped boxes hold e⁻³⁵ of the maximum times their area."""
ACCEPTED = 0.3
SPLIT = 0.9
"""Boxes with this share of the excess are split at once."""
MOST_BOXES = 400_000

Points = Float[np.ndarray, "points dim"]
PerPoint = Float[np.ndarray, " points"]
LogDensity = Callable[[Points], PerPoint]
Bound = Callable[[Points, Points], PerPoint]
"""(lower corners, upper corners) to a number that the log density does not exceed between them."""


class Boxes(NamedTuple):
    """The boxes that can hold mass, each with its corners, its bound and the log density in its middle."""

    low: Points
    high: Points
    bound: PerPoint
    centre: PerPoint
    """The log density in the middle."""

    @property
    def log_volume(self) -> PerPoint:
        """The logarithm of the volume of each box, as an array with one entry a box."""
        return np.log(self.high - self.low).sum(1)


def draw(log_density: LogDensity, bound: Bound, start: Boxes, draws: int, rng: np.random.Generator) -> Points:
    """Draw independently from exp ℓ over the boxes of `start`, by rejection; a bound that does not hold is an error."""
    boxes = refined(log_density, bound, start)
    mass = _mass(boxes.bound, boxes)
    accepted: list[np.ndarray] = []
    while (missing := draws - sum(map(len, accepted))) > 0:
        # Whole numbers of one size: compiled densities are compiled once.
        chosen = rng.choice(len(mass), size=_rounded(int(1.2 * missing / ACCEPTED)), p=mass / mass.sum())
        theta = rng.uniform(boxes.low[chosen], boxes.high[chosen])
        below = boxes.bound[chosen] - log_density(theta)
        if below.min() < -1e-6:
            raise ScorefoldError(f"expected a bound that holds; got a log density {-below.min():.3g} above it.")
        accepted.append(theta[rng.exponential(size=len(theta)) > below])
    return np.concatenate(accepted)[:draws]


def grid(log_density: LogDensity, bound: Bound, low: np.ndarray, high: np.ndarray, cells: int) -> Boxes:
    """Cut the box from `low` to `high` into equal boxes, `cells` along every side, and measure each."""
    edges = [np.linspace(a, b, cells + 1) for a, b in zip(low, high, strict=True)]
    lows, highs = (
        np.stack(np.meshgrid(*(e[part] for e in edges), indexing="ij"), axis=-1).reshape(-1, len(edges))
        for part in (slice(None, -1), slice(1, None))
    )
    return _measured(log_density, bound, lows, highs)


def refined(log_density: LogDensity, bound: Bound, boxes: Boxes) -> Boxes:
    """Split boxes until enough proposals are accepted under the envelope; a posterior that needs too many is an error."""
    while True:
        boxes = _kept(boxes, boxes.bound > boxes.centre.max() - DEPTH)
        under, over = _mass(boxes.centre, boxes), _mass(boxes.bound, boxes)
        if under.sum() >= ACCEPTED * over.sum():
            return boxes
        if len(over) > MOST_BOXES:
            raise ScorefoldError(f"expected a posterior that {MOST_BOXES:,} boxes can follow; got one that needs more.")
        excess = over - under
        order = np.argsort(-excess)
        # At least a quarter of the boxes, so that the first rounds, which see little, are few.
        count = max(np.searchsorted(np.cumsum(excess[order]), SPLIT * excess.sum()) + 1, len(order) // 4)
        chosen = np.zeros(len(order), bool)
        chosen[order[:count]] = True
        fresh = _measured(log_density, bound, *_halves(boxes.low[chosen], boxes.high[chosen]))
        boxes = Boxes(*map(np.concatenate, zip(_kept(boxes, ~chosen), fresh, strict=True)))


def _measured(log_density: LogDensity, bound: Bound, low: Points, high: Points) -> Boxes:
    return Boxes(low, high, bound(low, high), log_density((low + high) / 2))


def _kept(boxes: Boxes, which: np.ndarray) -> Boxes:
    return Boxes(*(part[which] for part in boxes))


def _mass(level: PerPoint, boxes: Boxes) -> PerPoint:
    """The mass of each box at this log density, against the best centre."""
    return np.exp(np.minimum(level - boxes.centre.max(), 600) + boxes.log_volume)


def _halves(low: Points, high: Points) -> tuple[Float[np.ndarray, "halves dim"], Float[np.ndarray, "halves dim"]]:
    """Every box halved along every side."""
    dim, middle = low.shape[1], (low + high) / 2
    upper = (np.arange(2**dim)[:, None] >> np.arange(dim)) & 1 == 1
    lows = np.where(upper, middle[:, None], low[:, None]).reshape(-1, dim)
    return lows, np.where(upper, high[:, None], middle[:, None]).reshape(-1, dim)


def _rounded(count: int) -> int:
    """The next power of two."""
    return 1 << max(count - 1, 1).bit_length()
