"""What is the sampler's own error? Every sampler with exact scores, where the truth is known.

    python benchmarks/samplers.py                 # the default sampler
    python benchmarks/samplers.py --all           # and the paper's, with its schedule

Means over data sets of C2ST (0.5 is perfect), shift of the means in posterior sd, ratio of the sds, and how often the run
said of itself that it had converged.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

from scorefold import tasks
from scorefold.compose.factorized import PriorRule, factorized, reference_sd
from scorefold.diagnose.c2st import c2st
from scorefold.diagnose.moments import mean_shift, sd_ratio
from scorefold.noise import levels
from scorefold.sample import Ancestral, Langevin, Sampler, SelfTuned, Transitions
from scorefold.tasks.exact import composed_score
from scorefold.tasks.task import Task

DRAWS = 1_000


def draw(sampler: Sampler, schedule: str, rule: PriorRule, task: Task, x_obs: np.ndarray, seed: int):
    """Draws with exact scores, and whether they converged."""
    n = len(x_obs)
    grid = jax.tree.map(lambda v: v[::-1], levels(schedule, 400, sampler.levels))
    posteriors = jax.vmap(task.single_posterior)(jnp.asarray(x_obs, jnp.float32))

    @jax.jit
    def run(posteriors, key):
        key_start, key_run = jax.random.split(key)
        u = reference_sd(n, rule) * jax.random.normal(key_start, (DRAWS, task.prior.dim))
        return sampler(factorized(composed_score(posteriors), n, rule), grid, u, key_run, n)

    u, info = run(posteriors, jax.random.key(seed))
    return task.prior.from_normal(np.nan_to_num(np.asarray(u, float), nan=1e3, posinf=1e3, neginf=-1e3)), info


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=tasks.names())
    parser.add_argument("--n", nargs="+", type=int, default=[1, 2, 10, 100, 1000])
    parser.add_argument("--sets", type=int, default=3, help="data sets per cell")
    parser.add_argument("--all", action="store_true", help="the paper's samplers too")
    chosen = parser.parse_args()
    rows: list[tuple[str, Sampler, str, PriorRule]] = [("self-tuned", SelfTuned(), "log-snr", "diffused")]
    if chosen.all:
        rows += [
            ("langevin (Algorithm 1)", Langevin(), "linear-beta", "tempered"),
            ("transitions (Algorithm 2)", Transitions(), "linear-beta", "tempered"),
            ("ancestral", Ancestral(), "log-snr", "diffused"),
        ]
    print(f"{'sampler':26s} {'task':10s}    n   C2ST   shift  sd ratio  converged")
    for name, sampler, schedule, rule in rows:
        for task in map(tasks.get, chosen.tasks):
            for n in chosen.n:
                if isinstance(sampler, Ancestral) and n > 1:
                    continue
                cells = []
                for seed in range(chosen.sets):
                    _, x_obs = task.observe(n, seed)
                    theta, info = draw(sampler, schedule, rule, task, x_obs, seed)
                    reference = task.reference(x_obs, DRAWS, seed)
                    shift = np.sqrt((mean_shift(theta, reference) ** 2).mean())
                    cells.append([c2st(theta, reference), shift, sd_ratio(theta, reference).mean(), info.converged])
                c, shift, ratio, converged = np.mean(np.asarray(cells, float), axis=0)
                print(
                    f"{name:26s} {task.name:10s} {n:4d}  {c:.3f}  {shift:6.3f}    {ratio:.3f}      {converged:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
