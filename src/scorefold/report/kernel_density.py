"""Densities of draws, along a line and in a plane.

A density is a histogram smoothed with a Gaussian kernel, of bandwidth h = 1.06 s n^(-1/5) along a line and
s n^(-1/6) in a plane ("Density estimation for statistics and data analysis", Silverman, 1986). Here s is
the standard deviation or, where that is smaller, the standard deviation of the Gaussian whose densest
quarter is as wide as that of the draws: the distance between two modes must not blur them. In a plane the
kernel is sheared along a strong correlation, and h shrinks further where the draws fill less area than
independent Gaussians of the same s would: a ridge must not fatten. Where draws are sparse the kernel is
wider; where they end abruptly it is reflected, so that a marginal that meets a hard bound keeps its edge.

The region of probability p is {θ : density(θ) ≥ c}, with c the (1-p)-quantile of the density over the draws
("Computing and graphing highest density regions", Hyndman, 1996), so it holds a share p of the draws.
"""

import numpy as np
from scipy.ndimage import gaussian_filter

REGION_SHARES = (0.9, 0.5)
DENSEST_QUARTER = 0.6373  # width of the densest quarter of N(0, 1)
HARD_BOUND = 0.6  # at a bound half of the first values span half of their range; in a Gaussian tail, 0.8 of it
DENSE_END = 0.4  # and they lie at least as dense there, compared with the densest quarter; in a Gaussian tail, 0.2
NARROW_RIDGE = 0.6  # along a ridge y is this narrow about its line on x, and x has no modes this narrow
SPARSE_WIDTH = 1.8  # how much wider the kernel is where draws are sparse
CELLS_OF_LINE, CELLS_OF_SIDE = 512, 128  # of the histograms that are smoothed, along a line and along each side of a mesh


def marginal(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A smooth density along a line, with a zero at either end of its support."""
    h = 1.06 * _spread(values) * values.size**-0.2
    low, high = _support(values, h)
    counts, edges = np.histogram(values, CELLS_OF_LINE, (low, high))
    width = (high - low) / CELLS_OF_LINE
    density = _smooth(counts.astype(float), np.array([h / width])) / (values.size * width)
    return _ringed(edges), np.pad(density, 1)


def surface(pair: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A smooth density over a mesh, zero all round its support, and the level at the edge of each region."""
    slope = _slope(pair)
    pair = np.stack([pair[:, 0], pair[:, 1] - slope * pair[:, 0]], axis=1)
    s = np.array([_spread(values) for values in pair.T])
    h = s * len(pair) ** (-1 / 6)
    supports = [_support(values, width) for values, width in zip(pair.T, h, strict=True)]
    counts, *edges = np.histogram2d(pair[:, 0], pair[:, 1], CELLS_OF_SIDE, supports)
    cell = np.array([(high - low) / CELLS_OF_SIDE for low, high in supports])
    usual = max(2 * np.pi * np.log(2) * s.prod(), 1e-300)  # area where two Gaussians exceed their mean density
    shrink = 1.0
    for _ in range(3):
        density = _smooth(counts, shrink * h / cell)
        filled = np.sum(density >= np.average(density, weights=counts)) * cell.prod()
        shrink = min(1.0, float(np.sqrt(filled / usual)))
    at_draws = np.repeat(density.ravel(), counts.ravel().astype(int))
    levels = np.quantile(at_draws, 1 - np.array(REGION_SHARES))
    # The bounds bind where draws coincide: there is still a dot, and the levels still rise.
    levels = np.minimum(levels, density.max() * np.array([0.8, 0.95])) * [0.999, 1.0]
    x, y = np.meshgrid(_ringed(edges[0]), _ringed(edges[1]))
    return x, y + slope * x, np.pad(density, 1).T, levels


def span(*clouds: np.ndarray) -> tuple[float, float]:
    """The core of all the clouds and a margin."""
    lows, highs = zip(*map(_core, clouds), strict=True)
    low, high = min(lows), max(highs)
    margin = max(0.08 * (high - low), 1e-6 * abs(low), 1e-12)
    return low - margin, high + margin


def _core(values: np.ndarray) -> tuple[float, float]:
    """The ends of the central 99.8 %, which never hold the first or the last of 20 values or more."""
    cut = -(-values.size // 1000) if values.size >= 20 else 0
    ordered = np.sort(values)
    return float(ordered[cut]), float(ordered[values.size - 1 - cut])


def _spread(values: np.ndarray) -> float:
    """The s of the bandwidth rules."""
    ordered = np.sort(values)
    quarter = max(values.size // 4, min(values.size - 1, 8))
    densest = float((ordered[quarter:] - ordered[:-quarter]).min())
    return min(float(values.std()), densest / DENSEST_QUARTER)


def _support(values: np.ndarray, h: float) -> tuple[float, float]:
    """From the first to the last value in the span, and on by 6 h at an end that is not a hard bound."""
    low, high = span(values)
    if h <= 0:
        return low, high
    ordered = np.sort(values[(low <= values) & (values <= high)])
    below = 0.0 if _is_hard(ordered) else 6 * h
    above = 0.0 if _is_hard(-ordered[::-1]) else 6 * h
    return float(ordered[0] - below), float(ordered[-1] + above)


def _is_hard(ordered: np.ndarray) -> bool:
    """Whether the values begin abruptly: in a tail the first few lie apart, at a bound they lie close."""
    few = max(20, ordered.size // 10)
    if 4 * few > ordered.size:
        return False
    begins, quarter = ordered[few] - ordered[0], ordered.size // 4
    densest = (ordered[quarter:] - ordered[:-quarter]).min()
    dense = few * densest >= DENSE_END * quarter * begins
    return bool(dense and ordered[few // 2] - ordered[0] <= HARD_BOUND * begins)


def _smooth(counts: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Counts through a reflected kernel of h cells, and a wider one where they are fewer than average."""
    sharp, wide = (gaussian_filter(counts, np.maximum(k * h, 1.0), truncate=3) for k in (1.0, SPARSE_WIDTH))
    trust = np.minimum(wide / np.average(wide, weights=counts), 1.0)
    mixed = trust * sharp + (1 - trust) * wide
    return mixed * (counts.sum() / mixed.sum())


def _slope(pair: np.ndarray) -> float:
    """The slope of y on x along a ridge, otherwise 0: two modes one above the other are no ridge."""
    spans = np.array([span(values) for values in pair.T])
    x, y = pair[((spans[:, 0] <= pair) & (pair <= spans[:, 1])).all(1)].T
    if x.size < 20 or _spread(x) <= NARROW_RIDGE * x.std():
        return 0.0
    slope = float(np.mean((x - x.mean()) * (y - y.mean())) / x.var())
    return slope if _spread(y - slope * x) < NARROW_RIDGE * _spread(y) else 0.0


def _ringed(edges: np.ndarray) -> np.ndarray:
    """The middles of the bins, and the two outer edges."""
    return np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
