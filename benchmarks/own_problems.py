"""How right is a likelihood on small problems that are no tasks, with and without a setting that is for such problems?

    python benchmarks/own_problems.py --out own.jsonl                      # noise that may change with the parameters or not
    python benchmarks/own_problems.py --out own.jsonl --setting edges --problems delayed delayed_decay race --n 8 30 100
    python benchmarks/own_problems.py --out own.jsonl --problems place_and_scale --steps 1000
    python benchmarks/own_problems.py --out own.jsonl --table

Each problem is a simulator with a likelihood in closed form. A cell is a problem, a number of observations, a data set with
parameters from the prior, and a training on 10,000 simulations; its truth are draws by Markov chains with stretch
and difference moves in the N(0, I) space of the prior. A cell's error is the root mean square, over parameters, of what the
means are off by in posterior sd, and the mean |log sd ratio|.

References: "Ensemble samplers with affine invariance", Goodman and Weare, 2010; "A Markov chain Monte Carlo version of the
genetic algorithm Differential Evolution", ter Braak, 2006.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.stats
from scipy.special import gammaln

import scorefold as sf

WALKERS, STEPS, EVERY = 400, 400, 10
IMPOSSIBLE = -1e6


class Problem(NamedTuple):
    """A simulator and its likelihood."""

    prior: sf.Prior
    simulate: Callable
    """(theta, rng) → one observation"""
    log_likelihood: Callable
    """(theta (count, dim), x (n, features)) → (count,)"""


def normal(x, mean, sd):
    """log density up to a constant."""
    return -(((x - mean) / sd) ** 2) / 2 - np.log(sd)


def place_and_scale(law=scipy.stats.lognorm(0.5)) -> Problem:  # noqa: B008
    """Four draws of N(mean, sd²), with this prior of the sd."""
    prior = sf.Prior({"mean": scipy.stats.norm(0, 1), "sd": law})

    def log_likelihood(theta, x):
        return normal(x, theta[:, :1, None], theta[:, 1:, None]).sum(axis=(1, 2))

    return Problem(prior, lambda theta, rng: rng.normal(theta[0], theta[1], size=4), log_likelihood)


def half_normal_sd() -> Problem:
    """The same with a half-normal sd."""
    return place_and_scale(scipy.stats.halfnorm())


def exponential_sd() -> Problem:
    """The same with an exponential sd."""
    return place_and_scale(scipy.stats.expon())


def autoregression() -> Problem:
    """Six values of a stationary series x_i = phi x_{i-1} + sd e_i."""
    prior = sf.Prior({"phi": scipy.stats.uniform(-0.9, 1.8), "sd": scipy.stats.lognorm(0.5)})

    def simulate(theta, rng):
        phi, sd = theta
        x = [rng.normal(0, sd / np.sqrt(1 - phi**2))]
        for _ in range(5):
            x.append(phi * x[-1] + sd * rng.standard_normal())
        return np.array(x)

    def log_likelihood(theta, x):
        phi, sd = theta[:, :1, None], theta[:, 1:, None]
        first, others = normal(x[:, :1], 0, sd / np.sqrt(1 - phi**2)), normal(x[:, 1:], phi * x[:, :-1], sd)
        return first.sum(axis=(1, 2)) + others.sum(axis=(1, 2))

    return Problem(prior, simulate, log_likelihood)


def pairs() -> Problem:
    """Three pairs of correlated numbers; means, sds and the correlation are unknown."""
    marginals = [scipy.stats.norm(0, 1)] * 2 + [scipy.stats.lognorm(0.6, scale=0.7)] * 2 + [scipy.stats.uniform(-0.95, 1.9)]
    prior = sf.Prior(dict(zip(("mean_y", "mean_z", "sd_y", "sd_z", "correlation"), marginals, strict=True)))

    def simulate(theta, rng):
        mean_y, mean_z, sd_y, sd_z, r = theta
        e, f = rng.standard_normal((3, 2)).T
        return np.concatenate([mean_y + sd_y * e, mean_z + sd_z * (r * e + np.sqrt(1 - r**2) * f)])

    def log_likelihood(theta, x):
        mean_y, mean_z, sd_y, sd_z, r = (column[:, None, None] for column in theta.T)
        e = (x[:, :3] - mean_y) / sd_y
        across = normal(x[:, 3:], mean_z + r * sd_z * e, sd_z * np.sqrt(1 - r**2))
        return (normal(x[:, :3], mean_y, sd_y) + across).sum(axis=(1, 2))

    return Problem(prior, simulate, log_likelihood)


def straight() -> Problem:
    """Six straight lines in four parameters, with independent noise of one size: nothing changes."""
    slopes = np.random.default_rng(5).standard_normal((6, 4))
    prior = sf.Prior({name: scipy.stats.norm(0, 1) for name in "abcd"})

    def log_likelihood(theta, x):
        return normal(x, (theta @ slopes.T)[:, None], 1.0).sum(axis=(1, 2))

    return Problem(prior, lambda theta, rng: slopes @ theta + rng.standard_normal(6), log_likelihood)


def waiting_times() -> Problem:
    """Three gamma-distributed times."""
    prior = sf.Prior({"shape": scipy.stats.lognorm(0.5, scale=2.0), "scale": scipy.stats.uniform(0.2, 2.0)})

    def log_likelihood(theta, x):
        shape, scale = theta[:, :1, None], theta[:, 1:, None]
        return ((shape - 1) * np.log(x) - x / scale - gammaln(shape) - shape * np.log(scale)).sum(axis=(1, 2))

    return Problem(prior, lambda theta, rng: rng.gamma(*theta, size=3), log_likelihood)


def outliers() -> Problem:
    """Two parameters and their sum, each with noise of heavy tails; its scale is known."""
    prior = sf.Prior({"a": scipy.stats.norm(0, 1), "b": scipy.stats.norm(0, 1)})
    noise = scipy.stats.t(3)

    def places(theta):
        return np.stack([theta[..., 0], theta[..., 1], theta[..., 0] + theta[..., 1]], axis=-1)

    def log_likelihood(theta, x):
        return noise.logpdf((x - places(theta)[:, None]) / 0.5).sum(axis=(1, 2))

    return Problem(prior, lambda theta, rng: places(theta) + 0.5 * rng.standard_t(3, size=3), log_likelihood)


DELAY = {"delay": scipy.stats.uniform(0.1, 0.9)}


def delayed() -> Problem:
    """One time, log-normal after a delay."""
    prior = sf.Prior(DELAY | {"scale": scipy.stats.lognorm(0.5, scale=0.6)})

    def log_likelihood(theta, x):
        return scipy.stats.lognorm.logpdf(x - theta[:, :1, None], 0.5, scale=theta[:, 1:, None]).sum(axis=(1, 2))

    return Problem(prior, lambda theta, rng: theta[:1] + theta[1] * np.exp(0.5 * rng.standard_normal(1)), log_likelihood)


def delayed_decay() -> Problem:
    """Two times of exponential decay after a dead time: their density jumps there."""
    prior = sf.Prior(DELAY | {"scale": scipy.stats.lognorm(0.5, scale=0.6)})

    def log_likelihood(theta, x):
        return scipy.stats.expon.logpdf(x, theta[:, :1, None], theta[:, 1:, None]).sum(axis=(1, 2))

    return Problem(prior, lambda theta, rng: theta[0] + theta[1] * rng.exponential(size=2), log_likelihood)


def race() -> Problem:
    """The time of the first of two log-normal accumulators, after a delay, and which one it was."""
    drifts = {name: scipy.stats.norm(-0.5, 0.6) for name in ("left", "right")}
    prior = sf.Prior(DELAY | drifts)

    def simulate(theta, rng):
        times = np.exp(theta[1:] + 0.5 * rng.standard_normal(2))
        return np.array([theta[0] + times.min(), float(times.argmin())])

    def log_likelihood(theta, x):
        left, right = (np.exp(column)[:, None] for column in theta[:, 1:].T)
        t, first = x[:, 0] - theta[:, :1], x[:, 1] == 0
        winner, loser = np.where(first, left, right), np.where(first, right, left)
        return (scipy.stats.lognorm.logpdf(t, 0.5, scale=winner) + scipy.stats.lognorm.logsf(t, 0.5, scale=loser)).sum(axis=1)

    return Problem(prior, simulate, log_likelihood)


PROBLEMS = {
    made.__name__: made
    for made in (
        place_and_scale, half_normal_sd, exponential_sd, autoregression, pairs, straight, waiting_times, outliers,
        delayed, delayed_decay, race,
    )
}  # fmt: skip
SETTINGS = {"changing": ("constant", "changing"), "edges": ("no edges", "edges")}
"""Without and with, in words."""


def reference(problem: Problem, x: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Draws u of the true posterior; the walkers begin at draws near it."""
    rng, dim, half = np.random.default_rng(0), problem.prior.dim, WALKERS // 2
    u = near[rng.integers(len(near), size=WALKERS)] + 0.01 * rng.standard_normal((WALKERS, dim))

    def log_posterior(u):
        value = np.nan_to_num(problem.log_likelihood(problem.prior.from_normal(u), x), nan=IMPOSSIBLE)
        return np.maximum(value, IMPOSSIBLE) - (u**2).sum(axis=1) / 2  # walkers where it is impossible follow the prior

    here, kept = log_posterior(u), []
    for step in range(STEPS):
        for own, others in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
            first, second = u[others][rng.integers(half, size=(2, half))]
            if rng.random() < 0.5:
                stretch = (rng.random(half) + 1) ** 2 / 2
                to, volume = first + stretch[:, None] * (u[own] - first), (dim - 1) * np.log(stretch)
            else:
                to, volume = u[own] + 2.38 / np.sqrt(2 * dim) * (first - second), 0.0
            there = log_posterior(to)
            taken = np.log(rng.random(half)) < there - here[own] + volume
            u[own] = np.where(taken[:, None], to, u[own])
            here[own] = np.where(taken, there, here[own])
        if step >= STEPS // 2 and step % EVERY == 0:
            kept.append(u.copy())
    return np.concatenate(kept)


