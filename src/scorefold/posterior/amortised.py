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

from scorefold.density.set_flow import SetFlow, SetFlowNetwork
from scorefold.errors import Diverged, ScorefoldError, UntrustworthyDraws
from scorefold.posterior.draws import AS_THE_METHOD_SAYS, Drawn, Options
from scorefold.posterior.made import Made
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.reach import Reach
from scorefold.posterior.saved import About
from scorefold.posterior.trust import Doubts, by_draws
from scorefold.prior import Prior
from scorefold.sample.health import FARTHEST_DRAW
from scorefold.score import gaussian_base, standardize
from scorefold.score.gaussian_base import GaussianBase
from scorefold.score.standardize import Standardize
from scorefold.train.training import History
from scorefold.types import Array, Cloud, Float, Int, Key, draw_key

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
    base: GaussianBase | None
    history: History
    shape: tuple[int, ...]
    largest_set: int
    """Observations in the largest set that it was trained on."""
    reach: Reach | None = None
    """What was simulated, to tell observations that are unlike it."""
    made: Made | None = None

    kind: ClassVar[str] = "flow"
    networks: ClassVar[tuple[str, ...]] = ("network", "standardize", "base")

    @classmethod
    def blank(cls, about: About) -> tuple[SetFlowNetwork, Standardize, GaussianBase | None]:
        """The flows that the settings mean."""
        method, members, largest = about.method, about.method.training.members, about.size("largest_set")
        fewest = members * method.layers * method.width * (method.depth * method.width + largest)
        about.fits(fewest, f"{members} flows of {method.layers} layers")
        shape = method.network_shape(about.dim, about.shape, largest)

        def make(key: Key) -> Any:
            network = jax.vmap(lambda k: SetFlowNetwork(shape, key=k))(jax.random.split(key, members))
            base = gaussian_base.blank(shape.x, shape.dim, largest) if method.base else None
            return network, standardize.blank(shape.x), base

        return eqx.filter_eval_shape(make, jax.random.key(0))

    def fault(self) -> str:
        """A curve for other parameters."""
        return "" if self.reach is None else self.reach.misfit(self.prior.dim)

    def draw(self, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options = AS_THE_METHOD_SAYS) -> Drawn:
        """Directly from the flow."""
        largest = self.largest_set
        if len(x) > largest:
            raise ScorefoldError(
                f"expected at most {largest} observations, as NPE was trained; got {len(x)}. Simulate with set_size={len(x)} "
                "or more, or use method='f-npse', 'pf-npse' or 'nle', which take any number."
            )
        each, member = self._by_member(x, draws, seed)
        u = each[member, np.arange(len(member))][:draws]
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
        """By the draws of each member alone, from the same z."""
        if self.method.training.members < 2:
            return Doubts("a single flow has no other to disagree with; train with members=2 or more")
        each, _ = self._by_member(x, len(u), seed)
        theta = np.stack([self.prior.from_normal(one) for one in each])
        pooled = theta.reshape(-1, theta.shape[-1])
        found = by_draws(theta, pooled.mean(axis=0), pooled.std(axis=0))
        if self.reach is None:
            return Doubts(found)
        return Doubts(found, self.reach.floor(1, u), self.reach.strangeness(self.standardize, x, u))

    def _by_member(self, x: np.ndarray, draws: int, seed: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """As many draws of every member or more (members, some, dim), and the member that each is to be taken from."""
        padded = np.concatenate([x, np.zeros((self.largest_set - len(x), x.shape[1]))])
        size = FEWEST_TOGETHER
        while size < draws:
            size *= 2
        given = jnp.asarray(padded, jnp.float32), jnp.asarray(len(x))
        each, member = _draw(self.network, self.standardize, self.base, *given, size, draw_key(seed))
        return np.asarray(each, np.float64), np.asarray(member)


@eqx.filter_jit
def _draw(
    network: SetFlowNetwork, standardize: Standardize, base: GaussianBase | None, x: Array, n: Array, draws: int, key: Key
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
