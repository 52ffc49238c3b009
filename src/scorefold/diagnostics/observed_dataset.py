"""What the diagnostics find out about one observed data set.

Is it like anything simulated (`misspecification.py`), can the model produce it (`predictive.py`), is the posterior right for it
in particular (`local_c2st.py`), and which of its observations move the posterior (`influence.py`)?
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from scorefold.diagnostics.influence import Influence, influence_by_draws, influence_by_scores, influence_by_terms
from scorefold.diagnostics.local_c2st import LocalC2ST, local_c2st
from scorefold.diagnostics.misspecification import Misspecification, misspecification
from scorefold.diagnostics.predictive import FEWEST_REPLICATES, Predictive, predictive
from scorefold.diagnostics.trials import Trials, sample_quietly
from scorefold.errors import ScorefoldError
from scorefold.posterior.draws import Draws
from scorefold.posterior.posterior import Posterior
from scorefold.posterior.sensitivity import HasSingleScores, HasTerms
from scorefold.simulation.calls import repeat
from scorefold.simulation.replicate import as_far_as_made, replicate
from scorefold.simulation.workers import Workers
from scorefold.types import single_precision

OBSERVED_DRAWS = 1_000
PREDICTED_DATASETS = 200
"""Simulated from the posterior for its predictive check."""
INFLUENCE_DRAWS = 256
"""At which the scores of single observations are compared."""


class Observed(NamedTuple):
    """What was found out about one data set."""

    draws: Draws
    """1,000 posterior draws given these observations."""
    misspecification: Misspecification
    prior_predictive: Predictive
    posterior_predictive: Predictive
    local: LocalC2ST
    influence: Influence | None
    """None for a single observation, or where the draws without one of them diverged."""

    def summary(self) -> dict[str, Any]:
        """Numbers and words, as strict JSON can hold them."""
        return {
            "verdict": self.misspecification.words,
            "p": {"misspecification": self.misspecification.p_value, "local C2ST": self.local.p_value,
                  "prior predictive": self.prior_predictive.p_value,
                  "posterior predictive": self.posterior_predictive.p_value},
            "unlike any simulated": self.misspecification.outliers,
            "influence": None if self.influence is None else self.influence.distance.tolist(),
        }  # fmt: skip


def examine(
    posterior: Posterior,
    simulator: Callable[..., Any],
    x_obs: np.ndarray,
    trials: Trials,
    seed: int = 0,
    workers: int | Workers | None = None,
) -> Observed:
    """Look at an observed data set: whether it is like anything simulated, which observations move the posterior, and whether
    the posterior is right for it.

    Args:
        posterior: The posterior.
        simulator: The one that it was trained on.
        x_obs: (n, features), the observations, checked.
        trials: Simulated data sets with draws, of as many observations.
        seed: Of draws and simulations.
        workers: Who runs the simulator, as in `sf.simulate`.

    Returns:
        An `Observed`.
    """
    drawn = posterior.sample(x_obs.reshape(-1, *posterior.shape), OBSERVED_DRAWS, seed)
    numbers = x_obs.shape[1] - len(posterior.input_names)
    seen, simulated = x_obs[:, :numbers], trials.x[..., :numbers]  # the inputs are the same in all data sets
    return Observed(
        drawn,
        misspecification(seen, simulated, seed)._replace(x_names=posterior.outcome_names),
        predictive(seen, simulated),
        posterior_predictive(drawn, simulator, seed, workers),
        local_c2st(trials.truth, trials.draws, simulated, seen, drawn.theta, seed),
        _influence(posterior, x_obs, drawn.theta, seed),
    )


def posterior_predictive(
    drawn: Draws, simulator: Callable[..., Any], seed: int = 0, workers: int | Workers | None = None
) -> Predictive:
    """Compare observations with data sets simulated from draws that were made for them.

    Args:
        drawn: The draws, with their observations; up to 200 of them are used.
        simulator: The one that the posterior was trained on.
        seed: Of the choice and the simulations.
        workers: Who runs the simulator, as in `sf.simulate`.

    Returns:
        A `Predictive`: for statistics of the data set, where the observed value lies among the simulated ones.

    Raises:
        ScorefoldError: The draws hold no observations.
    """
    if drawn.x_obs is None:
        raise ScorefoldError("expected draws that hold their observations, as posterior.sample returns them")
    own = int(np.random.SeedSequence(seed, spawn_key=(10,)).generate_state(1)[0])
    count = min(PREDICTED_DATASETS, len(drawn.theta))
    some = np.random.default_rng([seed, 10]).choice(len(drawn.theta), count, replace=False)
    x_obs = drawn.x_obs.reshape(drawn.n, -1)
    calls = repeat(drawn.theta[some], len(x_obs), own, drawn.inputs)
    simulate = partial(replicate, calls, simulator, workers, missing=drawn.missing)
    replicated = as_far_as_made(simulate, FEWEST_REPLICATES)
    replicated = replicated.reshape(len(replicated), len(x_obs), -1)[..., : x_obs.shape[1]]
    found = predictive(x_obs, replicated[~np.isnan(replicated).all(axis=2).any(axis=1)])
    return found._replace(x_names=drawn.x_names)


def _influence(posterior: Posterior, x_obs: np.ndarray, theta: np.ndarray, seed: int) -> Influence | None:
    """By single terms or scores where there are some, otherwise by leaving each observation out; None where that cannot be
    drawn.
    """
    u = posterior.prior.to_normal(theta)
    if isinstance(posterior, HasTerms):
        with single_precision():
            return influence_by_terms(u, posterior.each_term(x_obs, u))
    if isinstance(posterior, HasSingleScores):
        some = u[:INFLUENCE_DRAWS]
        return influence_by_scores(some, *posterior.single_scores(x_obs, some))
    if len(x_obs) == 1:
        return None
    x = np.stack([np.delete(x_obs, j, axis=0) for j in range(len(x_obs))])
    without = sample_quietly(posterior, x.reshape(*x.shape[:2], *posterior.shape), len(theta), seed)
    if without.diverged.any():
        return None
    return influence_by_draws(u, np.stack([posterior.prior.to_normal(one) for one in without.theta]))
