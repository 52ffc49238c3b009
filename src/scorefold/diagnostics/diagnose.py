"""Can I trust this posterior? The verb `diagnose`: simulated data sets → what every diagnostic says.

S times, θ* is drawn from the prior, n observations are simulated from it, and the posterior is drawn given these: `sims` data
sets of n observations cost sims × n simulator calls and no training. What the diagnostics make of it is in `diagnostics/`, one
file each. Data sets whose simulation failed or whose draws diverged are left out, counted and reported."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scorefold import settings
from scorefold.diagnostics.contraction import Contraction, contraction
from scorefold.diagnostics.coverage import Coverage, coverage
from scorefold.diagnostics.influence import Influence, influence_by_draws, influence_by_scores
from scorefold.diagnostics.local_c2st import LocalC2ST, local_c2st
from scorefold.diagnostics.misspecification import FEWEST as FEWEST_OBSERVED
from scorefold.diagnostics.misspecification import Misspecification, misspecification
from scorefold.diagnostics.predictive import Predictive, predictive
from scorefold.diagnostics.ranks import FEWEST
from scorefold.diagnostics.sbc import SBC, sbc
from scorefold.diagnostics.summaries import Prediction, predict, summaries
from scorefold.diagnostics.tarp import TARP, tarp
from scorefold.diagnostics.verdict import Verdicts, verdicts
from scorefold.errors import ScorefoldError, UntrustworthyDraws
from scorefold.posterior.draws import Draws, ManyDraws
from scorefold.posterior.posterior import Posterior
from scorefold.simulation.replicate import replicate
from scorefold.simulation.workers import Workers

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group

FITTED = "fit to the data"
LIKELIHOOD = "log-likelihood"
PRIOR_DRAWS = 10_000
PREDICTED = 200
"""Data sets simulated from the posterior for its predictive check."""
OBSERVED_DRAWS = 1_000
INFLUENCED = 256
"""Draws at which single observations' scores are compared."""

LogLikelihood = Callable[[Any, Any], Any]
"""log p(x|θ) for one θ and one observation, in JAX."""


class Observed(NamedTuple):
    """What is said of one data set in particular."""

    draws: Draws
    misspecification: Misspecification
    prior_predictive: Predictive
    posterior_predictive: Predictive
    local: LocalC2ST
    influence: Influence | None
    """Of several observations."""

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


@dataclass(frozen=True)
class Diagnosis:
    """What was found out. `verdicts` in words, `table()` to print, `write(folder)` for a page, figures and numbers."""

    names: tuple[str, ...]
    n: int
    """Observations in every data set."""
    asked: int
    """Data sets simulated."""
    failed: int
    """Left out, since a simulation was not finite."""
    diverged: int
    """Left out, since the draws diverged."""
    unconverged: int
    """Used, although the sampler's checks did not pass."""
    sbc: SBC
    coverage: Coverage
    highest_density: Coverage
    tarp: TARP
    contraction: Contraction
    verdicts: Verdicts
    truth: np.ndarray
    """(data sets, dim), of those that were used"""
    draws: np.ndarray
    """(data sets, draws, dim)"""
    observed: Observed | None
    seconds: float
    """Of drawing."""
    settings: Mapping[str, str | int]
    """What was asked for, and of which posterior."""

    @property
    def good(self) -> bool:
        """Nothing found by SBC."""
        return self.verdicts.overall.good

    def table(self) -> "Group":
        """One line for each parameter, and one for each joint test."""
        from scorefold.report.diagnosis_table import table

        return table(self.summary())

    def figures(self) -> "dict[str, Figure]":
        """Figures by file name."""
        from scorefold.report import diagnosis_figures

        return diagnosis_figures.all_of(self)

    def write(self, out: Path | str, about: Mapping[str, str | int] | None = None) -> Path:
        """The page report.html, its figures, and a summary in JSON, into a folder; `about` is added to the settings."""
        from scorefold.report import results as folder
        from scorefold.report.diagnosis_page import diagnosis_page

        out = Path(out)
        out.mkdir(parents=True, exist_ok=True)
        summary = self.summary()
        summary["settings"] = {**(about or {}), **summary["settings"]}
        folder.write(out, folder.DIAGNOSIS, summary, self.figures(), diagnosis_page)
        return out

    def summary(self) -> dict[str, Any]:
        """Numbers and verdicts, as strict JSON can hold them."""
        found: dict[str, Any] = {
            "settings": dict(self.settings),
            "n": self.n,
            "data sets": {"simulated": self.asked, "used": len(self.truth), "failed": self.failed, "diverged": self.diverged,
                          "not converged": self.unconverged},
            "draws": self.draws.shape[1],
            "good": self.good,
            "verdict": self.verdicts.overall.words,
            "quantities": {
                one.name: {"verdict": one.words, "good": one.good, "p": float(self.sbc.p_values[k]),
                           "low by": float(self.sbc.low_by[k]), "sd ratio": float(self.sbc.sd_ratio[k])}
                for k, one in enumerate(self.verdicts.each)
            },
            "coverage of 90 % intervals": dict(zip(self.coverage.names, self.coverage.at(0.9).tolist(), strict=True)),
            "contraction": dict(zip(self.names, self.contraction.typical.tolist(), strict=True)),
            "p": {"SBC": self.sbc.p_value, "coverage": self.coverage.uniformity.p_value,
                  "highest density": self.highest_density.uniformity.p_value, "TARP": self.tarp.p_value},
            "seconds": self.seconds,
        }  # fmt: skip
        if self.observed:
            found["observed"] = self.observed.summary()
        return found

    def __repr__(self) -> str:
        return f"Diagnosis({len(self.truth)} data sets of {self.n} observations; {self.verdicts.overall.words})"


