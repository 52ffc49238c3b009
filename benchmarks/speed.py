"""How long do 1,000 draws take, and how much memory, as the observations grow?

    python benchmarks/speed.py

The gaussian task with the default network (trained briefly: the time to draw does not depend on how well). Each n runs in a
process of its own, so that its peak memory is its own; times are of the second call.
"""

import argparse
import resource
import subprocess
import sys
import time
from dataclasses import replace


def one(n: int) -> None:
    import warnings

    from scorefold import tasks
    from scorefold.methods.npse import NPSE
    from scorefold.posterior import fit
    from scorefold.simulation.run import simulate

    warnings.simplefilter("ignore")
    task = tasks.get("gaussian")
    method = NPSE()
    method = replace(method, training=replace(method.training, steps=50))
    posterior = fit(simulate(task.prior, task.simulator, 2_000), method)
    _, x_obs = task.observe(n, seed=1)
    first = posterior.sample(x_obs).seconds
    started = time.perf_counter()
    posterior.sample(x_obs, seed=1)
    second = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{n:6d}   {first:6.1f}     {second:6.2f}    {peak:6.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", nargs="+", type=int, default=[1, 8, 30, 300, 3000])
    chosen = parser.parse_args()
    if len(chosen.n) == 1:
        return one(chosen.n[0])
    print("     n   first s   second s   peak MB")
    for n in chosen.n:
        subprocess.run([sys.executable, __file__, "--n", str(n)], check=True)
    return None


if __name__ == "__main__":
    main()
