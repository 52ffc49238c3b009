"""The first hour of a new user, twice, against exact answers: what comes out, how long it takes, and what is printed.

    python benchmarks/first_hour.py                                                  # both trials, as sf.fit does by default
    python benchmarks/first_hour.py --trial drift_diffusion --out first_hour.json    # one, and a file with all that was found
    python benchmarks/first_hour.py --methods auto f-npse --refine 5000              # another method too, and refine each
    python benchmarks/first_hour.py --summary benchmarks/results/first_hour/*.json   # what several runs say together
    python benchmarks/first_hour.py --quick                                          # minutes, not right: does it run?

*Drift diffusion*: 100 trials of a drift-diffusion model with four parameters; the exact posterior comes from the first-passage
likelihood, by NUTS (`tasks/drift_diffusion.py`).

*Households*: how many of the members of 200 households of 1 to 6 were infected. The size of a household is a known input. Each
member escapes infection from outside with probability B, and from each infected member with probability Q. Of a household of s,
j are infected with probability

    m(j, s) = C(s, j) m(j, j) B^{s-j} Q^{j(s-j)},    m(j, j) = 1 - Σ_{i<j} m(i, j)

("Household and community transmission parameters from final distributions of infections in households", Longini and Koopman,
1982). With θ = (1 - B, 1 - Q) in two dimensions the exact posterior is drawn from a grid.

Everything is done as the README does it: plain NumPy simulators, default settings. *Shift* is the distance of means in exact
posterior sd, *width* the ratio of sds, parameter by parameter. Seconds include compilation; those of the processor count all
cores, and hardly depend on what else the machine does. A step that fails is told and left out, and the file is written after
every step, so that what was found is there whenever the script ends. Neither ArviZ nor a store is needed.
"""

import argparse
import contextlib
import io
import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from math import comb
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.stats

import scorefold as sf
from scorefold import methods, tasks
from scorefold.methods.choice import choose
from scorefold.tasks import drift_diffusion

TRIALS, HOUSEHOLDS, LARGEST = 100, 200, 6
CHOICE, SPREAD = np.array([1.2, 1.3, 0.5, 0.3]), np.array([0.15, 0.25])
"""The true parameters."""
GRID = 801
REFERENCE = 2_000
"""Draws of the exact posterior."""


class Length(NamedTuple):
    """How much is done."""

    budget: int
    """Simulator calls to train on."""
    refine: int
    """Simulator calls of refinement; 0 leaves it out."""
    rounds: int
    check: int
    """Simulator calls of the check; 0 leaves it out."""
    draws: int
    training: sf.Training | None
    """None: the method's own."""


WHOLE = Length(10_000, 0, 6, 3_000, 1_000, None)
QUICK = Length(500, 0, 2, 200, 300, sf.Training(members=2, steps=300))


class Trial(NamedTuple):
    """A simulator with data and the exact posterior of these."""

    prior: sf.Prior
    simulator: Callable[..., Any]
    names: dict[str, Any]
    """What `sf.simulate` is told of outcomes and inputs."""
    x_obs: np.ndarray
    given: dict[str, np.ndarray]
    """Inputs of the observations, if there are some."""
    reference: Callable[[], np.ndarray]
    """Draws from the exact posterior."""


def drift(seed: int) -> Trial:
    """100 reaction times and choices."""
    rng = np.random.default_rng(seed)
    x_obs = np.stack([drift_diffusion.numpy_simulator(CHOICE, rng) for _ in range(TRIALS)])
    task = tasks.get("drift_diffusion")
    return Trial(
        task.prior, drift_diffusion.numpy_simulator, {"x_names": ("rt", "choice")}, x_obs, {},
        lambda: np.asarray(task.reference(x_obs, REFERENCE, seed)),
    )  # fmt: skip


def household(theta: np.ndarray, rng: np.random.Generator, inputs: np.ndarray) -> float:
    """How many of a household are infected: from outside first, then by each generation of the infected."""
    outside, inside = theta
    size = round(inputs[0])
    infected = new = rng.binomial(size, outside)
    while new:
        new = rng.binomial(size - infected, 1 - (1 - inside) ** new)
        infected += new
    return float(infected)


def final_sizes(escape_outside: np.ndarray, escape_inside: np.ndarray, size: int) -> np.ndarray:
    """m(j, s) for j = 0 … s, along the last axis: Longini and Koopman's recursion."""
    whole: list[np.ndarray] = []
    for j in range(size + 1):
        fewer = [comb(j, i) * whole[i] * escape_outside ** (j - i) * escape_inside ** (i * (j - i)) for i in range(j)]
        whole.append(1 - np.sum(fewer, axis=0) if j else np.ones_like(escape_outside))
    parts = [
        comb(size, j) * whole[j] * escape_outside ** (size - j) * escape_inside ** (j * (size - j)) for j in range(size + 1)
    ]
    return np.stack(parts, axis=-1)


