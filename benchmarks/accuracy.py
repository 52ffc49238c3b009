"""How right are learned posteriors? C2ST, shift and sd ratio on tasks with a known posterior.

    python benchmarks/accuracy.py                       # every task, n = 1, 8, 30: the defaults
    python benchmarks/accuracy.py --no-base --tasks gaussian mixture
    python benchmarks/accuracy.py --set-size 6          # PF-NPSE
    python benchmarks/accuracy.py --rule gauss --sampler ancestral

Every figure is a mean and spread over trainings × parameter draws, none shared between trainings.
"""

import argparse
import time
import warnings
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from scorefold import tasks
from scorefold.diagnostics.c2st import c2st_many
from scorefold.diagnostics.mmd import squared_mmd
from scorefold.diagnostics.moments import mean_shift, sd_ratio
from scorefold.errors import ScorefoldError
from scorefold.methods.fit import fit_many
from scorefold.methods.npse import NPSE
from scorefold.posterior.posterior import Posterior
from scorefold.simulation.simulate import simulate


class Clouds(NamedTuple):
    """Draws for one data set, next to the truth."""

    theta: np.ndarray
    reference: np.ndarray
    converged: bool


def draw(posterior: Posterior, task: tasks.task.Task, n: int, seed: int) -> Clouds:
    """For the data set of this seed. Draws that ran away count as a point far out."""
    _, x_obs = task.observe(n, 1_000 + seed)
    reference = task.reference(x_obs, 1_000, 0)
    try:
        draws = posterior.sample(x_obs, 1_000, seed=seed)
    except ScorefoldError:
        return Clouds(np.broadcast_to(1e3 * reference.std(0), reference.shape), reference, False)
    return Clouds(draws.theta, reference, bool(draws.info.converged))


def measure(clouds: list[Clouds]) -> np.ndarray:
    """A row each: C2ST, squared MMD, root mean square shift, mean sd ratio and convergence."""
    c = c2st_many([one.theta for one in clouds], [one.reference for one in clouds])
    rest = [
        [
            squared_mmd(theta, reference),
            np.sqrt((mean_shift(theta, reference) ** 2).mean()),
            sd_ratio(theta, reference).mean(),
            converged,
        ]
        for theta, reference, converged in clouds
    ]
    return np.column_stack([c, rest])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=tasks.names())
    parser.add_argument("--n", nargs="+", type=int, default=[1, 8, 30])
    parser.add_argument("--budget", type=int, default=10_000)
    parser.add_argument("--trainings", type=int, default=3)
    parser.add_argument("--parameters", type=int, default=3)
    parser.add_argument("--no-base", action="store_true", help="the paper's network, without the Gaussian base")
    parser.add_argument("--no-correction", action="store_true", help="without the correction by unseen cases")
    parser.add_argument("--set-size", type=int, default=1, help="m: 1 is F-NPSE, more PF-NPSE")
    parser.add_argument("--rule", default=None)
    parser.add_argument("--sampler", default=None)
    parser.add_argument("--members", type=int, default=None)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    method = NPSE(base=not chosen.no_base, correction=not chosen.no_correction, rule=chosen.rule, sampler=chosen.sampler)
    if chosen.members:
        method = replace(method, training=replace(method.training, members=chosen.members))
    print(f"{jax.devices()[0].device_kind}; {chosen.trainings} trainings × {chosen.parameters} parameter draws; {method}")
    print("task          n   C2ST (sd)      MMD²    shift  sd ratio  converged   train s, together")
    for name in chosen.tasks:
        task = tasks.get(name)
        seeds = list(range(chosen.trainings))
        sims = [simulate(task.prior, task.simulator, chosen.budget, chosen.set_size, seed=seed) for seed in seeds]
        started = time.perf_counter()
        posteriors = fit_many(sims, method, seeds)
        spent = time.perf_counter() - started
        for n in chosen.n:
            each = range(chosen.parameters)
            clouds = [
                draw(posterior, task, n, training * chosen.parameters + i)
                for training, posterior in enumerate(posteriors)
                for i in each
            ]
            c, mmd, shift, ratio, converged = measure(clouds).T
            print(
                f"{name:10s} {n:4d}   {c.mean():.3f} ({c.std():.3f})  {np.mean(mmd):.4f}  {np.mean(shift):.3f}  "
                f"{np.mean(ratio):.3f}     {converged.mean():.2f}       {spent:.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
