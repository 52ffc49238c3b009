"""Rows that do not need each other, shared out over the devices of this machine: runs of training, clouds of draws, data sets.

Row i of k goes to device ⌊i D / k'⌋ of D, where k' is k rounded up to a multiple of D by repeating the first rows; what the
repeated ones give is left out. Nothing is exchanged between devices, so the result is that of one device up to rounding. With
one device, or where the user has chosen one (`jax.default_device`), the function is called as it is.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "rows"


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


def _mesh(devices: int) -> Mesh:
    return Mesh(np.array(jax.local_devices()[:devices]), (AXIS,))
