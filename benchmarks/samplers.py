"""What is the sampler's own error? Every rule with every sampler that is valid for it, with exact scores.

    python benchmarks/samplers.py                          # the defaults
    python benchmarks/samplers.py --all                    # every pair of rule and sampler (an accelerator helps)
    python benchmarks/samplers.py --rules gauss-pilots --samplers ddim flow --tasks mixture --n 8 30
    python benchmarks/samplers.py --rules tempered --samplers "langevin a=1" "langevin L=20" --n 1 8 30
    python benchmarks/samplers.py --plot benchmarks/results/samplers.csv   # docs/samplers.png from a table that is there

Means over data sets (some served to choose the damped rule's batch, none to tune another default) of C2ST (0.5 is perfect; the
largest of the data sets follows), of the shift of the means in posterior sd, of the ratio of the sds, and of how often the run
said of itself that it had converged. The tempered rule and Algorithms 1 and 2 run on the paper's schedule (linear-beta),
everything else on log-snr. `gauss` takes its covariances from pilot draws here: exact scores have no Gaussian base.
"""

import argparse
import csv
import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.patches import Rectangle

from scorefold import tasks
from scorefold.compose import RULES, Damped, Gauss, Rule, Tempered
from scorefold.compose.sets import SetScores
from scorefold.diagnostics.c2st import c2st_many
from scorefold.diagnostics.moments import mean_shift, sd_ratio
from scorefold.errors import ScorefoldError
from scorefold.noise import Level, levels
from scorefold.posterior.pilots import pilot_precisions
from scorefold.posterior.rule_and_sampler import pair
from scorefold.report.canvas import figure_of, save
from scorefold.report.palette import INK
from scorefold.sample import SAMPLERS, Langevin, Metropolis, ProbabilityFlow, Sampler, Transitions
from scorefold.score.network import Shape
from scorefold.tasks.exact import ExactSets, exact_sets
from scorefold.tasks.task import Task

DRAWS = 1_000
FIRST_SEED = 500
VARIANTS: dict[str, Sampler] = {"langevin a=1": Langevin(a=1.0), "langevin L=20": Langevin(steps=20)}
"""Algorithm 1 with longer and with more steps."""
EXACT = Shape(dim=0, x=0, largest_set=1, conservative=True)
"""Exact scores are gradients, so every sampler may use them."""


