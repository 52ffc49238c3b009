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
from scorefold.compose.factorized import PRIOR_RULES, PriorRule, factorized, reference_sd
from scorefold.errors import ScorefoldError, UntrustworthyDraws, closest
from scorefold.methods.npse import NPSE
from scorefold.networks.ensemble import ScoreEnsemble, bucket
from scorefold.noise import Level, levels
from scorefold.prior import Prior
from scorefold.sample import Ancestral, Info, Sampler, SelfTuned, Transitions
from scorefold.simulation.cases import Simulations
from scorefold.train.fit import History
from scorefold.types import Array, Cloud, Key, new_key

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
    sampler: Sampler
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
    if not isinstance(sims, Simulations):
        raise ScorefoldError(f"expected the Simulations that sf.simulate returns; got {type(sims).__name__}")
    _check_count("seed", seed, 0)
    chosen = methods.get(method)
    ensemble, history = chosen.train(sims, seed, progress)
    return Posterior(sims.prior, chosen, ensemble, history, sims.shape)


@dataclass(frozen=True)
class Posterior:
    """What `fit` returns."""

    prior: Prior
    method: NPSE
    ensemble: ScoreEnsemble
    history: History
    shape: tuple[int, ...]
    """Of one observation."""

    def sample(
        self,
        x_obs: Any,
        draws: int = 1_000,
        seed: int = 0,
        *,
        sampler: Sampler | None = None,
        prior_rule: PriorRule | None = None,
    ) -> Any:
        """`Draws` from p(θ | x_1 … x_n) for `x_obs` of shape (n, *shape), or a list of them for a list of such.

        `sampler` and `prior_rule` override the method's for this call.
        """
        _check_count("draws", draws, 1)
        _check_count("seed", seed, 0)
        if isinstance(x_obs, list) and x_obs and _depth(x_obs[0]) == 1 + len(self.shape):
            checked = [self._checked(x) for x in x_obs]
            return [self._sample(x, draws, (seed, i), sampler, prior_rule) for i, x in enumerate(checked)]
        return self._sample(self._checked(x_obs), draws, (seed, 0), sampler, prior_rule)

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

    def _sample(
        self,
        x: np.ndarray,
        draws: int,
        seed: tuple[int, int],
        sampler: Sampler | None,
        prior_rule: PriorRule | None,
    ) -> Draws:
        started = time.perf_counter()
        key = jax.random.fold_in(new_key(int(seed[0])), seed[1])
        sets, sizes = partition(x, self.ensemble.network.shape.largest_set, np.random.default_rng(seed))
        count = len(sizes)
        prior_rule = prior_rule or self.method.prior_rule
        sampler = sampler or self.method.sampler or (Ancestral() if count == 1 else SelfTuned())
        check_pair(sampler, prior_rule, count)
        grid = jax.tree.map(lambda v: v[::-1], levels(self.method.schedule, self.method.T, sampler.levels))
        padded = bucket(count)
        sets = np.concatenate([sets, np.zeros((padded - count, *sets.shape[1:]))]).astype(np.float32)
        sizes = np.concatenate([sizes, np.ones(padded - count, int)]).astype(np.int32)
        cloud = cloud_size(draws, self.prior.dim)
        u, infos = [], []
        for index in range(-(-draws // cloud)):
            one, info = _draw(
                self.ensemble, jnp.asarray(sets), jnp.asarray(sizes), jnp.asarray(count), grid,
                jax.random.fold_in(key, index), sampler, prior_rule, cloud,
            )  # fmt: skip
            u.append(np.asarray(one, np.float64))
            infos.append(jax.tree.map(np.asarray, info))
        info = merge(infos)
        all_u = np.concatenate(u)[:draws]
        warn(info, all_u, count)
        theta = self.prior.from_normal(all_u)
        return Draws(theta, self.prior.names, info, len(x), count, sampler, time.perf_counter() - started)


@eqx.filter_jit
def _draw(
    ensemble: ScoreEnsemble, x: Array, sizes: Array, count: Array, grid: Level, key: Key,
    sampler: Sampler, prior_rule: PriorRule, cloud: int,
) -> tuple[Cloud, Info]:  # fmt: skip
    """One cloud, compiled once per bucket of sets and cloud size."""
    with jax.default_matmul_precision("highest"):  # a relative error of 1e-3 would be n times that in the sum
        total = ensemble.total(ensemble.embed(x, sizes, count))
        score = factorized(total, count, prior_rule)
        key_start, key_run = jax.random.split(key)
        u = reference_sd(count, prior_rule) * jax.random.normal(key_start, (cloud, ensemble.network.shape.dim))
        return sampler(score, grid, u, key_run, count)


def partition(x: np.ndarray, set_size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Cut n observations at random into k = ⌈n/m⌉ disjoint sets of nearly equal size: (k, m, x) and their sizes."""
    sets = -(-len(x) // set_size)
    sizes = np.full(sets, len(x) // sets) + (np.arange(sets) < len(x) % sets)
    order = rng.permutation(len(x)) if set_size > 1 else np.arange(len(x))
    padded = np.zeros((sets, set_size, x.shape[1]))
    padded[np.arange(set_size) < sizes[:, None]] = x[order]
    return padded, sizes


def cloud_size(draws: int, dim: int) -> int:
    """How many draws move together: enough for a covariance, few enough for bounded memory, from few sizes."""
    size = SMALLEST_CLOUD
    while size < min(max(draws, 10 * dim), LARGEST_CLOUD):
        size *= 2
    return size


def check_pair(sampler: Sampler, prior_rule: PriorRule, sets: int) -> None:
    """Refuse what cannot be right."""
    if not isinstance(sampler, Sampler) or getattr(sampler, "steps", 1) < 1:
        known = "SelfTuned(), Langevin(), Transitions() or Ancestral()"
        raise ScorefoldError(f"expected a sampler of one or more steps such as {known}; got {sampler!r}")
    if prior_rule not in PRIOR_RULES:
        raise ScorefoldError(f"unknown prior rule {prior_rule!r}. {closest(prior_rule, list(PRIOR_RULES))}")
    if isinstance(sampler, Ancestral) and sets > 1:
        raise ScorefoldError(
            f"the ancestral sampler reverses the diffusion of one set's posterior; got {sets} sets, and a sum of their scores "
            "is not the score of a diffused density. Use SelfTuned() or Langevin()."
        )
    if isinstance(sampler, Transitions) and prior_rule != "tempered":
        raise ScorefoldError("the transitions sampler is derived for prior_rule='tempered'; got 'diffused'.")


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
        warnings.warn(f"draws ran away, beyond 15 prior sd; {seen}. {advice}", UntrustworthyDraws, stacklevel=4)
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
