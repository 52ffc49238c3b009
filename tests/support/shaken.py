"""Networks with random weights everywhere, so that nothing is at its start."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


def shaken(module, scale=0.3):
    """The module with noise on all its weights, drawn by NumPy: JAX would compile a program for every shape."""
    rng = np.random.default_rng(7)
    arrays, rest = eqx.partition(module, eqx.is_inexact_array)
    moved = jax.tree.map(lambda leaf: jnp.asarray(leaf + scale * rng.standard_normal(leaf.shape), leaf.dtype), arrays)
    return eqx.combine(moved, rest)
