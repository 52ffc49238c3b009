"""Many cases a few at a time: as `vmap`, in memory that does not grow with their number.

What is judged outside the steps of training, by validation and by the correction, is thousands of cases. The layers of a
network take many times as much memory as a case itself, which for images is a lot.
"""

from collections.abc import Callable
from typing import Any

import jax
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
        return jax.lax.map(lambda row: function(*row), rows, batch_size=max(1, NUMBERS_TOGETHER // each))

    return over_all
