"""The shape vocabulary.

Axis names: `draws` posterior draws, `obs` observations, `sets` sets of observations, `set` observations
within one set, `dim` parameters, `x` the features of one observation, `cases` training cases, `levels`
noise levels.
"""

from collections.abc import Callable

import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray

Scalar = Float[Array, ""]
Theta = Float[Array, "dim"]
Cloud = Float[Array, "draws dim"]
Observation = Float[Array, "x"]
Key = PRNGKeyArray
Count = int | Int[Array, ""]  # may be traced


def new_key(seed: int) -> Key:
    """A key for any whole number ≥ 0; `jax.random.key` alone would keep 32 bits of it."""
    key = jax.random.key(seed & 0xFFFFFFFF)
    while seed := seed >> 32:
        key = jax.random.fold_in(key, seed & 0xFFFFFFFF)
    return key


__all__ = ["Array", "Callable", "Cloud", "Count", "Float", "Int", "Key", "Observation", "Scalar", "Theta", "new_key"]
