"""Draws for many data sets, one data set after the other."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from scorefold.errors import Diverged, UntrustworthyDraws
from scorefold.posterior.draws import Options


def draw_one_by_one(
    posterior: Any, x: np.ndarray, draws: int, seeds: Sequence[tuple[int, int]], options: Options
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`Posterior.draw_many`, one data set after the other."""
    u = np.full((len(x), draws, posterior.prior.dim), np.nan)
    converged, diverged = np.zeros(len(x), bool), np.ones(len(x), bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyDraws)  # sample_many says it once for all of them
        for i, (one, seed) in enumerate(zip(x, seeds, strict=True)):
            try:
                drawn = posterior.draw(one, draws, seed, options)
            except Diverged:
                continue
            u[i], converged[i], diverged[i] = drawn.u, drawn.info.converged, drawn.info.diverged
    return u, converged, diverged
