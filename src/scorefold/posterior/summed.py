"""Draws from p(u) ∏_j p(x_j|u) with a learned log p(x|u): the terms of n observations are added up, and NUTS or variational
inference draws from the sum in the N(0, I) space.

Several chains run side by side. Each starts from one of 64 prior draws of its own, picked by its weight, so that chains begin
apart and in places that the observations allow. NUTS does not jump between separated modes: chains that stay in different
ones show as a large R̂, and the share of the draws in a mode is then the share of the chains that ended there. It is
reported, not repaired.

Observations are padded to a few bucket sizes and added up a chunk at a time, so that memory does not grow with n and a new n
does not recompile. On an accelerator the chains of many data sets move side by side; cores gain nothing by that.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.density import line
from scorefold.density.likelihood import Likelihood
from scorefold.density.line import Line
from scorefold.density.ratio import Ratio
from scorefold.errors import Diverged, ScorefoldError, UntrustworthyDraws, closest
from scorefold.posterior.draws import AS_THE_METHOD_SAYS, Drawn, Options
from scorefold.posterior.posterior import Made, Posterior, draw_one_by_one
from scorefold.posterior.saved import About
from scorefold.prior import Prior
from scorefold.sample.health import FARTHEST_DRAW
from scorefold.sample.nuts import agreement, chain
from scorefold.sample.variational import Fitted, tail_shape, variational
from scorefold.score import standardize
from scorefold.score.ensemble import bucket
from scorefold.score.standardize import Standardize, fit_standardize, standardized
from scorefold.simulation.simulations import Simulations
from scorefold.train.checkpoint import Checkpoint
from scorefold.train.loop import Objective, train
from scorefold.train.training import History
from scorefold.train.training_set import training_sets
from scorefold.types import Array, Float, Key, Observation, Scalar, Theta, draw_key, draw_keys

SAMPLERS = ("nuts", "vi")
CHUNK = 64
"""Observations whose terms are computed together."""
CANDIDATES = 64
"""Prior draws from which a chain's start is picked."""
SHORTEST = 500
"""Draws a chain."""
TOGETHER, FEWEST = 16_384, 8
"""On an accelerator: terms of all chains of all data sets at a time, at most, and data sets side by side, at least."""
SMALLEST = 256
"""Draws by variational inference."""
TARGET = 0.8
R_HAT, ESS = 1.01, 400
DIVERGENT = 0.01
"""The share of transitions that may diverge."""
TAIL = 0.7


@runtime_checkable
class Terms(Protocol):
    """A learned term for every observation."""

    def prepare(self, x: Any) -> Any:
        """What of one observation does not depend on u."""

    def term(self, u: Any, x: Any) -> Any:
        """log p(x|u) of one prepared observation, up to what does not depend on u."""


class NutsInfo(NamedTuple):
    """What the chains say of each other."""

    r_hat: float
    """The largest split R̂ of u and (u - ū)²; above 1.01 the chains disagree, as when they sit in different modes."""
    ess: float
    """The smallest effective sample size."""
    divergences: int
    chains: int
    length: int
    """Draws a chain, after the warm-up."""
    converged: bool
    """R̂ < 1.01, an effective sample size of 400 or more and at most 1 % divergent transitions."""
    diverged: bool
    """Draws are beyond 15 prior sd."""


class VariationalInfo(NamedTuple):
    """What the weights say of the Gaussian."""

    tail_shape: float
    """k̂ of the importance weights; above 0.7 the posterior is not close to a Gaussian."""
    bound: np.ndarray
    """The evidence lower bound, step by step, up to a constant."""
    converged: bool
    diverged: bool


