"""Which sets to cut n observations into: m chosen by unseen simulations.

For a case (u, X) of n observations that a network has not seen, cut into sets of at most m, the composed score s_m at the
lowest level is judged by Hyvärinen's score ("Estimation of non-normalized statistical models by score matching", 2005)

    H_m = ½ sᵀ R s + tr(R ∇s)   at u,

a proper scoring rule that needs no normaliser and no draws: up to a constant its mean is ½ E (s_m - s)ᵀ R (s_m - s), the
squared error of the score. R is the Gaussian base's covariance for n observations (or I), so H counts in posterior sd². An
error common to all sets adds up alike for every m as n grows, so for n beyond the simulated sets the largest of them decides.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.networks.ensemble import ScoreEnsemble, bucket
from scorefold.noise import Level
from scorefold.train.loop import Lesson
from scorefold.types import Array, Float, Int

LADDER = (1, 2, 3, 6, 12, 30, 100)
MOST_CASES = 200
FEWEST_CASES = 20


class Choice(NamedTuple):
    """What was found for n observations."""

    n: int
    set_size: int
    cases: int
    score: dict[int, float]
    """Mean of H_m minus that of the m chosen."""
    error: dict[int, float]
    """Its standard error."""

    def __str__(self) -> str:
        others = ", ".join(f"m = {m}: +{self.score[m]:.2g} ± {self.error[m]:.1g}" for m in self.score if m != self.set_size)
        return (
            f"sets of {self.set_size}: the composed score fits {self.cases} unseen cases of {self.n} observations best "
            f"(score-matching loss against {others})"
        )


PartitionTable = dict[int, Choice]


def ladder(largest: int) -> list[int]:
    """1, 2, 3, 6, 12, 30 … up to `largest`, and `largest`."""
    return sorted({m for m in LADDER if m < largest} | {largest})


def cut(n: int, set_size: int) -> np.ndarray:
    """Sizes of the k = ⌈n/m⌉ nearly equal sets, the larger ones first."""
    sets = -(-n // set_size)
    return np.full(sets, n // sets) + (np.arange(sets) < n % sets)


def fit_partition(ensemble: ScoreEnsemble, lesson: Lesson, levels: Level) -> PartitionTable:
    """For sizes n on the ladder: the best m ≤ n, from cases of n or more observations, each judged by a member it is new to."""
    lowest = jax.tree.map(lambda v: v[0], levels)
    cases, held_out = lesson.cases, lesson.unseen
    sizes, largest = np.asarray(cases.sizes), cases.x.shape[1]
    table = {}
    for n in ladder(largest)[1:]:
        rows = np.flatnonzero((sizes >= n) & held_out.any(axis=0))
        rows = np.random.default_rng([lesson.seed, 5, n]).permutation(rows)[:MOST_CASES]
        if len(rows) < FEWEST_CASES:
            continue
        padded = np.resize(rows, MOST_CASES)  # one shape, one compilation
        judge = jnp.asarray(held_out[:, padded].argmax(axis=0))
        options = [m for m in ladder(largest) if m <= n]
        judged = [
            _judge(ensemble, cases.u[padded], cases.x[padded], judge, lowest, *_places(cut(n, m), largest)) for m in options
        ]
        scores = np.stack([np.asarray(values)[: len(rows)] for values in judged])
        best = int(np.argmin(scores.mean(axis=1)))
        excess = scores - scores[best]
        spread = excess.std(axis=1) / np.sqrt(len(rows))
        table[n] = Choice(
            n,
            options[best],
            len(rows),
            dict(zip(options, excess.mean(axis=1).tolist(), strict=True)),
            dict(zip(options, spread.tolist(), strict=True)),
        )
    return table


def _places(sizes: np.ndarray, largest: int) -> tuple[Array, Array, Array]:
    """Which observations go to which set (padded sets, largest), the sets' sizes, and how many sets there are."""
    places = np.zeros((bucket(largest), largest), int)
    padded = np.full(len(places), sizes[-1])
    padded[: len(sizes)] = sizes
    for row, (end, size) in enumerate(zip(np.cumsum(sizes), sizes, strict=True)):
        places[row, :size] = np.arange(end - size, end)
    return jnp.asarray(places), jnp.asarray(padded), jnp.asarray(len(sizes))


@jax.jit
def _judge(
    ensemble: ScoreEnsemble,
    u: Float[Array, "cases dim"],
    x: Float[Array, "cases set x"],
    judge: Int[Array, "cases"],
    level: Level,
    places: Int[Array, "sets set"],
    sizes: Int[Array, "sets"],
    count: Int[Array, ""],
) -> Float[Array, "cases"]:
    """H of each case with its observations cut into sets."""
    n = jnp.sum(jnp.where(jnp.arange(len(sizes)) < count, sizes, 0))

    def one(part: tuple[Array, Array, Array]) -> Array:
        u, x, judge = part
        member = jax.tree.map(lambda v: v[judge][None], ensemble.network)
        own = ScoreEnsemble(member, ensemble.standardize, ensemble.base, ensemble.control)
        sets = own.embed(x[places], sizes, count)

        def score(u: Array) -> Array:
            return (sets.total(u[None], level) + (1 - sets.count) * sets.prior(u[None], level))[0]

        scale = jnp.eye(len(u)) if own.base is None else own.base.matrix(1.0, jnp.ones(()), n)
        s, slope = score(u), jax.jacfwd(score)(u)
        return s @ scale @ s / 2 + jnp.trace(scale @ slope)

    return jax.lax.map(one, (u, x, judge))