def households(seed: int) -> Trial:
    """The infected of 200 households whose sizes are known."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, LARGEST + 1, size=HOUSEHOLDS).astype(float)
    x_obs = np.array([household(SPREAD, rng, size[None]) for size in sizes])
    prior = sf.Prior({"outside": scipy.stats.uniform(0, 0.5), "inside": scipy.stats.uniform(0, 0.7)})
    names = {"x_names": ("infected",), "input_names": ("size",), "inputs": lambda rng: rng.integers(1, LARGEST + 1)}
    return Trial(prior, household, names, x_obs, {"inputs": sizes}, lambda: household_reference(x_obs, sizes, seed))


def household_reference(x_obs: np.ndarray, sizes: np.ndarray, seed: int) -> np.ndarray:
    """Draws from the exact posterior under the uniform prior, by a grid and a jitter within its cells."""
    outside, inside = ((np.arange(GRID) + 0.5) / GRID * end for end in (0.5, 0.7))
    p, q = np.meshgrid(outside, inside, indexing="ij")
    log_likelihood = np.zeros_like(p)
    for size in range(1, LARGEST + 1):
        chance = np.log(np.maximum(final_sizes(1 - p, 1 - q, size), 1e-300))
        counts = np.bincount(x_obs[sizes == size].astype(int), minlength=size + 1)
        log_likelihood += chance @ counts
    weight = np.exp(log_likelihood - log_likelihood.max()).ravel()
    rng = np.random.default_rng(seed)
    cell = rng.choice(len(weight), REFERENCE, p=weight / weight.sum())
    step = np.array([0.5, 0.7]) / GRID
    return np.stack([p.ravel()[cell], q.ravel()[cell]], axis=1) + rng.uniform(-0.5, 0.5, (REFERENCE, 2)) * step


class Screen(io.StringIO):
    """Standard error, which is shown as it comes, and kept."""

    def write(self, text: str) -> int:
        """Both."""
        sys.__stderr__.write(text)  # type: ignore[union-attr]
        return super().write(text)


class Notes:
    """What is printed, timed and measured; kept in a file, if there is one, as soon as it is known."""

    def __init__(self, file: Path | None, chosen: dict[str, Any]):
        self.file, self.found = file, {"scorefold": sf.__version__, "jax": jax.__version__, "backend": jax.default_backend()}
        self.found |= {"chosen": chosen, "steps": [], "draws": [], "printed": []}

    def say(self, text: object) -> None:
        """Print, and keep."""
        print(text, flush=True)
        self.found["printed"] += str(text).splitlines()
        self.write()

    def step(self, name: str, job: Callable[[], Any]) -> Any:
        """What a job returns, or None if it fails; its seconds and what it says are told."""
        began, busy, failed, found = time.perf_counter(), time.process_time(), "", None
        screen = Screen()
        with warnings.catch_warnings(record=True) as said, contextlib.redirect_stderr(screen):
            warnings.simplefilter("always")
            try:
                found = job()
            except Exception:
                failed = traceback.format_exc()
        seconds, busy = time.perf_counter() - began, time.process_time() - busy
        words = list(dict.fromkeys(str(one.message) for one in said if not issubclass(one.category, DeprecationWarning)))
        took = {"seconds": round(seconds, 1), "processor": round(busy, 1)}
        self.found["steps"].append({"step": name, **took, "said": words, "failed": failed})
        self.found["printed"] += screen.getvalue().splitlines()
        self.say(
            f"{name}: {seconds:.1f} s, of the processor {busy:.1f} s"
            + "".join(f"\n  said: {one}" for one in words)
            + (failed and f"\n  FAILED\n{failed}")
        )
        return found

    def against(self, name: str, draws: sf.Draws | None, reference: np.ndarray | None) -> None:
        """Print the table that a user sees, and how far it is off."""
        if draws is None:
            return
        self.say(draws.summary())
        if reference is None:
            return
        sd = reference.std(axis=0)
        shift, width = (draws.theta.mean(axis=0) - reference.mean(axis=0)) / sd, draws.theta.std(axis=0) / sd
        for i, one in enumerate(draws.names):
            exact = f"exact {reference[:, i].mean():.4g} ± {sd[i]:.2g}"
            self.say(f"  {one:8s} {exact:22s} shift {shift[i]:+.2f} sd, width × {width[i]:.2f}")
        self.found["draws"].append(
            {
                "of": name, "parameters": list(draws.names), "shift": shift.round(3).tolist(), "width": width.round(3).tolist(),
                "converged": bool(draws.info.converged), "verdict": draws.trust.verdict,
            }
        )  # fmt: skip
        self.say(f"  largest shift {np.abs(shift).max():.2f} sd; widths {width.min():.2f} to {width.max():.2f}")

    def write(self) -> None:
        """To the file."""
        if self.file is not None:
            self.file.write_text(json.dumps(self.found, indent=1))


def run(name: str, trial: Trial, wanted: list[str], length: Length, seed: int, notes: Notes) -> None:
    """One trial: simulate, then with every method fit, sample, check and, if asked for, refine."""
    notes.say(f"\n== {name}: {len(trial.x_obs)} observations, {length.budget:,} simulations ==")
    how = {"seed": seed, "progress": True}
    sims = notes.step("simulate", lambda: sf.simulate(trial.prior, trial.simulator, length.budget, **how, **trial.names))
    if sims is None:
        return
    notes.say(sims)
    reference = notes.step("exact posterior", trial.reference)
    for method in wanted:
        notes.say(f"\n-- {name}, {method}")
        chosen: Any = method if length.training is None else shortened(method, sims, length.training)
        posterior = notes.step(f"fit {method}", lambda chosen=chosen: sf.fit(sims, chosen, **how))
        if posterior is None:
            continue
        notes.say(posterior)
        draws = notes.step(f"sample {method}", lambda own=posterior: drawn(trial, own, length))
        notes.against(f"{name}, {method}", draws, reference)
        if length.check:
            check(trial, posterior, length, notes)
        if length.refine:
            notes.against(f"{name}, {method} refined", refined(trial, posterior, sims, length, notes), reference)


def drawn(trial: Trial, posterior: Any, length: Length) -> sf.Draws:
    """Draws given the trial's data."""
    found: sf.Draws = posterior.sample(trial.x_obs, length.draws, progress=True, **trial.given)
    return found


