"""Neural posterior estimation: a conditional flow q(u | x_1 … x_n) over sets of n ≤ n_max observations.

Minimised is -E log q(u | X) over cases (u, X) with |X| ~ U{1 … n_max}; every other case is thinned to a random part of its
set, a fair case too. The flow sees the mean embedding of the observations and the one-hot n (`density/set_flow.py`); draws
come from it directly, and there is no prior to be known: it is learned with the rest.

References: "Fast ε-free inference of simulation models with Bayesian conditional density estimation", Papamakarios and
Murray, 2016; "BayesFlow: learning complex stochastic models with invertible neural networks", Radev et al., 2020, for the
sets.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from scorefold import settings
from scorefold.density.flow import check_flow
from scorefold.density.set_flow import Fixed, SetFlowNetwork, SetFlowShape, set_flow_loss, set_flow_validation
from scorefold.methods.method import Method
from scorefold.posterior.amortised import FlowPosterior
from scorefold.posterior.reach import reach_of
from scorefold.score.embedding import Embedding, check_embedding
from scorefold.score.gaussian_base import fit_gaussian_base
from scorefold.score.masked_base import fit_masked_base_to_sets
from scorefold.score.standardize import fit_standardize, standardized
from scorefold.simulation.holes import COPIES, dropped
from scorefold.simulation.simulations import Simulations
from scorefold.train.checkpoint import Checkpoint
from scorefold.train.loop import train
from scorefold.train.steps import Objective
from scorefold.train.training import Training
from scorefold.train.training_set import TrainingSet, training_sets


@settings.spelled
@dataclass(frozen=True)
class NPE(Method):
    """A flow for the posterior of a whole set of observations: draws at once, for at most as many as a set was simulated with.

    Take it for always the same small number of observations, or where draws have to come at once: no sampler runs. Simulate
    with `set_size` at least the number of observations that you are going to have; more of them are refused. For many
    observations take `sf.NLE` or `sf.NPSE`: they learn from single ones, so that a budget gives them more training cases.

    Args:
        flow: "affine" coupling layers (Real NVP, the paper's) or "spline" ones. Default "affine".
        layers: Coupling layers. Default 6.
        width: Units in each hidden layer. Default 64.
        depth: Hidden layers of each part of the network. Default 3.
        base: Whether the flow learns only what a Gaussian fit leaves over, or everything. Default True.
        embedding: For series and images, as in `sf.NPSE`. Default None.
        training: An `sf.Training`; by default 3 members, learning rate 1e-3 and at most 10,000 steps.
        missing: Whether numbers of an observation may be missing (NaN). Training turns it on for simulations that were made
            with `missing=True`. Default False.

    Raises:
        ScorefoldError: A setting is of another type or out of range.

    Example:
        >>> import scorefold as sf
        >>> sf.NPE(flow="spline", layers=4).layers
        4
    """

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
    missing: bool = False
    """Numbers of an observation may be missing; `fit` knows from the simulations."""

    resumes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        settings.check(self, layers=1, width=1, depth=1)
        check_flow(self.flow, self.layers, self.width, self.depth)
        check_embedding(self.embedding)

    def train(
        self, sims: Sequence[Simulations], seeds: Sequence[int], progress: bool, checkpoint: Checkpoint | None = None
    ) -> list["FlowPosterior"]:
        """Train one ensemble for each of the simulations, together."""
        if self.missing != sims[0].missing:
            return replace(self, missing=sims[0].missing).train(sims, seeds, progress, checkpoint)
        if self.missing:
            sims = [dropped(one, seed) for one, seed in zip(sims, seeds, strict=True)]
        first = sims[0]
        shape = self.network_shape(first.prior.dim, first.shape, first.set_size)
        sets = training_sets(sims, first.set_size, self.training, seeds)
        fixed = [self._fixed(cases) for cases in sets]
        objective = Objective(SetFlowNetwork, shape, set_flow_loss, set_flow_validation)
        fitted = train(objective, sets, fixed, self.training, self.base, progress, checkpoint)
        posteriors = []
        for one, cases, (scale, base), (network, history) in zip(sims, sets, fixed, fitted, strict=True):
            rest = history, one.shape, shape.largest_set, reach_of(cases, scale, COPIES if self.missing else 1)
            posteriors.append(FlowPosterior(one.prior, self, network, scale, base, *rest))
        return posteriors

    def _fixed(self, cases: TrainingSet) -> Fixed:
        scale = fit_standardize(cases.observations, self.missing)
        if not self.base:
            return scale, None
        fit = fit_masked_base_to_sets if self.missing else fit_gaussian_base
        return scale, fit(standardized(scale, cases.x), cases.sizes, cases.u)

    def network_shape(self, dim: int, observation: tuple[int, ...], largest_set: int) -> SetFlowShape:
        """The flow that these settings mean for a prior and simulations: its sizes, from which a `SetFlow` is made, trained or
        read from a file.
        """
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
            self.missing,
        )
