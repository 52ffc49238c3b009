"""What a posterior answers besides draws, next to the truth: other priors, densities, evidence, missing numbers.

    python benchmarks/answers.py                                        # all parts; a line of JSON for each result, as it comes
    python benchmarks/answers.py other_prior missing --out results.jsonl
    python benchmarks/answers.py evidence --members 3 --steps 10000 --seeds 2    # nle as it is trained by default
    python benchmarks/answers.py other_prior --tasks sir --method nle
    python benchmarks/answers.py --steps 2000                           # shorter trainings

- other_prior: gaussian and sir (a prior near the first one, and one that is half as wide) at n = 8, trained under one prior and
  drawn under another, next to one trained under that one. `own` is the first posterior under its own prior on the same data,
  and `against reweighed` its draws under the other prior next to its own draws weighed by the ratio of the priors: 0.5 where
  changing the prior adds no error, whatever was learned;
- density: gaussian at n = 1,000 and 1,000 points, conservative networks and others; time, and the error against the closed form
  of the composed density of the base alone, where nothing is learned wrong, and of the trained networks;
- evidence: gaussian and mixture at n = 1 and 30 by NLE, and gaussian by composed scores; `off` in nat, `error` as stated;
- missing: gaussian at n = 30 with 30 % of the numbers missing, by F-NPSE, NLE and NRE.
"""

import argparse
import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.special import logsumexp

import scorefold as sf
from scorefold import tasks
from scorefold.diagnostics.c2st import c2st
from scorefold.score.gaussian_base import GaussianBase
from scorefold.score.standardize import Standardize
from scorefold.tasks.gaussian import VARIANCES
from scorefold.tasks.mixture import SCALES

DATA_SETS = 3
GAUSSIAN, MIXTURE, SIR = (tasks.get(name) for name in ("gaussian", "mixture", "sir"))


@dataclass(frozen=True)
class Asked:
    """What is to be run."""

    training: sf.Training
    budget: int
    seeds: tuple[int, ...]
    """Of simulations and training."""
    tasks: tuple[str, ...]
    method: str
    """Of other_prior."""
    out: Path | None

    def say(self, part: str, **found: Any) -> None:
        """One line of JSON."""
        line = json.dumps({"part": part, **found, "budget": found.get("budget", self.budget)}, default=float)
        print(line, flush=True)
        if self.out is not None:
            with self.out.open("a") as file:
                file.write(line + "\n")


def other_priors(names: Sequence[str]) -> list[tuple[Any, str, sf.Prior]]:
    """(task, word, prior)"""
    normal = {name: stats.norm(0.5, 0.6) for name in GAUSSIAN.prior.names}
    near, half = ((stats.lognorm(0.4, scale=0.44), stats.lognorm(0.18, scale=0.13)),
                  (stats.lognorm(0.3, scale=0.5), stats.lognorm(0.15, scale=0.14)))  # fmt: skip
    laws = {word: dict(zip(SIR.prior.names, both, strict=True)) for word, both in (("near", near), ("half as wide", half))}
    found = [(GAUSSIAN, "near", sf.Prior(normal)), *((SIR, word, sf.Prior(law)) for word, law in laws.items())]
    return [one for one in found if one[0].name in names]


