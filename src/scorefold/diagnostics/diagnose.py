"""Can I trust this posterior? The verb `diagnose`: simulated data sets → what every diagnostic says.

`trials.py` simulates data sets and draws from the posterior given each of them; the tests are one file each (`sbc.py`,
`coverage.py`, `tarp.py`, `contraction.py`), and `verdict.py` puts them in words. An observed data set is looked at in
`observed_dataset.py`. What comes back is a `Diagnosis`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from scorefold.diagnostics.contraction import contraction
from scorefold.diagnostics.coverage import coverage
from scorefold.diagnostics.dataset_summaries import predict, summaries
from scorefold.diagnostics.diagnosis import Diagnosis
from scorefold.diagnostics.misspecification import FEWEST_SIMULATED
from scorefold.diagnostics.observed_dataset import Observed, examine
from scorefold.diagnostics.ranks import FEWEST_RANKED
from scorefold.diagnostics.sbc import Quantity, sbc
from scorefold.diagnostics.tarp import tarp
from scorefold.diagnostics.trials import Plan, Trials, checked_plan, run_trials
from scorefold.diagnostics.verdict import verdicts
from scorefold.errors import ScorefoldError
from scorefold.posterior.posterior import Posterior
from scorefold.simulation.workers import Workers

LIKELIHOOD = "log-likelihood"
PRIOR_DRAWS = 10_000
"""For the prior's variance."""

LogLikelihood = Callable[..., Any]
"""log p(x|θ) for one θ and one observation, in JAX."""


def diagnose(
    posterior: Posterior,
    simulator: Callable[..., Any],
    n: int = 30,
    sims: int = 300,
    draws: int = 100,
    seed: int | None = 0,
    *,
    x_obs: Any = None,
    log_likelihood: LogLikelihood | None = None,
    workers: int | Workers | None = None,
    progress: bool = False,
    inputs: Any = None,
) -> Diagnosis:
    """Check a posterior's calibration given n observations, on data sets simulated from its prior, and say what is wrong.

    Ask for the n that you are going to use: a posterior that is right given one observation can be wrong given thirty. The cost
    is sims × n simulator calls, and no training.

    Args:
        posterior: what `sf.fit` or `posterior.refine` returned. It is drawn from with its own rule and sampler; for others,
            pass `posterior.using(rule="gauss", sampler="ddim")`.
        simulator: the one that it was trained on.
        n: observations in every data set; with `x_obs`, its length is taken.
        sims: data sets to simulate, 20 or more, with `x_obs` 40 or more. More of them show smaller errors.
        draws: posterior draws given each data set, 20 or more.
        seed: of the data sets and the draws.
        x_obs: your observations (n, …). Then the diagnosis also says whether they are like anything simulated, which of them
            move the posterior, and whether the posterior is right for them in particular.
        log_likelihood: log_likelihood(theta, x) of one observation (with inputs as a third argument, where there are some), in
            JAX, if it is known: it shows whether the posterior uses the data. Otherwise a quantity fitted to simulations does.
        workers: who runs the simulator, as in `sf.simulate`; by default this process.
        progress: whether to show progress bars.
        inputs: with `x_obs`, its known inputs, as in `posterior.sample`; all data sets then have these. Otherwise inputs are
            drawn as they were simulated.

    Returns:
        A `Diagnosis`: print its `verdicts`, or `write` it to a folder.

    Raises:
        ScorefoldError: where an argument is not as expected, or too few data sets have good simulations and draws.
        Interrupted: on Ctrl-C while too few data sets have draws; later there is a warning, and a diagnosis.

    Example:
        >>> import scorefold as sf
        >>> from scipy import stats
        >>> simulator = lambda theta, rng: theta + rng.standard_normal(2)
        >>> prior = sf.Prior({"a": stats.norm(0, 1), "b": stats.norm(0, 1)})
        >>> posterior = sf.fit(sf.simulate(prior, simulator, budget=2_000, set_size=3), "abc")
        >>> found = sf.diagnose(posterior, simulator, n=3, sims=40, draws=20)
        >>> sorted(found.figures())
        ['contraction', 'coverage', 'highest_density', 'ranks', 'tarp']
    """
    x = _checked_observations(posterior, x_obs, inputs)
    plan = checked_plan(n if x is None else len(x), sims, draws, seed, FEWEST_RANKED if x is None else FEWEST_SIMULATED)
    if x is not None:
        plan = plan._replace(inputs=posterior.inputs_of(x), holes=np.isnan(x) if np.isnan(x).any() else None)
    trials = run_trials(posterior, simulator, plan, workers, progress)
    observed = None if x is None else examine(posterior, simulator, x, trials, plan.seed, workers)
    return _tested(posterior, plan, trials, log_likelihood, observed)


