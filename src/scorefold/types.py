"""The shape vocabulary, random keys, and how JAX is to compute: how precisely, compiled how well, on which cores.

Axis names: `draws` posterior draws, `obs` observations, `sets` sets of observations, `set` observations
within one set, `dim` parameters, `x` the features of one observation, `cases` training cases, `levels`
noise levels.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

Scalar = Float[Array, ""]
Theta = Float[Array, " dim"]
Cloud = Float[Array, "draws dim"]
Observation = Float[Array, " x"]
Key = PRNGKeyArray
Count = int | Int[Array, ""]  # may be traced
Function = TypeVar("Function", bound=Callable[..., Any])
MAY_BE_NAN = "may be NaN"
"""Annotated[Float[np.ndarray, "…"], MAY_BE_NAN]: numbers that need not be finite, in files either."""

QUICKLY = {"xla_backend_optimization_level": 0}
"""Options of `jax.jit` for programs that run once: to compile them well would take longer than to run them."""
UNTUNED = {"xla_gpu_autotune_level": 0}
"""Options of `jax.jit` for large programs of small products: on a GPU several ways would be tried for each product, which takes
half of the time to compile and gains nothing. Elsewhere they mean nothing."""


def single_precision() -> AbstractContextManager[Any]:
    """A context in which JAX computes as it does by default, whatever `jax_enable_x64` says: networks are trained and used in
    it.
    """
    return jax.enable_x64(False)


def untuned(function: Function) -> Function:
    """`eqx.filter_jit`, `UNTUNED`."""
    compiled: Function = eqx.filter_jit(function, compiler_options=UNTUNED)  # type: ignore[call-overload]
    return compiled


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def on_cores(function: Callable[[Any], Any], parts: Iterable[Any]) -> list[Any]:
    """The function of every part, a core each, for programs whose steps are too small to be shared out over cores.

    Parts are begun in their order. JAX runs one program after the other where one thread calls them all, so each core has a
    thread, which computes as precisely as the caller does. After Ctrl-C or an error, parts that were begun come to their end.
    """
    x64, device = jax.config.jax_enable_x64, jax.config.jax_default_device  # type: ignore[attr-defined]

    def as_here(part: Any) -> Any:
        with jax.enable_x64(x64), jax.default_device(device):
            return function(part)

    with ThreadPoolExecutor(cores()) as threads:
        return list(threads.map(as_here, parts))


def new_key(seed: int) -> Key:
    """A random key for any whole number of 0 or more, all of whose digits count; `jax.random.key` alone would keep 32 bits."""
    key = jax.random.key(seed & 0xFFFFFFFF)
    while seed := seed >> 32:
        key = jax.random.fold_in(key, seed & 0xFFFFFFFF)
    return key


def draw_key(seed: tuple[int, int]) -> Key:
    """The random key of one data set's draws, from the seed asked for and from which of several data sets it is."""
    return jax.random.fold_in(new_key(int(seed[0])), seed[1])


def draw_keys(seeds: Sequence[tuple[int, int]]) -> Array:
    """The keys that `draw_key` gives for each of many data sets, most of which share the seed asked for."""
    firsts = {first: i for i, first in enumerate(dict.fromkeys(first for first, _ in seeds))}
    keys = jnp.stack([new_key(int(first)) for first in firsts])
    which = jnp.array([firsts[first] for first, _ in seeds])
    return jax.vmap(jax.random.fold_in)(keys[which], jnp.array([second for _, second in seeds]))


__all__ = [
    "MAY_BE_NAN", "Array", "Bool", "Callable", "Cloud", "Count", "Float", "Int", "Key", "Observation", "Scalar", "Theta",
    "cores", "draw_key", "draw_keys", "new_key", "on_cores", "single_precision", "untuned",
]  # fmt: skip
