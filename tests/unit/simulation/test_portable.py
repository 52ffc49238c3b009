"""Where it runs: systems without file locks are refused in words, and workers need no script that is written for them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from full import shortly

import scorefold

SOURCE = str(Path(scorefold.__file__).parents[1])


def python(*argv, **how):
    """Another Python, with scorefold as it is here."""
    env = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.run([sys.executable, *argv], capture_output=True, text=True, env=env, timeout=300, **how)


NO_LOCKS = "import sys; sys.modules['fcntl'] = None; import scorefold as sf; "


@pytest.mark.parametrize("what", shortly(["sf.simulate", "sf.load"], "sf.load"))
def test_a_system_without_file_locks_is_refused_in_words(what):
    done = python("-c", NO_LOCKS + what)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: expected Linux or macOS")
    assert "On Windows run scorefold in WSL 2" in last


def test_what_needs_no_locks_works_without():
    done = python("-c", NO_LOCKS + "from scipy import stats; print(sf.Prior({'a': stats.norm(0, 1)}).sample(2, seed=0).shape)")
    assert done.stdout == "(2, 1)\n", done.stderr


SCRIPT = """
import scorefold as sf
from scipy import stats

def simulator(theta, rng):
    return theta + rng.normal(size=2)

SPREAD = 2.0
prior = sf.Prior({"a": stats.norm(0, SPREAD)})
sims = sf.simulate(prior, simulator, 200, workers=sf.Workers(2, timeout=60))
print("made", len(sims.theta), "times", 1)
"""


def test_workers_in_a_script_without_a_main_guard(tmp_path):
    """Its lines run once: workers do not import it."""
    (tmp_path / "script.py").write_text(SCRIPT)
    done = python(str(tmp_path / "script.py"))
    assert done.stdout == "made 200 times 1\n", done.stderr


CELLS = """
import __main__, code, sys
if hasattr(__main__, "__file__"):
    del __main__.__file__
shell = code.InteractiveInterpreter(vars(__main__))
for cell in sys.argv[1].split("\\n\\n"):
    shell.runsource(cell + "\\n", "<cell>", "exec")
"""


def test_workers_in_a_notebook():
    """Cells are run one by one in a module without a file, as notebooks have it, and the simulator is of one of them."""
    done = python("-c", CELLS, SCRIPT.strip())
    assert done.stdout == "made 200 times 1\n", done.stderr
