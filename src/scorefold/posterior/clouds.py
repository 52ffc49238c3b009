"""Clouds of draws: the compiled programs that compose scores and move draws along them, on one device or on every one.

What the samplers of several clouds say is merged, and said where one did not settle.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.compose import Diffused, Rule, Tempered
from scorefold.errors import Diverged, UntrustworthyDraws
from scorefold.noise import Level
from scorefold.posterior.asked import Asked
from scorefold.posterior.partitions import over_partitions
from scorefold.posterior.pilots import PaddedSets
from scorefold.sample import Info, Metropolis, Sampler, SelfTuned
from scorefold.score.ensemble import EnsembleSets, ScoreEnsemble
from scorefold.train.rows import over_devices
from scorefold.types import Array, Cloud, Key, untuned

LARGEST_CLOUD = 1024
SMALLEST_CLOUD = 128


class Way(NamedTuple):
    """How a cloud is drawn: rule, sampler, and how many draws move together. A compiled program is made for each."""

    rule: Rule
    sampler: Sampler
    cloud: int
    """Draws that move together."""


def _cloud(ensemble: ScoreEnsemble, asked: Asked, padded: PaddedSets, grid: Level, key: Key, way: Way) -> tuple[Cloud, Info]:
    """One cloud."""
    rule, sampler, count = way.rule, way.sampler, padded.number
    with jax.default_matmul_precision("highest"):  # a relative error of 1e-3 would be n times that in the sum

        def embed(x: Array) -> EnsembleSets:
            sets = ensemble.embed(x, padded.sizes, count)
            return sets.taking_turns() if isinstance(sampler, SelfTuned) else sets

        sets = embed(padded.x)
        if padded.precision is not None:
            sets = sets.with_precision(padded.precision)
        score = asked.score(over_partitions(rule, embed, padded) if padded.others is not None else rule.score(sets))
        key_start, key_run = jax.random.split(key)
        free = asked.free(ensemble.network.shape.dim)
        u = rule.reference_sd(count) * jax.random.normal(key_start, (way.cloud, free))
        if isinstance(sampler, Metropolis):
            assert isinstance(rule, Diffused | Tempered)  # the others have been refused
            moved, info = sampler(score, grid, u, key_run, count, asked.log_density(rule.log_density(sets)))
        else:
            moved, info = sampler(score, grid, u, key_run, count)
        return asked.back(moved), info


_draw = untuned(_cloud)
"""Compiled once per bucket of sets and cloud size."""


@untuned
def draw_many(
    ensemble: ScoreEnsemble, asked: Asked, padded: PaddedSets, grid: Level, keys: Array, index: Array, way: Way
) -> tuple[Array, Array, Array]:
    """Draw one cloud for each of many data sets, in one program that runs on all devices.

    Args:
        ensemble: The networks.
        asked: What happens to the composed score.
        padded: The sets of each data set, of the same sizes in all of them.
        grid: The noise levels, from the noisiest on.
        keys: One for each data set.
        index: Which of a data set's clouds this is.
        way: Rule, sampler and size.

    Returns:
        u (data sets, cloud, dim) and, for each data set, whether the sampler converged and whether it diverged.
    """

    def some(rows: Any, same: Any) -> tuple[Array, Array, Array]:
        ensemble, asked, (sizes, number, others), grid, index = same

        def one(x: Array, precision: Array | None, key: Key) -> tuple[Array, Array, Array]:
            own = PaddedSets(x, sizes, number, precision, others)
            u, info = _cloud(ensemble, asked, own, grid, jax.random.fold_in(key, index), way)
            return u, info.converged, info.diverged

        return jax.vmap(one)(*rows)

    rest = padded.sizes, padded.number, padded.others
    rows = padded.x, padded.precision, keys
    made: tuple[Array, Array, Array] = over_devices(some, rows, (ensemble, asked, rest, grid, index))
    return made


def draw_clouds(
    ensemble: ScoreEnsemble, asked: Asked, padded: PaddedSets, grid: Level, keys: Sequence[Key], way: Way
) -> list[tuple[np.ndarray, Info]]:
    """Draw several clouds given the same sets: one on every device, on an accelerator several.

    Args:
        ensemble: The networks.
        asked: What happens to the composed score.
        padded: The sets.
        grid: The noise levels, from the noisiest on.
        keys: One for each cloud.
        way: Rule, sampler and size.

    Returns:
        For each cloud its draws and the sampler's `Info`.
    """
    if len(keys) == 1:
        u, info = _draw(ensemble, asked, padded, grid, keys[0], way)
        return [(np.asarray(u), jax.tree.map(np.asarray, info))]
    made = _side_by_side(ensemble, asked, padded, grid, jnp.stack(keys), way)
    return [jax.tree.map(lambda v, i=i: np.asarray(v)[i], made) for i in range(len(keys))]


@untuned
def _side_by_side(
    ensemble: ScoreEnsemble, asked: Asked, padded: PaddedSets, grid: Level, keys: Array, way: Way
) -> tuple[Array, Info]:
    """Clouds shared out over devices, on an accelerator side by side there too: alone they would not keep it busy."""

    def some(keys: Array, same: Any) -> tuple[Array, Info]:
        ensemble, asked, padded, grid = same

        def one(key: Key) -> tuple[Cloud, Info]:
            return _cloud(ensemble, asked, padded, grid, key, way)

        return jax.lax.map(one, keys) if jax.default_backend() == "cpu" else jax.vmap(one)(keys)

    made: tuple[Array, Info] = over_devices(some, keys, (ensemble, asked, padded, grid))
    return made


def cloud_size(draws: int, dim: int) -> int:
    """How many draws move together: enough for a covariance, few enough for bounded memory, from few sizes."""
    size = SMALLEST_CLOUD
    while size < min(max(draws, 10 * dim), LARGEST_CLOUD):
        size *= 2
    return size


def merge(infos: Sequence[Info]) -> Info:
    """One `Info` for several clouds: their mean; diverged if any of them did, converged if all did."""
    stacked = jax.tree.map(lambda *v: np.stack(v), *infos)
    mean = jax.tree.map(lambda v: v.mean(axis=0), stacked)
    return mean._replace(diverged=bool(stacked.diverged.any()), converged=bool(stacked.converged.all()))


def warn(info: Info, u: np.ndarray, sets: int) -> None:
    """Say that a sampler did not settle.

    Args:
        info: How it went.
        u: (draws, dim).
        sets: How many sets were composed.

    Raises:
        Diverged: The draws are not numbers, and there is nothing to go on with.
    """
    seen = f"q = {info.q[-1]:.3g}, Stein identity {info.stein[-1]:.3g} (both 1 when healthy), drift {info.drift[-1]:.3g} sd"
    advice = (
        "The trained score is wrong there, or the observations are unlike any simulation. Simulate more, or compare a few of "
        "the observations with prior predictive simulations."
    )
    if not np.isfinite(u).all():
        raise Diverged(f"the sampler diverged for {sets} sets: draws are not finite; {seen}. {advice}")
    if info.diverged:
        warnings.warn(
            f"draws ran away, beyond 15 prior sd, or have no score; {seen}. {advice}", UntrustworthyDraws, stacklevel=5
        )
    elif not info.converged:
        warnings.warn(f"the sampler has not settled: {seen}. {advice}", UntrustworthyDraws, stacklevel=5)
