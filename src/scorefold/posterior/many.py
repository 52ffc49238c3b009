"""Draws for many data sets: one after the other, or in parts, so that progress can be shown and a stop costs little."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from scorefold import settings
from scorefold.errors import Diverged, Interrupted, ScorefoldError, UntrustworthyDraws
from scorefold.posterior.draws import Drawn, ManyDraws, Options
from scorefold.prior import Prior
from scorefold.prior.given_values import with_given
from scorefold.progress import bar

Many = tuple[np.ndarray, np.ndarray, np.ndarray]
"""u (data sets, draws, dim), converged and diverged."""


def seeds_of(seed: int | Sequence[int] | None, count: int) -> list[tuple[int, int]]:
    """A seed and a number for each data set: one seed and all numbers, or a seed each."""
    if not isinstance(seed, list | tuple):
        first = settings.seed(seed)
        return [(first, i) for i in range(count)]
    if len(seed) != count:
        raise ScorefoldError(f"expected one seed, or one for each of the {count} data sets; got {len(seed)}")
    return [(settings.seed(one), 0) for one in seed]


def draw_one_by_one(
    draw: Callable[..., Drawn], dim: int, x: np.ndarray, draws: int, seeds: Sequence[tuple[int, int]], options: Options
) -> Many:
    """`Posterior.draw_many` by `Posterior.draw`."""
    u = np.full((len(x), draws, dim), np.nan)
    converged, diverged = np.zeros(len(x), bool), np.ones(len(x), bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyDraws)  # sample_many says it once for all of them
        for i, (one, seed) in enumerate(zip(x, seeds, strict=True)):
            try:
                drawn = draw(one, draws, seed, options)
            except Diverged:
                continue
            u[i], converged[i], diverged[i] = drawn.u, drawn.info.converged, drawn.info.diverged
    return u, converged, diverged


def draw_in_parts(
    draw_many: Callable[..., Many],
    together: int,
    x: np.ndarray,
    draws: int,
    seeds: Sequence[tuple[int, int]],
    options: Options,
    progress: bool,
) -> Many:
    """The same as `draw_many` of all data sets, so many at a time; after Ctrl-C for the first few, if there are some."""
    parts: list[Any] = []
    with bar("drawing", len(x), progress) as report:
        try:
            for start in range(0, len(x), together):
                rows = slice(start, start + together)
                parts.append(draw_many(x[rows], draws, seeds[rows], options))
                report.update(len(parts[-1][0]), f"{int(sum(part[2].sum() for part in parts)):,} diverged")
        except KeyboardInterrupt:
            if not parts:
                raise
            report.end("stopped")
    u, converged, diverged = (np.concatenate(one) for one in zip(*parts, strict=True))
    return u, converged, diverged


def gathered(prior: Prior, given: Any, found: Many, sets: int, seconds: float) -> ManyDraws:
    """What was drawn for the data sets: a warning where a sampler did not settle, and `Interrupted` if some are missing."""
    u, converged, diverged = found
    finite = np.isfinite(u).all(axis=(1, 2))
    theta = np.full(u.shape, np.nan)
    theta[finite] = prior.from_normal(u[finite])
    if given is not None:
        theta = with_given(theta, prior, given)
    many = ManyDraws(theta, converged & finite, diverged | ~finite, seconds)
    if len(u) < sets:
        stopped = Interrupted(f"drawing was interrupted after {len(u)} of {sets} data sets; `draws` of this has theirs.")
        stopped.draws = many
        raise stopped
    if not many.converged.all():
        warnings.warn(
            f"the sampler has not settled for {np.sum(~many.converged)} of {sets} data sets, and diverged for "
            f"{many.diverged.sum()} of these; `converged` and `diverged` say which.",
            UntrustworthyDraws,
            stacklevel=3,
        )
    return many
