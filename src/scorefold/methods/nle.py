"""Neural likelihood estimation: a conditional flow q(x|u), summed over observations.

Flows q_k are trained on single observations by maximum likelihood, each with other cases unseen; for n observations
log p(u | x_1 … x_n) = log N(u | 0, I) + Σ_j mean_k log q_k(x_j|u) + constant, drawn from by tempering, NUTS or
variational inference (`summed.py`). The mean of logarithms is a density but for a factor, below 1 where the flows disagree,
which is left out. Where observations have known inputs c_j, the flows are q_k(x_j | u, c_j). Numbers that are binary or counts
in all simulations have probabilities instead of densities (`density/cells.py`), and what is continuous is given them.

Reference: "Sequential neural likelihood", Papamakarios, Sterratt and Murray, 2019.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from scorefold import settings
from scorefold.density.cells import Lattice
from scorefold.density.flow import check_flow
from scorefold.density.likelihood import Likelihood, LikelihoodShape, likelihood_loss, likelihood_network
from scorefold.density.mean_terms import MeanTerms, blank_terms
from scorefold.density.mode_lines import MOST_MODES, ModePlaces
from scorefold.disk import strict
from scorefold.errors import ScorefoldError
from scorefold.methods.method import Method
from scorefold.methods.refine.around_draws import Job
from scorefold.methods.refine.finish import finished, refined_by_likelihoods
from scorefold.methods.refine.never_worse import reserved
from scorefold.methods.refine.plan import check_plan
from scorefold.methods.refine.refined import RefinedPosterior
from scorefold.methods.refine.shared import Shared, each
from scorefold.methods.refine.told_apart import best_likelihood
from scorefold.methods.train_terms import Learned, before_training, train_terms
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.refining import Refining
from scorefold.posterior.saved import About
from scorefold.posterior.summed import SummedPosterior, check_sampler
from scorefold.simulation.likeness import BINARY, COUNT, look
from scorefold.simulation.simulations import Simulations
from scorefold.train.checkpoint import Checkpoint
from scorefold.train.steps import Objective
from scorefold.train.training import Training

MOST_WHOLE = 64
"""Each has a network of its own. Where there are more, all numbers are taken for continuous."""
LARGEST_WHOLE = 2.0**20
"""Whole numbers in single precision cannot be told from others where they are large; nor need they be."""


@settings.spelled
@dataclass(frozen=True)
class NLE(Method):
    """A flow for the likelihood of one observation, whose logarithms are added up over all of them.

    Take it where an observation is a vector of at most some 32 numbers: there it is what `sf.fit` takes by itself, as from the
    same simulations it is mostly the most accurate for several observations. It is trained once, for any number of them. For
    series, images, and numbers that follow from others, which have no density, take `sf.NPSE`.

    Numbers of an observation that are binary or counts are recognised from the simulations, and get probabilities.

    Args:
        flow: "affine" coupling layers (Real NVP) or "spline" ones. Default "affine".
        layers: Coupling layers. Default 6.
        width: Units in each hidden layer. Default 64.
        depth: Hidden layers of each part of the network. Default 2.
        base: Whether the flow learns only what a straight line with noise leaves over, or everything. Default True.
        straighten: Whether x and θ are first mapped to where the line fits best (`density/straighten.py`). Otherwise each
            number of x is mapped by its own distribution, and θ by the prior. Default True; not with missing numbers.
        tails: Whether that noise may have outliers: its width is then one of a few, drawn anew for every observation, where the
            simulations favour that. Otherwise it is Gaussian. Default True; not with missing numbers.
        changing: Whether the sds and correlations of that noise may change with the parameters, where that makes it Gaussian
            (`density/changing_noise.py`). Default True; with missing numbers, or binary ones and counts, they do not.
        edges: Whether numbers may be seen by their distance from an edge that the parameters move, where a line fits better
            then: a reaction time by what it is above the non-decision time (`density/edges.py`). Default True; not with
            `straighten=False` or missing numbers.
        sampler: "smc", tempered clouds of draws, which find several modes; "nuts", chains; or "vi", a Gaussian by variational
            inference. Default "smc".
        chains: How many chains, with "nuts". Default 8.
        warmup: Steps in which a chain finds its step size and metric, with "nuts". Default 300.
        steps: Steps of the optimiser, with "vi". Default 2,000.
        training: An `sf.Training`; by default 3 members, learning rate 1e-3 and at most 40,000 steps.
        missing: Whether numbers of an observation may be missing (NaN). Training turns it on for simulations that were made
            with `missing=True`. Default False.

    Raises:
        ScorefoldError: A setting is of another type or out of range.

    Example:
        >>> import scorefold as sf
        >>> sf.NLE().sampler
        'smc'
    """

    flow: str = "affine"
    """"affine" coupling layers (Real NVP) or "spline" ones."""
    layers: int = 6
    width: int = 64
    depth: int = 2
    base: bool = True
    """Let the flow learn only what a straight line with noise leaves over."""
    straighten: bool = True
    """Take the maps of x and coordinates of θ in which the line fits best."""
    tails: bool = True
    """The line's noise may be Gaussian but for its scale, as where there are outliers."""
    changing: bool = True
    """The line's noise may change with the parameters."""
    edges: bool = True
    """Numbers may be distances from edges that the parameters move."""
    sampler: str = "smc"
    """Tempered clouds of draws, which find several modes; or "nuts", chains, or "vi", a Gaussian by variational inference."""
    chains: int = 8
    """Of NUTS."""
    warmup: int = 300
    """Steps in which a chain finds its step size and metric."""
    steps: int = 2_000
    """Of variational inference."""
    training: Training = field(default_factory=lambda: Training(members=3, learning_rates=(1e-3,), steps=40_000))
    missing: bool = False
    """Numbers of an observation may be missing; `fit` knows from the simulations."""

    resumes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        settings.check(self, layers=1, width=1, depth=1, warmup=1, steps=1)
        check_flow(self.flow, self.layers, self.width, self.depth)
        check_sampler(self.sampler, self.chains)

    def train(
        self,
        sims: Sequence[Simulations],
        seeds: Sequence[int],
        progress: bool,
        checkpoint: Checkpoint | None = None,
        places: ModePlaces | None = None,
    ) -> list[SummedPosterior]:
        """Train one ensemble for each of the simulations, together; around several modes, where places tell of them."""
        if self.missing != sims[0].missing:
            return replace(self, missing=sims[0].missing).train(sims, seeds, progress, checkpoint, places)
        return train_terms(self, self._learned(sims, places), sims, seeds, progress, checkpoint)

    def line(self, sims: Simulations, seed: int, places: ModePlaces | None = None) -> SummedPosterior:
        """What training would begin with: the straight line, or one for every mode, and networks that add nothing."""
        return before_training(self, self._learned([sims], places), sims, seed)

    def may_have_modes(self, sims: Simulations) -> bool:
        """Whether a line for every mode can be learned: binary numbers and counts have cells around one line."""
        return self.base and not self.missing and lattices_of([sims])[0] is None

    def _learned(self, sims: Sequence[Simulations], places: ModePlaces | None) -> Learned:
        lattices = lattices_of(sims)
        whole = 0 if lattices[0] is None else lattices[0].count
        modes = 0 if places is None else len(places.centre)
        shape = self._shape(sims[0].prior.dim, sims[0].shape, len(sims[0].input_names), whole, modes)
        objective = Objective(likelihood_network, shape, likelihood_loss, likelihood_loss)
        return Learned(objective, Likelihood, lattices, places)

    def refine(
        self, start: Posterior, xs: list[np.ndarray], simulator: Callable[..., Any], sims: Simulations | None, plan: Refining
    ) -> list[RefinedPosterior]:
        """A posterior for each data set, by rounds of likelihoods (`refine/likelihood_rounds.py`)."""
        if self.missing:
            raise ScorefoldError(
                "expected a posterior for complete observations to refine; got one trained with missing=True. Spend the "
                "simulations on sf.simulate instead."
            )
        if not isinstance(start, SummedPosterior):
            raise ScorefoldError(
                f"expected a posterior as NLE trained it to refine; got {type(start).__name__}. Refine the one it came from."
            )
        check_plan(start, simulator, plan, sims, 1)
        if plan.proposal != "gaussian":
            raise ScorefoldError(
                f"expected no proposal to refine a likelihood, which simulates at draws; got {plan.proposal!r}. Leave it out."
            )
        method = replace(self, training=plan.training or self.training)

        def one(x: np.ndarray, plan: Refining, shared: Shared) -> tuple[RefinedPosterior, Shared]:
            calls = reserved(plan, 1)
            job = Job(start, x, simulator, plan._replace(budget=plan.budget - calls), method)
            refined, made = refined_by_likelihoods(job, [] if sims is None else [sims], shared)
            return finished(start, [("a likelihood", refined)], *best_likelihood(start, refined, job, calls)), made

        return each(xs, plan, one)

    def _shape(self, dim: int, observation: tuple[int, ...], inputs: int, whole: int, modes: int) -> LikelihoodShape:
        tails = self.tails and self.base and not (self.missing or whole or modes)
        sizes = (self.width, self.depth, self.layers, self.flow, inputs, whole, tails, self.missing)
        return LikelihoodShape(modes + dim, math.prod(observation), *sizes)

    def skeleton(self, about: About) -> MeanTerms:
        """The terms with shapes and types in place of arrays."""
        members = self.training.members
        inputs = strict.whole(about.counts["inputs"], "the number of inputs", 0, math.prod(about.shape) - 1)
        outcomes = math.prod(about.shape) - inputs
        whole = strict.whole(about.counts["whole"], "the number of binary numbers and counts", 0, min(outcomes, MOST_WHOLE))
        modes = strict.whole(about.counts["modes"], "the number of modes", 0, MOST_MODES)
        shape = self._shape(about.dim, about.shape, inputs, whole, modes)
        layers = whole + (self.layers if outcomes - whole > 1 else outcomes - whole)
        about.fits(members * layers * self.depth * self.width**2, f"{members} flows of {layers} layers")
        return blank_terms(likelihood_network, shape, self, Likelihood, modes)


