"""A posterior that is a flow: q(u | x_1 … x_n) is drawn from directly, with no run that could go wrong.

An ensemble's flows are one equal mixture: every draw is made by a member picked at random.
"""

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.compose.other_prior import OtherPrior
from scorefold.density.set_flow import SetFlow, SetFlowNetwork
from scorefold.errors import Diverged, ScorefoldError, UntrustworthyDraws
from scorefold.posterior.asked import Asked, asked_of, on_device, ratio_of, too_few
from scorefold.posterior.densities import Summits
from scorefold.posterior.draws import AS_THE_METHOD_SAYS, Drawn, Options
from scorefold.posterior.made import Made
from scorefold.posterior.member_evidence import ByMember
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.reach import Reach
from scorefold.posterior.saved import About
from scorefold.posterior.trust import Doubts, by_draws
from scorefold.prior import Prior
from scorefold.prior.prior_ratio import PriorRatio, volume
from scorefold.sample.ascent import ascend, curvatures
from scorefold.sample.health import FARTHEST_DRAW
from scorefold.score import gaussian_base, masked_base, standardize
from scorefold.score.gaussian_base import GaussianBase
from scorefold.score.masked_base import MaskedBase
from scorefold.score.standardize import Standardize
from scorefold.train.rows import bucket
from scorefold.train.training import History
from scorefold.types import Array, Cloud, Float, Int, Key, Scalar, Theta, draw_key, single_precision

MORE, LEAST_EFFECTIVE = 16, 1.0
"""Under another prior: how many times as many draws are weighed, and what they must be worth of those asked for."""
ASCENT = 30
"""Steps uphill."""
FEWEST_TOGETHER = 256
"""Draws made together, doubled until they are as many as asked for."""


class FlowInfo(NamedTuple):
    """A flow has no run to go wrong; its draws can only be far from where it was trained."""

    farthest: float
    """The largest |u| of the draws, in prior sd."""
    converged: bool
    diverged: bool
    """Draws are beyond 15 prior sd."""


