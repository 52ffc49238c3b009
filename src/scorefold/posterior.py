"""A posterior: trained scores, prior, rule and sampler, ready to draw for any observations."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold import methods
from scorefold.compose import Diffused, Gauss, Rule, Tempered
from scorefold.compose.gauss import positive
from scorefold.errors import ScorefoldError, UntrustworthyDraws
from scorefold.methods.npse import NPSE
from scorefold.networks.ensemble import ScoreEnsemble, bucket
from scorefold.noise import Level, levels
from scorefold.pairing import pair
from scorefold.prior import Prior
from scorefold.sample import Flow, Info, Metropolis, Sampler
from scorefold.sets import SetScores
from scorefold.simulation.cases import Simulations
from scorefold.train.fit import History
from scorefold.train.partition import PartitionTable, cut
from scorefold.types import Array, Cloud, Float, Key, new_key

LARGEST_CLOUD = 1024
SMALLEST_CLOUD = 128


@dataclass(frozen=True)
class Draws:
    """Posterior draws and how they came about."""

    theta: np.ndarray
    """(draws, dim), in the prior's order"""
    names: tuple[str, ...]
    info: Info
    """Averaged over clouds where there were several; `diverged` if any did, `converged` if all did."""
    observations: int
    sets: int
    rule: Rule
    sampler: Sampler
    partition: str
    """How many observations a set has, and why."""
    seconds: float

    def to_arviz(self) -> Any:
        """As an ArviZ InferenceData with one chain."""
        import arviz

        posterior = {name: self.theta[None, :, i] for i, name in enumerate(self.names)}
        return arviz.from_dict(posterior=posterior)

    def __repr__(self) -> str:
        trust = "converged" if self.info.converged else "DIVERGED" if self.info.diverged else "NOT CONVERGED"
        return (
            f"Draws({len(self.theta):,} × ({', '.join(self.names)}) given {self.observations:,} observations; "
            f"{trust}; {self.seconds:.1f} s)"
        )


def fit(sims: Simulations, method: str | NPSE = "f-npse", seed: int = 0, progress: bool = False) -> "Posterior":
    """Train on simulations, and get a posterior for any observations from the same simulator."""
    return fit_many([sims], method, [seed], progress)[0]


def fit_many(
    sims: Sequence[Simulations], method: str | NPSE = "f-npse", seeds: Sequence[int] = (0,), progress: bool = False
) -> list["Posterior"]:
    """Several trainings of one method as one compiled program, for simulations of one shape: repetitions cost little more."""
    for one in sims:
        if not isinstance(one, Simulations):
            raise ScorefoldError(f"expected the Simulations that sf.simulate returns; got {type(one).__name__}")
    for seed in seeds:
        _check_count("seed", seed, 0)
    chosen = methods.get(method)
    shapes = {(one.prior.dim, one.shape, one.set_size, one.prior.gaussian) for one in sims}
    if len(shapes) != 1 or len(sims) != len(seeds):
        raise ScorefoldError(
            f"expected simulations of one shape, and a seed each; got {len(sims)} in {len(shapes)} shapes, {len(seeds)} seeds"
        )
    if chosen.set_size is None and sims[0].set_size == 1 and not chosen.composes:
        raise ScorefoldError(
            "expected simulations in sets for NPSE, which takes all observations at once; got set_size = 1. Simulate with "
            "sf.simulate(…, set_size=n_max), or use method='f-npse'."
        )
    trained = chosen.train(sims, seeds, progress)
    return [Posterior(one.prior, chosen, *parts, one.shape) for one, parts in zip(sims, trained, strict=True)]


