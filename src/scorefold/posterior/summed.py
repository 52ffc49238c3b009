"""Draws from p(u) ∏_j p(x_j|u) with a learned log p(x|u): the terms of n observations are added up, and tempering, NUTS or
variational inference draws from the sum in the N(0, I) space.

Observations that are the same are added up once, times their number, a batch at a time in rooms of few sizes, so that memory
does not grow with n and a new n does not recompile. On an accelerator the clouds or chains of many
data sets move side by side; cores gain nothing by that.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.compose.from_proposal import Tilt
from scorefold.density.local_term import local_term
from scorefold.density.mean_terms import MeanTerms, Terms
from scorefold.errors import Diverged, ScorefoldError, UntrustworthyDraws, closest
from scorefold.posterior import sum_at_draws
from scorefold.posterior import sum_of_terms as sums
from scorefold.posterior.asked import Asked, asked_of, on_device, ratio_of, tilt_of
from scorefold.posterior.check import Check
from scorefold.posterior.densities import Summits
from scorefold.posterior.draws import AS_THE_METHOD_SAYS, Drawn, Options
from scorefold.posterior.evidence import Offset
from scorefold.posterior.how_long import Effort
from scorefold.posterior.made import Made
from scorefold.posterior.many import draw_one_by_one
from scorefold.posterior.member_evidence import ByMember, of_terms
from scorefold.posterior.pair_moments import Pairs, left_over, of_observations
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.reach import Reach
from scorefold.posterior.saved import About
from scorefold.posterior.trust import FEWEST_JUDGED, JUDGED, JUDGED_OF_MANY, Doubts, MemberScores, by_scores
from scorefold.prior import Prior
from scorefold.prior.prior_ratio import volume
from scorefold.sample.expanded import SOME, Many, expanded_draws
from scorefold.sample.nuts import LARGEST_R_HAT, Chains, Length, NutsInfo, chain_length, judged, nuts_draws
from scorefold.sample.summits import CLIMBERS, LAST_STEPS_UP, SHARPENED, STEPS_UP
from scorefold.sample.tempered import (
    LARGEST_DIFFERENCE,
    LARGEST_SPREAD,
    TemperedInfo,
    clouds_for,
    despite_edges,
    tempered_draws,
)
from scorefold.sample.tempered import judged as judged_clouds
from scorefold.sample.variational import LARGEST_TAIL_SHAPE, VariationalInfo, variational_draws
from scorefold.score.local_mean import LocalMean
from scorefold.train.rows import bucket
from scorefold.train.training import History
from scorefold.types import Cloud, Float, Key, cores, draw_key, draw_keys

SummedInfo = TemperedInfo | NutsInfo | VariationalInfo

SAMPLERS_OF_SUMS = ("smc", "nuts", "vi")
ACROSS = 1 / 3
"""Of the sd of places where scores are checked, over which they are compared: half a posterior sd."""
MANY = 64
"""Different observations, from which on the terms of some are added up at every step, and those of all once."""
MASSES_AT = 64
"""Draws of u at which the mass of a geometric mean of densities is measured."""
ON_ACCELERATORS = 128
"""Data sets handed over at a time."""
EVALUATIONS, HARDER = 22, 3
"""Of the sum, for a draw from a posterior with one mode, as counted; and how many times that it may be where there are more."""
TERMS_TOGETHER, DATA_SETS_TOGETHER = 16_384, 8
"""On an accelerator: terms of all chains of all data sets at a time, at most, and data sets side by side, at least."""


@dataclass(frozen=True, repr=False)
class SummedPosterior(Posterior):
    """A learned term, ready to be summed; its network's arrays have a leading member axis, and the members' mean is taken."""

    prior: Prior
    method: Any
    terms: Terms
    history: History | None
    """None where the terms were not trained."""
    shape: tuple[int, ...]
    inputs: int = 0
    """The last so many numbers of an observation are known inputs, which a likelihood is given."""
    whole: int = 0
    """So many of its numbers are binary or counts, to which a likelihood gives probabilities."""
    reach: Reach | None = None
    """What was simulated, to tell observations that are unlike it."""
    modes: int = 0
    """Around which it was learned, each with a straight line of its own; 0 where there is one line for all parameters."""
    local: LocalMean | None = None
    """A correction of the terms around one data set's draws, where it was checked and corrected."""
    corrected_for: int = 0
    """How many observations that data set has."""
    made: Made | None = None

    options: ClassVar[tuple[str, ...]] = ("sampler", "chains", "prior", "given")
    kind: ClassVar[str] = "summed"
    networks: ClassVar[tuple[str, ...]] = ("terms",)

    @classmethod
    def blank(cls, about: About) -> tuple[Terms]:
        """The terms that the settings mean."""
        return (about.method.skeleton(about),)

    def fault(self) -> str:
        """A curve for other parameters, or a correction for no observations."""
        if (self.local is None) != (self.corrected_for < 1):
            return "a correction and the number of observations that it is for should come together"
        return "" if self.reach is None else self.reach.misfit(self.prior.dim)

    @property
    def added(self) -> Terms:
        """The terms that are added up: those that were trained, corrected where they were checked."""
        if not isinstance(self.terms, MeanTerms):
            return self.terms
        terms = self.terms.without_idle_layers()
        return terms if self.local is None else replace(terms, local=local_term(self.local, self.corrected_for))

    def corrected(self, check: Check) -> "SummedPosterior":
        """As `Posterior.corrected` says."""
        if self.local is not None:
            raise ScorefoldError("expected a posterior that was not corrected before; correct the one that this came from")
        return replace(self, local=check.correction_for(self.prior, self.shape), corrected_for=check.n)

    def draw(self, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options = AS_THE_METHOD_SAYS) -> Drawn:
        """By the method's sampler and number of chains, or those asked for; what another prior or given values change joins the
        likelihood.
        """
        sampler, chains = self._chosen(options)
        asked, key = asked_of(self.prior, options), draw_key(seed)
        cuts = options.prior is not None and ratio_of(self.prior, options.prior).cuts
        if cuts and sampler != "smc":
            raise ScorefoldError(
                f"expected sampler='smc' under a prior that ends inside the support of the one that was simulated from; got "
                f"{sampler!r}, which cannot do with edges."
            )
        (different, times), power = sums.counted(x), 1.0 if options.power is None else options.power
        data, dim = (self.added, different, power * times, self._tilt), asked.free(self.prior.dim)
        v: np.ndarray
        info: SummedInfo
        if sampler == "smc":
            v, ended = _tempered((self._whole(x, power), asked), dim, draws, key)
            info = despite_edges(ended) if cuts else ended
        elif sampler == "vi":
            v, info = variational_draws(sums.log_density_asked, (data, asked), dim, draws, key, self.method.steps)
        else:
            v, info = nuts_draws(sums.log_density_asked, (data, asked), self._chains(dim, chains, draws), draws, key)
        warn(info, v)
        along = asked.plane
        u = v if along is None else np.asarray(along.origin, np.float64) + v @ np.asarray(along.free, np.float64).T
        return Drawn(u, info, sampler)

    def log_density(self, x: np.ndarray, u: np.ndarray, options: Options = AS_THE_METHOD_SAYS) -> np.ndarray:
        """log N(u | 0, I) + Σ_j of the terms at points u (points, dim), under another prior if asked for."""
        value = sum_at_draws.at_draws(u, (self._whole(x), asked_of(self.prior, options)), slopes=False).value.astype(np.float64)
        return value - np.square(u).sum(axis=1) / 2 - u.shape[1] / 2 * np.log(2 * np.pi)

    def climb(self, x: np.ndarray, u: np.ndarray, of_theta: bool, options: Options = AS_THE_METHOD_SAYS) -> Summits:
        """Maxima uphill from points u, and from where the likelihood alone leads from there.

        A narrow peak on a wide hill may hold next to none of the draws and still be the highest. From the hill no way leads up
        to it, but the likelihood has its maximum there.
        """
        (different, times), asked = sums.counted(x), asked_of(self.prior, options)
        by_volume = on_device(volume(self.prior)) if of_theta else None

        def uphill(u: Any, power: float) -> tuple[Cloud, Any]:
            data = (self.added, different, power * times, self._tilt)
            return sums.climbed(jnp.asarray(u, jnp.float32), (data, asked), by_volume)

        found = uphill(u, 1.0), uphill(uphill(u, SHARPENED)[0], 1.0)
        return Summits(*(np.concatenate(parts).astype(np.float64) for parts in zip(*found, strict=True)))

    def evidence_offset(self, x: np.ndarray, u: np.ndarray, seed: int) -> Offset:
        """What the terms leave out of log p(x_1 … x_n): volumes, and what a geometric mean of densities lacks to 1."""
        if not getattr(self.terms, "normalised", False):
            return Offset(0.0, 0.0, absolute=False)
        volumes = float(np.sum(np.asarray(sums.volumes(self.terms, jnp.asarray(x, jnp.float32)), np.float64)))
        if not isinstance(self.terms, MeanTerms) or self.method.training.members < 2:
            return Offset(volumes, 0.0, absolute=True)
        at = jnp.asarray(np.resize(u, (MASSES_AT, u.shape[1])), jnp.float32)
        some = jnp.asarray(np.resize(x, (MASSES_AT, x.shape[1])), jnp.float32)
        mass = np.asarray(sums.masses(self.terms, at, some, draw_key((seed, 2))), np.float64)
        error = mass.std() / np.sqrt(mass.size) / mass.mean()
        return Offset(volumes - len(x) * float(np.log(mass.mean())), len(x) * float(error), absolute=True)

    def evidence_by_member(self, x: np.ndarray, u: np.ndarray) -> ByMember | None:
        """By the members' sums; None where there are none to differ."""
        if not isinstance(self.terms, MeanTerms) or self.method.training.members < 2:
            return None
        found = sums.term_of_members(self.terms, sums.padded(x), jnp.asarray(u, jnp.float32))
        return of_terms(np.asarray(found, np.float64)[:, :, : len(x)])

    def log_likelihoods(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """log q(x_j|u) of every observation at every point, (points, n)."""
        self.refuse_corrected()
        if not getattr(self.terms, "normalised", False):
            raise ScorefoldError(
                f"expected a posterior with a likelihood; {type(self.method).__name__} knows the ratio p(x|θ) / p(x) only. Use "
                "method='nle'."
            )
        return self.each_term(x, u) + np.asarray(sums.volumes(self.terms, jnp.asarray(x, jnp.float32)), np.float64)

    def refuse_corrected(self) -> None:
        """A ScorefoldError where the terms are not those that were trained."""
        if self.local is not None:
            raise ScorefoldError(
                "expected a posterior as it was trained; got a corrected one, whose terms are no densities of an observation. "
                "Ask the one that it came from."
            )

    def each_term(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """The learned term of every observation at every point, (points, n)."""
        at = jnp.asarray(np.resize(u, (max(16, bucket(len(u))), u.shape[1])), jnp.float32)
        return np.asarray(sums.each_term(self.added, sums.padded(x), at), np.float64)[: len(u), : len(x)]

    def doubts(self, x: np.ndarray, u: np.ndarray, seed: tuple[int, int], options: Options) -> Doubts:
        """By the gradients of each member's sum at some of the draws."""
        if options.given is not None:
            return Doubts("draws of some parameters given others are not judged")
        if not isinstance(self.terms, MeanTerms) or self.method.training.members < 2:
            return Doubts("there is no ensemble whose members could disagree")
        if len(u) < max(FEWEST_JUDGED, 2 * u.shape[1] + 2):
            return Doubts(f"{len(u)} draws are too few to tell")
        some = u[:: -(-len(u) // self._judged(len(x)))]  # chains lie one after the other
        found = by_scores(self._member_scores(x, some, options), some, self.prior.from_normal(some))
        error = None if self.local is None else left_over(self.local, len(x), some, self.prior.from_normal(some), found)
        if self.reach is None:
            return Doubts(found, error=error)
        return Doubts(found, self.reach.floor(len(x), u), self.reach.strangeness(self.terms.standardize, x, u), error)

    def _judged(self, n: int) -> int:
        """Draws at which members are compared."""
        return JUDGED if n < MANY else max(JUDGED_OF_MANY // 2, 4 * self.prior.dim)

    def _member_scores(self, x: np.ndarray, some: np.ndarray, options: Options) -> MemberScores:
        """The gradients of every member's sum at some draws."""
        return MemberScores(*sum_at_draws.by_member((self._whole(x), asked_of(self.prior, options)), some))

    def effort(self, x: np.ndarray, draws: int, options: Options = AS_THE_METHOD_SAYS) -> Effort | None:
        """Of tempered clouds, a core each; more for a posterior that is hard to get to."""
        if not isinstance(self.terms, MeanTerms) or self.method.training.members < 2 or options.given is not None:
            return None
        if self._chosen(options)[0] != "smc":
            return None
        some = np.random.default_rng(0).standard_normal((self._judged(len(x)), self.prior.dim))
        clouds, different = clouds_for(draws, self.prior.dim), len(np.unique(x, axis=0))
        one_after_the_other = -(-clouds.number // cores())
        climbs = CLIMBERS * (STEPS_UP + LAST_STEPS_UP)
        gradients = one_after_the_other * (EVALUATIONS * clouds.size + climbs) / bucket(len(some))
        least = gradients if different < MANY else (gradients * SOME + draws / bucket(len(some)) * different) / different
        harder = "if the posterior has several modes" if different < MANY else "if all observations are added up at every step"
        return Effort(lambda: self._member_scores(x, some, options), least, HARDER * gradients, harder)

    def by_member(self, x: np.ndarray, u: np.ndarray) -> Float[np.ndarray, "members draws"]:
        """Every member's own log density at draws u, up to the same constant; a single one where there is no ensemble."""
        at, terms = jnp.asarray(np.resize(u, (bucket(len(u)), u.shape[1])), jnp.float32), self.added
        if not isinstance(terms, MeanTerms):
            return self.log_density(x, u)[None]
        values = sums.values_by_member(terms, *sums.counted(x), at)
        return np.asarray(values, np.float64)[:, : len(u)]

    def at_pairs(self, x: np.ndarray, u: np.ndarray) -> Pairs:
        """The gradients of the terms of single observations x (pairs, 1, features), each at its own u, with derivatives.

        Splines have kinks, which a derivative at a point does not see: these are differences along the axes of all u.
        """
        dim = u.shape[1]
        steps = ACROSS * np.linalg.cholesky(np.cov(u, rowvar=False).reshape(dim, dim) + 1e-12 * np.eye(dim)).T
        score = self.paired_scores(x[:, 0], u)
        turns = [(self.paired_scores(x[:, 0], u + off) - self.paired_scores(x[:, 0], u - off)) / 2 for off in steps]
        return Pairs(score, np.stack(turns, axis=2) @ np.linalg.inv(steps).T)

    def paired_scores(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """The gradients (pairs, dim) of the terms of observations x (pairs, features), each at its own u."""
        found = sums.paired_scores(self.added, jnp.asarray(x, jnp.float32), jnp.asarray(u, jnp.float32))
        return np.asarray(found, np.float64)

    def unseen(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """How far the members' scores of the observations differ, but for what is the same for all observations."""
        if not isinstance(self.added, MeanTerms) or self.method.training.members < 2 or len(x) < 2:
            return np.zeros((u.shape[1], u.shape[1]))
        centre = jnp.asarray(u.mean(axis=0), jnp.float32)
        return of_observations(np.asarray(sums.scores_of_members(self.added, sums.padded(x), centre), np.float64)[:, : len(x)])

    @property
    def lowest_noise(self) -> float:
        """There is none."""
        return 0.0

    def checked_size(self, n: int) -> int:
        """Observations are single."""
        return 1

    def draw_many(
        self, x: np.ndarray, draws: int, seeds: Sequence[tuple[int, int]], options: Options = AS_THE_METHOD_SAYS
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """On an accelerator the chains of several data sets side by side; otherwise one data set after the other.

        They are filled up with copies to 8, 16, 32 …, so that few programs serve any number of data sets. Chains have the keys
        they would have alone, but amplify rounding: draws agree with those of `draw` in law.
        """
        sampler, chains = self._chosen(options)
        if options.given is not None or sampler == "vi" or jax.default_backend() == "cpu":
            return draw_one_by_one(self.draw, self.prior.dim, x, draws, seeds, options)
        padded, keys = sums.padded(x), draw_keys(seeds)
        clouds = clouds_for(draws, self.prior.dim)
        moving = clouds.number * clouds.size if sampler == "smc" else chains
        room = max(1, TERMS_TOGETHER // (moving * min(sums.CHUNK, padded.shape[1])))
        together = min(room, max(DATA_SETS_TOGETHER, bucket(len(x))))
        u = np.full((len(x), draws, self.prior.dim), np.nan)
        converged, diverged = np.zeros(len(x), bool), np.ones(len(x), bool)
        for start in range(0, len(x), together):
            rows = np.minimum(np.arange(start, start + together), len(x) - 1)
            data = (self.added, padded[rows], sums.times_padded(np.ones(x.shape[1])), self._tilt)
            if sampler == "smc":
                made: Any = jax.tree.map(np.asarray, sum_at_draws.clouds_of_many(data, self.prior.dim, clouds, keys[rows]))
            else:
                made = tuple(
                    map(np.asarray, sums.chains_of_many(data, self._chains(self.prior.dim, chains, draws), keys[rows]))
                )
            for place, i in enumerate(range(start, min(start + together, len(x)))):
                one = jax.tree.map(lambda v, place=place: v[place], made)
                info: SummedInfo
                try:
                    u[i], info = judged_clouds(one, draws) if sampler == "smc" else judged(one[0], one[1], draws, keys[i])
                except Diverged:
                    continue
                converged[i], diverged[i] = info.converged, info.diverged
        return u, converged, diverged

    def together(self, draws: int) -> int:
        """One after the other on cores; on an accelerator a good many, which `draw_many` arranges."""
        return 1 if jax.default_backend() == "cpu" else ON_ACCELERATORS

    @property
    def _tilt(self) -> Tilt | None:
        """From a Gaussian proposal, in whose space the terms were trained, to the prior."""
        return tilt_of(self.prior.proposal)

    def _whole(self, x: np.ndarray, power: float = 1.0) -> sum_at_draws.Sum:
        different, times = sum_at_draws.roomy(x)
        return sum_at_draws.prepared(self.added, different, power * times, self._tilt)

    def _chains(self, dim: int, number: int, draws: int) -> Chains:
        return Chains(dim, number, Length(self.method.warmup, chain_length(draws, number)))

    def _chosen(self, options: Options) -> tuple[str, int]:
        """Those asked for, or the method's."""
        sampler: Any = self.method.sampler if options.sampler is None else options.sampler
        chains = self.method.chains if options.chains is None else options.chains
        check_sampler(sampler, chains)
        return sampler, chains


def _tempered(data: tuple[sum_at_draws.Sum, Asked], dim: int, draws: int, key: Key) -> tuple[np.ndarray, TemperedInfo]:
    """Clouds on the sum of all terms, or of some and an expansion of the others where there are many."""
    (whole, asked), clouds = data, clouds_for(draws, dim)
    different = int(np.count_nonzero(whole.times))
    if different < MANY:
        return tempered_draws(lambda v: sum_at_draws.at_draws(v, data)[:2], dim, clouds, draws, key)
    many = Many(
        different,
        look=lambda own, v: sum_at_draws.at_draws(v, (own, asked))[:2],
        values=lambda own, v: sum_at_draws.at_draws(v, (own, asked), slopes=False).value,
        levelled=lambda v: sum_at_draws.levelled(whole, asked.back(v[None])[0]),
        some=sum_at_draws.some_of,
        each=lambda own, v: sum_at_draws.terms_at(own, asked.back(v)),
        level=sum_at_draws.level,
    )
    return expanded_draws(many, dim, clouds, draws, key)


def warn(info: SummedInfo, u: np.ndarray) -> None:
    """Say so when the draws are not to be trusted."""
    if info.converged:
        return
    if info.diverged:
        what = f"draws ran away, to {np.abs(u).max():.3g} prior sd: the observations may be unlike any simulation"
    elif isinstance(info, VariationalInfo):
        what = (
            f"the posterior is not close to a Gaussian (k̂ = {info.tail_shape:.2f}, above {LARGEST_TAIL_SHAPE}); use "
            "sampler='smc'"
        )
    elif isinstance(info, TemperedInfo):
        what = (
            f"the {info.clouds} clouds of draws have not converged: they differ by {info.difference:.2f} sd (healthy below "
            f"{LARGEST_DIFFERENCE}) and by {info.spread:.2f} in log evidence (below {LARGEST_SPREAD}), Stein identity "
            f"{info.stein:.3g} (1), acceptance {info.acceptance[-1]:.2f}. Part of the posterior may be too narrow to be found "
            "from the prior; ask for more draws, which are made in larger clouds, or compare with sampler='nuts'"
        )
    else:
        what = (
            f"the {info.chains} chains have not settled: R̂ = {info.r_hat:.3f} (below {LARGEST_R_HAT} if healthy), effective "
            f"sample size {info.ess:.0f}, {info.divergences} divergent transitions. They may sit in different "
            "modes, between which NUTS does not jump; use sampler='smc'"
        )
    warnings.warn(f"{what}.", UntrustworthyDraws, stacklevel=5)


def check_sampler(sampler: Any, chains: Any) -> None:
    """A known sampler and a whole number of chains, two or more."""
    if not isinstance(sampler, str) or sampler not in SAMPLERS_OF_SUMS:
        raise ScorefoldError(f"expected a sampler; got {sampler!r}. {closest(str(sampler), list(SAMPLERS_OF_SUMS))}")
    if not isinstance(chains, int) or isinstance(chains, bool) or chains < 2:
        raise ScorefoldError(f"expected 2 chains or more, which can be compared; got {chains!r}")
