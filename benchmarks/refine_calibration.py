"""Is refinement calibrated? Ranks of the true parameters among refined draws, over data sets from the prior.

    python benchmarks/refine_calibration.py --data-sets 100 --out ranks.csv
    python benchmarks/refine_calibration.py --ranks ranks.csv                    # what such files hold

Task `gaussian`, n = 30: 4,000 simulations from the prior, 6,000 more for each data set. A line of the file has the number of
the data set and the rank of every parameter; the ranks are uniform where the posteriors are right.
"""

import argparse
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import stats

from scorefold import tasks
from scorefold.methods.fit import fit
from scorefold.methods.npse import NPSE
from scorefold.simulation.simulate import simulate

N, FROM_PRIOR, MORE = 30, 4_000, 6_000


def append(path: Path, data_set: int, ranks: np.ndarray) -> None:
    """A line for each data set."""
    with path.open("a") as file:
        file.write(",".join([str(data_set), *(f"{rank:.4f}" for rank in ranks)]) + "\n")


def coverage(ranks: np.ndarray) -> str:
    """Of central intervals, over data sets and parameters, and how uniform the ranks of each parameter are."""
    inside = np.abs(ranks - 0.5)
    cover = ", ".join(f"{level:.0%}: {(inside < level / 2).mean():.1%}" for level in (0.5, 0.8, 0.95))
    uniform = [stats.kstest(column, "uniform").pvalue for column in ranks.T]
    return (
        f"{len(ranks)} data sets; coverage {cover}; mean rank {ranks.mean():.3f}; smallest p-value of {len(uniform)} "
        f"Kolmogorov–Smirnov tests {min(uniform):.3f}"
    )


def run(chosen: argparse.Namespace) -> None:
    """Refine one data set after the other."""
    task, method = tasks.get("gaussian"), NPSE(set_size=1)
    asked = {name: getattr(chosen, name) for name in ("members", "steps") if getattr(chosen, name) is not None}
    method = replace(method, training=replace(method.training, **asked))
    sims = simulate(task.prior, task.simulator, FROM_PRIOR, seed=0)
    start, ranks = fit(sims, method, seed=0), []
    for i in range(chosen.first, chosen.first + chosen.data_sets):
        truth, x_obs = task.observe(N, 2_000 + i)
        refined = start.refine(x_obs, task.simulator, MORE, seed=i, sims=sims)
        ranks.append((refined.sample(x_obs, 999, seed=i).theta < truth).mean(axis=0))
        append(chosen.out, i, ranks[-1])
        print(coverage(np.array(ranks)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-sets", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first data set")
    parser.add_argument("--members", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--out", type=Path, default=Path("ranks.csv"))
    parser.add_argument("--ranks", nargs="+", type=Path, help="only say what such files hold")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    if not chosen.ranks:
        run(chosen)
        return
    lines = {int(line[0]): line[1:] for path in chosen.ranks for line in np.loadtxt(path, delimiter=",", ndmin=2)}
    print(coverage(np.array(list(lines.values()))))


if __name__ == "__main__":
    main()
