"""How long do 1,000 draws take, and how much memory, as the observations grow?

    python benchmarks/speed.py                                        # the default rule and the damped one
    python benchmarks/speed.py --rules diffused gauss jac damped --n 1 10 100 1000 10000

The gaussian task with the default network (trained briefly: the time to draw does not depend on how well), the self-tuned
sampler. Each rule and n runs in a process of its own, so that its peak memory is its own. `first` includes compilation; a
second call is made where the first took less than two minutes. Runs over the limit are stopped and say so.
"""

import argparse
import resource
import subprocess
import sys
import time
from dataclasses import replace

LONG = 120.0


def one(rule: str, n: int) -> None:
    """Train briefly, draw once or twice."""
    import warnings

    from scorefold import tasks
    from scorefold.methods.fit import fit
    from scorefold.methods.npse import NPSE
    from scorefold.sample import SelfTuned
    from scorefold.simulation.simulate import simulate

    warnings.simplefilter("ignore")
    task = tasks.get("gaussian")
    method = NPSE(rule=rule, sampler=SelfTuned())
    method = replace(method, training=replace(method.training, steps=50))
    posterior = fit(simulate(task.prior, task.simulator, 2_000), method)
    _, x_obs = task.observe(n, seed=1)
    first, second = posterior.sample(x_obs).seconds, float("nan")
    if first < LONG:
        started = time.perf_counter()
        posterior.sample(x_obs, seed=1)
        second = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{rule:12s} {n:6d}   {first:7.1f}    {second:7.2f}    {peak:6.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", nargs="+", default=["diffused", "damped"])
    parser.add_argument("--n", nargs="+", type=int, default=[1, 10, 100, 1000])
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one rule and n")
    parser.add_argument("--here", action="store_true", help="in this process: one rule, one n")
    chosen = parser.parse_args()
    if chosen.here:
        return one(chosen.rules[0], chosen.n[0])
    print("rule              n   first s   second s   peak MB", flush=True)
    for rule in chosen.rules:
        for n in chosen.n:
            command = [sys.executable, __file__, "--here", "--rules", rule, "--n", str(n)]
            try:
                subprocess.run(command, check=True, timeout=chosen.limit)
            except subprocess.TimeoutExpired:
                print(f"{rule:12s} {n:6d}   over {chosen.limit:.0f} s", flush=True)
    return None


if __name__ == "__main__":
    main()
