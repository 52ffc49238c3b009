"""Neural likelihood estimation: a conditional flow q(x|u), summed over observations.

The flow is trained on single observations by maximum likelihood; for n of them log p(u | x_1 … x_n) = log N(u | 0, I) + Σ_j
log q(x_j|u) + constant, drawn from by NUTS or variational inference (`summed.py`).

Reference: "Sequential neural likelihood", Papamakarios, Sterratt and Murray, 2019.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import jax.numpy as jnp

from scorefold import settings
from scorefold.methods import written
from scorefold.methods.method import Method
from scorefold.methods.summed import MeanTerms, SummedPosterior, check_sampler, single_observations, skeleton
from scorefold.networks.flow import check_flow
from scorefold.networks.likelihood import Likelihood, LikelihoodShape, likelihood_loss, likelihood_network
from scorefold.networks.line import fit_line
from scorefold.networks.standardize import fit_standardize, standardized
from scorefold.posterior import Frame
from scorefold.simulation.cases import Simulations
from scorefold.train.fit import Training, held_out
from scorefold.train.minimise import minimise


@dataclass(frozen=True)
class NLE(Method):
    """A configured method."""

    flow: str = "affine"
    """"affine" coupling layers (Real NVP) or "spline" ones."""
    layers: int = 6
    width: int = 64
    depth: int = 2
    base: bool = True
    """Let the flow learn only what a straight line with Gaussian noise leaves over."""
    sampler: str = "nuts"
    """Or "vi", a Gaussian by variational inference."""
    chains: int = 8
    warmup: int = 300
    """Steps in which a chain finds its step size and metric."""
    steps: int = 2_000
    """Of variational inference."""
    training: Training = field(default_factory=lambda: Training(members=1, learning_rates=(2e-3,)))

    def __post_init__(self) -> None:
        settings.check(self, layers=1, width=1, depth=1, warmup=1, steps=1)
        check_flow(self.flow, self.layers, self.width, self.depth)
        check_sampler(self.sampler, self.chains)

    def train(self, sims: Sequence[Simulations], seeds: Sequence[int], progress: bool) -> list[SummedPosterior]:
        """One after the other."""
        return [self._train(one, seed, progress) for one, seed in zip(sims, seeds, strict=True)]

    def _train(self, sims: Simulations, seed: int, progress: bool) -> SummedPosterior:
        u, x, origin = single_observations(sims, "NLE")
        scale = fit_standardize(x)
        fitted = fit_line(standardized(scale, x), u) if self.base else None
        shape = self._shape(sims.prior.dim, x.shape[1])
        cases = (jnp.asarray(u, jnp.float32), jnp.asarray(x, jnp.float32))
        unseen = held_out(origin, self.training.members, seed)
        network, history = minimise(
            likelihood_network, shape, likelihood_loss, (scale, fitted), cases, unseen, self.training, seed, progress
        )
        return SummedPosterior(sims.prior, self, MeanTerms(network, scale, fitted, Likelihood), history, sims.shape)

    def _shape(self, dim: int, features: int) -> LikelihoodShape:
        return LikelihoodShape(dim, features, self.width, self.depth, self.layers, self.flow)

    def skeleton(self, frame: Frame) -> MeanTerms:
        """The terms with shapes and types in place of arrays."""
        features, members = math.prod(frame.shape), self.training.members
        fewest = members * self.layers * self.depth * self.width**2
        written.fits(fewest, frame.numbers, f"{members} flows of {self.layers} layers")
        shape = self._shape(frame.dim, features)
        return skeleton(likelihood_network, shape, members, self.base, Likelihood)