def check(trial: Trial, posterior: Any, length: Length, notes: Notes) -> None:
    """What simulations at the draws say of them."""
    how = {"sims": length.check, "progress": True, **trial.given}
    checked = notes.step("check", lambda: posterior.check(trial.x_obs, trial.simulator, **how))
    if checked is not None:
        notes.say(checked)


def refined(trial: Trial, posterior: Any, sims: Any, length: Length, notes: Notes) -> sf.Draws | None:
    """Draws after refinement for these observations."""
    how = {"budget": length.refine, "rounds": length.rounds, "sims": sims, "training": length.training, **trial.given}
    local = notes.step("refine", lambda: posterior.refine(trial.x_obs, trial.simulator, progress=True, **how))
    if local is None:
        return None
    notes.say(local)
    return notes.step("sample refined", lambda: local.sample(trial.x_obs, length.draws, **trial.given))


def shortened(method: str, sims: Any, training: sf.Training) -> Any:
    """The method by this name, trained for a moment."""
    own: Any = choose(sims).method if method == "auto" else methods.get(method)
    return replace(own, training=training)


BOTH = {"drift_diffusion": drift, "households": households}


def summary(files: list[Path]) -> str:
    """Of several runs, each with a seed of its own: how far means and widths are off, by parameter, and what it cost."""
    found = [json.loads(file.read_text()) for file in files]
    lines = []
    for name in dict.fromkeys(one["of"] for run in found for one in run["draws"]):
        runs = [one for run in found for one in run["draws"] if one["of"] == name]
        lines.append(f"{name}: {len(runs)} runs, called {', '.join(one['verdict'] for one in runs)}")
        for i, parameter in enumerate(runs[0]["parameters"]):
            shift, width = (np.array([one[key][i] for one in runs]) for key in ("shift", "width"))
            lines.append(f"  {parameter:8s} shift {_each(shift)}, width {_each(width, np.log(width))}")
    for number, step in enumerate(found[0]["steps"]):
        seconds = [run["steps"][number]["processor"] for run in found]
        lines.append(f"{step['step']}: processor seconds {', '.join(f'{one:.0f}' for one in seconds)}")
    return "\n".join(lines)


def _each(values: np.ndarray, errors: np.ndarray | None = None) -> str:
    """Values, and the root mean square of their errors: of themselves, unless others are given."""
    size = float(np.sqrt(np.mean(np.square(values if errors is None else errors))))
    return f"{', '.join(f'{one:.2f}' for one in values)} (rms {'' if errors is None else 'log '}{size:.2f})"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trial", nargs="+", choices=BOTH, default=list(BOTH))
    parser.add_argument("--methods", nargs="+", default=["auto"], help="Names for sf.fit. Default auto.")
    parser.add_argument("--budget", type=int, help="Simulator calls to train on. Default 10,000.")
    parser.add_argument("--refine", type=int, help="Simulator calls of refinement. Default 0: there is none.")
    parser.add_argument("--check", type=int, help="Simulator calls of the check; 0 leaves it out. Default 3,000.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="Only to see that it runs: 500 simulations, 300 steps.")
    parser.add_argument("--out", type=Path, help="A JSON file for all that is found.")
    parser.add_argument("--summary", nargs="+", type=Path, metavar="FILE", help="Only print what such files say together.")
    chosen = parser.parse_args()
    if chosen.summary:
        print(summary(chosen.summary))
        return
    length = QUICK if chosen.quick else WHOLE
    asked = {key: getattr(chosen, key) for key in ("budget", "refine", "check")}
    length = length._replace(**{key: value for key, value in asked.items() if value is not None})
    notes = Notes(chosen.out, {key: str(value) for key, value in vars(chosen).items()})
    for name in chosen.trial:
        run(name, BOTH[name](chosen.seed), chosen.methods, length, chosen.seed, notes)
    notes.say(f"\n{sum(bool(step['failed']) for step in notes.found['steps'])} steps failed")


if __name__ == "__main__":
    main()