def diagnose(
    posterior: Posterior,
    simulator: Callable[..., Any],
    n: int = 30,
    sims: int = 300,
    draws: int = 100,
    seed: int = 0,
    *,
    x_obs: Any = None,
    log_likelihood: LogLikelihood | None = None,
    workers: int | Workers | None = None,
    progress: bool = False,
    **how: Any,
) -> Diagnosis:
    """Calibration of the posterior given n observations, over `sims` data sets simulated from the prior.

    With `x_obs` n is its length, and it is said whether these observations are like anything simulated, which of them move the
    posterior, and whether the posterior is right for them in particular. `log_likelihood(theta, x)`, where it is known, serves
    as the data-dependent quantity of SBC; otherwise one is fitted. `workers` run the simulator, as in `sf.simulate`, and `how`
    is what `posterior.sample` takes.
    """
    if not isinstance(posterior, Posterior):
        raise ScorefoldError(f"expected the posterior that sf.fit returns; got {type(posterior).__name__}")
    observed = None if x_obs is None else posterior.checked(x_obs)
    n = n if observed is None else len(observed)
    fewest = FEWEST if observed is None else FEWEST_OBSERVED
    for name, value, least in (("n", n, 1), ("sims", sims, fewest), ("draws", draws, FEWEST), ("seed", seed, 0)):
        settings.count(name, value, least)
    own = int(np.random.SeedSequence(seed, spawn_key=(9,)).generate_state(1, np.uint64)[0] >> np.uint64(1))
    truth = posterior.prior.sample(sims, own)  # not the parameters that were trained on with this seed
    x = replicate(truth, simulator, n, own, workers, progress)
    if x.shape[2:] != posterior.shape:
        raise ScorefoldError(f"expected the simulator trained on, with observations {posterior.shape}; got {x.shape[2:]}")
    simulated = np.isfinite(x.reshape(sims, -1)).all(axis=1)
    _enough(simulated, fewest, "gave finite observations")
    truth, x = truth[simulated], x[simulated]
    many = _sample(posterior, x, draws, own, how)
    _enough(~many.diverged, fewest, "had draws that did not diverge")
    truth, x, theta = truth[~many.diverged], x[~many.diverged].astype(np.float64), many.theta[~many.diverged]
    flat = x.reshape(*x.shape[:2], -1)
    names, prediction = posterior.prior.names, predict(truth, summaries(flat))
    quantity = _likelihood(log_likelihood, truth, theta, flat) if log_likelihood else _fitted(prediction, truth, theta)
    calibration = sbc(truth, theta, names, quantity, seed)
    predicted = partial(posterior_predictive, simulator=simulator, seed=seed, workers=workers)
    narrowed = contraction(truth, theta, posterior.prior.sample(PRIOR_DRAWS, 0).var(axis=0))
    return Diagnosis(
        names=names,
        n=n,
        asked=sims,
        failed=int(np.sum(~simulated)),
        diverged=int(many.diverged.sum()),
        unconverged=int(np.sum(~many.converged & ~many.diverged)),
        sbc=calibration,
        coverage=coverage(truth, theta, names, "central", seed),
        highest_density=coverage(truth, theta, names, "highest density", seed),
        tarp=tarp(truth, theta, prediction.points(seed), seed),
        contraction=narrowed,
        verdicts=verdicts(calibration, narrowed.typical),
        truth=truth,
        draws=theta,
        observed=None if observed is None else _observed(posterior, predicted, observed, truth, theta, flat, seed, how),
        seconds=many.seconds,
        settings=_settings(posterior, n, sims, draws, seed, how),
    )


