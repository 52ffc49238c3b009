"""Rows shared out over devices: a child process has eight, and computes what one would."""

import os
import subprocess
import sys

import jax.numpy as jnp

from scorefold.train.rows import device_count, everywhere, over_devices

CHILD = """
import jax, jax.numpy as jnp, numpy as np
from scorefold.train import rows as shared_rows

def some(rows, same):
    return jax.vmap(lambda row, key: (row @ same, jax.random.normal(key)))(*rows)

meshes, mesh = [], shared_rows._mesh
shared_rows._mesh = lambda number: meshes.append(number) or mesh(number)
same = jnp.arange(6.0).reshape(3, 2)
for count in (1, 2, 3, 8, 9, 13):
    rows = jnp.arange(3.0 * count).reshape(count, 3), jax.random.split(jax.random.key(0), count)
    shared = jax.jit(lambda *at: shared_rows.over_devices(some, *at))(rows, shared_rows.everywhere(same, count))
    for one, other in zip(shared, jax.jit(some)(rows, same), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
with jax.default_device(jax.devices()[3]):
    assert shared_rows.device_count() == 1
print(meshes)
"""


def test_any_number_of_rows_on_eight_devices():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    run = subprocess.run(
        [sys.executable, "-c", CHILD], env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    # Each number of rows copies what is the same, and then shares out; nine are two each on five devices.
    assert run.stdout.strip() == str([2, 2, 3, 3, 8, 8, 5, 5, 7, 7])


def test_one_device_is_left_alone():
    assert device_count() == 1
    tree = {"a": jnp.arange(3.0)}
    assert everywhere(tree, 3) is tree
    seen = over_devices(lambda rows, same: (rows, same), tree, 7)
    assert seen[0] is tree
    assert seen[1] == 7
