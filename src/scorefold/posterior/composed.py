"""Draws by composition: the sets' scores and the prior's → one score → a cloud of draws."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.compose import Damped, Gauss, Jac, Rule
from scorefold.errors import ScorefoldError
from scorefold.noise import RESOLVED, Level
from scorefold.noise import levels as noise_levels
from scorefold.posterior import composed_density
from scorefold.posterior.asked import MOST_MORE, asked_of, inside, langevin_for, too_few
from scorefold.posterior.at_draws import all_pairs, compared_at, filled_up, members_at, single_scores
from scorefold.posterior.check import Check
from scorefold.posterior.clouds import Way, cloud_size, draw_clouds, draw_many, merge, warn
from scorefold.posterior.densities import Summits
from scorefold.posterior.draws import AS_THE_METHOD_SAYS, Drawn, Options
from scorefold.posterior.how_long import Effort
from scorefold.posterior.made import Made
from scorefold.posterior.pair_moments import Pairs, left_over
from scorefold.posterior.partitions import other_partitions, partition, set_size_for
from scorefold.posterior.pilots import PaddedSets, pilots, pilots_many
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.reach import Reach
from scorefold.posterior.rule_and_sampler import FOR_ONE_SET, pair
from scorefold.posterior.saved import About
from scorefold.posterior.single_density import single_log_densities
from scorefold.posterior.trust import FEWEST_JUDGED, Doubts, MemberScores, by_scores
from scorefold.prior import Prior
from scorefold.sample import Metropolis, ProbabilityFlow, Sampler
from scorefold.score.correction import knots_of
from scorefold.score.ensemble import ScoreEnsemble, fewest_numbers, skeleton
from scorefold.score.local_mean import LocalMean
from scorefold.score.set_size import PartitionTable
from scorefold.train.rows import bucket, device_count
from scorefold.train.training import History
from scorefold.types import draw_key, draw_keys, single_precision

DRAWS_TOGETHER, DRAWS_TOGETHER_ON_ACCELERATORS = 4_096, 8_192
"""Draws that move together at most when there are many data sets."""


class Composition(NamedTuple):
    """How n observations were put together, in `draws.how`: sets, rule and sampler as they were taken, and why of this size."""

    sets: int
    rule: Rule
    sampler: Sampler
    partition: str
    """How many observations a set has, and why."""

    @property
    def pilots(self) -> int:
        """Pilot draws that the rule wants of each set."""
        return self.rule.pilots if isinstance(self.rule, Gauss) and self.sets > 1 else 0


@dataclass(frozen=True, repr=False)
class ComposedPosterior(Posterior):
    """A posterior by composed scores, as `NPSE.train` makes it: an ensemble of networks, and where it is known to be right."""

    prior: Prior
    method: Any
    ensemble: ScoreEnsemble
    history: History
    table: PartitionTable
    """Which sets do best for n observations."""
    shape: tuple[int, ...]
    largest_set: int
    """Observations in the largest set that it was trained on."""
    least_noise: float
    """The sd of the noise at the lowest of the levels that it was trained on."""
    reach: Reach | None = None
    """What was simulated, to tell observations that are unlike it."""
    local: LocalMean | None = None
    """A correction of the scores around one data set's draws, where it was checked and corrected."""
    made: Made | None = None

    options: ClassVar[tuple[str, ...]] = ("rule", "sampler", "set_size", "prior", "given")
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
        if not RESOLVED <= self.least_noise < 1:
            return f"least_noise should be between {RESOLVED:g} and 1"
        good = all(n == choice.n for n, choice in self.table.items()) and max(sizes, default=1) <= self.largest_set
        if not good:
            return f"the table of sets should be of sets of 1 to {self.largest_set}, as trained"
        return "" if self.reach is None else self.reach.misfit(self.prior.dim)

    def draw(self, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options = AS_THE_METHOD_SAYS) -> Drawn:
        """Cut the observations into sets, compose their scores, and move as many clouds along them as it takes.

        Arguments are those of `Posterior.draw`. The `info` is averaged over the clouds; it has diverged if any of them did, and
        converged if all did. Where another prior leaves draws out, more are made.
        """
        key = draw_key(seed)
        padded, how = self.arrange(x[None], [seed], options)
        padded, projected = padded._replace(x=padded.x[0]), 0.0
        if how.pilots:
            precision, cut_down = pilots(self.scores, padded, self.grid(ProbabilityFlow()), key, how.pilots)
            padded, projected = padded._replace(precision=precision), float(cut_down) / how.sets
        way = Way(how.rule, how.sampler, cloud_size(draws, self.prior.dim))
        asked, kept, infos = asked_of(self.prior, options), np.zeros((0, self.prior.dim)), []
        clouds = -(-draws // way.cloud)
        at_once = min(clouds, device_count() if jax.default_backend() == "cpu" else self.together(draws))
        for first in range(0, MOST_MORE * clouds, at_once):  # as many as draws need, more if another prior leaves some out
            cloud_keys = [jax.random.fold_in(key, index) for index in range(first, first + at_once)]
            for one, info in draw_clouds(self.scores, asked, padded, self.grid(how.sampler), cloud_keys, way):
                u = one.astype(np.float64)
                kept = np.concatenate([kept, u[inside(self.prior, options, u)]])
                infos.append(info)
                if len(kept) >= draws:
                    break
            if len(kept) >= draws:
                break
        else:
            raise too_few(len(kept), MOST_MORE * clouds * way.cloud)
        info = merge(infos)._replace(projected=projected)
        all_u = kept[:draws]
        warn(info, all_u, how.sets)
        return Drawn(all_u, info, how)

    def doubts(self, x: np.ndarray, u: np.ndarray, seed: tuple[int, int], options: Options) -> Doubts:
        """Doubts by how the members' composed scores differ at some of the draws and, where it is known what was simulated, by
        whether the observations are like it.
        """
        if self.method.training.members < 2:
            return Doubts("a single network has no other to disagree with; train with members=2 or more")
        if len(u) < max(FEWEST_JUDGED, 2 * u.shape[1] + 2):
            return Doubts(f"{len(u)} draws are too few to tell")
        if options.given is not None:
            return Doubts("draws of some parameters given others are not judged")
        padded, how = self.arrange(x[None], [seed], options)
        some = u[: compared_at(how.sets, self.prior.dim)]
        theta = self.prior.from_normal(some)
        found = by_scores(self._member_scores(padded, how, some), some, theta)
        error = None if self.local is None else left_over(self.local, len(x), some, theta, found)
        if self.reach is None:
            return Doubts(found, error=error)
        strange = self.reach.strangeness(self.ensemble.standardize, x, u)
        return Doubts(found, self.reach.floor(how.sets, u), strange, error)

    def _member_scores(self, padded: PaddedSets, how: Composition, some: np.ndarray) -> MemberScores:
        """The composed scores of every member at some draws."""
        lowest = jax.tree.map(lambda v: v[-1], self.grid(how.sampler))
        return members_at(self.scores, padded, lowest, some)

    def effort(self, x: np.ndarray, draws: int, options: Options = AS_THE_METHOD_SAYS) -> Effort | None:
        """Of the sampler's levels and steps, cloud after cloud; None where it is not the sum of all sets that is evaluated."""
        if self.method.training.members < 2 or options.given is not None or options.prior is not None:
            return None
        padded, how = self.arrange(x[None], [(0, 0)], options)
        if isinstance(how.rule, Jac | Damped) or isinstance(how.sampler, Metropolis):
            return None
        some = np.random.default_rng(0).standard_normal((compared_at(how.sets, self.prior.dim), self.prior.dim))
        evaluations = len(self.grid(how.sampler).t) * getattr(how.sampler, "steps", 1) + getattr(how.sampler, "last", 0)
        cloud = cloud_size(draws, self.prior.dim)
        gradients = -(-draws // cloud) * cloud * evaluations / filled_up(len(some))
        return Effort(lambda: self._member_scores(padded, how, some), gradients, gradients)

    def log_density(self, x: np.ndarray, u: np.ndarray, options: Options = AS_THE_METHOD_SAYS) -> np.ndarray:
        """See `composed_density.py`."""
        return composed_density.log_density(self, x, u, options)

    def climb(self, x: np.ndarray, u: np.ndarray, of_theta: bool, options: Options = AS_THE_METHOD_SAYS) -> Summits:
        """See `composed_density.py`."""
        return composed_density.climb(self, x, u, of_theta, options)

    def single_log_densities(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log p(u | x_j), normalised, of every observation by itself at one u, and the error of the integration."""
        return single_log_densities(self.scores, x, self.levels(), u)

    def at_pairs(self, x: np.ndarray, u: np.ndarray) -> Pairs:
        """The scores of sets x (pairs, set, features), each at its own u (pairs, dim), less the prior's, with derivatives."""
        score, jacobian = all_pairs(self.scores, x, jax.tree.map(lambda v: v[0], self.levels()), u)
        return Pairs(score, jacobian)

    def unseen(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """It is not known set by set."""
        return np.zeros((u.shape[1], u.shape[1]))

    @property
    def lowest_noise(self) -> float:
        """1 - γ of the level that draws come from."""
        return float(self.levels().noise[0])

    def checked_size(self, n: int) -> int:
        """Observations in a set when there are n."""
        return min(n, self.choose_set_size(n)[0])

    def corrected(self, check: Check) -> "ComposedPosterior":
        """As `Posterior.corrected` says."""
        if self.local is not None:
            raise ScorefoldError("expected a posterior that was not corrected before; correct the one that this came from")
        return replace(self, local=check.correction_for(self.prior, self.shape))

    def draw_many(
        self, x: np.ndarray, draws: int, seeds: Sequence[tuple[int, int]], options: Options = AS_THE_METHOD_SAYS
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Data sets × draws move together, each data set's in a cloud of its own, up to `DRAWS_TOGETHER` at a time.

        The last few data sets are filled up with copies, so that their number does not matter to the compiler.
        """
        padded, how = self.arrange(x, seeds, options)
        keys, grid, pilot_grid = draw_keys(seeds), self.grid(how.sampler), self.grid(ProbabilityFlow())
        asked = asked_of(self.prior, options)
        way = Way(how.rule, how.sampler, cloud_size(draws, self.prior.dim))
        together = self.together(draws)
        clouds = -(-draws // way.cloud)
        u = np.empty((len(x), clouds * way.cloud, self.prior.dim))
        converged, diverged = np.ones(len(x), bool), np.zeros(len(x), bool)
        for start in range(0, len(x), together):
            rows = np.minimum(np.arange(start, start + together), len(x) - 1)
            real = slice(start, min(start + together, len(x)))
            some = padded._replace(x=padded.x[rows])
            if how.pilots:
                some = some._replace(precision=pilots_many(self.scores, some, pilot_grid, keys[rows], how.pilots))
            for index in range(clouds):
                one, good, bad = draw_many(self.scores, asked, some, grid, keys[rows], jnp.asarray(index), way)
                count = real.stop - start
                u[real, index * way.cloud : (index + 1) * way.cloud] = one[:count]
                converged[real] &= np.asarray(good)[:count]
                diverged[real] |= np.asarray(bad)[:count]
        return u[:, :draws], converged, diverged

    def together(self, draws: int) -> int:
        """As many as `DRAWS_TOGETHER` has room for, and as many on every device."""
        most = DRAWS_TOGETHER if jax.default_backend() == "cpu" else DRAWS_TOGETHER_ON_ACCELERATORS
        each = -(-(most // cloud_size(draws, self.prior.dim)) // device_count())
        return max(1, each) * device_count()

    def arrange(self, x: np.ndarray, seeds: Sequence[tuple[int, int]], options: Options) -> "tuple[PaddedSets, Composition]":
        """Cut data sets into sets and decide how these are put together.

        Args:
            x: (data sets, n, features).
            seeds: Of each data set: which observations share a set is random.
            options: Rule, sampler and size of the sets, where these were asked for.

        Returns:
            The sets, padded to a number that few programs serve, and the rule, the sampler and why the sets have their size.

        Raises:
            ScorefoldError: What was asked for does not go together.
        """
        shape = self.ensemble.network.shape
        size, why = self.choose_set_size(x.shape[1], options.set_size)
        rngs = [np.random.default_rng(seed) for seed in seeds]
        cuts = [partition(one, size, self.largest_set, rng) for one, rng in zip(x, rngs, strict=True)]
        sizes = cuts[0][1]  # the same for every data set of n observations
        count = len(sizes)
        rule = self.method.rule if options.rule is None else options.rule
        sampler = langevin_for(self.method.sampler if options.sampler is None else options.sampler, options)
        how = Composition(count, *pair(rule, sampler, count, shape), why)
        if self.local is not None and isinstance(how.sampler, Metropolis):
            raise ScorefoldError(
                "the metropolis sampler compares densities, and a corrected score has none. Use another sampler."
            )
        padding = bucket(count) - count
        sets = np.pad(np.stack([sets for sets, _ in cuts]), ((0, 0), (0, padding), (0, 0), (0, 0)))
        sizes = np.concatenate([sizes, np.full(padding, sizes[-1])])
        padded = PaddedSets(jnp.asarray(sets, jnp.float32), jnp.asarray(sizes, jnp.int32), jnp.asarray(count))
        # These need one density, are found for one partition, or have a base for every set.
        alone = isinstance(how.sampler, Metropolis) or how.pilots or shape.missing
        others = None if alone else other_partitions(sizes, count, self.largest_set)
        return padded._replace(others=None if others is None else jnp.asarray(others)), how

    @property
    def scores(self) -> ScoreEnsemble:
        """What is composed: the ensemble, with the correction around one data set's draws if there is one."""
        if self.local is None:
            return self.ensemble
        return replace(self.ensemble, local=jax.tree.map(lambda v: jnp.asarray(v, jnp.float32), self.local))

    def choose_set_size(self, n: int, set_size: int | str | None = None) -> tuple[int, str]:
        """How many observations a set has where there are n of them, as asked for (a number, "auto" or None), and a sentence
        that says why.
        """
        return set_size_for(n, set_size, self.largest_set, self.method.composes, self.table)

    def single_scores(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The score of every observation alone (n, draws, dim), at the lowest level, and the prior's (draws, dim)."""
        count = len(x)
        sets = np.zeros((bucket(count), 1, x.shape[1]))
        sets[:count, 0] = x
        level = jax.tree.map(lambda v: v[0], self.levels())
        with single_precision():
            scores, prior = single_scores(
                self.scores, jnp.asarray(sets, jnp.float32), jnp.asarray(count), level, jnp.asarray(u, jnp.float32)
            )
        return np.asarray(scores, np.float64)[:count], np.asarray(prior, np.float64)

    def grid(self, sampler: Sampler) -> Level:
        """The noise levels of a sampler, from the noisiest to the one that draws come from: as many as it asks for, or all that
        were trained.
        """
        # What is taken where nobody asks serves a network of fewer levels too.
        count = min(sampler.levels or self.method.T, self.method.T) if sampler == FOR_ONE_SET else sampler.levels
        return jax.tree.map(lambda v: v[::-1], self.levels(count))

    def levels(self, count: int | None = None) -> Level:
        """So many of the noise levels that it was trained on, by default all, in rising t: the least noisy first."""
        return noise_levels(self.method.schedule, self.method.T, count, self.least_noise)