@dataclass(frozen=True)
class SummedPosterior(Posterior):
    """A learned term, ready to be summed; its network's arrays have a leading member axis, and the members' mean is taken."""

    prior: Prior
    method: Any
    terms: Terms
    history: History | None
    """None where the terms were not trained."""
    shape: tuple[int, ...]
    made: Made | None = None

    options: ClassVar[tuple[str, ...]] = ("sampler", "chains")
    kind: ClassVar[str] = "summed"
    networks: ClassVar[tuple[str, ...]] = ("terms",)

    @classmethod
    def blank(cls, about: About) -> tuple[Terms]:
        """The terms that the settings mean."""
        return (about.method.skeleton(about),)

    def draw(self, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options = AS_THE_METHOD_SAYS) -> Drawn:
        """By the method's sampler and number of chains, or those asked for."""
        sampler, chains = self._chosen(options)
        key = draw_key(seed)
        data = (_padded(x), jnp.asarray(len(x)))
        u: np.ndarray
        info: NutsInfo | VariationalInfo
        if sampler == "vi":
            u, info = variational_draws(_log_density, (self.terms, *data), self.prior.dim, draws, key, self.method.steps)
        else:
            u, info = nuts_draws(_log_density, (self.terms, *data), self.prior.dim, draws, key, chains, self.method.warmup)
        warn(info, u)
        return Drawn(u, info, sampler)

    def draw_many(
        self, x: np.ndarray, draws: int, seeds: Sequence[tuple[int, int]], options: Options = AS_THE_METHOD_SAYS
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """On an accelerator the chains of several data sets side by side; otherwise one data set after the other.

        They are filled up with copies to 8, 16, 32 …, so that few programs serve any number of data sets. Chains have the keys
        they would have alone, but amplify rounding: draws agree with those of `draw` in law.
        """
        sampler, chains = self._chosen(options)
        if sampler == "vi" or jax.default_backend() == "cpu":
            return draw_one_by_one(self, x, draws, seeds, options)
        padded, keys = _padded(x), draw_keys(seeds)
        room = max(1, TOGETHER // (chains * min(CHUNK, padded.shape[1])))
        together = min(room, max(FEWEST, bucket(len(x))))
        u = np.full((len(x), draws, self.prior.dim), np.nan)
        converged, diverged = np.zeros(len(x), bool), np.ones(len(x), bool)
        for start in range(0, len(x), together):
            rows = np.minimum(np.arange(start, start + together), len(x) - 1)
            made = _chains_of_many(
                self.terms, padded[rows], jnp.asarray(x.shape[1]), self.prior.dim, chains, self.method.warmup,
                chain_length(draws, chains), keys[rows],
            )  # fmt: skip
            for i, one, divergent in zip(range(start, min(start + together, len(x))), *map(np.asarray, made), strict=False):
                try:
                    u[i], info = judged(one, divergent, draws, keys[i])
                except Diverged:
                    continue
                converged[i], diverged[i] = info.converged, info.diverged
        return u, converged, diverged

    def _chosen(self, options: Options) -> tuple[str, int]:
        """Those asked for, or the method's."""
        sampler: Any = self.method.sampler if options.sampler is None else options.sampler
        chains = self.method.chains if options.chains is None else options.chains
        check_sampler(sampler, chains)
        return sampler, chains


def _padded(x: np.ndarray) -> Float[Array, "... obs x"]:
    """With zeros up to a bucket's size."""
    missing = bucket(x.shape[-2]) - x.shape[-2]
    return jnp.asarray(np.concatenate([x, np.zeros((*x.shape[:-2], missing, x.shape[-1]))], axis=-2), jnp.float32)


LogDensity = Callable[[Theta, Any], Scalar]
"""(u, data) to the log density in the N(0, I) space; a module's function, so that it is compiled once."""


def _log_density(u: Theta, data: tuple[Terms, Float[Array, "obs x"], Array]) -> Scalar:
    """-|u|²/2 + Σ_j of the members' mean term, over the observations that count."""
    terms, x, count = data
    parts = (x.reshape(-1, min(CHUNK, len(x)), x.shape[1]), (jnp.arange(len(x)) < count).reshape(-1, min(CHUNK, len(x))))

    def one(x: Array) -> Scalar:
        return terms.term(u, terms.prepare(x))

    def add(total: Scalar, part: tuple[Array, Array]) -> tuple[Scalar, None]:
        return total + jnp.sum(jnp.where(part[1], jax.vmap(one)(part[0]), 0.0)), None

    start = -jnp.sum(u**2) / 2
    if len(parts[0]) == 1:
        return add(start, jax.tree.map(lambda v: v[0], parts))[0]
    # In reverse the terms of a chunk are computed again rather than kept.
    return jax.lax.scan(jax.checkpoint(add), start, parts)[0]


def nuts_draws(
    log_density: LogDensity, data: Any, dim: int, draws: int, key: Key, chains: int, warmup: int
) -> tuple[np.ndarray, NutsInfo]:
    """Draws picked at random from the chains, and how the chains agree."""
    u, divergent = _chains(log_density, data, dim, chains, warmup, chain_length(draws, chains), key)
    return judged(np.asarray(u), np.asarray(divergent), draws, key)


def chain_length(draws: int, chains: int) -> int:
    """Draws a chain, so that there are twice as many together as asked for, or more."""
    length = SHORTEST
    while length * chains < 2 * draws:
        length *= 2
    return length


def judged(u: np.ndarray, divergent: np.ndarray, draws: int, key: Key) -> tuple[np.ndarray, NutsInfo]:
    """Draws picked at random from chains (chains, length, dim), and how the chains agree; Diverged where they are no use."""
    chains, length, dim = u.shape
    u = u.astype(np.float64)
    r_hat, ess = agreement(u)
    if not np.isfinite(u).all() or not np.isfinite(r_hat):
        raise Diverged(
            "the chains did not move, or ran into values that are not numbers. Training has failed, or the observations are "
            "unlike any simulation; look at posterior.history."
        )
    flat = u.reshape(-1, dim)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).astype(np.uint32))
    picked = flat[rng.choice(len(flat), draws, replace=False)]
    diverged = bool(np.abs(picked).max() > FARTHEST_DRAW)
    count = int(divergent.sum())
    converged = r_hat < R_HAT and ess >= ESS and count <= DIVERGENT * len(flat) and not diverged
    return picked, NutsInfo(r_hat, ess, count, chains, length, converged, diverged)