def picked(theta: np.ndarray, log_ratio: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """1,000 draws weighed by a ratio of priors."""
    weights = np.exp(log_ratio - log_ratio.max())
    return theta[rng.choice(len(theta), 1_000, p=weights / weights.sum())]


def other_prior(asked: Asked) -> None:
    """C2ST against exact draws under the other prior, changed at sampling and trained under it."""
    method = sf.NLE() if asked.method == "nle" else sf.NPSE(set_size=1, training=asked.training)
    for task, word, other in other_priors(asked.tasks):
        for seed in asked.seeds:
            first, under = (
                sf.fit(sf.simulate(prior, task.simulator, asked.budget, seed=seed), method, seed=seed)
                for prior in (task.prior, other)
            )
            for i in range(DATA_SETS):
                theta, rng = other.sample(1, seed=100 + i)[0], np.random.default_rng(i)
                x = np.stack([task.numpy_simulator(theta, rng) for _ in range(8)])
                wide = task.reference(x, 20_000, i)
                exact = picked(wide, other.log_prob(wide) - task.prior.log_prob(wide), rng)
                changed, trained = first.sample(x, 1_000, prior=other).theta, under.sample(x, 1_000).theta
                own = first.sample(x, 8_000).theta
                reweighed = picked(own, other.log_prob(own) - task.prior.log_prob(own), rng)
                numbers = {
                    "changed": c2st(changed, exact, seed=0), "trained under it": c2st(trained, exact, seed=0),
                    "own": c2st(own[:1_000], wide[rng.choice(len(wide), 1_000)], seed=0),
                    "against reweighed": c2st(changed, reweighed, seed=0),
                }  # fmt: skip
                asked.say("other_prior", method=asked.method, task=task.name, prior=word, n=8, seed=seed, data=i, **numbers)


def exact_base() -> GaussianBase:
    """p(u | x) of the Gaussian task."""
    arrays = (np.diag(1 / (1 + VARIANCES)), np.zeros(10), np.eye(10), VARIANCES / (1 + VARIANCES))
    return GaussianBase(*(jnp.asarray(v, jnp.float32)[None] for v in arrays))


def density(asked: Asked) -> None:
    """Log densities at 1,000 points given 1,000 observations."""
    _, x = GAUSSIAN.observe(1_000, 5)
    precision = 1 + len(x) / VARIANCES
    mean = np.asarray(x, np.float64).sum(axis=0) / VARIANCES / precision
    sd = precision**-0.5
    theta = mean + sd * np.random.default_rng(0).standard_normal((1_000, 10))
    right = stats.norm(mean, sd).logpdf(theta).sum(axis=1)
    sims = sf.simulate(GAUSSIAN.prior, GAUSSIAN.simulator, asked.budget)
    for conservative in (True, False):
        trained = sf.fit(sims, sf.NPSE(set_size=1, training=asked.training, conservative=conservative))
        unit = Standardize(jnp.zeros(10), jnp.ones(10))
        network = eqx.tree_at(lambda n: (n.out.weight, n.out.bias), trained.ensemble.network, replace_fn=jnp.zeros_like)
        known = {"network": network, "standardize": unit, "base": exact_base(), "correction": None}
        based = replace(trained, ensemble=replace(trained.ensemble, **known))
        word = "conservative" if conservative else "line integrals"
        for name, posterior in (("exact base", based), ("trained", trained)):
            posterior.log_prob(theta[:2], x, normalised=False)  # compiles
            posterior.log_prob(theta, x, normalised=False)
            began = time.perf_counter()
            found = posterior.log_prob(theta, x, normalised=False)
            seconds = time.perf_counter() - began
            off = found - right
            highest = posterior.map(x, draws=None) if name == "exact base" else mean
            asked.say(
                "density", scores=word, of=name, n=1_000, seconds=seconds, rms=float(np.std(off)),
                largest=float(np.abs(off - off.mean()).max()), map_off=float(np.abs((highest - mean) / sd).max()),
            )  # fmt: skip
    _, few = GAUSSIAN.observe(30, 6)
    precision = 1 + 30 / VARIANCES
    mean, sd = few.sum(axis=0) / VARIANCES / precision, precision**-0.5
    theta = mean + sd * np.random.default_rng(1).standard_normal((1_000, 10))
    off = based.log_prob(theta, few) - stats.norm(mean, sd).logpdf(theta).sum(axis=1)
    asked.say("density, normalised", of="exact base", n=30, mean=float(off.mean()), rms=float(off.std()))


def gaussian_evidence(x: np.ndarray) -> tuple[float, float]:
    """log p(x_1 … x_n), and Σ_j log p(x_j)."""
    n = len(x)
    laws = [stats.multivariate_normal(np.zeros(n), np.ones((n, n)) + v * np.eye(n)) for v in VARIANCES]
    both = sum(float(law.logpdf(x[:, k])) for k, law in enumerate(laws))
    return both, float(stats.norm(0, np.sqrt(1 + VARIANCES)).logpdf(x).sum())


def mixture_evidence(x: np.ndarray) -> float:
    """By importance sampling from exact posterior draws' own Gaussian, with the exact likelihood; 10⁵ draws."""
    draws = np.asarray(MIXTURE.reference(x, 4_000, 0), np.float64)
    rng = np.random.default_rng(0)
    mean, cov = draws.mean(axis=0), np.cov(draws, rowvar=False)
    law = stats.multivariate_t(mean, 1.2 * cov, df=6)
    theta = law.rvs(200_000, random_state=rng)
    spread = SCALES[:, None] * VARIANCES
    total = stats.norm(0, 1).logpdf(theta).sum(axis=1)
    for one in x:
        parts = [np.log(0.5) + stats.norm(one, np.sqrt(s)).logpdf(theta).sum(axis=1) for s in spread]
        total += logsumexp(parts, axis=0)
    return float(logsumexp(total - law.logpdf(theta)) - np.log(len(theta)))


def exact_evidence(task: Any, x: np.ndarray) -> float:
    """log p(x_1 … x_n)."""
    if task is GAUSSIAN:
        return gaussian_evidence(x)[0]
    if len(x) > 1:
        return mixture_evidence(x)
    laws = [stats.norm(0, np.sqrt(1 + s * VARIANCES)).logpdf(x[0]).sum() for s in SCALES]
    return float(logsumexp(np.log(0.5) + np.array(laws)))


def evidence(asked: Asked) -> None:
    """Against closed forms, or importance sampling."""
    for task in (one for one in (GAUSSIAN, MIXTURE) if one.name in asked.tasks):
        own = replace(sf.NLE().training, steps=asked.training.steps, members=asked.training.members)
        for seed in asked.seeds:
            nle = sf.fit(sf.simulate(task.prior, task.simulator, asked.budget, seed=seed), sf.NLE(training=own), seed=seed)
            for n in (1, 30):
                for i in range(DATA_SETS):
                    x = np.asarray(task.observe(n, 40 + i)[1], np.float64)
                    found = sf.evidence(nle, x)
                    off = found.log - exact_evidence(task, x)
                    parts = {"error": found.error, "learned": found.learned, "computed": found.computed}
                    asked.say("evidence", method="nle", task=task.name, n=n, seed=seed, data=i, off=off, **parts)
    if "gaussian" not in asked.tasks:
        return
    scores = sf.fit(sf.simulate(GAUSSIAN.prior, GAUSSIAN.simulator, asked.budget), sf.NPSE(set_size=1, training=asked.training))
    for n in (8, 30):
        x = np.asarray(GAUSSIAN.observe(n, 50)[1], np.float64)
        total, single = gaussian_evidence(x)
        found = sf.evidence(scores, x)
        off = found.log - (total - single)
        asked.say("evidence less single ones", method="f-npse", task="gaussian", n=n, off=off, error=found.error)


def missing(asked: Asked) -> None:
    """C2ST against the conjugate posterior of what was observed."""
    short = sf.NLE().training
    methods = {
        "f-npse": sf.NPSE(set_size=1, training=asked.training),
        "nle": sf.NLE(training=replace(short, steps=min(short.steps, asked.training.steps))),
        "nre": sf.NRE(training=replace(sf.NRE().training, steps=asked.training.steps)),
    }
    sims = sf.simulate(GAUSSIAN.prior, GAUSSIAN.simulator, asked.budget, missing=True)
    for name, method in methods.items():
        posterior = sf.fit(sims, method)
        for i in range(5):
            rng = np.random.default_rng(i)
            _, x = GAUSSIAN.observe(30, 60 + i)
            x = np.where(rng.uniform(size=x.shape) < 0.3, np.nan, x)
            precision = 1 + (~np.isnan(x)).sum(axis=0) / VARIANCES
            exact = np.nansum(x, axis=0) / VARIANCES / precision + rng.standard_normal((1_000, 10)) / np.sqrt(precision)
            asked.say("missing", method=name, n=30, data=i, c2st=c2st(posterior.sample(x, 1_000).theta, exact, seed=0))


PARTS = {"missing": missing, "other_prior": other_prior, "evidence": evidence, "density": density}
TASKS = ("gaussian", "mixture", "sir")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which; all by default")
    parser.add_argument("--steps", type=int, default=16_000, help="of training, at most")
    parser.add_argument("--members", type=int, default=5, help="of the ensembles")
    parser.add_argument("--budget", type=int, default=10_000, help="simulations")
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each kind")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--method", choices=("f-npse", "nle"), default="f-npse", help="of other_prior; nle as by default")
    parser.add_argument("--out", type=Path, help="a file that the lines are added to, too")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    training = sf.Training(steps=given.steps, members=given.members)
    asked = Asked(training, given.budget, tuple(range(given.seeds)), tuple(given.tasks), given.method, given.out)
    for part in given.parts or PARTS:
        began = time.perf_counter()
        PARTS[part](asked)
        asked.say(f"{part} done", seconds=time.perf_counter() - began)


if __name__ == "__main__":
    main()
