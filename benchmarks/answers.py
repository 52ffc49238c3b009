"""What a posterior answers besides draws, next to the truth: other priors, densities, evidence, missing numbers.

    python benchmarks/answers.py                      # all parts; each prints its lines as it is done
    python benchmarks/answers.py other_prior missing  # some of them
    python benchmarks/answers.py --steps 2000         # shorter trainings

- other_prior: gaussian and sir at n = 8, trained under one prior and drawn under another, next to one trained under that one;
- density: gaussian at n = 1,000 and 1,000 points, conservative networks and others; time, and the error against the closed form
  of the composed density of the base alone, where nothing is learned wrong, and of the trained networks;
- evidence: gaussian and mixture at n = 1 and 30 by NLE, and gaussian by composed scores;
- missing: gaussian at n = 30 with 30 % of the numbers missing.
"""

import argparse
import time
import warnings
from dataclasses import replace

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

BUDGET = 10_000
DATA_SETS = (0, 1, 2)
GAUSSIAN, MIXTURE, SIR = (tasks.get(name) for name in ("gaussian", "mixture", "sir"))


def say(part: str, **numbers: float) -> None:
    """One line."""
    print(f"{part:<44}", "  ".join(f"{name} {value:.3f}" for name, value in numbers.items()), flush=True)


def other_prior(training: sf.Training) -> None:
    """C2ST against exact draws under the other prior, changed at sampling and trained under it."""
    normal = sf.Prior({name: stats.norm(0.5, 0.6) for name in GAUSSIAN.prior.names})
    near, far = ((stats.lognorm(0.4, scale=0.44), stats.lognorm(0.18, scale=0.13)),
                 (stats.lognorm(0.3, scale=0.5), stats.lognorm(0.15, scale=0.14)))  # fmt: skip
    priors = [sf.Prior(dict(zip(SIR.prior.names, laws, strict=True))) for laws in (near, far)]
    for task, other in ((GAUSSIAN, normal), *((SIR, prior) for prior in priors)):
        first = sf.fit(sf.simulate(task.prior, task.simulator, BUDGET), sf.NPSE(set_size=1, training=training))
        under = sf.fit(sf.simulate(other, task.simulator, BUDGET), sf.NPSE(set_size=1, training=training))
        found = {"changed": [], "trained under it": [], "each other": []}
        for i in DATA_SETS:
            theta = other.sample(1, seed=100 + i)[0]
            rng = np.random.default_rng(i)
            x = np.stack([task.numpy_simulator(theta, rng) for _ in range(8)])
            wide = task.reference(x, 20_000, i)
            log_ratio = other.log_prob(wide) - task.prior.log_prob(wide)
            weights = np.exp(log_ratio - log_ratio.max())
            exact = wide[rng.choice(len(wide), 1_000, p=weights / weights.sum())]
            changed, trained = first.sample(x, 1_000, prior=other).theta, under.sample(x, 1_000).theta
            found["changed"].append(c2st(changed, exact, seed=0))
            found["trained under it"].append(c2st(trained, exact, seed=0))
            found["each other"].append(c2st(changed, trained, seed=0))
        say(f"other prior, {task.name}, n = 8: C2ST", **{word: float(np.mean(v)) for word, v in found.items()})


def exact_base() -> GaussianBase:
    """p(u | x) of the Gaussian task."""
    arrays = (np.diag(1 / (1 + VARIANCES)), np.zeros(10), np.eye(10), VARIANCES / (1 + VARIANCES))
    return GaussianBase(*(jnp.asarray(v, jnp.float32)[None] for v in arrays))


