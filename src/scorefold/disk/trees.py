"""Trees of JAX arrays, such as networks, as named arrays: a leaf's name is its path, network.x_mlp.blocks.0.linear.weight."""

from collections.abc import MutableMapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.disk.tensors import Arrays, Spec


def named(tree: Any, prefix: str = "") -> dict[str, Any]:
    """The leaves of a tree by their dotted path, each with `prefix` in front."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {prefix + jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def arrays_of(tree: Any, prefix: str = "") -> Arrays:
    """The leaves of a tree as NumPy arrays, by their dotted path with `prefix` in front; `filled` puts them back."""
    return {name: np.asarray(leaf) for name, leaf in named(tree, prefix).items()}


def specs_of(like: Any, prefix: str = "") -> dict[str, Spec]:
    """The shapes and types that the leaves should have, by their dotted path, from a tree of shapes and types."""
    return {name: Spec(tuple(leaf.shape), np.dtype(leaf.dtype)) for name, leaf in named(like, prefix).items()}


def filled(like: Any, arrays: MutableMapping[str, np.ndarray], prefix: str = "") -> Any:
    """The tree of shapes and types with these arrays for leaves, which are taken out of `arrays` by their path."""
    leaves = [jnp.asarray(arrays.pop(name)) for name in named(like, prefix)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
