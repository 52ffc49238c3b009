"""Every method fitted, saved, loaded and sampled, with every rule and sampler: prints what came out, as a program of its own.

`python every_way.py FOLDER`, with JAX set up by environment variables.
"""

import hashlib
import json
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import scorefold as sf
from scorefold.diagnostics.c2st import c2st

PRIOR = sf.Prior({"a": stats.norm(0, 1), "b": stats.uniform(-1, 2)})
NETWORK = {"width": 4, "depth": 1, "training": sf.Training(members=2, steps=50, learning_rates=(1e-3,))}
FLOW = {"layers": 1, **NETWORK}
CHAINS = {"chains": 2, "warmup": 20, **NETWORK}
METHODS = {
    "f-npse": (sf.NPSE(set_size=1, **NETWORK), PRIOR),
    "pf-npse": (sf.NPSE(**NETWORK), PRIOR),
    "npse": (sf.NPSE(composes=False, **NETWORK), PRIOR),
    "conservative": (
        sf.NPSE(set_size=1, conservative=True, sampler=sf.samplers.Metropolis(levels=5, last=5), **NETWORK),
        PRIOR,
    ),
    "a prior known by draws": (sf.NPSE(**NETWORK), sf.Prior.from_draws(np.random.default_rng(0).normal(size=(300, 2)))),
    "convolution": (sf.NPSE(set_size=1, embedding="convolution", **NETWORK), PRIOR),
    "npe": (sf.NPE(**FLOW), PRIOR),
    "npe, splines": (sf.NPE(flow="spline", **FLOW), PRIOR),
    "nle": (sf.NLE(layers=1, **CHAINS), PRIOR),
    "nre": (sf.NRE(steps=20, **CHAINS), PRIOR),
    "abc": (sf.ABC(), PRIOR),
}
PAIRS = (
    ("diffused", "self-tuned"),
    ("damped", "langevin"),
    ("tempered", "transitions"),
    ("gauss", "ancestral"),
    ("gauss", "probability-flow"),
    ("jac", "ddim"),
)
"""Every rule and every sampler at least once, but for Metropolis, which is the conservative network's."""
N = 6
DRAWS = 20


def simulator(theta, rng):
    return theta[[0, 1, 0, 1]] + 0.5 * rng.standard_normal(4)


def ways(name):
    """Options of `sample` to try."""
    if name in ("nle", "nre"):
        return [{"sampler": sampler} for sampler in ("nuts", "vi")]
    if name == "pf-npse":
        return [{}, {"set_size": "auto"}]
    return [{"rule": rule, "sampler": sampler} for rule, sampler in PAIRS] if name == "f-npse" else [{}]


def digest(array):
    assert np.isfinite(array).all()
    return hashlib.sha256(np.asarray(array, np.float64).tobytes()).hexdigest()


def run(folder):
    found = {"double": bool(jnp.ones(()).dtype == jnp.float64)}
    x = np.random.default_rng(1).normal(size=(N, 4))
    for name, (method, prior) in METHODS.items():
        posterior = sf.fit(sf.simulate(prior, simulator, 600, set_size=N), method)
        posterior = sf.load(posterior.save(folder / name))
        for way in ways(name):
            found[f"{name} {way}"] = digest(posterior.sample(x[: 1 if name == "abc" else N], DRAWS, **way).theta)
        if name in ("f-npse", "nle", "npe"):
            found[f"{name}, many"] = digest(posterior.sample_many(x.reshape(3, 2, 4), DRAWS).theta)
        if name == "f-npse":
            refined = posterior.refine(x, simulator, budget=400, rounds=2)
            found["refined"] = digest(refined.sample(x, DRAWS).theta)
            found["c2st"] = c2st(*np.random.default_rng(2).normal(size=(2, 60, 2)))
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    jax.config.update("jax_disable_most_optimizations", True)  # programs run once
    print(json.dumps(run(Path(sys.argv[1]))))
