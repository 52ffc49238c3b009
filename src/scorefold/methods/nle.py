"""Neural likelihood estimation: a conditional flow q(x|u), summed over observations.

The flow is trained on single observations by maximum likelihood; for n of them log p(u | x_1 … x_n) = log N(u | 0, I) + Σ_j
log q(x_j|u) + constant, drawn from by NUTS or variational inference (`summed.py`).

Reference: "Sequential neural likelihood", Papamakarios, Sterratt and Murray, 2019.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import equinox as eqx
import jax.numpy as jnp

from scorefold.errors import ScorefoldError
from scorefold.methods.method import Method
from scorefold.methods.summed import SummedPosterior, check_sampler, mean_of_members, single_observations
from scorefold.networks.flow import KINDS, ConditionalFlow
from scorefold.networks.likelihood import Likelihood, LikelihoodShape, likelihood_loss, likelihood_network
from scorefold.networks.line import Line, fit_line
from scorefold.networks.standardize import Standardize, fit_standardize, standardized
from scorefold.simulation.cases import Simulations
from scorefold.train.fit import Training, held_out
from scorefold.train.minimise import minimise
from scorefold.types import Observation, Scalar, Theta


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
        check_sampler(self.sampler, self.chains)
        if self.flow not in KINDS or min(self.layers, self.width, self.depth, self.warmup, self.steps) < 1:
            raise ScorefoldError(f"expected flow {' or '.join(KINDS)} and sizes ≥ 1; got {self}")

    def train(self, sims: Sequence[Simulations], seeds: Sequence[int], progress: bool) -> list[SummedPosterior]:
        """One after the other."""
        return [self._train(one, seed, progress) for one, seed in zip(sims, seeds, strict=True)]

    def _train(self, sims: Simulations, seed: int, progress: bool) -> SummedPosterior:
        u, x, origin = single_observations(sims, "NLE")
        standardize = fit_standardize(x)
        line = fit_line(standardized(standardize, x), u) if self.base else None
        shape = LikelihoodShape(sims.prior.dim, x.shape[1], self.width, self.depth, self.layers, self.flow)
        cases = (jnp.asarray(u, jnp.float32), jnp.asarray(x, jnp.float32))
        unseen = held_out(origin, self.training.members, seed)
        network, history = minimise(
            likelihood_network, shape, likelihood_loss, (standardize, line), cases, unseen, self.training, seed, progress
        )
        return SummedPosterior(sims.prior, self, LikelihoodTerms(network, standardize, line), history, sims.shape)


class LikelihoodTerms(eqx.Module):
    """The members' mean log likelihood."""

    network: ConditionalFlow
    standardize: Standardize
    line: Line | None

    def prepare(self, x: Observation) -> Observation:
        """What of one observation does not depend on u."""
        return self.standardize(x)

    def term(self, u: Theta, x: Observation) -> Scalar:
        """log q(x|u) up to a constant."""
        return mean_of_members(lambda network: Likelihood(network, self.standardize, self.line).term(u, x), self.network)
