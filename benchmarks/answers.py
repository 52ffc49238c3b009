"""What a posterior answers besides draws, next to the truth: densities, maxima, evidence, other priors, missing numbers.

    python benchmarks/answers.py                             # all parts; results are added to benchmarks/results/answers.jsonl
    python benchmarks/answers.py other_prior --tasks sir --seeds 0
    python benchmarks/answers.py evidence --keep trained     # posteriors that are in this folder are not trained again
    python benchmarks/answers.py --table                     # the table of docs/densities.md, from the results that are there

Every posterior is trained as by default on 10,000 simulations, except where a part says otherwise:

- exact: evidence and maximum with the exact likelihoods of gaussian and mixture in place of learned ones, n = 1 and 30, so that
  what is off is the computation;
- density: gaussian at n = 1,000 and 1,000 points, by conservative scores and by others, with the exact posterior of one
  observation in place of the learned one; the error of what is integrated, of the maximum, and processor time;
- evidence: gaussian and mixture at n = 1 and 30, by the default method (a likelihood); `off` in nat, `error` as stated.
  Computed without error from the learned likelihood, `off` would be `by_likelihood`: the log of the mean, over exact draws, of
  the learned likelihood over the exact one. `map_off` and `mean_off` are the farthest of ten parameters, in posterior sd, and
  `floor` the error of each that the number of simulations leaves a straight line;
- other_prior: gaussian and sir at n = 8, in the N(0, I) space of the prior: half as wide and one sd away (`moderate`), beside
  a posterior trained under that prior; half as wide and three sd away (`far`) or nine (`beyond`), to be warned of and refused.
  `own` is the first posterior under its own prior, for the same observations; `reweighed` is C2ST between draws under the
  other prior and the first posterior's own draws picked by the ratio of the priors, which is what the change itself adds;
- missing: gaussian at n = 30 with 30 % of the numbers missing, by the default method (scores) and by NLE (`--methods`).

Data sets are not those that anything was chosen on: their seeds begin at 700. Times are processor seconds of this process.
"""

import argparse
import functools
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.special import logsumexp

import scorefold as sf
from answers_table import table
from exact_answers import (
    GAUSSIAN,
    MIXTURE,
    SIR,
    ExactTerms,
    exact_draws,
    exact_evidence,
    highest,
    log_likelihood,
    other_prior_of,
    picked,
)
from scorefold import tasks
from scorefold.diagnostics.c2st import c2st
from scorefold.noise import LEAST_NOISE
from scorefold.posterior.amortised import FlowInfo
from scorefold.posterior.composed import ComposedPosterior
from scorefold.posterior.summed import SummedPosterior
from scorefold.score.ensemble import ScoreEnsemble
from scorefold.score.gaussian_base import GaussianBase
from scorefold.score.network import ScoreNetwork
from scorefold.score.standardize import Standardize
from scorefold.tasks.gaussian import VARIANCES

RESULTS = Path(__file__).parent / "results" / "answers.jsonl"
FIRST_DATA_SET, BUDGET = 700, 10_000
SETTLED = FlowInfo(0.0, converged=True, diverged=False)
"""Of exact draws."""
PRIORS = {"moderate": 1.0, "far": 3.0, "beyond": 9.0}
"""How many sd from the first prior's middle; half as wide."""
OWN_DRAWS = 2_000
"""Under the first prior, to be picked by the ratio of the priors."""


@dataclass(frozen=True)
class Asked:
    """What is to be run."""

    seeds: tuple[int, ...]
    """Of simulations and training."""
    tasks: tuple[str, ...]
    data_sets: int
    out: Path
    keep: Path | None = None
    """Where trained posteriors lie."""
    methods: tuple[str, ...] = ()
    """Of `missing`."""
    numbers: tuple[int, ...] = (1, 30)
    """n of `exact` and `evidence`."""
    budget: int = BUDGET
    """Simulations of `evidence`."""

    def say(self, part: str, **found: Any) -> None:
        """One line of JSON."""
        line = json.dumps({"part": part, **found}, default=float)
        print(line, flush=True)
        with self.out.open("a") as file:
            file.write(line + "\n")

    def chosen(self, *those: Any) -> list[Any]:
        """Of these tasks."""
        return [task for task in those if task.name in self.tasks]


@functools.cache
def fitted(name: str, prior: str, seed: int, keep: Path | None, budget: int = BUDGET) -> Any:
    """By the default method, under the task's own prior or another one."""
    task = tasks.get(name)
    law = task.prior if prior == "own" else other_prior_of(task, PRIORS[prior])
    folder = f"{name}-{prior}-{seed}" if budget == BUDGET else f"{name}-{prior}-{seed}-{budget}"
    return kept(folder, keep, lambda: sf.fit(sf.simulate(law, task.simulator, budget, seed=seed), seed=seed))