def _all_chains(
    log_density: LogDensity, data: Any, dim: int, chains: int, warmup: int, length: int, key: Key
) -> tuple[Float[Array, "chains length dim"], Array]:
    """Every chain from its start, and where they diverged."""
    with jax.default_matmul_precision("highest"):

        def one(key: Key) -> tuple[Array, Array]:
            key_start, key_pick, key_chain = jax.random.split(key, 3)
            starts = jax.random.normal(key_start, (CANDIDATES, dim))
            values = jax.lax.map(lambda u: log_density(u, data) + jnp.sum(u**2) / 2, starts, batch_size=8)
            values = jnp.nan_to_num(values, nan=-1e30, neginf=-1e30, posinf=-1e30)
            start = starts[jax.random.categorical(key_pick, values)]
            return chain(lambda u: -log_density(u, data), warmup, length, TARGET, start, key_chain)

        return jax.vmap(one)(jax.random.split(key, chains))


_chains = eqx.filter_jit(_all_chains)
"""Compiled once per bucket of observations."""


@eqx.filter_jit
def _chains_of_many(
    terms: Terms, x: Float[Array, "sets obs x"], n: Array, dim: int, chains: int, warmup: int, length: int, keys: Array
) -> tuple[Float[Array, "sets chains length dim"], Array]:
    """Those of each data set."""

    def one(x: Array, key: Key) -> tuple[Array, Array]:
        return _all_chains(_log_density, (terms, x, n), dim, chains, warmup, length, key)

    return jax.vmap(one)(x, keys)


def variational_draws(
    log_density: LogDensity, data: Any, dim: int, draws: int, key: Key, steps: int
) -> tuple[np.ndarray, VariationalInfo]:
    """Draws of the fitted Gaussian, and whether it fits."""
    size = SMALLEST
    while size < draws:
        size *= 2
    fitted = _variational(log_density, data, dim, size, steps, key)
    u, bound, log_weights = (np.asarray(part, np.float64) for part in fitted)
    if not np.isfinite(u).all():
        raise Diverged("variational inference ran into values that are not numbers. Use sampler='nuts', or train again.")
    shape = tail_shape(log_weights)
    diverged = bool(np.abs(u).max() > FARTHEST_DRAW)
    return u[:draws], VariationalInfo(shape, bound, shape < TAIL and not diverged, diverged)


