"""Neural posterior score estimation: F-NPSE, PF-NPSE and NPSE are one method with sets of 1, m and n_max observations.

A score network s(u, t, X) is trained on cases (u, X) with |X| ~ U{1 … m}. For n observations, cut into k = ⌈n/m⌉ sets,
p(u | x_1 … x_n) ∝ p(u)^{1-k} ∏_j p(u | X_j), and draws come from annealing along the composed scores ("Compositional score
modeling for simulation-based inference", Geffner, Papamakarios and Mnih, 2023). m = 1 is F-NPSE; with k = 1 there is nothing
to compose, and if that is demanded it is NPSE.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from scorefold import settings
from scorefold.compose import Rule
from scorefold.errors import ScorefoldError
from scorefold.methods.method import Method
from scorefold.methods.nle import local_likelihood
from scorefold.methods.refine.refine import refine
from scorefold.noise import levels
from scorefold.posterior import rule_and_sampler as pairing
from scorefold.posterior.composed import ComposedPosterior
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.reach import reach_of
from scorefold.posterior.refining import Refining
from scorefold.progress import step
from scorefold.sample import Sampler
from scorefold.score.correction import fit_correction
from scorefold.score.denoising import score_objective
from scorefold.score.embedding import Embedding, check_embedding
from scorefold.score.ensemble import ScoreEnsemble
from scorefold.score.fixed import fit_fixed
from scorefold.score.network import ScoreModel, Shape
from scorefold.score.resmlp import DEEPEST, WIDEST
from scorefold.score.set_size import fit_partition
from scorefold.simulation.holes import COPIES, dropped
from scorefold.simulation.simulations import Simulations
from scorefold.train.checkpoint import Checkpoint
from scorefold.train.loop import train
from scorefold.train.training import Training
from scorefold.train.training_set import training_sets

MOST_LEVELS = 100_000


@settings.spelled
@dataclass(frozen=True)
class NPSE(Method):
    """Scores of the posterior, composed over sets of observations: for series, images, and where no likelihood can be learned.

    Take it for series and images (`embedding`), for a prior that is known by draws only, and where many simulations fail. For
    one observation, or always the same few, take "npse", which composes nothing. Where an observation is a handful of numbers,
    `sf.NLE` is mostly the more accurate. It is trained once, for any number of observations. Its errors add up over them:
    `draws.trust` says how far, and `posterior.refine` helps.

    `sf.fit(sims, "f-npse")` is `NPSE(set_size=1)`, "pf-npse" is `NPSE()` and "npse" is `NPSE(composes=False)`. With other
    settings give an object: `sf.fit(sims, sf.NPSE(width=128))`.

    Args:
        set_size: m, the largest number of observations in one set. Default None: as simulated. Larger sets are cut.
        composes: Whether sets are composed. If not, all observations are one set (NPSE), and there are at most m of them.
        width: Units in each hidden layer, an even number. Default 64.
        depth: Hidden layers of each part of the network. Default 3.
        base: Whether the network learns only what a Gaussian fit leaves over, or everything, as in the paper. Default True.
        correction: Whether the trained score is corrected by what unseen cases say of its size and its mean. Default True.
        embedding: For series and images: "convolution", "attention", an object of `sf.embeddings`, or a function (shape, key)
            that makes an Equinox module from one standardised observation to a vector. Default None: vectors as they are.
        conservative: Whether the score is the gradient of a scalar network, as the Metropolis sampler needs. Default False.
        schedule: Of the noise levels: "log-snr", "cosine" or "linear-beta". Default "log-snr".
        T: How many noise levels the network is trained with. Default 400.
        training: An `sf.Training`. Default: with its own defaults, 5 members and at most 16,000 steps.
        rule: How sets are composed, a name or an object of `sf.rules`. Default None: diffused, from 1,000 sets on damped.
        sampler: How draws are made, a name or an object of `sf.samplers`. Default None: dpm for one set, where
            reversing the diffusion is exact, and self-tuned for more.
        missing: Whether numbers of an observation may be missing (NaN). Training turns it on for simulations that were made
            with `missing=True`. Default False.

    Raises:
        ScorefoldError: A setting is of another type or out of range, or rule and sampler do not go together.

    Example:
        >>> import scorefold as sf
        >>> sf.NPSE(width=128, rule="gauss").rule
        'gauss'
    """

    set_size: int | None = None
    """m, the largest number of observations in one set; by default as simulated. Simulations in larger sets are cut."""
    composes: bool = True
    """Off: all observations are one set (NPSE), and there can be no more of them than m."""
    width: int = 64
    depth: int = 3
    base: bool = True
    """Let the network learn only what a Gaussian fit leaves over; off: the paper's network."""
    correction: bool = True
    """Correct the trained score by what unseen cases say of its size and its mean."""
    embedding: str | Embedding | None = None
    """For series and images: "convolution", "attention", one of these configured, or a function (shape, key) that makes an
    Equinox module which maps one standardised observation to a vector."""
    conservative: bool = False
    """The score is the gradient of a scalar network, as the Metropolis sampler needs."""
    schedule: str = "log-snr"
    T: int = 400
    training: Training = field(default_factory=Training)
    rule: str | Rule | None = None
    """By default diffused, from 1,000 sets on damped."""
    sampler: str | Sampler | None = None
    """By default dpm for one set (where reversing the diffusion is exact), self-tuned for more."""
    missing: bool = False
    """Numbers of an observation may be missing; `fit` knows from the simulations."""

    resumes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        settings.check(self, set_size=1, width=2, depth=1, T=2)
        if self.width % 2 or self.width > WIDEST or self.depth > DEEPEST or self.T > MOST_LEVELS:
            raise ScorefoldError(
                f"expected an even width up to {WIDEST:,}, depth up to {DEEPEST} and T up to {MOST_LEVELS:,}; got {self}"
            )
        levels(self.schedule, self.T)
        check_embedding(self.embedding)
        pairing.check(self.rule, self.sampler, self.T)

    def train(
        self, sims: Sequence[Simulations], seeds: Sequence[int], progress: bool, checkpoint: Checkpoint | None = None
    ) -> list[ComposedPosterior]:
        """Train one ensemble of score networks for each of the simulations, all together.

        Simulations in larger sets than `set_size` are cut. After the networks, the correction by unseen cases is fitted, and it
        is found out which sets do best for how many observations. Arguments and what is raised are those of `Method.train`.
        """
        if self.missing != sims[0].missing:
            return replace(self, missing=sims[0].missing).train(sims, seeds, progress, checkpoint)
        if self.missing:
            sims = [dropped(one, seed) for one, seed in zip(sims, seeds, strict=True)]
        if self.set_size is None and sims[0].set_size == 1 and not self.composes:
            raise ScorefoldError(
                "expected simulations in sets for NPSE, which takes all observations at once; got set_size = 1. Simulate with "
                "sf.simulate(…, set_size=n_max), or use method='f-npse'."
            )
        first = sims[0]
        largest = min(self.set_size or first.set_size, first.set_size)
        shape = self.network_shape(first.prior.dim, first.prior.has_density, first.shape, largest)
        sets = training_sets(sims, largest, self.training, seeds, prior_too=True)
        smallest = int(first.prior.has_density)
        fixed = [fit_fixed(cases, self.schedule, self.T, self.base, smallest, self.missing) for cases in sets]
        fitted = train(score_objective(shape), sets, fixed, self.training, self.base, progress, checkpoint)
        trained = []
        for one, cases, known, (network, history) in zip(sims, sets, fixed, fitted, strict=True):
            model, correction = ScoreModel(network, known.standardize, known.base), None
            if self.correction:
                with step("correcting", progress):
                    correction = fit_correction(model, cases, self.training.members, known.levels)
            ensemble = ScoreEnsemble(network, known.standardize, known.base, correction)
            chooses = shape.largest_set > 1 and self.composes
            table = fit_partition(ensemble, cases, self.training.members, known.levels) if chooses else {}
            reach = reach_of(cases, known.standardize, COPIES if self.missing else 1)
            rest = shape.largest_set, float(np.sqrt(known.levels.noise[0])), reach
            trained.append(ComposedPosterior(one.prior, self, ensemble, history, table, one.shape, *rest))
        return trained

    def refine(
        self, start: Posterior, xs: list[np.ndarray], simulator: Callable[..., Any], sims: Simulations | None, plan: Refining
    ) -> Sequence[Posterior]:
        """A posterior of composed scores for each data set, from simulations in a region around its draws;
        `methods/refine/refine.py` has the rounds. Arguments are those of `Method.refine`.
        """
        if self.missing:
            raise ScorefoldError(
                "expected a posterior for complete observations to refine; got one trained with missing=True. Spend the "
                "simulations on sf.simulate instead."
            )
        if not isinstance(start, ComposedPosterior):
            raise ScorefoldError(
                f"expected a posterior of composed scores to refine; got {type(start).__name__}. Refine the one it came from."
            )
        return refine(start, xs, simulator, sims, plan, local_likelihood(plan))

    def network_shape(self, dim: int, has_density: bool, observation: tuple[int, ...], largest_set: int) -> Shape:
        """The network that these settings mean.

        Args:
            dim: How many parameters there are.
            has_density: Whether the prior is known by more than draws; otherwise the network learns its score too.
            observation: The shape of one observation.
            largest_set: The most observations in a set.

        Returns:
            Its shape, from which a `ScoreNetwork` is made.
        """
        return Shape(
            dim=dim,
            x=math.prod(observation),
            largest_set=largest_set,
            width=self.width,
            depth=self.depth,
            conservative=self.conservative,
            base=self.base,
            learns_prior=not has_density,
            observation=observation,
            embedding=self.embedding,
            missing=self.missing,
        )
