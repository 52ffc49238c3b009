"""Many cases a few at a time: as `vmap`, in memory that does not grow with their number.

What is judged outside the steps of training, by validation and by the correction, is thousands of cases. The layers of a
network take many times as much memory as a case itself, which for images is a lot.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

NUMBERS_TOGETHER = 1 << 19
"""Numbers of observations that go through a network at once: 128 images of 64 × 64."""


def few_at_a_time(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of one row as one of many, as `vmap` makes it.

    Where rows are small all are computed at once, just as by `vmap`; else as many as have NUMBERS_TOGETHER numbers.
    """

    def over_all(*rows: Any) -> Any:
        leaves = jax.tree.leaves(rows)
        count, each = len(leaves[0]), max(int(np.prod(leaf.shape[1:])) for leaf in leaves)
        if count * each <= NUMBERS_TOGETHER:
            return jax.vmap(function)(*rows)
        return _in_blocks(jax.vmap(function), rows, count, max(1, NUMBERS_TOGETHER // each))

    return over_all


def _in_blocks(function: Callable[..., Any], rows: tuple, count: int, size: int) -> Any:
    """The function of `count` rows, `size` at a time. (`jax.lax.map` with a batch size fails where results have no numbers.)"""
    whole = count // size * size
    blocks = jax.tree.map(lambda leaf: leaf[:whole].reshape(count // size, size, *leaf.shape[1:]), rows)
    made = jax.lax.map(lambda block: function(*block), blocks)
    made = jax.tree.map(lambda leaf: leaf.reshape(whole, *leaf.shape[2:]), made)
    if whole == count:
        return made
    rest = function(*jax.tree.map(lambda leaf: leaf[whole:], rows))
    return jax.tree.map(lambda one, two: jnp.concatenate([one, two]), made, rest)
