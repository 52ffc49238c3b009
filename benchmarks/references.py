"""The reference posteriors: are they right, and the ones that come with the package.

    python benchmarks/references.py --check FOLDER    # against sbibm's reference draws, SIR and Lotka–Volterra
    python benchmarks/references.py --nuts            # SIR: the grid against NUTS on the same likelihood
    python benchmarks/references.py --make            # makes src/scorefold/tasks/shipped/ again; an hour on one core

FOLDER has sbibm's files as TASK/observation_NUMBER/{observation.csv,reference_posterior_samples.csv.bz2}. What --make
has computed is kept in the cache (SCOREFOLD_CACHE), so that it may be stopped and started; --seeds 1000 1015 does
a part of it.
"""

import argparse
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from scorefold import tasks
from scorefold.diagnostics.c2st import c2st
from scorefold.diagnostics.moments import mean_shift, sd_ratio
from scorefold.tasks import lotka_volterra, sir, stored
from scorefold.tasks import nuts_reference as nuts
from scorefold.tasks.stored import BENCHMARK_SEEDS, BENCHMARK_SIZES, POOL, SHIPPED, SHIPPED_SEED

HEADER = f"{'':42s} C2ST   shift (posterior sd)  sd ratio   seconds"


def line(what: str, ours: np.ndarray, theirs: np.ndarray, seconds: float) -> None:
    shift, ratio = mean_shift(ours, theirs), sd_ratio(ours, theirs)
    print(f"{what:42s} {c2st(ours, theirs):.3f}  {np.abs(shift).max():.3f}                 "
          f"{ratio.min():.3f} – {ratio.max():.3f}  {seconds:.1f}", flush=True)  # fmt: skip


def check(folder: Path, draws: int) -> None:
    print(f"against sbibm's reference draws, {draws:,} of each\n{HEADER}")
    for name in ("sir", "lotka_volterra"):
        for number in (1, 2, 3):
            place = folder / name / f"observation_{number}"
            x = np.loadtxt(place / "observation.csv", delimiter=",", skiprows=1, ndmin=2)
            theirs = np.loadtxt(place / "reference_posterior_samples.csv.bz2", delimiter=",", skiprows=1)
            started = time.perf_counter()
            ours = tasks.get(name).reference(x, draws, seed=number)
            line(f"{name}, observation {number}", ours, theirs[:draws], time.perf_counter() - started)
            line("  ours, two halves", ours[::2], ours[1::2], 0)
            line("  theirs, two halves", theirs[:draws:2], theirs[1:draws:2], 0)


def log_posterior(u, data):
    n, mean = data
    theta = jnp.exp(sir.LOG_MEDIAN + sir.LOG_SD * u)
    return n * sir.log_likelihood_of_mean(theta, mean) - jnp.sum(u**2) / 2


def cross_check(draws: int) -> None:
    task, sizes = tasks.get("sir"), (1, 8, 30)
    print(f"SIR: grid against NUTS, {draws:,} draws of each\n{HEADER}")
    for seed in range(3):
        x = task.observe(30, seed)[1]
        data = np.array([float(n) for n in sizes]), np.stack([x[:n].mean(0) for n in sizes])
        started = time.perf_counter()
        for n, chains in zip(sizes, nuts.draw(log_posterior, data, 2, draws, [seed] * 3), strict=True):
            by_nuts = np.exp(sir.LOG_MEDIAN + sir.LOG_SD * chains.draws)
            what = f"seed {seed}, n = {n:2d} (R̂ {chains.r_hat:.4f}, ESS {chains.ess:.0f})"
            line(what, by_nuts, task.reference(x[:n], draws, seed), time.perf_counter() - started)


def make(seeds: range) -> None:
    """The draws for every n of one data set at once: all of one parameter, they take about the same steps."""
    name, version = "lotka_volterra", lotka_volterra.VERSION
    task = tasks.get(name)
    places = {}
    for seed in BENCHMARK_SEEDS:
        x = task.observe(max(BENCHMARK_SIZES), seed)[1]
        sets = [x[:n] for n in BENCHMARK_SIZES]
        places[seed] = [stored.place(name, version, one, POOL, SHIPPED_SEED) for one in sets]
        if seed in seeds and not all(stored.read(place, POOL) for place in places[seed]):
            started = time.perf_counter()
            drawn = lotka_volterra.posteriors(sets, POOL, [SHIPPED_SEED] * len(sets))
            for place, chains in zip(places[seed], drawn, strict=True):
                stored.write(place, chains)
            worst = f"R̂ ≤ {max(c.r_hat for c in drawn):.4f}, ESS ≥ {min(c.ess for c in drawn):.0f}"
            print(f"{name} {seed}: {worst}, no divergence, {time.perf_counter() - started:.0f} s", flush=True)
    found = {seed: [stored.read(place, POOL) for place in places[seed]] for seed in BENCHMARK_SEEDS}
    whole = {seed: row for seed, row in found.items() if None not in row}
    print(f"{len(whole)} of {len(found)} data sets are made")
    content = {
        "version": np.array(version),
        "n": np.array(BENCHMARK_SIZES),
        "x": np.stack([task.observe(max(BENCHMARK_SIZES), seed)[1] for seed in whole]).astype(np.float32),
        "draws": np.array([[chains.draws for chains in row] for row in whole.values()], np.float32),
        **{
            k: np.array([[getattr(chains, k) for chains in row] for row in whole.values()], np.float32)
            for k in stored.DIAGNOSTICS
        },
    }
    SHIPPED.mkdir(exist_ok=True)
    save_file(content, SHIPPED / f"{name}.safetensors")
    print({k: v.shape for k, v in content.items()}, (SHIPPED / f"{name}.safetensors").stat().st_size, "bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", type=Path, metavar="FOLDER")
    parser.add_argument("--nuts", action="store_true")
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--draws", type=int, default=4_000, help="of --check and --nuts")
    parser.add_argument("--seeds", type=int, nargs=2, default=[BENCHMARK_SEEDS.start, BENCHMARK_SEEDS.stop])
    chosen = parser.parse_args()
    if chosen.check:
        check(chosen.check, chosen.draws)
    if chosen.nuts:
        cross_check(chosen.draws)
    if chosen.make:
        make(range(*chosen.seeds))


if __name__ == "__main__":
    main()