def run(chosen: argparse.Namespace) -> None:
    """Every cell that has no record."""
    have = {key(one) for one in read(chosen.out)}
    for name, on in product(chosen.problems, (True, False)):
        how = dict.fromkeys(SETTINGS, True) | {chosen.setting: on}
        problem, method = PROBLEMS[name](), sf.NLE(**how)
        cells = [
            {"problem": name, **how, "n": n, "data_set": data_set, "training": training}
            for n, data_set, training in product(chosen.n, range(chosen.data_sets), range(chosen.trainings))
        ]
        if all(key(cell) in have for cell in cells):
            continue
        seeds = list(range(chosen.trainings))
        sims = [sf.simulate(problem.prior, problem.simulate, chosen.budget, seed=seed) for seed in seeds]
        trained = sf.fit_many(sims, replace(method, training=replace(method.training, steps=chosen.steps)), seeds)
        for cell in cells:
            if key(cell) not in have:
                record = cell | measured(problem, trained[cell["training"]], cell)
                with chosen.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")


def key(record: dict) -> tuple:
    return tuple(record[name] for name in ("problem", *SETTINGS, "n", "data_set", "training"))


def measured(problem: Problem, posterior: sf.Posterior, cell: dict) -> dict:
    """Errors of one cell."""
    rng = np.random.default_rng([7, cell["n"], cell["data_set"]])
    theta = problem.prior.from_normal(rng.standard_normal((1, problem.prior.dim)))[0]
    x = np.stack([problem.simulate(theta, rng) for _ in range(cell["n"])])
    draws = posterior.sample(x, 1_000, seed=cell["training"])
    u = problem.prior.to_normal(draws.theta)
    truth = reference(problem, x, u)
    off, ratio = (u.mean(axis=0) - truth.mean(axis=0)) / truth.std(axis=0), u.std(axis=0) / truth.std(axis=0)
    return {
        "shift": float(np.sqrt((off**2).mean())), "log_width": float(np.abs(np.log(ratio)).mean()),
        "shifts": off.round(3).tolist(), "ratios": ratio.round(3).tolist(), "trust": draws.trust.verdict,
    }  # fmt: skip