@eqx.filter_jit
def _variational(log_density: LogDensity, data: Any, dim: int, draws: int, steps: int, key: Key) -> Fitted:
    with jax.default_matmul_precision("highest"):
        return variational(lambda u: log_density(u, data), dim, draws, steps, key)


def warn(info: NutsInfo | VariationalInfo, u: np.ndarray) -> None:
    """Say so when the draws are not to be trusted."""
    if info.converged:
        return
    if info.diverged:
        what = f"draws ran away, to {np.abs(u).max():.3g} prior sd: the observations may be unlike any simulation"
    elif isinstance(info, VariationalInfo):
        what = f"the posterior is not close to a Gaussian (k̂ = {info.tail_shape:.2f}, above {TAIL}); use sampler='nuts'"
    else:
        what = (
            f"the {info.chains} chains have not converged: R̂ = {info.r_hat:.3f} (below {R_HAT} when healthy), effective sample "
            f"size {info.ess:.0f}, {info.divergences} divergent transitions. They may sit in different "
            "modes, between which NUTS does not jump; look at the draws, and compare with method='f-npse'"
        )
    warnings.warn(f"{what}.", UntrustworthyDraws, stacklevel=5)


def check_sampler(sampler: Any, chains: Any) -> None:
    """A known sampler and a whole number of chains, two or more."""
    if not isinstance(sampler, str) or sampler not in SAMPLERS:
        raise ScorefoldError(f"expected a sampler; got {sampler!r}. {closest(str(sampler), list(SAMPLERS))}")
    if not isinstance(chains, int) or isinstance(chains, bool) or chains < 2:
        raise ScorefoldError(f"expected 2 chains or more, which can be compared; got {chains!r}")


class MeanTerms(eqx.Module):
    """The mean term of members that share standardisation and line; the network's arrays have a leading member axis."""

    network: Any
    standardize: Standardize
    line: Line | None
    model: type[Likelihood] | type[Ratio] = eqx.field(static=True)

    def prepare(self, x: Observation) -> Any:
        """What of one observation does not depend on u, for every member."""
        return jax.vmap(lambda network: self._member(network).prepare(x))(self.network)

    def term(self, u: Theta, x: Any) -> Scalar:
        """log p(x|u) up to what does not depend on u."""
        return jnp.mean(jax.vmap(lambda network, own: self._member(network).term(u, own))(self.network, x))

    def _member(self, network: Any) -> Likelihood | Ratio:
        return self.model(network, self.standardize, self.line)


def skeleton(
    make_network: Callable[..., Any], shape: Any, members: int, base: bool, model: type[Likelihood] | type[Ratio]
) -> MeanTerms:
    """Terms of these sizes with shapes and types in place of arrays."""

    def make(key: Key) -> MeanTerms:
        network = jax.vmap(lambda k: make_network(shape, key=k))(jax.random.split(key, members))
        return MeanTerms(network, standardize.blank(shape.x), line.blank(shape.x, shape.dim) if base else None, model)

    return eqx.filter_eval_shape(make, jax.random.key(0))


def train_summed(
    method: Any,
    objective: Objective,
    model: type[Likelihood] | type[Ratio],
    sims: Sequence[Simulations],
    seeds: Sequence[int],
    progress: bool,
    checkpoint: Checkpoint | None,
) -> list[SummedPosterior]:
    """One ensemble for each of the simulations, trained on single observations; a prior without a density is refused."""
    if not all(one.prior.has_density for one in sims):
        raise ScorefoldError(
            f"expected a prior with a known density for {type(method).__name__}, which multiplies it with the likelihood; got "
            "one from draws. Write the prior down as a distribution, or use method='npe' or 'f-npse', which learn it."
        )
    sets, fixed = training_sets(sims, 1, method.training, seeds), []
    for cases in sets:
        scale, x = fit_standardize(cases.observations), cases.x[:, 0]
        fixed.append((scale, line.fit_line(standardized(scale, x), cases.u) if method.base else None))
    trained = train(objective, sets, fixed, method.training, method.base, progress, checkpoint)
    posteriors = []
    for one, (scale, fitted), (network, history) in zip(sims, fixed, trained, strict=True):
        posteriors.append(SummedPosterior(one.prior, method, MeanTerms(network, scale, fitted, model), history, one.shape))
    return posteriors
