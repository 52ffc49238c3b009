"""Neural posterior estimation: a conditional flow q(u | x_1 … x_n) over sets of n ≤ n_max observations.

Minimised is -E log q(u | X) over cases (u, X) with |X| ~ U{1 … n_max}; every other case is thinned to a random part of its
set, a fair case too. The flow sees the mean embedding of the observations and the one-hot n (`networks/set_flow.py`); draws
come from it directly, and there is no prior to be known: it is learned with the rest.

References: "Fast ε-free inference of simulation models with Bayesian conditional density estimation", Papamakarios and
Murray, 2016; "BayesFlow: learning complex stochastic models with invertible neural networks", Radev et al., 2020, for the
sets.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold import settings
from scorefold.density.flow import check_flow
from scorefold.density.set_flow import SetFlow, SetFlowNetwork, SetFlowShape
from scorefold.errors import Diverged, ScorefoldError, UntrustworthyDraws
from scorefold.methods.method import Method
from scorefold.posterior.draws import AS_THE_METHOD_SAYS, Drawn, Options
from scorefold.posterior.posterior import Made, Posterior
from scorefold.posterior.saved import About
from scorefold.prior import Prior
from scorefold.sample.health import FARTHEST_DRAW
from scorefold.score import gaussian_base, standardize
from scorefold.score.embedding import Embedding, check_embedding
from scorefold.score.gaussian_base import GaussianBase, fit_gaussian_base
from scorefold.score.standardize import Standardize, fit_standardize, standardized
from scorefold.simulation.simulations import Simulations
from scorefold.train.checkpoint import Checkpoint
from scorefold.train.loop import Objective, train
from scorefold.train.training import History, Training
from scorefold.train.training_set import Cases, TrainingSet, thinned, training_sets
from scorefold.types import Array, Cloud, Key, Scalar, draw_key

SMALLEST = 256
"""Draws made together, doubled until they are as many as asked for."""


class FlowInfo(NamedTuple):
    """A flow has no run to go wrong; its draws can only be far from where it was trained."""

    farthest: float
    """The largest |u| of the draws, in prior sd."""
    converged: bool
    diverged: bool
    """Draws are beyond 15 prior sd."""


@dataclass(frozen=True)
class NPE(Method):
    """A configured method."""

    flow: str = "affine"
    """"affine" coupling layers (Real NVP, the paper's) or "spline" ones."""
    layers: int = 6
    width: int = 64
    depth: int = 3
    base: bool = True
    """Let the flow learn only what a Gaussian fit leaves over; off: the paper's network."""
    embedding: str | Embedding | None = None
    """For series and images, as in `NPSE`."""
    training: Training = field(default_factory=lambda: Training(members=3, learning_rates=(1e-3,), steps=10_000))

    resumes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        settings.check(self, layers=1, width=1, depth=1)
        check_flow(self.flow, self.layers, self.width, self.depth)
        check_embedding(self.embedding)

    def train(
        self, sims: Sequence[Simulations], seeds: Sequence[int], progress: bool, checkpoint: Checkpoint | None = None
    ) -> list["FlowPosterior"]:
        """Train one ensemble for each of the simulations, together."""
        first = sims[0]
        shape = self.network_shape(first.prior.dim, first.shape, first.set_size)
        sets = training_sets(sims, first.set_size, self.training, seeds)
        fixed = [self._fixed(cases) for cases in sets]
        objective = Objective(SetFlowNetwork, shape, set_flow_loss, set_flow_loss)
        fitted = train(objective, sets, fixed, self.training, self.base, progress, checkpoint)
        posteriors = []
        for one, (scale, base), (network, history) in zip(sims, fixed, fitted, strict=True):
            posteriors.append(FlowPosterior(one.prior, self, network, scale, base, history, one.shape, shape.largest_set))
        return posteriors

    def _fixed(self, cases: TrainingSet) -> tuple[Standardize, GaussianBase | None]:
        scale = fit_standardize(cases.observations)
        return scale, fit_gaussian_base(standardized(scale, cases.x), cases.sizes, cases.u) if self.base else None

    def network_shape(self, dim: int, observation: tuple[int, ...], largest_set: int) -> SetFlowShape:
        """The network that these settings mean for a prior and simulations."""
        return SetFlowShape(
            dim,
            math.prod(observation),
            largest_set,
            self.width,
            self.depth,
            self.layers,
            self.flow,
            observation,
            self.embedding,
        )


def set_flow_loss(network: SetFlowNetwork, fixed: tuple[Standardize, GaussianBase | None], cases: Cases, key: Key) -> Scalar:
    """-log q(u | X), averaged over cases, half of them thinned."""
    model, cases = SetFlow(network, *fixed), thinned(cases, key, learns_prior=False)
    return -jnp.mean(jax.vmap(lambda u, x, size: model.log_density(u, model.embed(x, size)))(*cases))


@dataclass(frozen=True)
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
        size = SMALLEST
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
