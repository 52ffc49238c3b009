"""Does a cloud of draws have more than one mode?

Along a direction, with a kernel estimate p of the draws' density (bandwidth after "Density estimation for statistics and data
analysis", Silverman, 1986), a point t is a valley of depth

    p(t) / min(max_{s<t} p(s), max_{s>t} p(s)),

and the draws have two modes if the deepest valley with 2 % of the draws on either side is below 0.5. One Gaussian's 1,000 draws
stay above 0.8. Directions tried: the parameters, the principal axes, and those between the centres of two clusters, found by
Lloyd's algorithm in the space where the draws are white. The draws on either side are divided again in the same way, as long as
there are 200 of them and 20 for each parameter; fewer of one Gaussian may have a valley by chance.
"""

from typing import NamedTuple

import numpy as np

from scorefold.types import Float

SHALLOW = 0.5
LEAST_ON_A_SIDE = 0.02
LLOYD_STARTS = 4
LLOYD_STEPS = 12
POINTS = 101
FEWEST, FEWEST_EACH = 200, 20
"""Draws that are divided again, in all and for each parameter."""


class Split(NamedTuple):
    """The deepest valley: draws with direction · u below and above `at`."""

    depth: float
    direction: np.ndarray
    at: float
    below: float
    """Share of the draws."""

    @property
    def separate(self) -> bool:
        """Whether it divides modes."""
        return self.depth < SHALLOW

    def keeps(self, u: np.ndarray) -> bool:
        """Whether other draws have a fair part of either side, a quarter of what it was at least."""
        below = float((u @ self.direction < self.at).mean())
        return below >= self.below / 4 and 1 - below >= (1 - self.below) / 4


class Mode(NamedTuple):
    """One of several modes of a posterior."""

    centre: Float[np.ndarray, " dim"]
    """The mean of its draws, in the space where the prior is N(0, I)."""
    weight: float
    """Its share of the posterior."""
    error: float | None
    """The standard error of the weight; None where it is not known, as with scores."""


class Divided(NamedTuple):
    """Draws cut at their deepest valley, and each side again where it has one."""

    split: Split
    below: "Divided | None"
    above: "Divided | None"


def divided(u: np.ndarray, seed: int = 0) -> Divided | None:
    """The modes of draws (count, dim); None where there is one."""
    if len(u) < max(FEWEST, FEWEST_EACH * u.shape[1]):
        return None
    split = deepest_valley(u, seed)
    if not split.separate:
        return None
    above = u @ split.direction >= split.at
    return Divided(split, divided(u[~above], seed), divided(u[above], seed))


def count_of(modes: Divided | None) -> int:
    """How many there are."""
    return 1 if modes is None else count_of(modes.below) + count_of(modes.above)


def which_of(modes: Divided | None, u: np.ndarray) -> np.ndarray:
    """(draws,) the number of the mode that each draw belongs to, also of other draws than the modes were found in."""
    if modes is None:
        return np.zeros(len(u), int)
    above = u @ modes.split.direction >= modes.split.at
    return np.where(above, count_of(modes.below) + which_of(modes.above, u), which_of(modes.below, u))


def shares_of(modes: Divided | None, u: np.ndarray) -> np.ndarray:
    """(modes,) how much of the draws each has."""
    return np.bincount(which_of(modes, u), minlength=count_of(modes)) / len(u)


def vanished(before: np.ndarray, after: np.ndarray) -> int:
    """How many modes of the draws before have less than a quarter of their share left; 0 where there was one."""
    modes = divided(before)
    return int((shares_of(modes, after) < shares_of(modes, before) / 4).sum())


def within_modes(u: np.ndarray) -> np.ndarray:
    """The covariance (dim, dim) of draws around the means of the modes that they are in."""
    modes = divided(u)
    labels = which_of(modes, u) if count_of(modes) > 1 else np.zeros(len(u), int)
    off = u.astype(np.float64)
    for label in np.unique(labels):
        off[labels == label] -= off[labels == label].mean(axis=0)
    covariance: np.ndarray = off.T @ off / len(u)
    return covariance + 1e-9 * np.trace(covariance) * np.eye(u.shape[1])


def deepest_valley(u: np.ndarray, seed: int = 0) -> Split:
    """The best division of draws (count, dim) in two."""
    centred = u - u.mean(axis=0)
    values, axes = np.linalg.eigh(np.cov(u, rowvar=False).reshape(u.shape[1], u.shape[1]))
    white = axes / np.sqrt(np.maximum(values, 1e-12 * values.max()))
    directions = [*np.eye(u.shape[1]), *axes.T]
    rng = np.random.default_rng(seed)
    for _ in range(LLOYD_STARTS):
        directions.append(white @ _between_clusters(centred @ white, rng))
    return min((_valley(u, direction / np.linalg.norm(direction)) for direction in directions), key=lambda split: split.depth)


def _between_clusters(z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    centres = z[rng.choice(len(z), 2, replace=False)]
    for _ in range(LLOYD_STEPS):
        own = ((z[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
        if 0 < own.sum() < len(z):
            centres = np.stack([z[own == 0].mean(axis=0), z[own == 1].mean(axis=0)])
    difference: np.ndarray = centres[1] - centres[0]
    return difference if difference.any() else np.ones(z.shape[1])


def _valley(u: np.ndarray, direction: np.ndarray) -> Split:
    along = u @ direction
    sd, (low, high) = along.std(), np.quantile(along, [0.25, 0.75])
    width = 0.9 * min(sd, (high - low) / 1.349 or sd) * len(along) ** -0.2
    width = max(width, 0.05 * sd, 1e-12)  # two narrow modes have a range that says little of their width
    first, last = np.quantile(along, [LEAST_ON_A_SIDE, 1 - LEAST_ON_A_SIDE])
    points = np.linspace(first, last, POINTS)
    density = np.exp(-(((points[:, None] - along) / width) ** 2) / 2).sum(axis=1)
    left, right = np.maximum.accumulate(density), np.maximum.accumulate(density[::-1])[::-1]
    ratio = density / np.minimum(left, right)
    place = int(ratio.argmin())
    return Split(float(ratio[place]), direction, float(points[place]), float((along < points[place]).mean()))
