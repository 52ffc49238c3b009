"""NPE, NLE and NRE against sbi's, on the same simulations: C2ST to the true posterior, and seconds.

    python benchmarks/baselines.py                                        # everything; hours
    python benchmarks/baselines.py --who ours --tasks gaussian --n 1 8    # a part of it
    python benchmarks/baselines.py --table                                # what has been measured so far

sbi 0.27 runs in the peers' environment, which is made when it is first needed (--env). Every cell is one line of a CSV file;
cells that are there are not run again. sbi's MCMC takes minutes to hours where there are several observations: a cell
that is not finished within the limit is recorded as that.

Both get the same 10⁴ simulator calls, the parameters in the N(0, I) space and, for Lotka–Volterra, the logarithms of the
counts. NPE for one observation is trained on single ones, for more on sets of up to the largest n asked for; NLE and NRE
always on single ones.
"""

import argparse
import csv
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import scorefold as sf
from board import environment
from scorefold import methods, tasks
from scorefold.diagnostics.c2st import c2st
from scorefold.errors import ScorefoldError
from scorefold.simulation.batched import Batched
from scorefold.simulation.simulations import Simulations
from scorefold.tasks.task import Task

FIELDS = ("who", "method", "task", "n", "seed", "budget", "c2st", "train_s", "draw_s", "status")
LOGARITHMIC = ("lotka_volterra",)
DRAWS = 1_000


def simulated(task: Task, budget: int, set_size: int, seed: int) -> Simulations:
    simulator = task.simulator
    if task.name in LOGARITHMIC:
        simulator = Batched(lambda theta, keys: jnp.log(task.simulator.function(theta, keys)))
    return sf.simulate(task.prior, simulator, budget, set_size, seed)


