"""How fast and how exact are the simulators that solve differential equations?

    python benchmarks/simulators.py            # 100,000 simulations of SIR and of Lotka–Volterra, each in one call

Seconds of the call once compiled, mean and spread of three; and the error of the single-precision solution behind it,
as a share of the observation noise at its worst time, against a solve in double precision with tolerance 1e-10.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

from scorefold import tasks
from scorefold.tasks import lotka_volterra, ode, sir

AT_ONCE = 10_000


def exact(field, start, times, theta):
    """The logarithms of both species in double precision, (simulations, 2, times)."""
    before, ode.DOUBLE = ode.DOUBLE, 1e-10
    try:
        with jax.enable_x64(True):
            solve = jax.jit(jax.vmap(lambda theta: ode.solve(field, start, times, theta)))
            pieces = np.array_split(theta, -(-len(theta) // AT_ONCE))
            return np.concatenate([np.asarray(solve(jnp.asarray(piece, jnp.float64))) for piece in pieces])
    finally:
        ode.DOUBLE = before


def sir_error(theta):
    """|ΔI| · 1000 over the binomial's sd."""
    ours = np.exp(np.asarray(jax.jit(jax.vmap(sir.log_infected))(theta), np.float64))
    share = np.exp(exact(sir.field, sir.START, sir.TIMES, theta)[:, 1])
    return (np.abs(ours - share) * np.sqrt(sir.ASKED / (share * (1 - share)))).max(1)


def lotka_volterra_error(theta):
    """|Δlog X| over 0.1."""
    ours = np.asarray(jax.jit(jax.vmap(lotka_volterra.log_species))(theta), np.float64)
    species = exact(lotka_volterra.field, lotka_volterra.START, lotka_volterra.TIMES, theta)
    truth = np.clip(species, lotka_volterra.SMALLEST_LOG_SPECIES, lotka_volterra.LARGEST_LOG_SPECIES).reshape(len(theta), -1)
    return (np.abs(ours - truth) / lotka_volterra.NOISE).max(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}; {chosen.simulations:,} simulations in one call")
    print("task             seconds (sd)     failed   error / noise: median   99 %      99.99 %   largest")
    for name, error_of in (("sir", sir_error), ("lotka_volterra", lotka_volterra_error)):
        task = tasks.get(name)
        theta = jnp.asarray(task.prior.sample(chosen.simulations, chosen.seed), jnp.float32)
        keys = jax.random.split(jax.random.key(chosen.seed), chosen.simulations)
        simulator = jax.jit(task.simulator.function)
        x = np.asarray(simulator(theta, keys))
        seconds = []
        for _ in range(3):
            started = time.perf_counter()
            jax.block_until_ready(simulator(theta, keys))
            seconds.append(time.perf_counter() - started)
        error = error_of(theta)
        shown = "   ".join(f"{q:.1e}" for q in np.nanquantile(error, [0.5, 0.99, 0.9999, 1]))
        failed = int((~np.isfinite(x)).any(1).sum())
        print(
            f"{name:15s}  {np.mean(seconds):.2f} ({np.std(seconds):.2f})      {failed:5d}                    {shown}",
            flush=True,
        )


if __name__ == "__main__":
    main()
