"""The paper's illustration: a posterior with two modes, n = 1 … 5, by every method and in truth.

    python benchmarks/bimodal_figure.py                       # docs/bimodal.png
    python benchmarks/bimodal_figure.py --methods nle nre --chains 2 --out bimodal.png

Composed scores start at a wide reference and keep both modes. NLE and NRE are drawn from by NUTS, whose chains do not cross
from one mode to the other: with few chains (--chains) a mode's share is a matter of where they start, and one may be missing.
A method's draws are kept in --keep, and are not made again by a run with the same settings.
"""

import argparse
import hashlib
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

import scorefold as sf
from scorefold import methods, tasks
from scorefold.app.bench.cloud_grid import Cloud, cloud_grid
from scorefold.app.bench.points import METHOD_LABELS
from scorefold.diagnostics.c2st import c2st
from scorefold.methods.method import Method
from scorefold.report.canvas import save
from scorefold.report.palette import GREY

SET_SIZES = {"f-npse": 1, "pf-npse": 3, "nle": 1, "nre": 1}


def configured(method: str, chains: int) -> Method:
    """The default settings, but for the number of chains."""
    found = methods.get(method)
    return replace(found, chains=chains) if method in ("nle", "nre") else found


def drawn(method: str, chosen: argparse.Namespace, data: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    """The draws for every n, and a line on how they came about."""
    task = tasks.get("bimodal")
    sims = sf.simulate(task.prior, task.simulator, chosen.budget, SET_SIZES.get(method, max(data)), seed=chosen.seed)
    started = time.perf_counter()
    posterior = sf.fit(sims, configured(method, chosen.chains), seed=chosen.seed)
    seen = {"train s": round(time.perf_counter() - started, 1)}
    draws = {n: posterior.sample(x, chosen.draws, seed=chosen.seed) for n, x in data.items()}
    seen["draw s"] = [round(d.seconds, 1) for d in draws.values()]
    seen["converged"] = [bool(d.info.converged) for d in draws.values()]
    if hasattr(next(iter(draws.values())).info, "r_hat"):
        seen["r_hat"] = [round(d.info.r_hat, 2) for d in draws.values()]
    print(f"{method:8s} {json.dumps(seen)}", flush=True)
    return {n: d.theta for n, d in draws.items()}


def kept(method: str, chosen: argparse.Namespace, data: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    """The same, from the folder of kept draws where they are."""
    numbers = (chosen.budget, chosen.draws, chosen.seed, chosen.observations, *data)
    settings = hashlib.sha256(repr(configured(method, chosen.chains)).encode()).hexdigest()[:8]
    path = chosen.keep / f"{method}-{settings}-{'-'.join(map(str, numbers))}.npz"
    if not path.exists():
        draws = drawn(method, chosen, data)
        chosen.keep.mkdir(parents=True, exist_ok=True)
        np.savez(path, **{str(n): theta for n, theta in draws.items()})
    with np.load(path) as file:
        return {int(name): file[name] for name in file.files}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["f-npse", "pf-npse", "npse", "npe", "nle", "nre"])
    parser.add_argument("--n", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--budget", type=int, default=10_000)
    parser.add_argument("--draws", type=int, default=1_000)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--observations", type=int, default=4, help="seed of the true parameters and observations")
    parser.add_argument("--keep", type=Path, default=Path("build/bimodal"), help="folder of draws already made")
    parser.add_argument("--out", type=Path, default=Path("docs/bimodal.png"))
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    task = tasks.get("bimodal")
    truth, x = task.observe(max(chosen.n), chosen.observations)
    data = {n: x[:n] for n in chosen.n}
    rows = {"truth": {n: task.reference(some, chosen.draws, 0) for n, some in data.items()}}
    for method in chosen.methods:
        rows[METHOD_LABELS[method]] = kept(method, chosen, data)
        for n, theta in rows[METHOD_LABELS[method]].items():
            share, accuracy = np.mean(theta @ truth > 0), c2st(theta, rows["truth"][n])
            print(f"{method:8s} n = {n}: C2ST {accuracy:.3f}, {share:.2f} of the draws on the true side", flush=True)
    clouds = {name: {n: Cloud(theta, (truth, -truth)) for n, theta in row.items()} for name, row in rows.items()}
    save(cloud_grid(clouds, {"truth": GREY}, shown=300), chosen.out)


if __name__ == "__main__":
    main()
