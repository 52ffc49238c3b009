"""With `jax_enable_x64` set, every method fits, saves, loads and samples, with every rule and sampler."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent.parent / "support" / "every_way.py"


@pytest.mark.full
def test_double_precision_does_no_harm(tmp_path):
    run = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path)],
        env={**os.environ, "JAX_ENABLE_X64": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2_000:]
    found = json.loads(run.stdout)
    assert found.pop("double"), "arrays of the user's are in double precision"
    assert len(found) > 20
