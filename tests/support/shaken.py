"""Networks with random weights everywhere, so that nothing is at its start."""

import equinox as eqx
import jax


def shaken(module, scale=0.3):
    """The module with noise on all its weights."""
    arrays, rest = eqx.partition(module, eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(arrays)
    keys = jax.random.split(jax.random.key(7), len(leaves))
    moved = [leaf + scale * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
    return eqx.combine(jax.tree.unflatten(tree, moved), rest)
