"""How much memory do 100,000 images of 64 x 64 take, from the simulator to draws?

    python benchmarks/images.py
    python benchmarks/images.py --store FOLDER
    python benchmarks/images.py --images 16000

Images of a spot of light on noise are simulated, in memory or into a store, and F-NPSE with a convolution is trained on them
for one round of a few steps and corrected at a few levels: these come one after the other, so memory does not depend on how
many there are. (The defaults are up to 16,000 steps and 21 levels, which would take hours on two cores.) For every stage the
script prints the highest resident memory while it ran, in megabytes, and the processor seconds it took; what a stage takes over
from those before it is counted too. A line on standard error tells when a stage ends.

The peak is the kernel's own (VmHWM), which is set back between stages, so the script is for Linux.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

LIMIT_MB = 4 * 1024


class Stages:
    """The highest resident memory and the processor seconds of stages, some of which lie within others."""

    def __init__(self) -> None:
        self.peak: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self._inside = ["start"]
        self._since = time.process_time()

    def _turn(self) -> None:
        """Credit what was seen since the last turn to the stage that is running, and begin anew."""
        status = Path("/proc/self/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
        name, now = self._inside[-1], time.process_time()
        self.peak[name] = max(self.peak.get(name, 0), int(line.split()[1]) >> 10)
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now
        Path("/proc/self/clear_refs").write_text("5")

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Everything within the `with` block, but for stages of its own."""
        self._turn()
        self._inside.append(name)
        try:
            yield
        finally:
            self._turn()
            self._inside.pop()
            print(f"{name}: {self.peak[name]:,} MB, {self.seconds[name]:.1f} CPU s", file=sys.stderr, flush=True)

    def watch(self, module: Any, function: str, name: str) -> None:
        """Have every call of a module's function be a stage."""
        own: Callable[..., Any] = getattr(module, function)

        def watched(*args: Any, **kwargs: Any) -> Any:
            with self.stage(name):
                return own(*args, **kwargs)

        setattr(module, function, watched)

    def table(self) -> str:
        """A line for each stage."""
        rows = [f"{'stage':34} {'peak MB':>8} {'CPU s':>8}"]
        return "\n".join(rows + [f"{name:34} {peak:8,} {self.seconds[name]:8.1f}" for name, peak in self.peak.items()])


def spot(side: int) -> Any:
    """A simulator: a spot of light on noise, at the place that θ says."""
    import jax
    import jax.numpy as jnp

    import scorefold as sf

    @sf.Batched
    def simulator(theta: Any, keys: Any) -> Any:
        at = jnp.arange(side) / side
        away = (at[:, None] - theta[:, 0, None, None]) ** 2 + (at - theta[:, 1, None, None]) ** 2
        return jnp.exp(-50 * away) + 0.1 * jax.vmap(lambda key: jax.random.normal(key, (side, side)))(keys)

    return simulator


def watched() -> Stages:
    """The stages of a fit, each told from the others."""
    from scorefold.methods import fit, npse
    from scorefold.train import loop

    stages = Stages()
    for module, function, name in (
        (fit.health, "check", "check"),
        (fit.health, "say", "look for constants"),
        (npse, "training_sets", "deal into folds, hold a part"),
        (npse, "fit_fixed", "standardise, Gaussian base"),
        (npse, "train", "prepare training"),
        (loop, "_one_round", "train"),
        (loop, "_validated", "validate"),
        (npse, "fit_correction", "correct"),
        (npse, "reach_of", "how far simulations reach"),
        (fit, "look", "what they look like"),
    ):
        stages.watch(module, function, name)
    return stages


def main() -> None:
    """Simulate, fit, draw and print the peaks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--members", type=int, default=2, help="networks; the default of a fit is 5")
    parser.add_argument("--steps", type=int, default=6, help="of training, in one round")
    parser.add_argument("--levels", type=int, default=3, help="at which the score is corrected")
    parser.add_argument("--store", help="a folder for the simulations; default: in memory")
    asked = parser.parse_args()
    import jax
    from scipy import stats

    import scorefold as sf
    from scorefold.score import correction
    from scorefold.train import training as rounds

    rounds.STEPS_A_ROUND, correction.CORRECTED_LEVELS = asked.steps, asked.levels
    warnings.simplefilter("ignore", sf.errors.UntrustworthyDraws)  # after so few steps
    stages, simulator = watched(), spot(asked.side)
    prior = sf.Prior({"up": stats.uniform(0, 1), "right": stats.uniform(0, 1)})
    with stages.stage("simulate"):
        sims = sf.simulate(prior, simulator, asked.images, store=asked.store)
    training = sf.Training(members=asked.members, steps=asked.steps)
    with stages.stage("fit, all else"):
        posterior = sf.fit(sims, sf.NPSE(set_size=1, embedding="convolution", training=training))
    with stages.stage("draw"):
        image = np.asarray(simulator(np.array([[0.3, 0.6]]), jax.random.split(jax.random.key(1), 1)), np.float64)
        draws = posterior.sample(image, 200)
    highest = max(stages.peak.values())
    print(stages.table())
    print(f"images: {sims.x.nbytes >> 20:,} MB; highest of all: {highest:,} MB, on {os.cpu_count()} cores")
    print(f"means of 200 draws: {np.round(draws.theta.mean(axis=0), 2).tolist()}, made at [0.3, 0.6]")
    raise SystemExit(0 if highest <= LIMIT_MB else f"more than {LIMIT_MB:,} MB")


if __name__ == "__main__":
    main()
