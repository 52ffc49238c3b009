"""How samplers look at a likelihood, and how their loops run.

A sampler that moves a cloud asks for ℓ and ∇ℓ at some points, decides, and asks again. What it asks is nearly all of the work
and, where ℓ is a sum of networks, nearly all of the program. So a sampler is written as a step with one look in it, and a loop
that is given to it:

- `step_by_step`: Python's. The look is a program of its own, which every loop of every sampler shares, and which is compiled
  once. Nothing is gained by more, as a look takes longer than the step around it.
- `at_once`: JAX's, all in one compiled program, in which every loop has a copy of the look: for many clouds side by side.
"""

from functools import wraps
from importlib.metadata import version
from threading import RLock
from typing import Any

import jax
import jax.numpy as jnp

from scorefold.types import QUICKLY, UNTUNED, Array, Callable, Cloud, Float

IMPOSSIBLE = -1e30
"""ℓ where it is -∞ or no number."""
ON_CORES: dict[str, Any] = dict(QUICKLY)
"""Options of XLA on cores; by both together the steps of a cloud are compiled in a quarter of the time."""
if version("jaxlib").startswith("0.10."):  # another version may not know it
    ON_CORES["xla_cpu_use_fusion_emitters"] = False

Look = Callable[[Any], tuple[Any, Any]]
"""u to ℓ and ∇ℓ at every point, as arrays of JAX or NumPy."""
State = Any
Loop = Callable[[Callable[[State], Any], Callable[[State], State], State], State]
"""As long as a state says so, the next one."""


def at_once(goes_on: Callable[[State], Any], step: Callable[[State], State], state: State) -> State:
    """The whole loop within a compiled program."""
    return jax.lax.while_loop(goes_on, step, state)


def step_by_step(goes_on: Callable[[State], Any], step: Callable[[State], State], state: State) -> State:
    """A loop outside of any compiled program, one call a step."""
    while goes_on(state):
        state = step(state)
    return state


def program(function: Callable[..., Any], quickly: bool = True, static_argnums: int | None = None) -> Any:
    """`jax.jit`, where one of the threads that first need a program compiles it while the others wait.

    What is compiled quickly is not made fast: the steps around a look take no time, and compiling them would take most of it.
    """
    one_at_a_time = RLock()
    compiled: list[Any] = []

    @wraps(function)
    def call(*parts: Any) -> Any:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(parts)):
            return function(*parts)  # a part of another program
        with one_at_a_time:  # until it has begun to run
            if not compiled:
                options = ON_CORES if quickly and jax.default_backend() == "cpu" else UNTUNED
                compiled.append(jax.jit(function, compiler_options=options, static_argnums=static_argnums))
            return compiled[0](*parts)

    return call


def numbers(value: Float[Array, " draws"], slope: Cloud) -> tuple[Float[Array, " draws"], Cloud]:
    """What a look has found, as numbers everywhere."""
    there = jnp.isfinite(value) & jnp.isfinite(slope).all(axis=1)
    return jnp.where(there, value, IMPOSSIBLE), jnp.where(there[:, None], slope, 0.0)