def observed(task: Task, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """n observations as the methods see them, and reference draws of θ."""
    x = task.observe(n, 1_000 + seed)[1]
    return np.log(x) if task.name in LOGARITHMIC else x, task.reference(x, DRAWS, 0)


def ours(method: str, task: Task, sims: Simulations, sizes: list[int], seed: int) -> dict[int, dict[str, Any]]:
    started = time.perf_counter()
    posterior = sf.fit(sims, methods.get(method), seed=seed)
    trained, found = time.perf_counter() - started, {}
    for n in sizes:
        x, reference = observed(task, n, seed)
        try:
            draws = posterior.sample(x, DRAWS, seed=seed)
        except ScorefoldError as error:
            found[n] = {"train_s": trained, "status": f"refused: {error!s:.60}"}
            continue
        status = "converged" if draws.info.converged else "not converged"
        found[n] = {"c2st": c2st(draws.theta, reference), "train_s": trained, "draw_s": draws.seconds, "status": status}
    return found


def theirs(
    python: Path, limit: float, method: str, task: Task, sims: Simulations, sizes: list[int], seed: int
) -> dict[int, dict[str, Any]]:
    """In a process of its own; cells without draws when the time is up are not finished."""
    data = {n: observed(task, n, seed) for n in sizes}
    x = sims.x.reshape(*sims.x.shape[:2], -1).astype(np.float32)
    x[np.arange(x.shape[1]) >= sims.sizes[:, None]] = np.nan
    with tempfile.TemporaryDirectory() as folder:
        cell = Path(folder) / "cell.npz"
        np.savez(cell, theta=sims.prior.to_normal(sims.theta), x=x, **{f"x_obs_{n}": x for n, (x, _) in data.items()})
        script = Path(__file__).absolute().with_name("baselines_sbi.py")
        try:
            subprocess.run(
                [python.absolute(), script, method, cell, folder, str(DRAWS), str(seed)],
                timeout=limit * len(sizes),
                check=True,
                cwd=folder,  # where sbi leaves its logs
            )
            ended = "failed"
        except subprocess.TimeoutExpired:
            ended = "not finished"
        except subprocess.CalledProcessError:
            ended = "failed"
        found = {}
        for n, (_, reference) in data.items():
            path = Path(folder) / f"{n}.npz"
            if not path.exists():
                found[n] = {"status": ended, "draw_s": limit}
                continue
            made = np.load(path)
            theta = task.prior.from_normal(np.asarray(made["u"], np.float64))
            found[n] = {
                "c2st": c2st(theta, reference),
                "train_s": float(made["train_s"]),
                "draw_s": float(made["draw_s"]),
                "status": "done",
            }
    return found


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def write(path: Path, records: list[dict[str, Any]]) -> None:
    new = not path.exists()
    with path.open("a") as file:
        writer = csv.DictWriter(file, FIELDS)
        if new:
            writer.writeheader()
        for record in records:
            numbers = {k: round(v, 4) if isinstance(v, float) else v for k, v in record.items()}
            writer.writerow(numbers)
            print("  ".join(f"{k} {v}" for k, v in numbers.items()), flush=True)


def table(records: list[dict[str, str]]) -> None:
    """Means over the seeds that both have, side by side; seconds are training and drawing together."""
    print("method  task             n  seeds    C2ST ours   sbi     difference   seconds ours   sbi   ratio")
    cells: dict[tuple[str, str, int, int], dict[str, dict[str, dict[str, str]]]] = {}
    for record in records:
        key = (record["method"], record["task"], int(record["n"]), int(record["budget"]))
        cells.setdefault(key, {"ours": {}, "sbi": {}})[record["who"]][record["seed"]] = record

    def mean(rows: list[dict[str, str]], *fields: str) -> float:
        return float(np.mean([sum(float(row[f]) for f in fields) for row in rows])) if rows else float("nan")

    for (method, task, n, _), who in sorted(cells.items()):
        measured = [{seed for seed, row in who[name].items() if row["c2st"]} for name in ("ours", "sbi")]
        seeds = sorted(measured[0] & measured[1])
        missing = [f"{name} {seed}: {row['status']}" for name in who for seed, row in who[name].items() if not row["c2st"]]
        rows = [[who[name][seed] for seed in seeds] for name in ("ours", "sbi")]
        (a, b), (s, t) = ([mean(own, *fields) for own in rows] for fields in (("c2st",), ("train_s", "draw_s")))
        accuracy = f"{a:.3f}      {b:.3f}    {a - b:+.3f}"
        seconds = f"{s:7.1f}     {t:7.1f}  {t / s:6.2f}"
        print(f"{method:6s}  {task:14s} {n:3d}  {len(seeds):5d}    {accuracy}       {seconds}  {', '.join(missing)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["gaussian", "mixture", "lotka_volterra"])
    parser.add_argument("--n", nargs="+", type=int, default=[1, 8, 30])
    parser.add_argument("--methods", nargs="+", default=["npe", "nle", "nre"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--who", nargs="+", default=["ours", "sbi"], choices=["ours", "sbi"])
    parser.add_argument("--budget", type=int, default=10_000)
    parser.add_argument("--n-max", type=int, default=30, help="of NPE for more than one observation")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for a cell of sbi's")
    parser.add_argument("--env", type=Path, default=Path(".peers"), help="folder of sbi's environment")
    parser.add_argument("--records", type=Path, default=Path("benchmarks/results/peers.csv"))
    parser.add_argument("--table", action="store_true", help="only show what was measured")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    done = {(r["who"], r["method"], r["task"], int(r["n"]), int(r["seed"]), int(r["budget"])) for r in read(chosen.records)}
    runs = [(w, t, s, m) for w in chosen.who for t in chosen.tasks for s in chosen.seeds for m in chosen.methods]
    for who, name, seed, method in [] if chosen.table else runs:
        task = tasks.get(name)
        missing = [n for n in chosen.n if (who, method, name, n, seed, chosen.budget) not in done]
        # NPE for one observation and for more are two trainings, all others one.
        groups = [[n for n in missing if n == 1], [n for n in missing if n > 1]] if method == "npe" else [missing]
        for sizes in filter(None, groups):
            set_size = chosen.n_max if method == "npe" and sizes[0] > 1 else 1
            sims = simulated(task, chosen.budget, set_size, seed)
            if who == "ours":
                found = ours(method, task, sims, sizes, seed)
            else:
                found = theirs(environment(chosen.env), chosen.limit, method, task, sims, sizes, seed)
            about = {"who": who, "method": method, "task": name, "seed": seed, "budget": chosen.budget}
            write(chosen.records, [{**about, "n": n, **found[n]} for n in sizes])
    table(read(chosen.records))


if __name__ == "__main__":
    main()
