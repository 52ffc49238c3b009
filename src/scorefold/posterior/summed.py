"""Draws from p(u) ∏_j p(x_j|u) with a learned log p(x|u): the terms of n observations are added up, and tempering, NUTS or
variational inference draws from the sum in the N(0, I) space.

Observations that are the same are added up once, times their number. They are padded to a few bucket sizes and added up a chunk
at a time, so that memory does not grow with n and a new n does not recompile. On an accelerator the clouds or chains of many
data sets move side by side; cores gain nothing by that.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.compose.from_proposal import Tilt
from scorefold.compose.other_prior import OtherPrior
from scorefold.compose.slice import Along
from scorefold.density.mean_terms import MeanTerms, Terms
from scorefold.errors import Diverged, ScorefoldError, UntrustworthyDraws, closest
from scorefold.posterior.asked import Asked, asked_of, on_device, ratio_of
from scorefold.posterior.at_draws import response
from scorefold.posterior.check import Pairs
from scorefold.posterior.densities import Summits
from scorefold.posterior.draws import AS_THE_METHOD_SAYS, Drawn, Options
from scorefold.posterior.evidence import Offset
from scorefold.posterior.made import Made
from scorefold.posterior.many import draw_one_by_one
from scorefold.posterior.member_evidence import ByMember, of_terms
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.reach import Reach
from scorefold.posterior.saved import About
from scorefold.posterior.tilted import tilt_of
from scorefold.posterior.trust import FEWEST, JUDGED, Doubts, MemberScores, by_scores
from scorefold.prior import Prior
from scorefold.prior.prior_ratio import volume
from scorefold.sample.ascent import ascend, curvatures
from scorefold.sample.nuts import LARGEST_R_HAT, Chains, Length, NutsInfo, all_chains, chain_length, judged, nuts_draws
from scorefold.sample.tempered import (
    LARGEST_DIFFERENCE,
    LARGEST_SPREAD,
    Clouds,
    Tempered,
    TemperedInfo,
    clouds_for,
    despite_edges,
    tempered,
    tempered_draws,
)
from scorefold.sample.tempered import judged as judged_clouds
from scorefold.sample.variational import LARGEST_TAIL_SHAPE, VariationalInfo, variational_draws
from scorefold.score.ensemble import bucket
from scorefold.train.training import History
from scorefold.types import Array, Cloud, Float, Key, Scalar, Theta, draw_key, draw_keys

SummedInfo = TemperedInfo | NutsInfo | VariationalInfo

SAMPLERS = ("smc", "nuts", "vi")
CHUNK = 64
"""Observations whose terms are computed together."""
CLOUD_CHUNK, PAIRS = 16, 4_096
"""Of a cloud: observations at a time, and pairs of a draw and an observation."""
MASSES_AT, MASSES = 64, 256
"""Draws of u, and of x for each, by which the mass of a geometric mean of densities is measured."""
ASCENT = 30
"""Steps uphill."""
GRADIENTS_TOGETHER = 32
"""Draws at which members are compared at a time."""
ON_ACCELERATORS = 128
"""Data sets handed over at a time."""
TERMS_TOGETHER, FEWEST_TOGETHER = 16_384, 8
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
    made: Made | None = None

    options: ClassVar[tuple[str, ...]] = ("sampler", "chains", "prior", "given")
    kind: ClassVar[str] = "summed"
    networks: ClassVar[tuple[str, ...]] = ("terms",)

    @classmethod
    def blank(cls, about: About) -> tuple[Terms]:
        """The terms that the settings mean."""
        return (about.method.skeleton(about),)

    def fault(self) -> str:
        """A curve for other parameters."""
        return "" if self.reach is None else self.reach.misfit(self.prior.dim)

    def draw(self, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options = AS_THE_METHOD_SAYS) -> Drawn:
        """By the method's sampler and number of chains, or those asked for."""
        sampler, chains = self._chosen(options)
        key = draw_key(seed)
        data = (self.terms, *_counted(x), self._tilt)
        if options.prior is not None or options.given is not None:
            return self._draw_asked(data, draws, key, options)
        u: np.ndarray
        info: SummedInfo
        dim = self.prior.dim
        if sampler == "smc":
            u, info = tempered_draws(_likelihoods, _prepared(*data), dim, clouds_for(draws, dim), draws, key)
        elif sampler == "vi":
            u, info = variational_draws(_log_density, data, dim, draws, key, self.method.steps)
        else:
            u, info = nuts_draws(_log_density, data, self._chains(chains, draws), draws, key)
        warn(info, u)
        return Drawn(u, info, sampler)

    def log_density(self, x: np.ndarray, u: np.ndarray, options: Options = AS_THE_METHOD_SAYS) -> np.ndarray:
        """log N(u | 0, I) + Σ_j of the terms at points u (points, dim), under another prior if asked for."""
        own, asked = _prepared(self.terms, *_counted(x), self._tilt), asked_of(self.prior, options)
        at = jnp.asarray(np.resize(u, (max(16, bucket(len(u))), u.shape[1])), jnp.float32)
        value = np.asarray(_values(at, (own, asked)), np.float64)[: len(u)]
        return value - np.square(u).sum(axis=1) / 2 - u.shape[1] / 2 * np.log(2 * np.pi)

    def climb(self, x: np.ndarray, u: np.ndarray, of_theta: bool, options: Options = AS_THE_METHOD_SAYS) -> Summits:
        """Maxima uphill from points u."""
        own, asked = (self.terms, *_counted(x), self._tilt), asked_of(self.prior, options)
        by_volume = on_device(volume(self.prior)) if of_theta else None
        found = _climbed(jnp.asarray(u, jnp.float32), (own, asked), by_volume)
        return Summits(*(np.asarray(part, np.float64) for part in found))

    def evidence_offset(self, x: np.ndarray, u: np.ndarray, seed: int) -> Offset:
        """What the terms leave out of log p(x_1 … x_n): volumes, and what a geometric mean of densities lacks to 1."""
        if not getattr(self.terms, "normalised", False):
            return Offset(0.0, 0.0, absolute=False)
        volumes = float(np.sum(np.asarray(_volumes(self.terms, jnp.asarray(x, jnp.float32)), np.float64)))
        if not isinstance(self.terms, MeanTerms) or self.method.training.members < 2:
            return Offset(volumes, 0.0, absolute=True)
        at = jnp.asarray(np.resize(u, (MASSES_AT, u.shape[1])), jnp.float32)
        some = jnp.asarray(np.resize(x, (MASSES_AT, x.shape[1])), jnp.float32)
        mass = np.asarray(_masses(self.terms, at, some, draw_key((seed, 2))), np.float64)
        error = mass.std() / np.sqrt(mass.size) / mass.mean()
        return Offset(volumes - len(x) * float(np.log(mass.mean())), len(x) * float(error), absolute=True)

    def evidence_by_member(self, x: np.ndarray, u: np.ndarray) -> ByMember | None:
        """By the members' sums; None where there are none to differ."""
        if not isinstance(self.terms, MeanTerms) or self.method.training.members < 2:
            return None
        found = _term_of_members(self.terms, _padded(x), jnp.asarray(u, jnp.float32))
        return of_terms(np.asarray(found, np.float64)[:, :, : len(x)])

    def log_likelihoods(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """log q(x_j|u) of every observation at every point, (points, n)."""
        if not getattr(self.terms, "normalised", False):
            raise ScorefoldError(
                f"expected a posterior with a likelihood; {type(self.method).__name__} knows the ratio p(x|θ) / p(x) only. Use "
                "method='nle'."
            )
        return self.each_term(x, u) + np.asarray(_volumes(self.terms, jnp.asarray(x, jnp.float32)), np.float64)

    def each_term(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """The learned term of every observation at every point, (points, n)."""
        at = jnp.asarray(np.resize(u, (max(16, bucket(len(u))), u.shape[1])), jnp.float32)
        return np.asarray(_each_term(self.terms, _padded(x), at), np.float64)[: len(u), : len(x)]

    def _draw_asked(self, data: tuple[Terms, Array, Array, Tilt | None], draws: int, key: Key, options: Options) -> Drawn:
        """Under another prior, or some parameters given others: what changes joins the likelihood."""
        sampler, chains = self._chosen(options)
        cuts = options.prior is not None and ratio_of(self.prior, options.prior).cuts
        if cuts and sampler != "smc":
            raise ScorefoldError(
                f"expected sampler='smc' under a prior that ends inside the support of the one that was simulated from; got "
                f"{sampler!r}, which cannot do with edges."
            )
        asked = asked_of(self.prior, options)
        dim = asked.free(self.prior.dim)
        v: np.ndarray
        info: SummedInfo
        if sampler == "smc":
            clouds = clouds_for(draws, dim)
            v, ended = tempered_draws(_likelihoods_asked, (_prepared(*data), asked), dim, clouds, draws, key)
            info = despite_edges(ended) if cuts else ended
        elif sampler == "vi":
            v, info = variational_draws(_log_density_asked, (data, asked), dim, draws, key, self.method.steps)
        else:
            run = Chains(dim, chains, Length(self.method.warmup, chain_length(draws, chains)))
            v, info = nuts_draws(_log_density_asked, (data, asked), run, draws, key)
        warn(info, v)
        along = asked.plane
        u = v if along is None else np.asarray(along.origin, np.float64) + v @ np.asarray(along.free, np.float64).T
        return Drawn(u, info, sampler)

    def doubts(self, x: np.ndarray, u: np.ndarray, seed: tuple[int, int], options: Options) -> Doubts:
        """By the gradients of each member's sum at some of the draws."""
        if options.given is not None:
            return Doubts("draws of some parameters given others are not judged")
        terms = self.terms
        if not isinstance(terms, MeanTerms) or self.method.training.members < 2:
            return Doubts("there is no ensemble whose members could disagree")
        if len(u) < max(FEWEST, 2 * u.shape[1] + 2):
            return Doubts(f"{len(u)} draws are too few to tell")
        some = u[:: -(-len(u) // JUDGED)]  # chains lie one after the other
        at = jnp.asarray(np.resize(some, (bucket(len(some)), u.shape[1])), jnp.float32)
        made = _by_member(terms, *_counted(x), self._tilt, at)
        scores, gives_way = (np.asarray(one, np.float64) for one in made)
        found = by_scores(MemberScores(scores[:, : len(some)], gives_way), some, self.prior.from_normal(some))
        if self.reach is None:
            return Doubts(found)
        return Doubts(found, self.reach.floor(len(x), u), self.reach.strangeness(terms.standardize, x, u))

    def by_member(self, x: np.ndarray, u: np.ndarray) -> Float[np.ndarray, "members draws"]:
        """Every member's own log density at draws u, up to the same constant; a single one where there is no ensemble."""
        at, terms = jnp.asarray(np.resize(u, (bucket(len(u)), u.shape[1])), jnp.float32), self.terms
        if not isinstance(terms, MeanTerms):
            return self.log_density(x, u)[None]
        values = _values_by_member(terms, *_counted(x), at)
        return np.asarray(values, np.float64)[:, : len(u)]

    def at_pairs(self, x: np.ndarray, u: np.ndarray) -> Pairs:
        """The gradients of the terms of single observations x (pairs, 1, features), each at its own u, with derivatives."""
        score, jacobian = _at_pairs(self.terms, jnp.asarray(x[:, 0], jnp.float32), jnp.asarray(u, jnp.float32))
        return Pairs(np.asarray(score, np.float64), np.asarray(jacobian, np.float64))

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
        padded, keys = _padded(x), draw_keys(seeds)
        clouds = clouds_for(draws, self.prior.dim)
        moving = clouds.number * clouds.size if sampler == "smc" else chains
        room = max(1, TERMS_TOGETHER // (moving * min(CHUNK, padded.shape[1])))
        together = min(room, max(FEWEST_TOGETHER, bucket(len(x))))
        u = np.full((len(x), draws, self.prior.dim), np.nan)
        converged, diverged = np.zeros(len(x), bool), np.ones(len(x), bool)
        for start in range(0, len(x), together):
            rows = np.minimum(np.arange(start, start + together), len(x) - 1)
            data = (self.terms, padded[rows], _times(np.ones(x.shape[1])), self._tilt)
            if sampler == "smc":
                made: Any = jax.tree.map(np.asarray, _clouds_of_many(data, self.prior.dim, clouds, keys[rows]))
            else:
                made = tuple(map(np.asarray, _chains_of_many(data, self._chains(chains, draws), keys[rows])))
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

    def _chains(self, number: int, draws: int) -> Chains:
        return Chains(self.prior.dim, number, Length(self.method.warmup, chain_length(draws, number)))

    def _chosen(self, options: Options) -> tuple[str, int]:
        """Those asked for, or the method's."""
        sampler: Any = self.method.sampler if options.sampler is None else options.sampler
        chains = self.method.chains if options.chains is None else options.chains
        check_sampler(sampler, chains)
        return sampler, chains


def _padded(x: np.ndarray) -> Float[Array, "... obs x"]:
    """With copies of the last one up to a bucket's size."""
    missing = bucket(x.shape[-2]) - x.shape[-2]
    return jnp.asarray(np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, missing), (0, 0)], mode="edge"), jnp.float32)


def _counted(x: np.ndarray) -> tuple[Float[Array, "obs x"], Float[Array, " obs"]]:
    """Observations that differ, padded, and how often each is there: of counts and choices many are the same."""
    different, times = np.unique(x, axis=0, return_counts=True)
    if len(different) == len(x):  # in the order they came in
        return _padded(x), _times(np.ones(len(x)))
    return _padded(different), _times(times)


def _times(times: np.ndarray) -> Float[Array, " obs"]:
    """How often each observation counts, and 0 for those that fill up the bucket."""
    return jnp.asarray(np.pad(times, (0, bucket(len(times)) - len(times))), jnp.float32)


def _log_density(u: Theta, data: tuple[Terms, Float[Array, "obs x"], Array, Tilt | None]) -> Scalar:
    """log p(u) + Σ_j of the members' mean term, each observation as often as it counts."""
    terms, x, times, tilt = data
    parts = (x.reshape(-1, min(CHUNK, len(x)), x.shape[1]), times.reshape(-1, min(CHUNK, len(x))))

    def one(x: Array) -> Scalar:
        return terms.term(u, terms.prepare(x))

    def add(total: Scalar, part: tuple[Array, Array]) -> tuple[Scalar, None]:
        return total + jnp.sum(jnp.where(part[1] > 0, part[1] * jax.vmap(one)(part[0]), 0.0)), None

    start = -jnp.sum(u**2) / 2 + (0.0 if tilt is None else tilt.log_ratio(u[None])[0])
    if len(parts[0]) == 1:
        return add(start, jax.tree.map(lambda v: v[0], parts))[0]
    # In reverse the terms of a chunk are computed again rather than kept.
    return jax.lax.scan(jax.checkpoint(add), start, parts)[0]


@eqx.filter_jit
def _prepared(terms: Terms, x: Float[Array, "obs x"], times: Array, tilt: Tilt | None) -> tuple[Terms, Any, Array, Tilt | None]:
    """With what of the observations does not depend on u, computed once."""
    return terms, jax.lax.map(terms.prepare, x, batch_size=CHUNK), times, tilt


def _likelihoods(u: Cloud, data: tuple[Terms, Any, Array, Tilt | None]) -> tuple[Float[Array, " draws"], Cloud]:
    """Σ_j of the members' mean term, and its gradient, for every draw; its cost follows the number of different observations,
    not the bucket's size.

    A tilt from N(0, I) to the prior counts like one more observation.
    """
    terms, prepared, times, tilt = data
    chunk = min(CLOUD_CHUNK, len(jax.tree.leaves(prepared)[0]))

    def one(u: Theta) -> tuple[Scalar, Theta]:
        def add(i: Array, total: tuple[Scalar, Theta]) -> tuple[Scalar, Theta]:
            some = jax.tree.map(lambda v: jax.lax.dynamic_slice_in_dim(v, i * chunk, chunk), prepared)
            often = jax.lax.dynamic_slice_in_dim(times, i * chunk, chunk)
            value, slope = jax.value_and_grad(
                lambda u: jnp.sum(jnp.where(often > 0, often * jax.vmap(lambda x: terms.term(u, x))(some), 0.0))
            )(u)
            return total[0] + value, total[1] + slope

        start = (jnp.zeros(()), jnp.zeros_like(u))
        if tilt is not None:
            start = jax.value_and_grad(lambda u: tilt.log_ratio(u[None])[0])(u)
        return jax.lax.fori_loop(0, (jnp.sum(times > 0) + chunk - 1) // chunk, add, start)

    return jax.lax.map(one, u, batch_size=max(1, PAIRS // chunk))


def _likelihoods_asked(
    v: Along, data: tuple[tuple[Terms, Any, Array, Tilt | None], Asked]
) -> tuple[Float[Array, " draws"], Along]:
    """The same under another prior, or along the plane of some parameters."""
    own, asked = data
    value, slope = _likelihoods(asked.back(v), own)
    if asked.other is not None:
        other, tilt = asked.other, asked.tilt
        more, pull = jax.vmap(jax.value_and_grad(lambda w: other.exact_log_ratio(w, tilt)))(asked.back(v))
        value, slope = value + more, slope + jnp.where(jnp.isfinite(more)[:, None], pull, 0.0)
    return value, slope if asked.plane is None else slope @ asked.plane.free


def _log_density_asked(v: Theta, data: tuple[tuple[Terms, Float[Array, "obs x"], Array, Tilt | None], Asked]) -> Scalar:
    """`_log_density` under another prior, or along the plane of some parameters."""
    own, asked = data
    u = asked.back(v[None])[0]
    value = _log_density(u, own)
    return value if asked.other is None else value + asked.other.log_ratio_at(u, asked.tilt)


@eqx.filter_jit
def _values(u: Cloud, data: tuple[tuple[Terms, Any, Array, Tilt | None], Asked]) -> Float[Array, " draws"]:
    """Σ_j of the terms, and the log ratio of another prior; values alone."""
    with jax.default_matmul_precision("highest"):
        return _likelihoods_asked(u, data)[0]


@eqx.filter_jit
def _volumes(terms: Any, x: Float[Array, "obs x"]) -> Float[Array, " obs"]:
    return jax.lax.map(terms.log_volume, x, batch_size=CHUNK)


@eqx.filter_jit
def _masses(terms: MeanTerms, u: Cloud, x: Float[Array, "draws x"], key: Key) -> Float[Array, "draws count"]:
    keys = jax.random.split(key, len(u))
    return jax.lax.map(lambda at: terms.masses(at[0], at[1], at[2], MASSES), (u, x, keys))


@eqx.filter_jit
def _each_term(terms: Terms, x: Float[Array, "obs x"], u: Cloud) -> Float[Array, "points obs"]:
    with jax.default_matmul_precision("highest"):
        prepared = jax.lax.map(terms.prepare, x, batch_size=CHUNK)
        return jax.lax.map(lambda u: jax.vmap(lambda x: terms.term(u, x))(prepared), u)


@eqx.filter_jit
def _term_of_members(terms: MeanTerms, x: Float[Array, "obs x"], u: Cloud) -> Float[Array, "members draws obs"]:
    with jax.default_matmul_precision("highest"):
        prepared = jax.lax.map(terms.prepare, x, batch_size=CHUNK)
        return jnp.moveaxis(jax.lax.map(lambda u: jax.vmap(lambda x: terms.by_member(u, x))(prepared), u), -1, 0)


@eqx.filter_jit
def _climbed(
    u: Cloud, data: tuple[tuple[Terms, Float[Array, "obs x"], Array, Tilt | None], Asked], by_volume: OtherPrior | None
) -> tuple[Cloud, Float[Array, "draws dim dim"]]:
    """Uphill on the density of u, or of θ; and the curvatures there."""

    def one(u: Theta) -> Scalar:
        value = _log_density_asked(u, data)
        return value if by_volume is None else value + by_volume.log_ratio_at(u, data[1].tilt)

    def score(u: Cloud) -> Cloud:
        return jax.lax.map(jax.grad(one), u)

    with jax.default_matmul_precision("highest"):
        top = ascend(score, u, ASCENT)
        return top, curvatures(score, top)


@eqx.filter_jit
def _clouds_of_many(
    data: tuple[Terms, Float[Array, "sets obs x"], Array, Tilt | None], dim: int, clouds: Clouds, keys: Array
) -> Tempered:
    """Those of each data set, with the keys that they would have alone."""
    terms, x, times, tilt = data
    number, size = clouds

    def one(x: Array, key: Key) -> Tempered:
        own = _prepared(terms, x, times, tilt)
        each = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(number))
        return jax.vmap(lambda key: tempered(_likelihoods, own, dim, size, key))(each)

    return jax.vmap(one)(x, keys)


@eqx.filter_jit
def _by_member(
    terms: MeanTerms, x: Float[Array, "obs x"], times: Array, tilt: Tilt | None, u: Cloud
) -> tuple[Float[Array, "members draws dim"], Float[Array, "dim dim"]]:
    """The gradient of every member's own log density, a few draws at a time, and how far the draws give way to it."""

    def one(network: Any) -> Cloud:
        alone = replace(terms, network=jax.tree.map(lambda v: v[None], network))
        return jax.lax.map(lambda u: jax.grad(_log_density)(u, (alone, x, times, tilt)), u, batch_size=GRADIENTS_TOGETHER)

    scores = jax.lax.map(one, terms.network)
    return scores, response(u, scores)


@eqx.filter_jit
def _values_by_member(terms: MeanTerms, x: Float[Array, "obs x"], times: Array, u: Cloud) -> Float[Array, "members draws"]:
    """Every member's sum, without the tilt, which they share."""

    def one(network: Any) -> Float[Array, " draws"]:
        alone = replace(terms, network=jax.tree.map(lambda v: v[None], network))
        return jax.lax.map(lambda u: _log_density(u, (alone, x, times, None)), u, batch_size=GRADIENTS_TOGETHER)

    with jax.default_matmul_precision("highest"):
        return jax.lax.map(one, terms.network)


@eqx.filter_jit
def _at_pairs(terms: Terms, x: Float[Array, "pairs x"], u: Cloud) -> tuple[Cloud, Float[Array, "pairs dim dim"]]:
    """∇_u log p(x|u) and its derivative for each pair, a few at a time."""

    def one(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        prepared, at = terms.prepare(pair[0]), pair[1]
        gradient = jax.grad(lambda u: terms.term(u, prepared))
        return gradient(at), jax.jacfwd(gradient)(at)

    return jax.lax.map(one, (x, u), batch_size=GRADIENTS_TOGETHER)


@eqx.filter_jit
def _chains_of_many(
    data: tuple[Terms, Float[Array, "sets obs x"], Array, Tilt | None], chains: Chains, keys: Array
) -> tuple[Float[Array, "sets chains length dim"], Array]:
    """Those of each data set."""
    terms, x, times, tilt = data
    return jax.vmap(lambda x, key: all_chains(_log_density, (terms, x, times, tilt), chains, key))(x, keys)


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
    if not isinstance(sampler, str) or sampler not in SAMPLERS:
        raise ScorefoldError(f"expected a sampler; got {sampler!r}. {closest(str(sampler), list(SAMPLERS))}")
    if not isinstance(chains, int) or isinstance(chains, bool) or chains < 2:
        raise ScorefoldError(f"expected 2 chains or more, which can be compared; got {chains!r}")
