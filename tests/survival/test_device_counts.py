"""Several devices of one machine do the work of one: each child process has so many, and all find the same numbers."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[1] / "support" / "on_devices.py"

USED = {1: [1], 2: [1, 2], 4: [1, 2, 3, 4], 8: [1, 2, 3, 6, 8]}
"""For 6 and 3 runs, 2 clouds, and data sets 32 at a time."""


def on(devices, folder):
    """What is found with so many devices."""
    path = folder / f"{devices}.npz"
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    subprocess.run([sys.executable, str(SCRIPT), str(path)], env={**os.environ, "XLA_FLAGS": flags}, check=True)
    with np.load(path) as found:
        assert found["devices"] == devices
        assert found["used"].tolist() == USED[devices]
        return {name: found[name] for name in found.files if name not in ("devices", "used")}


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    return on(1, tmp_path_factory.mktemp("one"))


@pytest.mark.full
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_several_devices_find_the_same(one_device, devices, tmp_path, record_property):
    found = on(devices, tmp_path)
    off = {name: np.max(np.abs(value - one_device[name]) / np.abs(one_device[name]).max()) for name, value in found.items()}
    record_property("figure", f"{devices} devices: " + ", ".join(f"{name} {value:.1e}" for name, value in off.items()))
    for name, value in found.items():
        np.testing.assert_allclose(value, one_device[name], rtol=1e-5, atol=1e-5 * np.abs(one_device[name]).max(), err_msg=name)
