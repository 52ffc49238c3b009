"""The first hour of a new user, twice, against exact answers: what comes out, how long it takes, and what is printed.

    python benchmarks/first_hour.py                                  # both trials
    python benchmarks/first_hour.py --trials households --methods f-npse nle --budget 2000

*Decisions*: 100 trials of a drift-diffusion model with four parameters; the exact posterior comes from the first-passage
likelihood, by NUTS (`tasks/drift_diffusion.py`).

*Households*: how many of the members of 200 households of 1 to 6 were infected. The size of a household is a known input. Each
member escapes infection from outside with probability B, and from each infected member with probability Q. Of a household of s,
j are infected with probability

    m(j, s) = C(s, j) m(j, j) B^{s-j} Q^{j(s-j)},    m(j, j) = 1 - Σ_{i<j} m(i, j)

("Household and community transmission parameters from final distributions of infections in households", Longini and Koopman,
1982). With θ = (1 - B, 1 - Q) in two dimensions the exact posterior is drawn from a grid.

Everything is done as the README does it: plain NumPy simulators, default settings. *Shift* is the distance of means in exact
posterior sd, *width* the ratio of sds, parameter by parameter. Seconds include compilation.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from math import comb
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

import scorefold as sf
from scorefold import tasks
from scorefold.tasks import drift_diffusion

TRIALS, HOUSEHOLDS, LARGEST = 100, 200, 6
CHOICE, SPREAD = np.array([1.2, 1.3, 0.5, 0.3]), np.array([0.15, 0.25])
"""The true parameters."""
GRID = 801
DRAWS = 2_000


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


def decisions(seed: int) -> Trial:
    """100 reaction times and choices."""
    rng = np.random.default_rng(seed)
    x_obs = np.stack([drift_diffusion.numpy_simulator(CHOICE, rng) for _ in range(TRIALS)])
    task = tasks.get("drift_diffusion")
    return Trial(
        task.prior, drift_diffusion.numpy_simulator, {"x_names": ("rt", "choice")}, x_obs, {},
        lambda: np.asarray(task.reference(x_obs, DRAWS, seed)),
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
    cell = rng.choice(len(weight), DRAWS, p=weight / weight.sum())
    step = np.array([0.5, 0.7]) / GRID
    return np.stack([p.ravel()[cell], q.ravel()[cell]], axis=1) + rng.uniform(-0.5, 0.5, (DRAWS, 2)) * step


def spent(what: str, job: Callable[[], Any]) -> Any:
    """What a job returns; its seconds and what it says are printed."""
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = job()
    print(f"{what}: {time.perf_counter() - began:.1f} s", flush=True)
    for one in dict.fromkeys(str(warning.message) for warning in said):
        print(f"  said: {one}", flush=True)
    return found


def against(draws: sf.Draws, reference: np.ndarray) -> None:
    """Print the table that a user sees, and how far it is off."""
    print(draws.summary())
    sd = reference.std(axis=0)
    shift, width = (draws.theta.mean(axis=0) - reference.mean(axis=0)) / sd, draws.theta.std(axis=0) / sd
    for i, name in enumerate(draws.names):
        exact = f"exact {reference[:, i].mean():.4g} ± {sd[i]:.2g}"
        print(f"  {name:8s} {exact:22s} shift {shift[i]:+.2f} sd, width × {width[i]:.2f}")
    print(f"  largest shift {np.abs(shift).max():.2f} sd; widths {width.min():.2f} to {width.max():.2f}", flush=True)


def run(name: str, trial: Trial, chosen: argparse.Namespace) -> None:
    """One trial: simulate, fit, sample, refine, look."""
    print(f"\n== {name}: {len(trial.x_obs)} observations, {chosen.budget:,} simulations ==")
    reference = spent("exact posterior", trial.reference)
    how = {"budget": chosen.budget, "seed": chosen.seed, **trial.names}
    sims = spent("simulate", lambda: sf.simulate(trial.prior, trial.simulator, **how))
    print(sims)
    for method in chosen.methods:
        print(f"\n-- {method}")
        posterior = spent("fit", lambda method=method: sf.fit(sims, method, seed=chosen.seed))
        against(spent("sample", lambda own=posterior: own.sample(trial.x_obs, DRAWS, **trial.given)), reference)
        if method != "f-npse" or not chosen.refine:
            continue
        more = {"budget": chosen.refine, "sims": sims, "seed": chosen.seed, **trial.given}
        refined = spent("refine", lambda own=posterior, more=more: own.refine(trial.x_obs, trial.simulator, **more))
        against(spent("sample", lambda own=refined: own.sample(trial.x_obs, DRAWS, **trial.given)), reference)
        spent("check", lambda own=posterior: print(own.check(trial.x_obs, trial.simulator, sims=3_000, **trial.given)))


BOTH = {"decisions": decisions, "households": households}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", nargs="+", choices=BOTH, default=list(BOTH))
    parser.add_argument("--methods", nargs="+", default=["f-npse"], help="f-npse, which is also refined, nle, nre, …")
    parser.add_argument("--budget", type=int, default=10_000, help="Simulator calls to train on.")
    parser.add_argument("--refine", type=int, default=5_000, help="Simulator calls of refinement; 0 leaves it out.")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    for name in chosen.trials:
        run(name, BOTH[name](chosen.seed), chosen)


if __name__ == "__main__":
    main()