def local_likelihood(plan: Refining) -> NLE:
    """What refinement fits within a region: a short training, as a line is nearly the truth there."""
    return NLE(tails=False, training=plan.training or Training(members=3, learning_rates=(1e-3,), steps=3_000))


def lattices_of(sims: Sequence[Simulations]) -> list[Lattice | None]:
    """Which numbers of an observation are binary or counts in all of the simulations, and their values in each of these.

    None where none are, as `simulation/likeness.py` sees them. Where numbers may be missing, all are taken for continuous.
    """
    if sims[0].missing:
        return [None] * len(sims)
    looks = [look(one) for one in sims]
    outcomes = len(looks[0].kind) - len(sims[0].input_names)
    low, high = np.stack([one.low for one in looks]), np.stack([one.high for one in looks])
    kinds = np.stack([one.kind for one in looks])
    small = np.maximum(np.abs(low), np.abs(high)) < LARGEST_WHOLE
    whole = (((kinds == BINARY) | (kinds == COUNT)) & small).all(axis=0)[:outcomes]
    places = np.flatnonzero(whole)
    if not 0 < len(places) <= MOST_WHOLE:
        return [None] * len(sims)
    order = np.concatenate([places, np.flatnonzero(~whole)])
    step = np.where(kinds == BINARY, high - low, 1.0)
    return [_lattice(order, *(part[i, places] for part in (low, step, high))) for i in range(len(sims))]


def _lattice(order: np.ndarray, *values: np.ndarray) -> Lattice:
    return Lattice(jnp.asarray(order, jnp.int32), *(jnp.asarray(part, jnp.float32) for part in values))
