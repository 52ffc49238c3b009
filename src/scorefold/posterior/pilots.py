"""Pilot draws: the covariance of every set's own posterior, for the GAUSS rule.

Of each set, `number` draws by the probability flow, and their centred covariance; eigenvalues above 1 are cut to 1, since no
set's posterior counts as wider than the prior.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from scorefold.compose.gauss import positive
from scorefold.compose.sets import SetScores
from scorefold.noise import Level
from scorefold.sample import ProbabilityFlow
from scorefold.score.ensemble import ScoreEnsemble
from scorefold.types import Array, Float, Int, Key

PILOTS_TOGETHER = 8
"""Sets whose pilot draws are made at a time."""


class PaddedSets(NamedTuple):
    """Sets of one data set or of several, padded to a number and a size that few compiled programs serve."""

    x: Float[Array, "*datasets sets set x"]
    sizes: Array
    """(sets,), the same for all data sets"""
    number: Array
    """How many sets are real."""
    precision: Float[Array, "*datasets sets dim dim"] | None = None
    """Of each set's posterior, where pilots found it."""
    others: Int[Array, "partitions sets set"] | None = None
    """Other partitions of the same observations, as places in `x`; none where there are none, or they would do no good."""


@eqx.filter_jit
def pilots(
    ensemble: ScoreEnsemble, padded: PaddedSets, grid: Level, key: Key, number: int
) -> tuple[Float[Array, "sets dim dim"], Array]:
    """Draw from every set's own posterior by the probability flow, to know how wide it is.

    Args:
        ensemble: The networks.
        padded: The sets.
        grid: The noise levels, from the noisiest on.
        key: Of the draws.
        number: How many draws for each set.

    Returns:
        The precision (sets, dim, dim) of each, and how many sets' posteriors were wider than the prior and were cut to it.
    """
    with jax.default_matmul_precision("highest"):
        sets = ensemble.embed(padded.x, padded.sizes, padded.number)
        return pilot_precisions(sets, ensemble.network.shape.dim, grid, key, number)


@eqx.filter_jit
def pilots_many(
    ensemble: ScoreEnsemble, padded: PaddedSets, grid: Level, keys: Array, number: int
) -> Float[Array, "datasets sets dim dim"]:
    """The precisions for each data set."""
    return jax.vmap(lambda x, key: pilots(ensemble, padded._replace(x=x), grid, key, number)[0])(padded.x, keys)


def pilot_precisions(
    sets: SetScores, dim: int, grid: Level, key: Key, number: int
) -> tuple[Float[Array, "sets dim dim"], Array]:
    """The precision of each set's posterior by pilot draws, for any scores."""

    number_of_sets = len(sets.group)
    together = min(PILOTS_TOGETHER, number_of_sets)

    def one(j: Array) -> tuple[Array, Array]:
        alone = sets.pick(j[None], jnp.ones((), int))
        start = jax.random.normal(jax.random.fold_in(key, j), (number, dim))
        u, _ = ProbabilityFlow()(lambda u, level, _: alone.total(u, level), grid, start, key, 1)
        return positive(jnp.cov(u, rowvar=False).reshape(dim, dim))

    def some(chunk: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        precisions, wider = carry
        index = chunk * together + jnp.arange(together)
        precision, cut_down = jax.vmap(one)(jnp.minimum(index, number_of_sets - 1))
        return precisions.at[index].set(precision, mode="drop"), wider + jnp.sum(cut_down, where=index < sets.count)

    start = (jnp.broadcast_to(jnp.eye(dim), (number_of_sets, dim, dim)), jnp.zeros((), int))
    return jax.lax.fori_loop(0, (sets.count + together - 1) // together, some, start)