def read(path: Path) -> list[dict]:
    """Records; in older ones there were no edges."""
    return [{"edges": False} | json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(records: list[dict], setting: str) -> None:
    """Means of cells, with and without a setting."""
    print("problem             n  setting   cells  shift, rms  |log sd ratio|  good")
    for name, n, on in product(PROBLEMS, sorted({one["n"] for one in records}), (False, True)):
        own = [one for one in records if (one["problem"], one["n"], one[setting]) == (name, n, on)]
        if own:
            shift, width = np.sqrt(np.mean([one["shift"] ** 2 for one in own])), np.mean([one["log_width"] for one in own])
            good = sum(one["trust"] == "good" for one in own)
            print(f"{name:16s} {n:4d}  {SETTINGS[setting][on]:8s}  {len(own):5d}  {shift:10.3f}  {width:14.3f}  {good:4d}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--setting", choices=list(SETTINGS), default="changing")
    parser.add_argument("--n", nargs="+", type=int, default=[8, 30])
    parser.add_argument("--trainings", type=int, default=3)
    parser.add_argument("--data-sets", type=int, default=2)
    parser.add_argument("--budget", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=10_000, help="of training, at most")
    parser.add_argument("--table", action="store_true", help="only show what the file holds")
    chosen = parser.parse_args()
    if not chosen.table:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(chosen)
    table(read(chosen.out), chosen.setting)


if __name__ == "__main__":
    main()
