"""The density of composed scores, up to a constant: values by energies or line integrals, and maxima.

Conservative networks have energies, which are added up. Other scores are integrated along straight lines from the maximum
(`line_integral.py`). Where sets have several observations, the density is the mean over a few partitions of them. Sets
are composed by the plain sum, whatever rule the draws are made with: at the lowest level all rules are nearly the same.
"""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.errors import UntrustworthyDraws
from scorefold.posterior.asked import asked_of, on_device
from scorefold.posterior.densities import Summits
from scorefold.posterior.draws import Options
from scorefold.posterior.line_integral import Composed, climbed, energies, from_summit, integrals
from scorefold.posterior.pilots import PaddedSets
from scorefold.prior.prior_ratio import volume
from scorefold.sample import SelfTuned

AVERAGED = 4
"""Partitions that a log density is the mean over."""
TRIANGLES, LARGEST_DETOUR = 32, 0.5
"""Ways around by which a score is tried for being a gradient, and by how many nat it may miss."""


def log_density(posterior: Any, x: np.ndarray, u: np.ndarray, options: Options) -> np.ndarray:
    """The composed log density at points u (points, dim), relative to its own maximum."""
    exact = posterior.ensemble.network.shape.conservative and posterior.local is None
    asked, grid = asked_of(posterior.prior, options), posterior.grid(SelfTuned())
    lowest = jax.tree.map(lambda v: v[-1], grid)
    found = []
    for padded in _partitions(posterior, x, options):
        start = jnp.zeros((1, posterior.prior.dim))
        found_top = climbed(posterior.scores, asked, None, padded, grid, start, True)
        top, curvature = (np.asarray(part, np.float64) for part in found_top)
        composed = Composed(posterior.scores, asked, padded, lowest)
        if exact:
            values = energies(composed, np.concatenate([top, u]))
            found.append(values[1:] - values[0])
            continue
        # Where another prior ends there may be an edge beside the summit, with another slope on either side.
        edges = options.prior is not None
        along = integrals(composed, np.resize(top, u.shape), u) if edges else from_summit(composed, top[0], curvature[0], u)
        found.append(along)
        _say_if_no_gradient(composed, u, found[-1])
    return np.mean(found, axis=0)


def climb(posterior: Any, x: np.ndarray, u: np.ndarray, of_theta: bool, options: Options) -> Summits:
    """Maxima uphill from points u; one more comes from the middle of the prior."""
    asked, grid = asked_of(posterior.prior, options), posterior.grid(SelfTuned())
    by_volume = on_device(volume(posterior.prior)) if of_theta else None
    padded = _partitions(posterior, x, options)[0]
    middle = climbed(posterior.scores, asked, by_volume, padded, grid, jnp.zeros((1, posterior.prior.dim)), True)
    from_points = climbed(posterior.scores, asked, by_volume, padded, grid, jnp.asarray(u, jnp.float32), False)
    return Summits(*(np.concatenate(parts).astype(np.float64) for parts in zip(middle, from_points, strict=True)))


def _partitions(posterior: Any, x: np.ndarray, options: Options) -> list[PaddedSets]:
    """One where all are the same, else a few."""
    seeds = [(0, i) for i in range(AVERAGED)]
    padded, how = posterior.arrange(np.broadcast_to(x, (AVERAGED, *x.shape)), seeds, options)
    alike = how.sets == 1 or padded.others is None
    return [PaddedSets(one, padded.sizes, padded.number) for one in padded.x[: 1 if alike else AVERAGED]]


def _say_if_no_gradient(composed: Composed, u: np.ndarray, found: np.ndarray) -> None:
    """Integrals around triangles are 0 where the score is a gradient; warn where they are far from it."""
    near = np.flatnonzero(found > -u.shape[1] - 10)  # where draws can be
    if len(near) < 2:
        return
    first, second = np.random.default_rng(0).choice(near, (2, TRIANGLES))
    around = found[first] + integrals(composed, u[first], u[second]) - found[second]
    off = float(np.sqrt(np.mean(around**2)))
    if off > LARGEST_DETOUR:
        warnings.warn(
            f"the composed score is not the gradient of a density: by another way log densities come out {off:.2g} nat "
            "different. Train with sf.NPSE(conservative=True) where the density matters.",
            UntrustworthyDraws,
            stacklevel=6,
        )