@eqx.filter_jit
def run(
    sets: ExactSets, keys: jax.Array, grid: Level, flow_grid: Level, dim: int, rule: Rule, sampler: Sampler
) -> tuple[jax.Array, jax.Array]:
    """Draws with exact scores for each data set, and whether they converged."""

    def one(sets: ExactSets, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        composed: SetScores = sets
        if isinstance(rule, Gauss):
            composed = sets.with_precision(pilot_precisions(sets, dim, flow_grid, key, rule.pilots)[0])
        key_start, key_run = jax.random.split(key)
        u = rule.reference_sd(sets.count) * jax.random.normal(key_start, (DRAWS, dim))
        last = (rule.log_density(sets),) if isinstance(sampler, Metropolis) else ()
        u, info = sampler(rule.score(composed), grid, u, key_run, sets.count, *last)
        return u, info.converged

    with jax.default_matmul_precision("highest"):
        return jax.vmap(one)(sets, keys)


class Row(NamedTuple):
    """Means over data sets, and the largest C2ST of them."""

    rule: str
    sampler: str
    task: str
    n: int
    c2st: float
    c2st_largest: float
    shift: float
    sd_ratio: float
    converged: float

    def __str__(self) -> str:
        return (
            f"{self.rule:13s} {self.sampler:12s} {self.task:11s} {self.n:4d}  {self.c2st:.3f} ({self.c2st_largest:.3f})  "
            f"{self.shift:6.3f}    {self.sd_ratio:.3f}      {self.converged:.2f}"
        )


def rows(words: tuple[str, str], task: Task, chosen: argparse.Namespace) -> list[Row]:
    """One rule and sampler on one task: every n runs through the same compiled program."""
    results = []
    for n in chosen.n:
        rule, sampler = pair(*meant(words), n, EXACT)
        if words[0] == "damped" and n <= Damped().batch:
            continue  # the diffused rule
        paper = isinstance(rule, Tempered) or isinstance(sampler, Langevin | Transitions)
        grid, flow_grid = (
            jax.tree.map(lambda v: v[::-1], levels(name, 400, one.levels))
            for name, one in (("linear-beta" if paper else "log-snr", sampler), ("log-snr", ProbabilityFlow()))
        )
        x_obs = [task.observe(n, FIRST_SEED + seed)[1] for seed in range(chosen.sets)]
        sets = jax.tree.map(lambda *v: jnp.stack(v), *(exact_sets(task, x, room_for=max(chosen.n)) for x in x_obs))
        u, converged = run(
            sets, jax.random.split(jax.random.key(n), chosen.sets), grid, flow_grid, task.prior.dim, rule, sampler
        )
        u = np.clip(np.nan_to_num(np.asarray(u, float), nan=30.0), -30, 30)
        theta = [task.prior.from_normal(one) for one in u]
        references = [task.reference(x, DRAWS, seed) for seed, x in enumerate(x_obs)]
        c = c2st_many(theta, references)
        shift = np.mean([np.sqrt((mean_shift(*both) ** 2).mean()) for both in zip(theta, references, strict=True)])
        ratio = np.mean([sd_ratio(*both).mean() for both in zip(theta, references, strict=True)])
        results.append(Row(*words, task.name, n, np.mean(c), max(c), float(shift), float(ratio), float(converged.mean())))
        print(results[-1], flush=True)
    return results


def meant(words: tuple[str, str]) -> tuple[str | None, str | Sampler | None]:
    """What `pair` takes for a rule's and a sampler's word."""
    rule, sampler = words
    return None if rule == "default" else rule, None if sampler == "default" else VARIANTS.get(sampler, sampler)


def pairs(rules: list[str], samplers: list[str]) -> list[tuple[str, str]]:
    """The valid ones for several sets; the defaults, for any number."""
    found = []
    for rule, sampler in itertools.product(rules, samplers):
        try:
            pair(*meant((rule, sampler)), 2, EXACT)
        except ScorefoldError:
            continue
        found.append((rule, sampler))
    return found


def plot(table: Path, path: Path) -> None:
    """Pairs down, tasks and n across, C2ST in colour; a frame where most data sets said that they had not converged."""
    with table.open(newline="") as file:
        cells = {
            (r["rule"], r["sampler"], r["task"], int(r["n"])): (float(r["c2st"]), float(r["converged"]))
            for r in csv.DictReader(file)
        }
    words = [both for both in itertools.product(RULES, SAMPLERS) if any(cell[:2] == both for cell in cells)]
    if not words:
        raise SystemExit(f"expected rows with rules and samplers by name in {table}; got none. Write them with --all --out.")
    names, sizes = list(dict.fromkeys(cell[2] for cell in cells)), sorted({cell[3] for cell in cells})
    figure = figure_of(3 + 0.52 * len(names) * len(sizes), 1 + 0.34 * len(words))
    row = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(row, names, strict=True):
        shown = np.array([[cells.get((*both, name, n), (np.nan, 1.0)) for n in sizes] for both in words])
        image = axes.imshow(shown[..., 0], cmap="YlOrRd", vmin=0.5, vmax=1.0, aspect="auto")
        for (i, j), value in np.ndenumerate(shown[..., 0]):
            if np.isfinite(value):
                axes.text(j, i, f"{value:.2f}"[1:] if value < 0.995 else "1", ha="center", va="center", fontsize=8.5,
                          color="white" if value > 0.82 else INK)  # fmt: skip
            if shown[i, j, 1] < 0.5:
                axes.add_patch(Rectangle((j - 0.46, i - 0.44), 0.92, 0.88, fill=False, ec=INK, lw=0.9, zorder=3))
        axes.set_title(name, fontsize=11, color=INK)
        axes.set_xticks(range(len(sizes)), [f"{n:,}" for n in sizes], fontsize=8.5)
        axes.set_xlabel("n", fontsize=9)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        for i in range(1, len(words)):
            if words[i][0] != words[i - 1][0]:
                axes.axhline(i - 0.5, color="white", lw=4)
    row[0].set_yticks(range(len(words)), [f"{rule}  ·  {sampler}" for rule, sampler in words], fontsize=9)
    bar = figure.colorbar(image, ax=row, shrink=0.6, pad=0.01)
    bar.set_label("C2ST", fontsize=9)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8.5, length=0)
    print(f"wrote {save(figure, path)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["gaussian", "mixture", "bimodal", "correlated"])
    parser.add_argument("--n", nargs="+", type=int, default=[1, 8, 30, 300, 1000])
    parser.add_argument("--sets", type=int, default=3, help="data sets per cell")
    parser.add_argument("--rules", nargs="+", default=["default"], choices=[r for r in RULES if r != "gauss"])
    parser.add_argument("--samplers", nargs="+", default=["default"], choices=[*SAMPLERS, *VARIANTS])
    parser.add_argument("--all", action="store_true", help="every rule and every sampler")
    parser.add_argument("--threads", type=int, default=1, help="pairs of rule and sampler at a time")
    parser.add_argument("--out", type=Path, help="write the table there too, as CSV")
    parser.add_argument("--plot", type=Path, help="no runs: a picture of this table")
    parser.add_argument("--picture", type=Path, default=Path("docs/samplers.png"), help="where it goes")
    chosen = parser.parse_args()
    if chosen.plot:
        return plot(chosen.plot, chosen.picture)
    if chosen.all:
        chosen.rules, chosen.samplers = [r for r in RULES if r != "gauss"], list(SAMPLERS)
    print(f"{jax.devices()[0].device_kind}; {chosen.sets} data sets a cell, {DRAWS:,} draws")
    print("rule          sampler      task          n   C2ST  (most)   shift  sd ratio  converged")
    jobs = [(words, tasks.get(name)) for words in pairs(chosen.rules, chosen.samplers) for name in chosen.tasks]
    with ThreadPoolExecutor(chosen.threads) as threads:  # most of the time goes into compiling
        found = [row for some in threads.map(lambda job: rows(*job, chosen), jobs) for row in some]
    if chosen.out:
        with chosen.out.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(Row._fields)
            writer.writerows([*row[:4], *(f"{value:.4f}" for value in row[4:])] for row in found)
    return None


if __name__ == "__main__":
    main()
