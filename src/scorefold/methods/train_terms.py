"""Training of NLE and NRE: an ensemble of terms log p(x|u) on single observations."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from scorefold.density import line
from scorefold.density.cells import Lattice
from scorefold.density.coordinates import at, identity
from scorefold.density.likelihood import Likelihood, seen_cases
from scorefold.density.line import Line
from scorefold.density.masked_line import MaskedLine, fit_masked_line
from scorefold.density.mean_terms import MeanTerms
from scorefold.density.ratio import Ratio, seen_pairs
from scorefold.density.straighten import Straightened, straighten
from scorefold.errors import ScorefoldError
from scorefold.posterior.reach import reach_of
from scorefold.posterior.summed import SummedPosterior
from scorefold.prior import Prior
from scorefold.score.standardize import fit_standardize, standardized
from scorefold.simulation.holes import COPIES, dropped
from scorefold.simulation.screening import say_likelihood_alone
from scorefold.simulation.simulations import Simulations
from scorefold.train.checkpoint import Checkpoint
from scorefold.train.loop import train
from scorefold.train.steps import Objective
from scorefold.train.training_set import TrainingSet, training_sets


class Learned(NamedTuple):
    """What is learned of every observation."""

    objective: Objective
    model: type[Likelihood] | type[Ratio]
    lattices: Sequence[Lattice | None] = ()
    """Of a likelihood: those of binary numbers and counts in each of the simulations."""


def train_terms(
    method: Any,
    learned: Learned,
    sims: Sequence[Simulations],
    seeds: Sequence[int],
    progress: bool,
    checkpoint: Checkpoint | None,
) -> list[SummedPosterior]:
    """One ensemble for each of the simulations, trained on single observations; a prior without a density is refused."""
    if not all(one.prior.has_density for one in sims):
        raise ScorefoldError(
            f"expected a prior with a known density for {type(method).__name__}, which multiplies it with the likelihood; got "
            "one from draws. Write the prior down as a distribution, or use method='npe' or 'f-npse', which learn it."
        )
    for one in sims:
        say_likelihood_alone(one, type(method).__name__)
    # A likelihood is of the outcomes given the inputs; a ratio is the same whatever of an observation is an input.
    inputs = len(sims[0].input_names) if learned.model is Likelihood else 0
    if method.missing:
        sims = [dropped(one, seed) for one, seed in zip(sims, seeds, strict=True)]
    sets, fixed = training_sets(sims, 1, method.training, seeds), []
    lattices = learned.lattices or [None] * len(sims)
    for one, cases, lattice in zip(sims, sets, lattices, strict=True):
        scale, places = _seen(one.prior, cases, inputs, method)
        v = np.asarray(at(places, jnp.asarray(cases.u, jnp.float32)))
        fitted = _line(standardized(scale, cases.x[:, 0]), v, inputs, method, lattice) if method.base else None
        fixed.append((places, scale, fitted) if lattice is None else (places, scale, fitted, lattice))
    seen = [_as_seen(learned, *one) for one in zip(fixed, sets, strict=True)]
    trained = train(learned.objective, seen, fixed, method.training, method.base, progress, checkpoint)
    posteriors = []
    for one, cases, (places, scale, fitted, *_), lattice, made in zip(sims, sets, fixed, lattices, trained, strict=True):
        terms = MeanTerms(made[0], places, scale, fitted, learned.model, lattice)
        reach, whole = reach_of(cases, scale, COPIES if method.missing else 1), 0 if lattice is None else lattice.count
        posteriors.append(SummedPosterior(one.prior, method, terms, made[1], one.shape, inputs, whole, reach))
    return posteriors


def _as_seen(learned: Learned, fixed: tuple, cases: TrainingSet) -> TrainingSet:
    """The cases after what maps, coordinates and a likelihood's line do to them, once and not at every step."""
    seen = partial(seen_cases, learned.objective.shape, fixed) if learned.model is Likelihood else partial(seen_pairs, fixed)
    stream = cases.stream
    if stream is not None:
        take = stream.take
        stream = replace(stream, take=lambda rows: seen(take(rows)))
    return cases._replace(cases=seen(cases.cases), stream=stream)


def _seen(prior: Prior, cases: TrainingSet, inputs: int, method: Any) -> Straightened:
    """How members see observations and parameters; as their marginals say and as u where numbers may be missing."""
    if method.straighten and not method.missing:
        return straighten(prior, cases.x[:, 0], cases.u, inputs)
    return Straightened(fit_standardize(cases.observations, method.missing), identity(prior.dim) if method.straighten else None)


def _line(x: np.ndarray, u: np.ndarray, inputs: int, method: Any, lattice: Lattice | None) -> Line | MaskedLine:
    """Of the outcomes, binary numbers and counts first, given u and the inputs."""
    features = x.shape[1] // (2 if method.missing else 1)
    outcomes = features - inputs
    given = np.concatenate([u, x[:, outcomes:features]], axis=1)
    if method.missing:
        holes = x[:, features : features + outcomes]
        return fit_masked_line(np.concatenate([x[:, :outcomes], holes], axis=1), given)
    order = np.arange(outcomes) if lattice is None else np.asarray(lattice.order)
    tails = lattice is None and getattr(method, "tails", False)
    return line.fit_line(x[:, order], given, tails, getattr(method, "changing", False))
