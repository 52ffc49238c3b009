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
from scorefold.posterior.posterior import Made, Posterior
from scorefold.posterior.saved import About
from scorefold.prior import Prior
from scorefold.sample.health import FARTHEST_DRAW
from scorefold.score import gaussian_base, standardize
from scorefold.score.gaussian_base import GaussianBase
from scorefold.score.standardize import Standardize
from scorefold.train.training import History
from scorefold.types import Array, Cloud, Key, draw_key

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

    def draw(self, x: np.ndarray, draws: int, seed: tuple[int, int], options: Options = AS_THE_METHOD_SAYS) -> Drawn:
        """Directly from the flow."""
        largest = self.largest_set
        if len(x) > largest:
            raise ScorefoldError(
                f"expected at most {largest} observations, as NPE was trained; got {len(x)}. Simulate with set_size={len(x)} "
                "or more, or use method='f-npse', 'pf-npse' or 'nle', which take any number."
            )
        key = draw_key(seed)
        padded = np.concatenate([x, np.zeros((largest - len(x), x.shape[1]))])
        size = FEWEST_TOGETHER
        while size < draws:
            size *= 2
        made = _draw(
            self.network, self.standardize, self.base, jnp.asarray(padded, jnp.float32), jnp.asarray(len(x)), size, key
        )
        u = np.asarray(made, np.float64)[:draws]
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


@eqx.filter_jit
def _draw(
    network: SetFlowNetwork, standardize: Standardize, base: GaussianBase | None, x: Array, n: Array, draws: int, key: Key
) -> Cloud:
    """Each draw from a member picked at random; compiled once, whatever n is."""
    members = len(jax.tree.leaves(network)[0])
    key_member, key_z = jax.random.split(key)
    z = jax.random.normal(key_z, (draws, network.shape.dim))

    def of_member(network: SetFlowNetwork) -> Cloud:
        model = SetFlow(network, standardize, base)
        embedded = model.embed(x, n)
        return jax.vmap(lambda z: model.draw(z, embedded))(z)

    with jax.default_matmul_precision("highest"):
        all_u = jax.lax.map(of_member, network)
    return all_u[jax.random.randint(key_member, (draws,), 0, members), jnp.arange(draws)]