@dataclass(frozen=True, repr=False)
class FlowPosterior(Posterior):
    """A trained flow; with several members their equal mixture."""

    prior: Prior
    method: Any
    network: SetFlowNetwork
    standardize: Standardize
    base: GaussianBase | MaskedBase | None
    history: History
    shape: tuple[int, ...]
    largest_set: int
    """Observations in the largest set that it was trained on."""
    reach: Reach | None = None
    """What was simulated, to tell observations that are unlike it."""
    made: Made | None = None

    options: ClassVar[tuple[str, ...]] = ("prior",)
    normalised: ClassVar[bool] = True
    kind: ClassVar[str] = "flow"
    networks: ClassVar[tuple[str, ...]] = ("network", "standardize", "base")

    @classmethod
    def blank(cls, about: About) -> tuple[SetFlowNetwork, Standardize, GaussianBase | MaskedBase | None]:
        """The flows that the settings mean."""
        method, members, largest = about.method, about.method.training.members, about.size("largest_set")
        fewest = members * method.layers * method.width * (method.depth * method.width + largest)
        about.fits(fewest, f"{members} flows of {method.layers} layers")
        shape = method.network_shape(about.dim, about.shape, largest)

        def make(key: Key) -> Any:
            network = jax.vmap(lambda k: SetFlowNetwork(shape, key=k))(jax.random.split(key, members))
            base: GaussianBase | MaskedBase | None = None
            if method.base and method.missing:
                base = masked_base.blank(shape.x, shape.dim)
            elif method.base:
                base = gaussian_base.blank(shape.x, shape.dim, largest)
            return network, standardize.blank(shape.x, method.missing), base

        return eqx.filter_eval_shape(make, jax.random.key(0))

    def fault(self) -> str:
        """A curve for other parameters."""
        return "" if self.reach is None else self.reach.misfit(self.prior.dim)

    def draw(self, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options = AS_THE_METHOD_SAYS) -> Drawn:
        """Directly from the flow."""
        if len(x) > self.largest_set:
            raise self._too_many(len(x))
        pool = draws if options.prior is None else MORE * draws
        each, member = self._by_member(x, pool, seed)
        u = each[member, np.arange(len(member))][:pool]
        if options.prior is not None:
            u = reweighed(u, ratio_of(self.prior, options.prior), draws, seed)
        if not np.isfinite(u).all():
            raise Diverged("the flow's draws are not finite. Training has failed; look at posterior.history.")
        farthest = float(np.abs(u).max())
        info = FlowInfo(farthest, converged=farthest <= FARTHEST_DRAW, diverged=farthest > FARTHEST_DRAW)
        if info.diverged:
            warnings.warn(
                f"draws ran away, to {farthest:.3g} prior sd. The observations are unlike any simulation, or there were too "
                "few simulations; compare some of them with prior predictive simulations.",
                UntrustworthyDraws,
                stacklevel=4,
            )
        return Drawn(u, info, f"a flow of {self.network.shape.layers} {self.network.flow.kind} layers")

    def doubts(self, x: np.ndarray, u: np.ndarray, seed: tuple[int, int], options: Options) -> Doubts:
        """By the draws of each member alone, from the same z; under another prior from different ones, as few may count."""
        if self.method.training.members < 2:
            return Doubts("a single flow has no other to disagree with; train with members=2 or more")
        if options.prior is None:
            each, _ = self._by_member(x, len(u), seed)
        else:
            found = each_reweighed(self._by_member(x, MORE * len(u), seed)[0], ratio_of(self.prior, options.prior), seed)
            if found is None:
                return Doubts("a flow of the ensemble has no draws where the other prior has weight")
            each = found
        theta = np.stack([self.prior.from_normal(one) for one in each])
        pooled = theta.reshape(-1, theta.shape[-1])
        differ = by_draws(theta, pooled.mean(axis=0), pooled.std(axis=0))
        if self.reach is None:
            return Doubts(differ)
        return Doubts(differ, self.reach.floor(1, u), self.reach.strangeness(self.standardize, x, u))

    def log_density(self, x: np.ndarray, u: np.ndarray, options: Options = AS_THE_METHOD_SAYS) -> np.ndarray:
        """log of the members' mean density at points u (points, dim); normalised, unless another prior is asked for."""
        at = jnp.asarray(np.resize(u, (max(16, bucket(len(u))), u.shape[1])), jnp.float32)
        value = _densities(self._models, *self._given(x), at, asked_of(self.prior, options))
        return np.asarray(value, np.float64)[: len(u)]

    def single_log_densities(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log q(u | x_j) of every observation by itself at one u, and no error."""
        each = [self.log_density(one[None], u[None])[0] for one in x]
        return np.array(each), np.zeros(len(x))

    def evidence_by_member(self, x: np.ndarray, u: np.ndarray) -> ByMember | None:
        """By the flows of single observations and of all of them, at the draws' mean."""
        if self.method.training.members < 2:
            return None
        at = jnp.asarray(u.mean(axis=0), jnp.float32)
        joint = np.asarray(_of_members(self._models, *self._given(x), at), np.float64)
        each = np.stack([np.asarray(_of_members(self._models, *self._given(one[None]), at), np.float64) for one in x], axis=1)
        return ByMember(each.sum(axis=1) - joint, each)

    def climb(self, x: np.ndarray, u: np.ndarray, of_theta: bool, options: Options = AS_THE_METHOD_SAYS) -> Summits:
        """Maxima uphill from points u."""
        asked, by_volume = asked_of(self.prior, options), on_device(volume(self.prior)) if of_theta else None
        found = _climbed(self._models, *self._given(x), jnp.asarray(u, jnp.float32), asked, by_volume)
        return Summits(*(np.asarray(part, np.float64) for part in found))

    @property
    def _models(self) -> tuple[SetFlowNetwork, Standardize, GaussianBase | MaskedBase | None]:
        return self.network, self.standardize, self.base

    def _given(self, x: np.ndarray) -> tuple[Array, Array]:
        """The observations, padded, and how many there are."""
        if len(x) > self.largest_set:
            raise self._too_many(len(x))
        padded = np.concatenate([x, np.zeros((self.largest_set - len(x), x.shape[1]))])
        return jnp.asarray(padded, jnp.float32), jnp.asarray(len(x))

    def _too_many(self, n: int) -> ScorefoldError:
        return ScorefoldError(
            f"expected at most {self.largest_set} observations, as NPE was trained; got {n}. Simulate with set_size={n} or "
            "more, or use method='f-npse', 'pf-npse' or 'nle', which take any number."
        )

    def _by_member(self, x: np.ndarray, draws: int, seed: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """As many draws of every member or more (members, some, dim), and the member that each is to be taken from."""
        size = FEWEST_TOGETHER
        while size < draws:
            size *= 2
        each, member = _draw(*self._models, *self._given(x), size, draw_key(seed))
        return np.asarray(each, np.float64), np.asarray(member)


def _log_mixture(models: tuple, x: Array, n: Array, u: Theta, asked: Asked) -> Scalar:
    """log of the members' mean density at one u, times the ratio of another prior."""
    network, standardize, base = models

    def of_member(network: SetFlowNetwork) -> Scalar:
        model = SetFlow(network, standardize, base)
        return model.log_density(u, model.embed(x, n))

    each = jax.lax.map(of_member, network)
    value = jax.nn.logsumexp(each) - jnp.log(len(each))
    return value if asked.other is None else value + asked.other.exact_log_ratio(u, None)


@eqx.filter_jit
def _of_members(models: tuple, x: Array, n: Array, u: Theta) -> Float[Array, " members"]:
    """log q_k(u | X) of every member."""
    network, standardize, base = models

    def one(network: SetFlowNetwork) -> Scalar:
        model = SetFlow(network, standardize, base)
        return model.log_density(u, model.embed(x, n))

    with jax.default_matmul_precision("highest"):
        return jax.lax.map(one, network)


@eqx.filter_jit
def _densities(models: tuple, x: Array, n: Array, u: Cloud, asked: Asked) -> Float[Array, " draws"]:
    with jax.default_matmul_precision("highest"):
        return jax.lax.map(lambda u: _log_mixture(models, x, n, u, asked), u, batch_size=FEWEST_TOGETHER)


@eqx.filter_jit
def _climbed(
    models: tuple, x: Array, n: Array, u: Cloud, asked: Asked, by_volume: OtherPrior | None
) -> tuple[Cloud, Float[Array, "draws dim dim"]]:
    """Uphill on the density of u, or of θ; and the curvatures there."""

    def one(u: Theta) -> Scalar:
        value = _log_mixture(models, x, n, u, asked)
        return value if by_volume is None else value + by_volume.log_ratio(u)

    def score(u: Cloud) -> Cloud:
        return jax.lax.map(jax.grad(one), u)

    with jax.default_matmul_precision("highest"):
        top = ascend(score, u, ASCENT)
        return top, curvatures(score, top)


def ratio_weights(u: np.ndarray, ratio: PriorRatio) -> np.ndarray:
    """The ratio of another prior at each of the draws, adding up to 1; 0 where it has no weight."""
    good = np.isfinite(u).all(axis=1) & ratio.inside(np.nan_to_num(u))
    if not good.any():
        raise too_few(0, len(u))
    with single_precision():
        log_ratio = np.asarray(jax.vmap(on_device(ratio).log_ratio)(jnp.asarray(u[good], jnp.float32)), np.float64)
    weights = np.zeros(len(u))
    weights[good] = np.exp(log_ratio - log_ratio.max())
    return weights / weights.sum()


def reweighed(u: np.ndarray, ratio: PriorRatio, draws: int, seed: tuple[int, int]) -> np.ndarray:
    """So many of the draws as if under another prior, picked by the ratio of the priors; warned of where few of them count."""
    weights = ratio_weights(u, ratio)
    effective = 1 / np.sum(weights**2)
    if effective < LEAST_EFFECTIVE * draws:
        warnings.warn(
            f"{len(u):,} draws weighed by the other prior are worth {effective:,.0f}, fewer than the {draws:,} asked for: some "
            "are there several times. Methods with a likelihood or a score (nle, f-npse) draw under another prior directly.",
            UntrustworthyDraws,
            stacklevel=5,
        )
    return u[np.random.default_rng(seed).choice(len(u), draws, p=weights)]


def each_reweighed(each: np.ndarray, ratio: PriorRatio, seed: tuple[int, int]) -> np.ndarray | None:
    """As if every member had drawn under another prior, from a share of the draws of its own (members, some, dim); None where
    one of them has no draws there.
    """
    members, most = len(each), each.shape[1] // len(each)
    shares = [one[k::members][:most] for k, one in enumerate(each)]
    if not all(ratio.inside(one).any() for one in shares):
        return None
    rng = np.random.default_rng((*seed, 1))
    return np.stack([one[rng.choice(most, most, p=ratio_weights(one, ratio))] for one in shares])


@eqx.filter_jit
def _draw(
    network: SetFlowNetwork,
    standardize: Standardize,
    base: GaussianBase | MaskedBase | None,
    x: Array,
    n: Array,
    draws: int,
    key: Key,
) -> tuple[Float[Array, "members draws dim"], Int[Array, " draws"]]:
    """Draws of every member, and a member picked at random for each; compiled once, whatever n is."""
    members = len(jax.tree.leaves(network)[0])
    key_member, key_z = jax.random.split(key)
    z = jax.random.normal(key_z, (draws, network.shape.dim))

    def of_member(network: SetFlowNetwork) -> Cloud:
        model = SetFlow(network, standardize, base)
        embedded = model.embed(x, n)
        return jax.vmap(lambda z: model.draw(z, embedded))(z)

    with jax.default_matmul_precision("highest"):
        each = jax.lax.map(of_member, network)
    return each, jax.random.randint(key_member, (draws,), 0, members)
