"""Rows that do not need each other: shared out over the devices of this machine, or computed a few at a time.

Runs of training, clouds of draws and data sets are shared out. Row i of k goes to device ⌊i D / k'⌋ of D, where k' is k
rounded up to a multiple of D by repeating the first rows; what the repeated ones give is left out. Nothing is exchanged
between devices, so the result is that of one device up to rounding. With one device, or where the user has chosen one
(`jax.default_device`), the function is called as it is.

Cases that are judged outside the steps of training, by validation and by the correction, are thousands. The layers of a network
take many times as much memory as a case itself, which for images is a lot, so these go through it a few at a time.

The number of rows is part of a compiled program, so rows whose number changes are padded to a bucket, a power of two.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "rows"
NUMBERS_TOGETHER = 1 << 19
"""Numbers of observations that go through a network at once: 128 images of 64 × 64."""


def device_count() -> int:
    """How many devices rows are shared out over, at most."""
    return 1 if jax.config.jax_default_device is not None else jax.local_device_count()  # type: ignore[attr-defined]


def over_devices(function: Callable[[Any, Any], Any], rows: Any, same: Any) -> Any:
    """`function(rows, same)`, each device with some of the rows: the leading axis of all arrays in `rows` and in what returns.

    The function computes row by row, as `vmap` makes it, and no row depends on another; `same` is the same for all. To be
    called under `jit`.
    """
    count = len(jax.tree.leaves(rows)[0])
    devices = min(device_count(), count)
    if devices == 1:
        return function(rows, same)
    each = -(-count // devices)
    devices = -(-count // each)  # as few as do it as fast
    if padding := devices * each - count:
        rows = jax.tree.map(lambda v: jnp.concatenate([v, v[:padding]]), rows)
    split, whole = PartitionSpec(AXIS), PartitionSpec()
    shared = jax.shard_map(function, mesh=_mesh(devices), in_specs=(split, whole), out_specs=split, check_vma=False)
    return jax.tree.map(lambda v: v[:count], shared(rows, same))


def everywhere(tree: Any, rows: int) -> Any:
    """The arrays copied to the devices that so many rows are shared out over, so that it need not be done at every call."""
    devices = min(device_count(), rows)
    if devices == 1:
        return tree
    return jax.device_put(tree, NamedSharding(_mesh(-(-rows // -(-rows // devices))), PartitionSpec()))


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


def bucket(rows: int) -> int:
    """The power of two that so many rows are padded to, so that few compiled programs serve any number of them."""
    return 1 << int(np.ceil(np.log2(rows))) if rows > 1 else 1


def _mesh(devices: int) -> Mesh:
    return Mesh(np.array(jax.local_devices()[:devices]), (AXIS,))
