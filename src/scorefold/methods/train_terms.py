"""Training of NLE and NRE: an ensemble of terms log p(x|u) on single observations."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from scorefold.density import line
from scorefold.density.likelihood import Likelihood
from scorefold.density.line import Line
from scorefold.density.masked_line import MaskedLine, fit_masked_line
from scorefold.density.mean_terms import MeanTerms
from scorefold.density.ratio import Ratio
from scorefold.errors import ScorefoldError
from scorefold.posterior.reach import reach_of
from scorefold.posterior.summed import SummedPosterior
from scorefold.score.standardize import fit_standardize, standardized
from scorefold.simulation.holes import COPIES, dropped
from scorefold.simulation.screening import say_likelihood_alone
from scorefold.simulation.simulations import Simulations
from scorefold.train.checkpoint import Checkpoint
from scorefold.train.loop import Objective, train
from scorefold.train.training_set import training_sets


def train_terms(
    method: Any,
    objective: Objective,
    model: type[Likelihood] | type[Ratio],
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
    inputs = len(sims[0].input_names) if model is Likelihood else 0
    if method.missing:
        sims = [dropped(one, seed) for one, seed in zip(sims, seeds, strict=True)]
    sets, fixed, tails = training_sets(sims, 1, method.training, seeds), [], getattr(method, "tails", False)
    for cases in sets:
        scale, x = fit_standardize(cases.observations, method.missing), cases.x[:, 0]
        fixed.append((scale, _line(standardized(scale, x), cases.u, inputs, method.missing, tails) if method.base else None))
    trained = train(objective, sets, fixed, method.training, method.base, progress, checkpoint)
    posteriors = []
    for one, cases, (scale, fitted), (network, history) in zip(sims, sets, fixed, trained, strict=True):
        terms, reach = MeanTerms(network, scale, fitted, model), reach_of(cases, scale, COPIES if method.missing else 1)
        posteriors.append(SummedPosterior(one.prior, method, terms, history, one.shape, inputs, reach))
    return posteriors


def _line(x: np.ndarray, u: np.ndarray, inputs: int, missing: bool, tails: bool) -> Line | MaskedLine:
    """Of the outcomes, given u and the inputs."""
    features = x.shape[1] // (2 if missing else 1)
    outcomes = features - inputs
    given = np.concatenate([u, x[:, outcomes:features]], axis=1)
    if not missing:
        return line.fit_line(x[:, :outcomes], given, tails)
    holes = x[:, features : features + outcomes]
    return fit_masked_line(np.concatenate([x[:, :outcomes], holes], axis=1), given)