@dataclass(frozen=True)
class Posterior:
    """What `fit` returns."""

    prior: Prior
    method: NPSE
    ensemble: ScoreEnsemble
    history: History
    table: PartitionTable
    """Which sets do best for n observations."""
    shape: tuple[int, ...]
    """Of one observation."""

    def sample(
        self,
        x_obs: Any,
        draws: int = 1_000,
        seed: int = 0,
        *,
        rule: str | Rule | None = None,
        sampler: str | Sampler | None = None,
        set_size: int | str | None = None,
    ) -> Any:
        """`Draws` from p(θ | x_1 … x_n) for `x_obs` of shape (n, *shape), or a list of them for a list of such.

        `rule` and `sampler` override the method's for this call, by name or as objects. `set_size` m cuts the observations
        into sets of at most m (by default as large as trained); "auto" takes the m that unseen simulations favour.
        """
        _check_count("draws", draws, 1)
        _check_count("seed", seed, 0)
        chosen = _Choices(rule or self.method.rule, sampler or self.method.sampler, set_size)
        if isinstance(x_obs, list) and x_obs and _depth(x_obs[0]) == 1 + len(self.shape):
            checked = [self._checked(x) for x in x_obs]
            return [self._sample(x, draws, (seed, i), chosen) for i, x in enumerate(checked)]
        return self._sample(self._checked(x_obs), draws, (seed, 0), chosen)

    def choose_set_size(self, n: int, set_size: int | str | None = None) -> tuple[int, str]:
        """The number of observations in a set for n of them, and why."""
        largest = self.ensemble.network.shape.largest_set
        if not self.method.composes:
            if n > largest:
                raise ScorefoldError(
                    f"expected at most {largest} observations, as NPSE was trained; got {n}. Simulate with a larger set_size, "
                    "or use method='pf-npse', which composes sets."
                )
            return largest, "all observations in one set"
        if set_size is None:
            return largest, f"sets of up to {largest}, as trained"
        if set_size == "auto":
            if not self.table or n == 1:
                return largest, f"sets of up to {largest}: there was nothing to choose from"
            choice = self.table[max((size for size in self.table if size <= n), default=min(self.table))]
            return min(choice.set_size, n), str(choice)
        if not isinstance(set_size, int | np.integer) or isinstance(set_size, bool) or not 1 <= set_size <= largest:
            raise ScorefoldError(f"expected set_size between 1 and {largest}, as trained, or 'auto'; got {set_size!r}")
        return int(set_size), f"sets of up to {set_size}, as asked"

    def _checked(self, x_obs: Any) -> np.ndarray:
        """x_obs as (n, features) float64, or a ScorefoldError."""
        wanted = "(n, " + ", ".join(map(str, self.shape)) + ")" if self.shape else "(n,)"
        try:
            x = np.asarray(x_obs, np.float64)
        except (TypeError, ValueError):
            raise ScorefoldError(
                f"expected x_obs to be numbers of shape {wanted}; got {type(x_obs).__name__}. For several data sets pass a "
                "list of such arrays."
            ) from None
        if x.shape[1:] != self.shape or x.ndim == 0:
            hint = " For one observation write x_obs[None]." if x.shape == self.shape else ""
            raise ScorefoldError(
                f"expected x_obs of shape {wanted}, as the simulations were; got {x.shape}. The first axis counts "
                f"observations.{hint}"
            )
        if len(x) == 0:
            raise ScorefoldError(
                "expected at least one observation; got n = 0. Without observations the posterior is the prior: use "
                "prior.sample(count, seed)."
            )
        bad = ~np.isfinite(x.reshape(len(x), -1)).all(axis=1)
        if bad.any():
            raise ScorefoldError(
                f"expected finite observations; {bad.sum()} of {len(x)} hold NaN or infinity (first: x_obs[{bad.argmax()}]). "
                "Leave them out if they are missing at random."
            )
        return x.reshape(len(x), -1)

    def _sample(self, x: np.ndarray, draws: int, seed: tuple[int, int], chosen: "_Choices") -> Draws:
        started = time.perf_counter()
        key = jax.random.fold_in(new_key(int(seed[0])), seed[1])
        set_size, why = self.choose_set_size(len(x), chosen.set_size)
        largest = self.ensemble.network.shape.largest_set
        sets, sizes = partition(x, set_size, largest, np.random.default_rng(seed))
        count = len(sizes)
        rule, sampler = pair(chosen.rule, chosen.sampler, count, self.ensemble.network.shape)
        padding = bucket(count) - count
        padded = (
            jnp.asarray(np.concatenate([sets, np.zeros((padding, *sets.shape[1:]))]), jnp.float32),
            jnp.asarray(np.concatenate([sizes, np.full(padding, sizes[-1])]), jnp.int32),
            jnp.asarray(count),
        )
        precision, projected = None, 0.0
        if isinstance(rule, Gauss) and rule.pilots and count > 1:
            precision, cut_down = _pilots(self.ensemble, *padded, self._grid(Flow()), key, rule.pilots)
            projected = float(cut_down) / count
        cloud = cloud_size(draws, self.prior.dim)
        u, infos = [], []
        for index in range(-(-draws // cloud)):
            one, info = _draw(
                self.ensemble, *padded, precision, self._grid(sampler), jax.random.fold_in(key, index), rule, sampler, cloud
            )
            u.append(np.asarray(one, np.float64))
            infos.append(jax.tree.map(np.asarray, info))
        info = merge(infos)._replace(projected=projected)
        all_u = np.concatenate(u)[:draws]
        warn(info, all_u, count)
        theta = self.prior.from_normal(all_u)
        return Draws(theta, self.prior.names, info, len(x), count, rule, sampler, why, time.perf_counter() - started)

    def _grid(self, sampler: Sampler) -> Level:
        """The sampler's levels in falling t."""
        return jax.tree.map(lambda v: v[::-1], levels(self.method.schedule, self.method.T, sampler.levels))


@dataclass(frozen=True)
class _Choices:
    rule: str | Rule | None
    sampler: str | Sampler | None
    set_size: int | str | None


@eqx.filter_jit
def _draw(
    ensemble: ScoreEnsemble, x: Array, sizes: Array, count: Array, precision: Array | None, grid: Level, key: Key,
    rule: Rule, sampler: Sampler, cloud: int,
) -> tuple[Cloud, Info]:  # fmt: skip
    """One cloud, compiled once per bucket of sets and cloud size."""
    with jax.default_matmul_precision("highest"):  # a relative error of 1e-3 would be n times that in the sum
        sets: SetScores = ensemble.embed(x, sizes, count)
        if precision is not None:
            sets = sets.with_precision(precision)
        key_start, key_run = jax.random.split(key)
        u = rule.reference_sd(count) * jax.random.normal(key_start, (cloud, ensemble.network.shape.dim))
        if isinstance(sampler, Metropolis):
            assert isinstance(rule, Diffused | Tempered)  # the others have been refused
            return sampler(rule.score(sets), grid, u, key_run, count, rule.log_density(sets))
        return sampler(rule.score(sets), grid, u, key_run, count)


@eqx.filter_jit
def _pilots(
    ensemble: ScoreEnsemble, x: Array, sizes: Array, count: Array, grid: Level, key: Key, number: int
) -> tuple[Float[Array, "sets dim dim"], Array]:
    """Each set's precision from pilot draws of its own posterior, and how many were wider than the prior."""
    return pilot_precisions(ensemble.embed(x, sizes, count), ensemble.network.shape.dim, grid, key, number)


def pilot_precisions(
    sets: SetScores, dim: int, grid: Level, key: Key, number: int
) -> tuple[Float[Array, "sets dim dim"], Array]:
    """The same for any scores: the centred covariance of `number` draws by the probability flow."""

    def one(j: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        precisions, wider = carry
        alone = sets.pick(j[None], jnp.ones((), int))
        start = jax.random.normal(jax.random.fold_in(key, j), (number, dim))
        u, _ = Flow()(lambda u, level, _: alone.total(u, level), grid, start, key, 1)
        precision, cut_down = positive(jnp.cov(u, rowvar=False).reshape(dim, dim))
        return precisions.at[j].set(precision), wider + cut_down

    start = (jnp.broadcast_to(jnp.eye(dim), (len(sets.group), dim, dim)), jnp.zeros((), int))
    return jax.lax.fori_loop(0, sets.count, one, start)


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
        raise ScorefoldError(f"the sampler diverged for {sets} sets: draws are not finite; {seen}. {advice}")
    if info.diverged:
        warnings.warn(
            f"draws ran away, beyond 15 prior sd, or have no score; {seen}. {advice}", UntrustworthyDraws, stacklevel=4
        )
    elif not info.converged:
        warnings.warn(f"the draws have not converged: {seen}. {advice}", UntrustworthyDraws, stacklevel=4)


def _depth(value: Any) -> int:
    """How deeply nested; -1 where it is ragged."""
    try:
        return np.ndim(value)
    except ValueError:
        return -1


def _check_count(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ScorefoldError(f"expected {name} to be a whole number ≥ {least}; got {value!r}")