def _settings(posterior: Posterior, n: int, sims: int, draws: int, seed: int, how: dict[str, Any]) -> dict[str, str | int]:
    made = posterior.made
    trained: dict[str, str | int] = {}
    if made is not None:
        trained = {"trained on": f"{made.budget:,} simulator calls", "seed of training": made.seed}
    asked = {"data sets": sims, "observations in each": n, "draws for each": draws, "seed": seed}
    return {"method": type(posterior.method).__name__, **trained, **asked, **{word: str(value) for word, value in how.items()}}


def _enough(good: np.ndarray, fewest: int, what: str) -> None:
    if good.sum() < fewest:
        raise ScorefoldError(
            f"expected at least {fewest} data sets that {what}; got {good.sum()} of {len(good)}. Simulate more data sets, or "
            "narrow the prior."
        )


def _sample(posterior: Posterior, x: np.ndarray, draws: int, seed: int, how: dict[str, Any]) -> ManyDraws:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyDraws)  # they are counted and reported
        return posterior.sample_many(x, draws, seed, **how)


def _fitted(prediction: Prediction, truth: np.ndarray, theta: np.ndarray) -> dict[str, Any]:
    return {FITTED: (prediction.log_density(truth[:, None])[:, 0], prediction.log_density(theta))}


def _likelihood(log_likelihood: LogLikelihood, truth: np.ndarray, theta: np.ndarray, x: np.ndarray) -> dict[str, Any]:
    """Σ_j log p(x_j|θ), at the truth and at the draws."""
    import jax
    import jax.numpy as jnp

    def one(pair: Any) -> Any:
        theta, x = pair
        return jax.vmap(lambda t: jnp.sum(jax.vmap(lambda x_j: log_likelihood(t, x_j))(x)))(theta)

    pooled = jnp.asarray(np.concatenate([truth[:, None], theta], axis=1), jnp.float32)
    values = np.asarray(jax.jit(lambda *pairs: jax.lax.map(one, pairs))(pooled, jnp.asarray(x, jnp.float32)), np.float64)
    # A draw outside of the likelihood's support is less likely than any other.
    values = np.where(np.isnan(values), -np.inf, values).clip(-1e300, 1e300)
    return {LIKELIHOOD: (values[:, 0], values[:, 1:])}


def _observed(
    posterior: Posterior,
    predicted: Callable[[Draws], Predictive],
    x_obs: np.ndarray,
    truth: np.ndarray,
    theta: np.ndarray,
    x: np.ndarray,
    seed: int,
    how: dict[str, Any],
) -> Observed:
    drawn = posterior.sample(x_obs.reshape(-1, *posterior.shape), OBSERVED_DRAWS, seed, **how)
    return Observed(
        drawn,
        misspecification(x_obs, x, seed),
        predictive(x_obs, x),
        predicted(drawn),
        local_c2st(truth, theta, x, x_obs, drawn.theta, seed),
        _influence(posterior, x_obs, drawn.theta, seed, how),
    )


def posterior_predictive(
    drawn: Draws, simulator: Callable[..., Any], seed: int = 0, workers: int | Workers | None = None
) -> Predictive:
    """The observations against data sets of as many, simulated from some of the draws that were made for them."""
    if drawn.x_obs is None:
        raise ScorefoldError("expected draws that hold their observations, as posterior.sample returns them")
    own = int(np.random.SeedSequence(seed, spawn_key=(10,)).generate_state(1)[0])
    count = min(PREDICTED, len(drawn.theta))
    some = np.random.default_rng([seed, 10]).choice(len(drawn.theta), count, replace=False)
    x_obs = drawn.x_obs.reshape(drawn.n, -1)
    replicated = replicate(drawn.theta[some], simulator, len(x_obs), own, workers).reshape(count, len(x_obs), -1)
    return predictive(x_obs, replicated[np.isfinite(replicated).all(axis=(1, 2))])


def _influence(posterior: Posterior, x_obs: np.ndarray, theta: np.ndarray, seed: int, how: dict[str, Any]) -> Influence | None:
    """By scores where there are single ones, otherwise by leaving each observation out; None where that cannot be drawn."""
    u = posterior.prior.to_normal(theta)
    single_scores = getattr(posterior, "single_scores", None)
    if single_scores is not None:
        some = u[:INFLUENCED]
        return influence_by_scores(some, *single_scores(x_obs, some))
    if len(x_obs) == 1:
        return None
    x = np.stack([np.delete(x_obs, j, axis=0) for j in range(len(x_obs))])
    without = _sample(posterior, x.reshape(*x.shape[:2], *posterior.shape), len(theta), seed, how)
    if without.diverged.any():
        return None
    return influence_by_draws(u, np.stack([posterior.prior.to_normal(one) for one in without.theta]))
