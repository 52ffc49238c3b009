"""Fit a small posterior and draw from it, on all devices that there are, and keep the numbers.

XLA_FLAGS=--xla_force_host_platform_device_count=N python on_devices.py FILE.npz
"""

import sys
import warnings

import jax
import numpy as np
from scipy import stats

import scorefold as sf
from scorefold.train import rows

SMALL = {"learning_rates": (1e-3,), "members": 3, "steps": 50, "weight_decay": 0.1}
SAMPLER = sf.samplers.Langevin(levels=10, steps=2)


def simulator(theta, rng):
    return theta**2 + 0.3 * rng.normal(size=2)


def main(path):
    warnings.simplefilter("ignore")  # draws of so little training are not good
    prior = sf.Prior({"a": stats.norm(0, 1), "b": stats.uniform(0, 2)})
    sims = sf.simulate(prior, simulator, 200, seed=1)
    method = sf.NPSE(width=8, depth=1, T=40, sampler=SAMPLER, rule="tempered", training=sf.Training(**SMALL))
    found, mesh, used = {"devices": jax.local_device_count()}, rows._mesh, {1}
    rows._mesh = lambda number: used.add(number) or mesh(number)
    for seed, one in enumerate(sf.fit_many([sims, sims], method, seeds=[0, 1])):
        found[f"losses {seed}"] = one.history.validation
    posterior = sf.fit(sims, method, seed=2)
    found["weights"] = np.concatenate([np.ravel(v) for v in jax.tree.leaves(posterior.ensemble)])
    some = np.random.default_rng(0).normal(1, 0.3, (3, 2, 2))
    found["draws"] = posterior.sample(some[0], draws=1_500, seed=3).theta
    found["draws for many"] = posterior.sample_many(some, draws=50, seed=3).theta
    np.savez(path, used=sorted(used), **found)


if __name__ == "__main__":
    main(sys.argv[1])
