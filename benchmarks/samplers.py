"""What is the sampler's own error? Every rule with every sampler that is valid for it, with exact scores.

    python benchmarks/samplers.py                          # the defaults
    python benchmarks/samplers.py --all                    # every pair of rule and sampler (an accelerator helps)
    python benchmarks/samplers.py --rules gauss-pilots --samplers ddim flow --tasks mixture --n 8 30

Means over data sets (some served to choose the damped rule's batch, none to tune another default) of C2ST (0.5 is perfect; the
largest of the data sets follows), of the shift of the means in posterior sd, of the ratio of the sds, and of how often the run
said of itself that it had converged. The tempered rule and Algorithms 1 and 2 run on the paper's schedule (linear-beta),
everything else on log-snr. `gauss` takes its covariances from pilot draws here: exact scores have no Gaussian base.
"""

import argparse
import itertools
import time
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

from scorefold import tasks
from scorefold.compose import RULES, Damped, Gauss, Rule, Tempered
from scorefold.diagnose.c2st import c2st
from scorefold.diagnose.moments import mean_shift, sd_ratio
from scorefold.errors import ScorefoldError
from scorefold.networks.score import Shape
from scorefold.noise import Level, levels
from scorefold.pairing import pair
from scorefold.posterior import pilot_precisions
from scorefold.sample import SAMPLERS, Flow, Langevin, Metropolis, Sampler, Transitions
from scorefold.sets import SetScores
from scorefold.tasks.exact import ExactSets, exact_sets
from scorefold.tasks.task import Task

DRAWS = 1_000
FIRST_SEED = 500
EXACT = Shape(dim=0, x=0, largest_set=1, conservative=True)
"""Exact scores are gradients, so every sampler may use them."""


@eqx.filter_jit
def run(
    sets: ExactSets, dim: int, rule: Rule, sampler: Sampler, grid: Level, flow_grid: Level, key: jax.Array
) -> tuple[jax.Array, ...]:
    """Draws with exact scores, and whether they converged."""
    composed: SetScores = sets
    if isinstance(rule, Gauss):
        composed = sets.with_precision(pilot_precisions(sets, dim, flow_grid, key, rule.pilots)[0])
    key_start, key_run = jax.random.split(key)
    u = rule.reference_sd(sets.count) * jax.random.normal(key_start, (DRAWS, dim))
    last = (rule.log_density(sets),) if isinstance(sampler, Metropolis) else ()
    u, info = sampler(rule.score(composed), grid, u, key_run, sets.count, *last)
    return u, info.converged


def cell(task: Task, rule: Rule, sampler: Sampler, n: int, seed: int) -> list[float]:
    """C2ST, shift, sd ratio and convergence for one data set."""
    _, x_obs = task.observe(n, FIRST_SEED + seed)
    paper = isinstance(rule, Tempered) or isinstance(sampler, Langevin | Transitions)
    schedule = "linear-beta" if paper else "log-snr"
    grid, flow_grid = (
        jax.tree.map(lambda v: v[::-1], levels(name, 400, one.levels))
        for name, one in ((schedule, sampler), ("log-snr", Flow()))
    )
    u, converged = run(exact_sets(task, x_obs), task.prior.dim, rule, sampler, grid, flow_grid, jax.random.key(seed))
    u = np.clip(np.nan_to_num(np.asarray(u, float), nan=30.0), -30, 30)
    theta, reference = task.prior.from_normal(u), task.reference(x_obs, DRAWS, seed)
    shift = float(np.sqrt((mean_shift(theta, reference) ** 2).mean()))
    return [c2st(theta, reference), shift, float(sd_ratio(theta, reference).mean()), float(converged)]


def pairs(rules: list[str], samplers: list[str]) -> list[tuple[str, str]]:
    """The valid ones for several sets; the defaults, for any number."""
    found = []
    for rule, sampler in itertools.product(rules, samplers):
        try:
            pair(*(None if word == "default" else word for word in (rule, sampler)), 2, EXACT)
        except ScorefoldError:
            continue
        found.append((rule, sampler))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["gaussian", "mixture", "bimodal", "correlated"])
    parser.add_argument("--n", nargs="+", type=int, default=[1, 8, 30, 300, 1000])
    parser.add_argument("--sets", type=int, default=3, help="data sets per cell")
    parser.add_argument("--rules", nargs="+", default=["default"], choices=[r for r in RULES if r != "gauss"])
    parser.add_argument("--samplers", nargs="+", default=["default"], choices=list(SAMPLERS))
    parser.add_argument("--all", action="store_true", help="every rule and every sampler")
    parser.add_argument("--out", type=Path, help="write the table there too, as CSV")
    chosen = parser.parse_args()
    if chosen.all:
        chosen.rules, chosen.samplers = [r for r in RULES if r != "gauss"], list(SAMPLERS)
    lines = ["rule,sampler,task,n,c2st,c2st_largest,shift,sd_ratio,converged"]
    print(f"{jax.devices()[0].device_kind}; {chosen.sets} data sets a cell, {DRAWS:,} draws")
    print("rule          sampler      task          n   C2ST  (most)   shift  sd ratio  converged  seconds")
    for rule, sampler in pairs(chosen.rules, chosen.samplers):
        for name, n in itertools.product(chosen.tasks, chosen.n):
            used = pair(*(None if word == "default" else word for word in (rule, sampler)), n, EXACT)
            if rule == "damped" and n <= Damped().batch:
                continue  # the diffused rule
            started = time.perf_counter()
            cells = np.asarray([cell(tasks.get(name), *used, n, seed) for seed in range(chosen.sets)])
            c, shift, ratio, converged = cells.mean(axis=0)
            print(
                f"{rule:13s} {sampler:12s} {name:11s} {n:4d}  {c:.3f} ({cells[:, 0].max():.3f})  {shift:6.3f}    {ratio:.3f}   "
                f"   {converged:.2f}     {time.perf_counter() - started:5.0f}",
                flush=True,
            )
            lines.append(f"{rule},{sampler},{name},{n},{c:.4f},{cells[:, 0].max():.4f},{shift:.4f},{ratio:.4f},{converged:.2f}")
    if chosen.out:
        chosen.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
