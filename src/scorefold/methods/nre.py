"""Neural ratio estimation: a classifier's log p(x|u) / p(x), summed over observations.

log p(u | x_1 … x_n) = log N(u | 0, I) + Σ_j log r(x_j, u) + constant, drawn from by tempering, NUTS or
variational inference (`summed.py`). The classifier is that of `density/ratio.py`.

Reference: "Likelihood-free MCMC with amortized approximate ratio estimators", Hermans, Begy and Louppe, 2020.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from scorefold import settings
from scorefold.density.mean_terms import MeanTerms, blank_terms
from scorefold.density.ratio import Ratio, RatioNetwork, RatioShape, ratio_loss
from scorefold.errors import ScorefoldError
from scorefold.methods.method import Method
from scorefold.methods.train_terms import Learned, train_terms
from scorefold.posterior.saved import About
from scorefold.posterior.summed import SummedPosterior, check_sampler
from scorefold.score.embedding import Embedding, check_embedding
from scorefold.score.resmlp import DEEPEST, WIDEST
from scorefold.simulation.simulations import Simulations
from scorefold.train.checkpoint import Checkpoint
from scorefold.train.steps import Objective
from scorefold.train.training import Training


@settings.spelled
@dataclass(frozen=True)
class NRE(Method):
    """A classifier for the ratio of likelihood to evidence of one observation, whose logarithms are added up over all of them.

    Take it for series and images (`embedding`) as a second opinion beside `sf.NPSE`, or to check `sf.NLE` by a method that
    makes other errors. It is trained once, for any number of observations.

    Args:
        width: Units in each hidden layer. Default 64.
        depth: Hidden layers. Default 3.
        base: Whether the classifier learns only what the ratio of a straight line with Gaussian noise leaves over, or
            everything. Default True.
        straighten: Whether x and θ are first mapped to where that line fits best (`density/straighten.py`). Otherwise each
            number of x is mapped by its own distribution, and θ by the prior. Default True; not with missing numbers.
        embedding: For series and images, as in `sf.NPSE`. Default None.
        sampler: "smc", tempered clouds of draws, which find several modes; "nuts", chains; or "vi", a Gaussian by variational
            inference. Default "smc".
        chains: How many chains, with "nuts". Default 8.
        warmup: Steps in which a chain finds its step size and metric, with "nuts". Default 300.
        steps: Steps of the optimiser, with "vi". Default 2,000.
        training: An `sf.Training`; by default 2 members and learning rate 1e-3.
        missing: Whether numbers of an observation may be missing (NaN). Training turns it on for simulations that were made
            with `missing=True`. Default False.

    Raises:
        ScorefoldError: A setting is of another type or out of range.

    Example:
        >>> import scorefold as sf
        >>> sf.NRE(sampler="vi").steps
        2000
    """

    width: int = 64
    depth: int = 3
    base: bool = True
    """Let the classifier learn only what the ratio of a straight line with Gaussian noise leaves over; off: the paper's."""
    straighten: bool = True
    """Take the maps of x and coordinates of θ in which that line fits best."""
    embedding: str | Embedding | None = None
    """For series and images, as in `NPSE`."""
    sampler: str = "smc"
    """Tempered clouds of draws, which find several modes; or "nuts", chains, or "vi", a Gaussian by variational inference."""
    chains: int = 8
    """Of NUTS."""
    warmup: int = 300
    """Steps in which a chain finds its step size and metric."""
    steps: int = 2_000
    """Of variational inference."""
    training: Training = field(default_factory=lambda: Training(members=2, learning_rates=(1e-3,)))
    missing: bool = False
    """Numbers of an observation may be missing; `fit` knows from the simulations."""

    resumes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        settings.check(self, width=1, depth=1, warmup=1, steps=1)
        if self.width > WIDEST or self.depth > DEEPEST:
            raise ScorefoldError(f"expected width up to {WIDEST:,} and depth up to {DEEPEST}; got {self}")
        check_sampler(self.sampler, self.chains)
        check_embedding(self.embedding)

    def train(
        self, sims: Sequence[Simulations], seeds: Sequence[int], progress: bool, checkpoint: Checkpoint | None = None
    ) -> list[SummedPosterior]:
        """Train one ensemble for each of the simulations, together."""
        if self.missing != sims[0].missing:
            return replace(self, missing=sims[0].missing).train(sims, seeds, progress, checkpoint)
        shape = self._shape(sims[0].prior.dim, sims[0].shape)
        objective = Objective(RatioNetwork, shape, ratio_loss, ratio_loss)
        return train_terms(self, Learned(objective, Ratio), sims, seeds, progress, checkpoint)

    def _shape(self, dim: int, observation: tuple[int, ...]) -> RatioShape:
        sizes = (self.width, self.depth, self.base, observation, self.embedding, self.missing)
        return RatioShape(dim, math.prod(observation), *sizes)

    def skeleton(self, about: About) -> MeanTerms:
        """The terms with shapes and types in place of arrays."""
        shape, members = self._shape(about.dim, about.shape), self.training.members
        about.fits(members * self.depth * self.width**2, f"{members} classifiers of width {self.width}")
        return blank_terms(RatioNetwork, shape, self, Ratio)
