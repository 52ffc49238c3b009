"""Training of NLE and NRE: an ensemble of terms log p(x|u) on single observations."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.density import edges, line
from scorefold.density.cells import Lattice
from scorefold.density.coordinates import at, identity
from scorefold.density.edges import Edges
from scorefold.density.likelihood import Likelihood, seen_cases
from scorefold.density.line import Line
from scorefold.density.masked_line import MaskedLine, fit_masked_line
from scorefold.density.mean_terms import MeanTerms
from scorefold.density.mode_lines import ModePlaces, fit_mode_lines
from scorefold.density.ratio import Ratio, seen_pairs
from scorefold.density.straighten import Allowed, Straightened, straighten, straighten_in_modes
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
from scorefold.train.training import History
from scorefold.train.training_set import TrainingSet, training_sets


class Learned(NamedTuple):
    """What is learned of every observation."""

    objective: Objective
    model: type[Likelihood] | type[Ratio]
    lattices: Sequence[Lattice | None] = ()
    """Of a likelihood: those of binary numbers and counts in each of the simulations."""
    places: ModePlaces | None = None
    """Of a likelihood: where several modes are, each with a line of its own."""


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
    if method.missing:
        sims = [dropped(one, seed) for one, seed in zip(sims, seeds, strict=True)]
    sets = training_sets(sims, 1, method.training, seeds)
    lattices = learned.lattices or [None] * len(sims)
    fixed = [_fixed(method, learned, *one) for one in zip(sims, sets, lattices, strict=True)]
    seen = [_as_seen(learned, *one) for one in zip(fixed, sets, strict=True)]
    trained = train(learned.objective, seen, fixed, method.training, method.base, progress, checkpoint)
    return [_posterior(method, learned, *one) for one in zip(sims, sets, fixed, trained, strict=True)]


def before_training(method: Any, learned: Learned, sims: Simulations, seed: int) -> SummedPosterior:
    """The posterior before training: networks of zeros, so that nothing but the line is left."""
    cases = training_sets([sims], 1, method.training, [seed])[0]
    members, objective = method.training.members, learned.objective
    keys = jax.random.split(jax.random.key(0), members)
    like = eqx.filter_eval_shape(jax.vmap(lambda key: objective.make(objective.shape, key=key)), keys)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
    none = np.zeros((members, 1), np.float32)
    history = History(none[:, :0], none, np.zeros(members, int), 1, method.training.learning_rates[0], {}, 0)
    fixed = _fixed(method, learned, sims, cases, (learned.lattices or [None])[0])
    return _posterior(method, learned, sims, cases, fixed, (nothing, history))


def _fixed(method: Any, learned: Learned, sims: Simulations, cases: TrainingSet, lattice: Lattice | None) -> tuple:
    """Coordinates, standardisation, line and, where some numbers are binary or counts, their values."""
    inputs = _inputs(learned, sims)
    if learned.places is not None:
        return _fixed_in_modes(method, learned.places, cases, inputs)
    seen = _seen(sims.prior, cases, inputs, method, lattice)
    scale, places = seen.standardize, seen.coordinates
    v = np.asarray(at(places, jnp.asarray(cases.u, jnp.float32)))
    fitted = _line(standardized(scale, cases.x[:, 0]), v, inputs, seen.edges, method, lattice) if method.base else None
    return (places, scale, fitted) if lattice is None else (places, scale, fitted, lattice)


def _fixed_in_modes(method: Any, places: ModePlaces, cases: TrainingSet, inputs: int) -> tuple:
    modes, outcomes = len(places.centre), cases.x.shape[2] - inputs
    v = np.asarray(at(places, jnp.asarray(cases.u, jnp.float32)))
    scale = straighten_in_modes(cases.x[:, 0], v, modes, inputs)
    x = standardized(scale, cases.x[:, 0])
    given = np.concatenate([v, x[:, outcomes:]], axis=1)
    return places, scale, fit_mode_lines(x[:, :outcomes], given, modes, method.changing)


def _inputs(learned: Learned, sims: Simulations) -> int:
    """A likelihood is of the outcomes given the inputs; a ratio is the same whatever of an observation is an input."""
    return len(sims.input_names) if learned.model is Likelihood else 0


def _posterior(
    method: Any, learned: Learned, sims: Simulations, cases: TrainingSet, fixed: tuple, made: tuple[Any, History]
) -> SummedPosterior:
    places, scale, fitted, *lattices = fixed
    lattice = lattices[0] if lattices else None
    terms = MeanTerms(made[0], places, scale, fitted, learned.model, lattice)
    reach, whole = reach_of(cases, scale, COPIES if method.missing else 1), 0 if lattice is None else lattice.count
    modes = 0 if learned.places is None else len(learned.places.centre)
    return SummedPosterior(sims.prior, method, terms, made[1], sims.shape, _inputs(learned, sims), whole, reach, modes=modes)


def _as_seen(learned: Learned, fixed: tuple, cases: TrainingSet) -> TrainingSet:
    """The cases after what maps, coordinates and a likelihood's line do to them, once and not at every step."""
    seen = partial(seen_cases, learned.objective.shape, fixed) if learned.model is Likelihood else partial(seen_pairs, fixed)
    stream = cases.stream
    if stream is not None:
        take = stream.take
        stream = replace(stream, take=lambda rows: seen(take(rows)))
    return cases._replace(cases=seen(cases.cases), stream=stream)


def _seen(prior: Prior, cases: TrainingSet, inputs: int, method: Any, lattice: Lattice | None) -> Straightened:
    """How members see observations and parameters; as their marginals say and as u where numbers may be missing."""
    if not method.straighten or method.missing:
        return Straightened(
            fit_standardize(cases.observations, method.missing), identity(prior.dim) if method.straighten else None
        )
    changing, edged = (getattr(method, name, False) for name in ("changing", "edges"))
    allowed = Allowed(changing and lattice is None, edged and method.base)
    return straighten(prior, cases.x[:, 0], cases.u, inputs, allowed)


def _line(
    x: np.ndarray, u: np.ndarray, inputs: int, ends: Edges | None, method: Any, lattice: Lattice | None
) -> Line | MaskedLine:
    """The line of the outcomes, binary numbers and counts first, given u and the inputs."""
    features = x.shape[1] // (2 if method.missing else 1)
    outcomes = features - inputs
    given = np.concatenate([u, x[:, outcomes:features]], axis=1)
    if method.missing:
        holes = x[:, features : features + outcomes]
        return fit_masked_line(np.concatenate([x[:, :outcomes], holes], axis=1), given)
    order = np.arange(outcomes) if lattice is None else np.asarray(lattice.order)
    tails, changing = (lattice is None and getattr(method, name, False) for name in ("tails", "changing"))
    if getattr(method, "edges", False):
        ends = (ends or edges.blank(outcomes, given.shape[1])).in_order(order)
    return line.fit_line(x[:, order], given, tails, changing, ends)
