"""Which files one walk from a simulator to posterior draws crosses: simulate, fit, sample.

    python benchmarks/walk.py [f-npse | nle]

A file is crossed if the walk loads it, and works if one of its functions runs between the call of `sf.simulate` and the draws.
Lines are all lines of a file; "in functions that run" are those lines of code (no comments, no docstrings) that belong to such
functions. What runs while modules are imported does not count: they are imported before. Nor do files that only declare types.
The walk is small (300 simulations, 60 training steps, 5 observations), which changes how often a function runs, and hardly
which. The script also runs on older versions of the package: set PYTHONPATH to their `src`.
"""

import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import scipy.stats

import scorefold as sf

ROOT = Path(sf.__file__).parent
IN_FUNCTION = 1
"""The flag of code objects that are functions, and not modules or classes."""


def simulator(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One observation: θ with noise."""
    return theta + rng.normal(size=2)


def walk(name: str) -> None:
    """From a prior and a simulator to draws given five observations, by F-NPSE or NLE."""
    prior = sf.Prior({"a": scipy.stats.norm(0, 1), "b": scipy.stats.uniform(-2, 4)})
    training = sf.Training(steps=60, members=2)
    method = sf.NLE(width=8, training=training) if name == "nle" else sf.NPSE(set_size=1, width=8, training=training)
    sims = sf.simulate(prior, simulator, budget=300, seed=0)
    posterior = sf.fit(sims, method, seed=0)
    posterior.sample(np.zeros((5, 2)), draws=100, seed=0)


def functions_that_run(method: str) -> dict[str, set[int]]:
    """For every file of the package with a function that runs in the walk, the lines of code in such functions."""
    found: dict[str, set[int]] = defaultdict(set)
    seen = set()

    def see(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code not in seen:
            seen.add(code)
            if code.co_flags & IN_FUNCTION and Path(code.co_filename).is_relative_to(ROOT):
                found[code.co_filename] |= {line for _, _, line in code.co_lines() if line}

    for name in ("Prior", "NPSE", "NLE", "Training", "simulate", "fit"):
        getattr(sf, name)
    threading.setprofile(see)
    sys.setprofile(see)
    try:
        walk(method)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def main() -> None:
    """Print the files, and how many lines they have."""
    working = functions_that_run(sys.argv[1] if len(sys.argv) > 1 else "f-npse")
    modules = [module for name, module in sys.modules.items() if name.split(".")[0] == "scorefold"]
    crossed = {module.__file__ for module in modules if module.__file__} | set(working)
    lines = {name: len(Path(name).read_text().splitlines()) for name in sorted(crossed)}
    print("lines  in functions that run")
    for name, count in lines.items():
        print(f"{count:5}  {len(working[name]) if name in working else '':5}  {Path(name).relative_to(ROOT)}")
    print(f"crossed: {len(lines)} files, {sum(lines.values()):,} lines")
    ran = sum(map(len, working.values()))
    print(f"working: {len(working)} files, {sum(map(lines.get, working)):,} lines, {ran:,} of them in functions that run")


if __name__ == "__main__":
    main()