def _checked_observations(posterior: Any, x_obs: Any, inputs: Any) -> np.ndarray | None:
    """The observations (n, features) to look at, if there are some; a ScorefoldError for what is no posterior."""
    if not isinstance(posterior, Posterior):
        raise ScorefoldError(f"expected the posterior that sf.fit returns; got {type(posterior).__name__}")
    if x_obs is None and inputs is not None:
        raise ScorefoldError(
            "expected inputs only with x_obs, the observations that they belong to; got no x_obs. Leave them out: simulated "
            "data sets have inputs like those that were simulated for training."
        )
    return None if x_obs is None else posterior.checked(x_obs, inputs)


def _tested(
    posterior: Posterior, plan: Plan, trials: Trials, log_likelihood: LogLikelihood | None, observed: Observed | None
) -> Diagnosis:
    """Every test over the trials, and what it says in words."""
    names, seed, truth, draws = posterior.prior.names, plan.seed, trials.truth, trials.draws
    prediction = predict(truth, summaries(trials.x))
    quantity = (
        _likelihood(log_likelihood, trials, len(posterior.input_names)) if log_likelihood else prediction.quantity(truth, draws)
    )
    calibration = sbc(truth, draws, names, quantity, seed)
    narrowed = contraction(truth, draws, posterior.prior.sample(PRIOR_DRAWS, 0).var(axis=0))
    return Diagnosis(
        names=names,
        n=plan.n,
        asked=plan.sims,
        failed=trials.failed,
        diverged=trials.diverged,
        unconverged=trials.unconverged,
        sbc=calibration,
        coverage=coverage(truth, draws, names, "central", seed),
        highest_density=coverage(truth, draws, names, "highest density", seed),
        tarp=tarp(truth, draws, prediction.points(seed), seed),
        contraction=narrowed,
        verdicts=verdicts(calibration, narrowed.typical),
        truth=truth,
        draws=draws,
        observed=observed,
        seconds=trials.seconds,
        settings=_settings(posterior, plan),
    )


def _settings(posterior: Posterior, plan: Plan) -> dict[str, str | int]:
    """What the page shows of the posterior and of what was asked for."""
    method, made = posterior.method, posterior.made
    chosen = {word: str(value) for word in ("rule", "sampler") if (value := getattr(method, word, None)) is not None}
    trained: dict[str, str | int] = {}
    if made is not None:
        trained = {"trained on": f"{made.budget:,} simulator calls", "seed of training": made.seed}
    asked = {"data sets": plan.sims, "observations in each": plan.n, "draws for each": plan.draws, "seed": plan.seed}
    return {"method": type(method).__name__, **chosen, **trained, **asked}


def _likelihood(log_likelihood: LogLikelihood, trials: Trials, inputs: int) -> dict[str, Quantity]:
    """Σ_j log p(x_j|θ), at the truth and at the draws; the last `inputs` numbers of an observation are known inputs."""
    import jax
    import jax.numpy as jnp

    def one(pair: Any) -> Any:
        theta, x = pair
        parts = (x[:, :-inputs], x[:, -inputs:]) if inputs else (x,)
        return jax.vmap(lambda t: jnp.sum(jax.vmap(lambda *x_j: log_likelihood(t, *x_j))(*parts)))(theta)

    pooled = jnp.asarray(np.concatenate([trials.truth[:, None], trials.draws], axis=1), jnp.float32)
    x = jnp.asarray(trials.x, jnp.float32)
    values = np.asarray(jax.jit(lambda *pairs: jax.lax.map(one, pairs))(pooled, x), np.float64)
    # A draw outside of the likelihood's support is less likely than any other.
    values = np.where(np.isnan(values), -np.inf, values).clip(-1e300, 1e300)
    return {LIKELIHOOD: (values[:, 0], values[:, 1:])}
