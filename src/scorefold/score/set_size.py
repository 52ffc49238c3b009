"""Which sets to cut n observations into: m chosen by unseen simulations.

For a case (u, X) of n observations that a network has not seen, cut into sets of at most m, the composed score s_m at the
lowest level is judged by Hyvärinen's score ("Estimation of non-normalized statistical models by score matching", 2005)

    H_m = ½ sᵀ R s + tr(R ∇s)   at u,

a proper scoring rule that needs no normaliser and no draws: up to a constant its mean is ½ E (s_m - s)ᵀ R (s_m - s), the
squared error of the score. R is the Gaussian base's covariance for n observations (or I), so H counts in posterior sd². An
error common to all sets adds up alike for every m as n grows, so for n beyond the simulated sets the largest of them decides.
Any other n goes by the nearest one that was judged; these are about a quarter apart, as far as there are cases enough.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.compose.sets import sizes_of_sets
from scorefold.noise import CLEAN, Level
from scorefold.score.ensemble import ScoreEnsemble
from scorefold.train.rows import bucket
from scorefold.train.training_set import TrainingSet
from scorefold.types import Array, Float, Int

SIZES_TRIED = (1, 2, 3, 6, 12, 30, 100)
MOST_TO_JUDGE = 200
FEWEST_TO_JUDGE = 20
CUTS_TOGETHER = 4
"""Sets computed together; most cuts have few."""


class Choice(NamedTuple):
    """What was found for n observations."""

    n: int
    set_size: int
    cases: int
    score: dict[int, float]
    """Mean of H_m minus that of the m chosen."""
    error: dict[int, float]
    """Its standard error."""

    def fault(self) -> str:
        """What is wrong with its numbers, if they come from a file; else nothing."""
        judged = set(self.score) == set(self.error) and self.set_size in self.score and min(self.score) >= 1
        return "" if self.n >= 1 and judged else "every size of sets should have a score and an error"

    def why(self, n: int, set_size: int) -> str:
        """Why n observations are cut into sets of at most `set_size`."""
        others = ", ".join(f"m = {m}: +{self.score[m]:.2g} ± {self.error[m]:.1g}" for m in self.score if m != self.set_size)
        what = f"all {n} in one set" if n <= set_size else f"sets of up to {set_size}"
        chosen = "that" if set_size == self.set_size else f"m = {self.set_size}"
        nearest = "" if n == self.n else f"the judged number nearest to {n}; "
        return (
            f"{what}: with {chosen} the composed score fits {self.cases} unseen cases of {self.n} observations best "
            f"({nearest}score-matching loss against {others})"
        )


PartitionTable = dict[int, Choice]


def chosen_size(table: PartitionTable, n: int, largest: int) -> tuple[int, str]:
    """The size of sets for n observations, by the choice for the judged number that is nearest to n.

    Args:
        table: What was found for each judged number.
        n: How many observations there are.
        largest: The most that one set can hold.

    Returns:
        The size, and why, in words.
    """
    choice = table[min(table, key=lambda judged: (abs(math.log(judged / n)), judged))]
    one_set = choice.set_size == choice.n and n <= largest
    size = n if one_set else min(choice.set_size, n)
    return size, choice.why(n, size)


def ladder(largest: int) -> list[int]:
    """1, 2, 3, 6, 12, 30 … up to `largest`, and `largest`."""
    return sorted({m for m in SIZES_TRIED if m < largest} | {largest})


def numbers(largest: int) -> list[int]:
    """The n that are judged: 2, 3, 4, 5, 6, 8, 10, 12, 15, 19 …, each about a quarter above the last, up to `largest`."""
    found = [2]
    while found[-1] < largest:
        found.append(min(largest, max(found[-1] + 1, round(1.25 * found[-1]))))
    return found


def options(n: int, largest: int) -> list[int]:
    """The m that compete for n ≤ largest observations: those of the ladder that cut them differently, and one set of all."""
    by_sets = {-(-n // m): m for m in reversed(ladder(largest)) if m < n}
    return [*reversed(by_sets.values()), n]


def fit_partition(ensemble: ScoreEnsemble, training: TrainingSet, members: int, levels: Level) -> PartitionTable:
    """Find out which sets do best, for many numbers of observations up to the largest set.

    Args:
        ensemble: The trained networks.
        training: The training set; cases are judged by a member that has not seen them.
        members: How many members there are.
        levels: The noise levels; scores are judged at the lowest.

    Returns:
        For each judged n the best m ≤ n, with the scores of all that competed. Numbers of which too few cases are left are not
        in it.
    """
    lowest = jax.tree.map(lambda v: v[0], levels)
    cases, held_out = training.cases, training.unseen(members)
    sizes, largest = np.asarray(cases.sizes), cases.x.shape[1]
    table = {}
    for n in numbers(largest):
        rows = np.flatnonzero((sizes >= n) & held_out.any(axis=0))
        rows = np.random.default_rng([training.seed, 5, n]).permutation(rows)[:MOST_TO_JUDGE]
        if len(rows) < FEWEST_TO_JUDGE:
            continue
        padded = np.resize(rows, MOST_TO_JUDGE)  # one shape, one compilation
        new_to = jnp.asarray(held_out[:, padded].argmax(axis=0))
        some, compete = (cases.u[padded], cases.x[padded], new_to), options(n, largest)
        judged = [_judge(ensemble, some, lowest, _cuts(sizes_of_sets(n, m), largest)) for m in compete]
        scores = np.stack([np.asarray(values)[: len(rows)] for values in judged])
        best = int(np.argmin(scores.mean(axis=1)))
        excess = scores - scores[best]
        spread = excess.std(axis=1) / np.sqrt(len(rows))
        table[n] = Choice(
            n,
            compete[best],
            len(rows),
            dict(zip(compete, excess.mean(axis=1).tolist(), strict=True)),
            dict(zip(compete, spread.tolist(), strict=True)),
        )
    return table


class _Cuts(NamedTuple):
    """How observations are cut into sets."""

    places: Int[Array, "sets set"]
    """Which observations go to which set; sets are padded."""
    sizes: Int[Array, " sets"]
    number: Int[Array, ""]
    """How many sets are real."""


def _cuts(sizes: np.ndarray, largest: int) -> _Cuts:
    places = np.zeros((max(CUTS_TOGETHER, bucket(largest)), largest), int)
    padded = np.full(len(places), sizes[-1])
    padded[: len(sizes)] = sizes
    for row, (end, size) in enumerate(zip(np.cumsum(sizes), sizes, strict=True)):
        places[row, :size] = np.arange(end - size, end)
    return _Cuts(jnp.asarray(places), jnp.asarray(padded), jnp.asarray(len(sizes)))


@jax.jit
def _judge(ensemble: ScoreEnsemble, cases: tuple[Array, Array, Array], level: Level, cuts: _Cuts) -> Float[Array, " cases"]:
    """H of each case (u, x, judge) with its observations cut into sets; no more chunks are computed than the sets need."""
    places, sizes, count = cuts
    n = jnp.sum(jnp.where(jnp.arange(len(sizes)) < count, sizes, 0))

    def one(part: tuple[Array, Array, Array]) -> Array:
        u, x, judge = part
        member = jax.tree.map(lambda v: v[judge][None], ensemble.network)
        own = ScoreEnsemble(member, ensemble.standardize, ensemble.base, ensemble.correction)

        def chunk(i: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            places_here, sizes_here = (
                jax.lax.dynamic_slice_in_dim(v, i * CUTS_TOGETHER, CUTS_TOGETHER) for v in (places, sizes)
            )
            sets = own.embed(x[places_here], sizes_here, jnp.minimum(count - i * CUTS_TOGETHER, CUTS_TOGETHER))
            priors = jnp.where(i == 0, 1 - count, 0)

            def score(u: Array) -> tuple[Array, Array]:
                s = (sets.total(u[None], level) + priors * sets.prior(u[None], level))[0]
                return s, s

            slope, s = jax.jacfwd(score, has_aux=True)(u)
            return sums[0] + s, sums[1] + slope

        scale = jnp.eye(len(u)) if own.base is None else own.base.matrix(1.0, CLEAN, n)
        start = jnp.zeros_like(u), jnp.zeros((len(u), len(u)), u.dtype)
        s, slope = jax.lax.fori_loop(0, (count + CUTS_TOGETHER - 1) // CUTS_TOGETHER, chunk, start)
        return s @ scale @ s / 2 + jnp.trace(scale @ slope)

    with jax.default_matmul_precision("highest"):  # as draws are made
        return jax.lax.map(one, cases)
