"""Reference draws that are slow to make are made once.

They are looked for, in this order,

1. among those that come with the package, for the benchmark's data sets: `task.observe(30, seed)` for the 30 seeds in
   `BENCHMARK_SEEDS` (5 trainings × 6 parameter draws), of which the first n ∈ {1, 8, 14, 22, 30} are used. They are
   the 1,000 draws of reference seed 0, by `nuts.py` in double precision, kept as float32 together with their R̂,
   effective sample size and divergences. `python benchmarks/references.py --make` makes them again, and those that
   are missing.
2. in the cache, a folder named by the environment variable SCOREFOLD_CACHE or else the user's cache folder, where
   the name of a file is a hash of the task, its version, the observations, the number of draws and the seed.

A file in the cache appears whole or not at all; one that cannot be read is made again. Files are safetensors.
"""

import hashlib
import os
import tempfile
import warnings
from functools import cache, wraps
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from scorefold.disk.program_cache import user_folder
from scorefold.errors import ScorefoldWarning
from scorefold.tasks.nuts_reference import Chains
from scorefold.types import Callable, Float

POOL = 1_000
"""Fewer draws than this are the first of so many."""
SHIPPED = Path(__file__).parent / "shipped"
SHIPPED_SEED = 0
BENCHMARK_SEEDS = range(1_000, 1_030)
"""Of `task.observe`: training r = 0 … 4 and parameter draw p = 0 … 5 have the seed 1,000 + 6 r + p."""
BENCHMARK_SIZES = (1, 8, 14, 22, 30)
SAME_OBSERVATIONS = 1e-5
"""Relative difference of observations that other hardware may round otherwise; the posterior does not feel it."""

DIAGNOSTICS = ("r_hat", "ess", "divergences")

Compute = Callable[[np.ndarray, int, int], Chains]
Reference = Callable[[np.ndarray, int, int], np.ndarray]


def kept(name: str, version: int) -> Callable[[Compute], Reference]:
    """A decorator for references that are slow: it looks for the draws in the package and in the cache before it has them
    computed.
    """

    def decorate(compute: Compute) -> Reference:
        @wraps(compute)
        def reference(x_obs: np.ndarray, draws: int, seed: int) -> Float[np.ndarray, "draws dim"]:
            x, pool = np.asarray(x_obs, np.float64), max(draws, POOL)
            if pool == POOL and seed == SHIPPED_SEED and (found := shipped(name, version, x)) is not None:
                return found[:draws]
            path = place(name, version, x, pool, seed)
            chains = read(path, pool)
            if chains is None:
                chains = compute(x_obs, pool, seed)
                write(path, chains)
            return chains.draws[:draws]

        return reference

    return decorate


def place(name: str, version: int, x: np.ndarray, draws: int, seed: int) -> Path:
    """The file in the cache, named by a hash of everything that the draws depend on."""
    described = f"{name} {version} {x.shape} {draws} {seed} ".encode() + np.ascontiguousarray(x).tobytes()
    return user_folder() / f"{name}-{hashlib.sha256(described).hexdigest()[:32]}.safetensors"


def shipped(name: str, version: int, x: np.ndarray) -> Float[np.ndarray, "draws dim"] | None:
    """The draws that come with the package for these observations, task and version, or None if there are none."""
    stored = _shipped(name)
    if stored is None or stored["version"] != version or x.ndim != 2 or len(x) not in stored["n"]:
        return None
    if x.shape[1:] != stored["x"].shape[2:]:
        return None
    same = np.isclose(stored["x"][:, : len(x)], x, rtol=SAME_OBSERVATIONS, atol=0).all(axis=(1, 2))
    if not same.any():
        return None
    return stored["draws"][np.argmax(same), list(stored["n"]).index(len(x))].astype(np.float64)


@cache
def _shipped(name: str) -> dict[str, np.ndarray] | None:
    path = SHIPPED / f"{name}.safetensors"
    return load(path.read_bytes()) if path.exists() else None


def read(path: Path, draws: int) -> Chains | None:
    """The chains in a file of the cache, or None if they are not there, not whole or not good enough."""
    try:
        found = load(path.read_bytes())
        r_hat, ess, divergences = (float(found[k][0]) for k in DIAGNOSTICS)
        chains = Chains(found["draws"], r_hat, ess, int(divergences))
    except (OSError, KeyError, IndexError, ValueError, SafetensorError):
        return None
    whole = chains.draws.ndim == 2 and len(chains.draws) == draws and chains.draws.dtype == np.float64
    return chains if whole and np.isfinite(chains.draws).all() and chains.good(draws) else None


def write(path: Path, chains: Chains) -> None:
    """Keep the chains in a file of the cache, whole or not at all; a folder that cannot be written to is only a warning."""
    content = save({"draws": chains.draws, **{k: np.array([getattr(chains, k)], np.float64) for k in DIAGNOSTICS}})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as part:
            part.write(content)
        os.replace(part.name, path)
    except OSError as error:
        warnings.warn(
            f"the reference draws could not be kept in {path.parent} ({error}); they will be made again the next time. Set "
            "SCOREFOLD_CACHE to a folder that can be written to.",
            ScorefoldWarning,
            stacklevel=4,
        )