def density(training: sf.Training) -> None:
    """Log densities at 1,000 points given 1,000 observations."""
    _, x = GAUSSIAN.observe(1_000, 5)
    precision = 1 + len(x) / VARIANCES
    mean = np.asarray(x, np.float64).sum(axis=0) / VARIANCES / precision
    sd = precision**-0.5
    theta = mean + sd * np.random.default_rng(0).standard_normal((1_000, 10))
    right = stats.norm(mean, sd).logpdf(theta).sum(axis=1)
    sims = sf.simulate(GAUSSIAN.prior, GAUSSIAN.simulator, BUDGET)
    for conservative in (True, False):
        trained = sf.fit(sims, sf.NPSE(set_size=1, training=training, conservative=conservative))
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
            say(
                f"density, {word}, {name}, n = 1,000", seconds=seconds, rms=float(np.std(off)),
                largest=float(np.abs(off - off.mean()).max()), map_off=float(np.abs((highest - mean) / sd).max()),
            )  # fmt: skip
    _, few = GAUSSIAN.observe(30, 6)
    precision = 1 + 30 / VARIANCES
    mean, sd = few.sum(axis=0) / VARIANCES / precision, precision**-0.5
    theta = mean + sd * np.random.default_rng(1).standard_normal((1_000, 10))
    off = based.log_prob(theta, few) - stats.norm(mean, sd).logpdf(theta).sum(axis=1)
    say("density, normalised, exact base, n = 30", mean=float(off.mean()), rms=float(off.std()))


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


def evidence(training: sf.Training) -> None:
    """Against closed forms, or importance sampling."""
    for task, budget in ((GAUSSIAN, BUDGET), (MIXTURE, 2 * BUDGET)):
        own = replace(sf.NLE().training, steps=training.steps)
        nle = sf.fit(sf.simulate(task.prior, task.simulator, budget), sf.NLE(training=own))
        for n in (1, 30):
            off, error = [], []
            for i in DATA_SETS:
                _, x = task.observe(n, 40 + i)
                x = np.asarray(x, np.float64)
                if task is GAUSSIAN:
                    right = gaussian_evidence(x)[0]
                elif n == 1:
                    laws = [stats.norm(0, np.sqrt(1 + s * VARIANCES)).logpdf(x[0]).sum() for s in SCALES]
                    right = float(logsumexp(np.log(0.5) + np.array(laws)))
                else:
                    right = mixture_evidence(x)
                found = sf.evidence(nle, x)
                off.append(found.log - right)
                error.append(found.error)
            numbers = {f"off_{i}": value for i, value in enumerate(off)}
            say(f"evidence, NLE, {task.name}, n = {n}", **numbers, stated=float(np.mean(error)))
    scores = sf.fit(sf.simulate(GAUSSIAN.prior, GAUSSIAN.simulator, BUDGET), sf.NPSE(set_size=1, training=training))
    for n in (8, 30):
        _, x = GAUSSIAN.observe(n, 50)
        total, single = gaussian_evidence(np.asarray(x, np.float64))
        found = sf.evidence(scores, x)
        say(f"evidence less single ones, f-npse, n = {n}", right=total - single, found=found.log, stated=found.error)


def missing(training: sf.Training) -> None:
    """C2ST against the conjugate posterior of what was observed."""
    for budget in (BUDGET, 2 * BUDGET):
        sims = sf.simulate(GAUSSIAN.prior, GAUSSIAN.simulator, budget, missing=True)
        posterior = sf.fit(sims, sf.NPSE(set_size=1, training=training))
        found = []
        for i in (*DATA_SETS, 3, 4):
            rng = np.random.default_rng(i)
            _, x = GAUSSIAN.observe(30, 60 + i)
            x = np.where(rng.uniform(size=x.shape) < 0.3, np.nan, x)
            precision = 1 + (~np.isnan(x)).sum(axis=0) / VARIANCES
            exact = np.nansum(x, axis=0) / VARIANCES / precision + rng.standard_normal((1_000, 10)) / np.sqrt(precision)
            found.append(c2st(posterior.sample(x, 1_000).theta, exact, seed=0))
        say(f"missing, gaussian, n = 30, {budget:,} simulations", c2st=float(np.mean(found)), largest=float(np.max(found)))


PARTS = {"missing": missing, "other_prior": other_prior, "evidence": evidence, "density": density}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which; all by default")
    parser.add_argument("--steps", type=int, default=16_000, help="of training, at most")
    parser.add_argument("--members", type=int, default=5, help="of the ensembles")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in given.parts or PARTS:
        began = time.perf_counter()
        PARTS[part](sf.Training(steps=given.steps, members=given.members))
        print(f"{part}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
