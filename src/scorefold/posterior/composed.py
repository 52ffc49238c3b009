"""Draws by composition: the sets' scores and the prior's → one score → a cloud of draws."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.compose import Diffused, Gauss, Rule, Tempered
from scorefold.compose.from_proposal import Tilt
from scorefold.compose.gauss import positive
from scorefold.compose.sets import SetScores
from scorefold.errors import Diverged, ScorefoldError, UntrustworthyDraws
from scorefold.noise import Level, levels
from scorefold.posterior.draws import Drawn
from scorefold.posterior.posterior import Made, Posterior
from scorefold.posterior.rule_and_sampler import pair
from scorefold.posterior.saved import About
from scorefold.prior import Prior
from scorefold.prior.proposal import GaussianProposal
from scorefold.sample import Info, Metropolis, ProbabilityFlow, Sampler
from scorefold.score.ensemble import ScoreEnsemble, bucket, fewest_numbers, skeleton
from scorefold.score.fit_correction import knots_of
from scorefold.score.set_size import PartitionTable, chosen_size, cut
from scorefold.train.training import History
from scorefold.types import Array, Cloud, Float, Key, draw_key, draw_keys

LARGEST_CLOUD = 1024
SMALLEST_CLOUD = 128
TOGETHER, TOGETHER_ON_ACCELERATORS = 4_096, 8_192
"""Draws that move together at most when there are many data sets."""
PILOTS_TOGETHER = 8
"""Sets whose pilot draws are made at a time."""


class Composition(NamedTuple):
    """How n observations were put together."""

    sets: int
    rule: Rule
    sampler: Sampler
    partition: str
    """How many observations a set has, and why."""

    @property
    def pilots(self) -> int:
        """Pilot draws that the rule wants of each set."""
        return self.rule.pilots if isinstance(self.rule, Gauss) and self.sets > 1 else 0


class _Padded(NamedTuple):
    """Sets of one data set or of several, padded to a bucket."""

    x: Float[Array, "*datasets sets set x"]
    sizes: Array
    """(sets,), the same for all data sets"""
    number: Array
    """How many sets are real."""


@dataclass(frozen=True)
class ComposedPosterior(Posterior):
    """Trained scores, prior, rule and sampler."""

    prior: Prior
    method: Any
    ensemble: ScoreEnsemble
    history: History
    table: PartitionTable
    """Which sets do best for n observations."""
    shape: tuple[int, ...]
    largest_set: int
    """Observations in the largest set that it was trained on."""
    made: Made | None = None

    options: ClassVar[tuple[str, ...]] = ("rule", "sampler", "set_size")
    kind: ClassVar[str] = "composed"
    networks: ClassVar[tuple[str, ...]] = ("ensemble",)

    @classmethod
    def blank(cls, about: About) -> tuple[ScoreEnsemble]:
        """The ensemble that the settings mean."""
        method, members = about.method, about.method.training.members
        shape = method.network_shape(about.dim, about.has_density, about.shape, about.size("largest_set"))
        about.fits(fewest_numbers(shape, members), f"{members} networks of width {shape.width}")
        return (skeleton(shape, members, len(knots_of(method.T)) if method.correction else None),)

    def fault(self) -> str:
        """Sets larger than trained, or none at all."""
        sizes = [choice.set_size for choice in self.table.values()]
        good = all(n == choice.n for n, choice in self.table.items()) and max(sizes, default=1) <= self.largest_set
        return "" if good else f"the table of sets should be of sets of 1 to {self.largest_set}, as trained"

    def draw(
        self,
        x: np.ndarray,
        draws: int,
        seed: tuple[int, int],
        *,
        rule: str | Rule | None = None,
        sampler: str | Sampler | None = None,
        set_size: int | str | None = None,
    ) -> Drawn:
        """As many clouds as it takes; `info` is averaged over them, `diverged` if any did, `converged` if all did."""
        key = draw_key(seed)
        padded, how = self._arrange(x[None], [seed], rule, sampler, set_size)
        padded, count = padded._replace(x=padded.x[0]), how.sets
        precision, projected = None, 0.0
        if how.pilots:
            precision, cut_down = _pilots(self.ensemble, *padded, self._grid(ProbabilityFlow()), key, how.pilots)
            projected = float(cut_down) / count
        cloud, tilt = cloud_size(draws, self.prior.dim), tilt_of(self.prior)
        u, infos = [], []
        for index in range(-(-draws // cloud)):
            one, info = _draw(
                self.ensemble, tilt, *padded, precision, self._grid(how.sampler), jax.random.fold_in(key, index), how.rule,
                how.sampler, cloud,
            )  # fmt: skip
            u.append(np.asarray(one, np.float64))
            infos.append(jax.tree.map(np.asarray, info))
        info = merge(infos)._replace(projected=projected)
        all_u = np.concatenate(u)[:draws]
        warn(info, all_u, count)
        return Drawn(all_u, info, how)

    def refine(
        self, x_obs: Any, simulator: Callable[..., Any], budget: int = 5_000, rounds: int = 6, seed: int = 0, **how: Any
    ) -> Posterior:
        """A posterior for one data set; what `how` may hold is in `methods.refine.refine`."""
        return self.method.refine(self, x_obs, simulator, budget, rounds, seed, **how)

    def draw_many(
        self,
        x: np.ndarray,
        draws: int,
        seeds: Sequence[tuple[int, int]],
        *,
        rule: str | Rule | None = None,
        sampler: str | Sampler | None = None,
        set_size: int | str | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Data sets × draws move together, each data set's in a cloud of its own, as many at a time as fit in `TOGETHER` draws.

        The last few data sets are filled up with copies, so that their number does not matter to the compiler.
        """
        padded, how = self._arrange(x, seeds, rule, sampler, set_size)
        keys = draw_keys(seeds)
        cloud, tilt = cloud_size(draws, self.prior.dim), tilt_of(self.prior)
        room = TOGETHER if jax.default_backend() == "cpu" else TOGETHER_ON_ACCELERATORS
        together = max(1, room // cloud)
        grid, pilot_grid = self._grid(how.sampler), self._grid(ProbabilityFlow())
        u = np.empty((len(x), -(-draws // cloud) * cloud, self.prior.dim))
        converged, diverged = np.ones(len(x), bool), np.zeros(len(x), bool)
        for start in range(0, len(x), together):
            rows = np.minimum(np.arange(start, start + together), len(x) - 1)
            real = slice(start, min(start + together, len(x)))
            some = padded._replace(x=padded.x[rows])
            precision = _pilots_many(self.ensemble, *some, pilot_grid, keys[rows], how.pilots) if how.pilots else None
            for index in range(-(-draws // cloud)):
                one, good, bad = _draw_many(
                    self.ensemble, tilt, *some, precision, grid, keys[rows], jnp.asarray(index), how.rule, how.sampler, cloud
                )
                count = real.stop - start
                u[real, index * cloud : (index + 1) * cloud] = one[:count]
                converged[real] &= np.asarray(good)[:count]
                diverged[real] |= np.asarray(bad)[:count]
        return u[:, :draws], converged, diverged

    def _arrange(
        self,
        x: np.ndarray,
        seeds: Sequence[tuple[int, int]],
        rule: str | Rule | None,
        sampler: str | Sampler | None,
        set_size: int | str | None,
    ) -> "tuple[_Padded, Composition]":
        """Data sets (data sets, n, x) cut into sets, and how they are to be put together."""
        shape = self.ensemble.network.shape
        size, why = self.choose_set_size(x.shape[1], set_size)
        rngs = [np.random.default_rng(seed) for seed in seeds]
        cuts = [partition(one, size, self.largest_set, rng) for one, rng in zip(x, rngs, strict=True)]
        sizes = cuts[0][1]  # the same for every data set of n observations
        count = len(sizes)
        how = Composition(
            count,
            *pair(
                self.method.rule if rule is None else rule, self.method.sampler if sampler is None else sampler, count, shape
            ),
            why,
        )
        padding = bucket(count) - count
        sets = np.pad(np.stack([sets for sets, _ in cuts]), ((0, 0), (0, padding), (0, 0), (0, 0)))
        sizes = np.concatenate([sizes, np.full(padding, sizes[-1])])
        return _Padded(jnp.asarray(sets, jnp.float32), jnp.asarray(sizes, jnp.int32), jnp.asarray(count)), how

    def choose_set_size(self, n: int, set_size: int | str | None = None) -> tuple[int, str]:
        """The number of observations in a set for n of them, and why."""
        largest = self.largest_set
        asked = int(set_size) if isinstance(set_size, int | np.integer) and not isinstance(set_size, bool) else None
        known = set_size is None or (isinstance(set_size, str) and set_size == "auto")
        if not known and (asked is None or not 1 <= asked <= largest):
            raise ScorefoldError(f"expected set_size between 1 and {largest}, as trained, or 'auto'; got {set_size!r:.60}")
        if not self.method.composes:
            if n > largest:
                raise ScorefoldError(
                    f"expected at most {largest} observations, as NPSE was trained; got {n}. Simulate with a larger set_size, "
                    "or use method='pf-npse', which composes sets."
                )
            if asked is not None and asked < n:
                raise ScorefoldError(
                    f"expected set_size of at least {n}, as NPSE takes all {n} observations in one set; got {set_size}. Leave "
                    "set_size out, or use method='pf-npse', which composes sets."
                )
            return largest, "all observations in one set"
        if set_size is None:
            return largest, f"sets of up to {largest}, as trained"
        if asked is not None:
            return asked, f"sets of up to {set_size}, as asked"
        if not self.table or n == 1:
            return largest, f"sets of up to {largest}: there was nothing to choose from"
        return chosen_size(self.table, n, largest)

    def single_scores(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The score of every observation alone (n, draws, dim), at the lowest level, and the prior's (draws, dim)."""
        count = len(x)
        sets = np.zeros((bucket(count), 1, x.shape[1]))
        sets[:count, 0] = x
        level = jax.tree.map(lambda v: v[0], levels(self.method.schedule, self.method.T))
        scores, prior = _single_scores(
            self.ensemble, jnp.asarray(sets, jnp.float32), jnp.asarray(count), level, jnp.asarray(u, jnp.float32)
        )
        return np.asarray(scores, np.float64)[:count], np.asarray(prior, np.float64)

    def _grid(self, sampler: Sampler) -> Level:
        """The sampler's levels in falling t."""
        return jax.tree.map(lambda v: v[::-1], levels(self.method.schedule, self.method.T, sampler.levels))


def tilt_of(prior: Prior) -> Tilt | None:
    """What composition leaves to do where a Gaussian proposal stands in place of the prior."""
    proposal = prior.proposal
    if not isinstance(proposal, GaussianProposal):
        return None
    return Tilt(jnp.asarray(proposal.mean, jnp.float32), jnp.asarray(proposal.root, jnp.float32))


@eqx.filter_jit
def _draw(
    ensemble: ScoreEnsemble, tilt: Tilt | None, x: Array, sizes: Array, count: Array, precision: Array | None, grid: Level,
    key: Key, rule: Rule, sampler: Sampler, cloud: int,
) -> tuple[Cloud, Info]:  # fmt: skip
    """One cloud, compiled once per bucket of sets and cloud size."""
    with jax.default_matmul_precision("highest"):  # a relative error of 1e-3 would be n times that in the sum
        sets: SetScores = ensemble.embed(x, sizes, count)
        if precision is not None:
            sets = sets.with_precision(precision)
        score = rule.score(sets)
        if tilt is not None:
            score = tilt.score(score)
        key_start, key_run = jax.random.split(key)
        u = rule.reference_sd(count) * jax.random.normal(key_start, (cloud, ensemble.network.shape.dim))
        if isinstance(sampler, Metropolis):
            assert isinstance(rule, Diffused | Tempered)  # the others have been refused
            log_density = rule.log_density(sets)
            if tilt is not None:
                log_density = tilt.log_density(log_density)
            return sampler(score, grid, u, key_run, count, log_density)
        return sampler(score, grid, u, key_run, count)


@eqx.filter_jit
def _single_scores(
    ensemble: ScoreEnsemble, x: Array, count: Array, level: Level, u: Cloud
) -> tuple[Float[Array, "sets draws dim"], Cloud]:
    """The scores of sets of one observation each, a few sets at a time."""
    with jax.default_matmul_precision("highest"):
        sets = ensemble.embed(x, jnp.ones(len(x), jnp.int32), count)
        prepared = sets.prepare(u, level)
        together = min(PILOTS_TOGETHER, len(x))
        index = jnp.arange(len(x)).reshape(-1, together)
        scores = jax.lax.map(lambda some: sets.chunk(prepared, level, some), index)
        return scores.reshape(len(x), *u.shape), sets.prior(u, level)


@eqx.filter_jit
def _draw_many(
    ensemble: ScoreEnsemble, tilt: Tilt | None, x: Array, sizes: Array, count: Array, precision: Array | None, grid: Level,
    keys: Array, index: Array, rule: Rule, sampler: Sampler, cloud: int,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """One cloud for each data set; draws, converged and diverged."""

    def one(x: Array, precision: Array | None, key: Key) -> tuple[Array, Array, Array]:
        key = jax.random.fold_in(key, index)
        u, info = _draw(ensemble, tilt, x, sizes, count, precision, grid, key, rule, sampler, cloud)
        return u, info.converged, info.diverged

    return jax.vmap(one)(x, precision, keys)


@eqx.filter_jit
def _pilots_many(
    ensemble: ScoreEnsemble, x: Array, sizes: Array, count: Array, grid: Level, keys: Array, number: int
) -> Float[Array, "datasets sets dim dim"]:
    """The same as `_pilots` for each data set."""
    return jax.vmap(lambda x, key: _pilots(ensemble, x, sizes, count, grid, key, number)[0])(x, keys)


@eqx.filter_jit
def _pilots(
    ensemble: ScoreEnsemble, x: Array, sizes: Array, count: Array, grid: Level, key: Key, number: int
) -> tuple[Float[Array, "sets dim dim"], Array]:
    """Each set's precision from pilot draws of its own posterior, and how many were wider than the prior."""
    with jax.default_matmul_precision("highest"):
        return pilot_precisions(ensemble.embed(x, sizes, count), ensemble.network.shape.dim, grid, key, number)


def pilot_precisions(
    sets: SetScores, dim: int, grid: Level, key: Key, number: int
) -> tuple[Float[Array, "sets dim dim"], Array]:
    """The same for any scores: the centred covariance of `number` draws by the probability flow."""

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


def partition(x: np.ndarray, set_size: int, width: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Cut n observations at random into k = ⌈n/m⌉ disjoint sets of nearly equal size: (k, width, x) and their sizes."""
    sizes = cut(len(x), set_size)
    padded = np.zeros((len(sizes), width, x.shape[1]))
    padded[np.arange(width) < sizes[:, None]] = x[rng.permutation(len(x))]
    return padded, sizes


def cloud_size(draws: int, dim: int) -> int:
    """How many draws move together: enough for a covariance, few enough for bounded memory, from few sizes."""
    size = SMALLEST_CLOUD
    while size < min(max(draws, 10 * dim), LARGEST_CLOUD):
        size *= 2
    return size


def merge(infos: Sequence[Info]) -> Info:
    """One Info for several clouds."""
    stacked = jax.tree.map(lambda *v: np.stack(v), *infos)
    mean = jax.tree.map(lambda v: v.mean(axis=0), stacked)
    return mean._replace(diverged=bool(stacked.diverged.any()), converged=bool(stacked.converged.all()))


def warn(info: Info, u: np.ndarray, sets: int) -> None:
    """Say so when the draws are not to be trusted; refuse to go on when they are not numbers."""
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
        warnings.warn(f"the draws have not converged: {seen}. {advice}", UntrustworthyDraws, stacklevel=5)