def kept(name: str, keep: Path | None, train: Callable[[], Any]) -> Any:
    """A posterior from the folder of those that are kept, or trained now."""
    folder = None if keep is None else keep / name
    if folder is not None and folder.is_dir():
        return sf.load(folder)
    began = time.process_time()
    posterior = train()
    print(f"# trained {name} in {time.process_time() - began:.0f} processor seconds", flush=True)
    if folder is not None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        posterior.save(folder)
    return posterior


def other_prior(asked: Asked) -> None:
    """C2ST against exact draws under the other prior, changed at sampling and trained under it."""
    for task in asked.chosen(GAUSSIAN, SIR):
        for seed in asked.seeds:
            for i in range(FIRST_DATA_SET, FIRST_DATA_SET + asked.data_sets):
                for word, shift in PRIORS.items():
                    other = other_prior_of(task, shift)
                    theta, rng = other.sample(1, seed=i)[0], np.random.default_rng(i)
                    x = np.stack([task.numpy_simulator(theta, rng) for _ in range(8)])
                    found = under_other(asked, task, seed, x, word, i)
                    asked.say("other_prior", task=task.name, prior=word, n=8, seed=seed, data=i, **found)


def under_other(asked: Asked, task: Any, seed: int, x: np.ndarray, word: str, i: int) -> dict[str, Any]:
    """What one posterior says of one data set, and whether it warned or refused."""
    first, other = fitted(task.name, "own", seed, asked.keep), other_prior_of(task, PRIORS[word])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            draws = first.sample(x, 1_000, prior=other)
        except sf.errors.ScorefoldError as error:
            return {"said": "refused", "words": str(error)}
    words = [str(one.message) for one in said if "other prior" in str(one.message)]
    right = exact_draws(task, x, other, PRIORS[word], i)
    found = {"changed": c2st(draws.theta, right, seed=0), "trust": draws.trust.verdict, "said": "warned" if words else ""}
    if word == "moderate":
        trained, own = fitted(task.name, word, seed, asked.keep).sample(x, 1_000), first.sample(x, OWN_DRAWS)
        ratio = other.log_prob(own.theta) - task.prior.log_prob(own.theta)
        some = min(1_000, int(worth(ratio)) // 2)  # few are there twice
        weighed = picked(own.theta, ratio, np.random.default_rng(i), some)
        found["trained under it"] = c2st(trained.theta, right, seed=0)
        found["own"] = c2st(own.theta[:1_000], task.reference(x, 1_000, i), seed=0)
        found["reweighed"], found["compared"] = c2st(draws.theta[:some], weighed, seed=0), some
    return found


def worth(log_ratio: np.ndarray) -> float:
    """How many draws those weighed by a ratio count for."""
    weights = np.exp(log_ratio - log_ratio.max())
    return float(weights.sum() ** 2 / np.square(weights).sum())


def exact(asked: Asked) -> None:
    """Evidence and maximum where the likelihood is the true one."""
    for task in asked.chosen(GAUSSIAN, MIXTURE):
        posterior = SummedPosterior(task.prior, sf.NLE(), ExactTerms(task.log_likelihood), None, (10,))
        for n in asked.numbers:
            for i in range(FIRST_DATA_SET, FIRST_DATA_SET + asked.data_sets):
                x = np.asarray(task.observe(n, i)[1], np.float64)
                draws = posterior.sample(x, 1_000)
                found = sf.evidence(posterior, x, draws=draws)
                off = (posterior.map(x, draws=draws) - highest(task, x)) / draws.theta.std(axis=0)
                numbers = {"off": found.log - exact_evidence(task, x), "error": found.error, "map_off": np.abs(off).max()}
                asked.say("exact", task=task.name, n=n, data=i, **numbers)


def evidence(asked: Asked) -> None:
    """By a learned likelihood; maximum and mean, too."""
    for task in asked.chosen(GAUSSIAN, MIXTURE):
        for seed in asked.seeds:
            posterior = fitted(task.name, "own", seed, asked.keep, asked.budget)
            for n in asked.numbers:
                for i in range(FIRST_DATA_SET, FIRST_DATA_SET + asked.data_sets):
                    x = np.asarray(task.observe(n, i)[1], np.float64)
                    found = learned(task, posterior, x)
                    asked.say("evidence", task=task.name, sims=asked.budget, n=n, seed=seed, data=i, **found)


def learned(task: Any, posterior: Any, x: np.ndarray) -> dict[str, float]:
    """How far the evidence, the maximum and the mean are off, and what of it the likelihood is to blame for."""
    draws, right = posterior.sample(x, 2_000), np.asarray(task.reference(x, 4_000, 0), np.float64)
    found = sf.evidence(posterior, x, draws=draws)
    wrong = posterior.log_likelihood(right, x).sum(axis=1) - log_likelihood(task, right, x)
    of = {
        "map_off": posterior.map(x, draws=draws) - highest(task, x),
        "mean_off": draws.theta.mean(axis=0) - right.mean(axis=0),
    }
    return {
        "off": found.log - exact_evidence(task, x),
        "error": found.error,
        "learned": found.learned,
        "computed": found.computed,
        "by_likelihood": float(logsumexp(wrong) - np.log(len(wrong))),
        **{word: float(np.abs(value / right.std(axis=0)).max()) for word, value in of.items()},
        "floor": posterior.reach.floor(len(x), posterior.prior.to_normal(draws.theta)),
    }


def exact_scores(conservative: bool) -> ComposedPosterior:
    """A posterior of the usual size with the exact p(u | x) of the Gaussian task, and networks that add nothing to it."""
    method = sf.NPSE(set_size=1, conservative=conservative)
    shape, keys = method.network_shape(10, True, (10,), 1), jax.random.split(jax.random.key(0), method.training.members)
    network = jax.vmap(lambda key: ScoreNetwork(shape, key=key))(keys)
    network = eqx.tree_at(lambda n: (n.out.weight, n.out.bias), network, replace_fn=jnp.zeros_like)
    arrays = (np.diag(1 / (1 + VARIANCES)), np.zeros(10), np.eye(10), VARIANCES / (1 + VARIANCES))
    base = GaussianBase(*(jnp.asarray(v, jnp.float32)[None] for v in arrays))
    ensemble = ScoreEnsemble(network, Standardize(jnp.zeros(10), jnp.ones(10)), base, None)
    history: Any = None  # nothing was trained
    return ComposedPosterior(GAUSSIAN.prior, method, ensemble, history, {}, (10,), 1, LEAST_NOISE)


def density(asked: Asked) -> None:
    """Log densities at 1,000 points given 1,000 observations."""
    _, x = GAUSSIAN.observe(1_000, FIRST_DATA_SET)
    precision = 1 + len(x) / VARIANCES
    mean, sd = np.asarray(x, np.float64).sum(axis=0) / VARIANCES / precision, precision**-0.5
    theta = mean + sd * np.random.default_rng(0).standard_normal((1_000, 10))
    right = stats.norm(mean, sd).logpdf(theta).sum(axis=1)
    for word in ("conservative", "line integrals"):
        posterior = exact_scores(word == "conservative")
        posterior.log_prob(theta, x, normalised=False)  # compiles
        began, on_the_wall = time.process_time(), time.perf_counter()
        found = posterior.log_prob(theta, x, normalised=False)
        times = {"cpu_seconds": time.process_time() - began, "seconds": time.perf_counter() - on_the_wall}
        off = found - right
        draws = sf.Draws(theta, posterior.prior.names, SETTLED, n=len(x), how=None, seconds=0.0)  # to climb from
        map_off = np.abs((posterior.map(x, draws=draws) - mean) / sd).max()
        errors = {"largest": np.abs(off - off.mean()).max(), "rms": off.std(), "map_off": map_off}
        asked.say("density", scores=word, n=1_000, **errors, **times)


def missing(asked: Asked) -> None:
    """C2ST against the conjugate posterior of what was observed."""
    for seed in asked.seeds:
        sims = sf.simulate(GAUSSIAN.prior, GAUSSIAN.simulator, BUDGET, missing=True, seed=seed)
        for method in asked.methods:
            train = functools.partial(sf.fit, sims, method, seed=seed)
            posterior = kept(f"gaussian-missing-{method}-{seed}", asked.keep, train)
            for i in range(FIRST_DATA_SET, FIRST_DATA_SET + asked.data_sets):
                rng = np.random.default_rng(i)
                x = np.asarray(GAUSSIAN.observe(30, i)[1])
                x[rng.uniform(size=x.shape) < 0.3] = np.nan
                precision = 1 + (~np.isnan(x)).sum(axis=0) / VARIANCES
                right = np.nansum(x, axis=0) / VARIANCES / precision + rng.standard_normal((1_000, 10)) / np.sqrt(precision)
                found = c2st(posterior.sample(x, 1_000).theta, right, seed=0)
                asked.say("missing", method=method, n=30, seed=seed, data=i, c2st=found)


PARTS = {"exact": exact, "density": density, "evidence": evidence, "other_prior": other_prior, "missing": missing}
TASKS = ("gaussian", "mixture", "sir")
METHODS = ("nle", "auto")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which; all by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1), help="of trainings")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, help="of missing")
    parser.add_argument("--n", type=int, nargs="+", default=(1, 30), help="observations of exact and evidence")
    parser.add_argument("--sims", type=int, default=BUDGET, help="of evidence")
    parser.add_argument("--data-sets", type=int, default=3, help="of each kind")
    parser.add_argument("--out", type=Path, default=RESULTS, help="a file that a line of JSON is added to for each result")
    parser.add_argument("--keep", type=Path, help="a folder for trained posteriors; none is kept by default")
    parser.add_argument("--table", action="store_true", help="run nothing")
    given = parser.parse_args()
    chosen = tuple(given.methods), tuple(given.n), given.sims
    asked = Asked(tuple(given.seeds), tuple(given.tasks), given.data_sets, given.out, given.keep, *chosen)
    warnings.simplefilter("ignore")
    for part in () if given.table else given.parts or PARTS:
        PARTS[part](asked)
    print(table(given.out))


if __name__ == "__main__":
    main()
