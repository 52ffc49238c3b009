"""What must work where scorefold was installed and nothing else of it is there: `python smoke.py`, in an empty folder.

A small simulation, a small fit, draws, a saved model, ArviZ and the command line. Networks are tiny: this shows that the
package is whole, not that it is right.
"""

import contextlib
import subprocess
import sys
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import scipy.stats

import scorefold as sf


def simulator(theta, rng):
    """Two numbers around the parameters."""
    return theta + rng.normal(size=2)


def main() -> None:
    """Every step; whatever fails ends the program."""
    home = Path(sf.__file__).parent
    assert "site-packages" in home.parts, f"expected the installed package; got {home}"
    assert (home / "py.typed").exists(), "expected the package to ship its types"
    assert version("scorefold") == sf.__version__
    prior = sf.Prior({"a": scipy.stats.norm(0, 1), "b": scipy.stats.uniform(-2, 4)})
    sims = sf.simulate(prior, simulator, budget=400, seed=0)
    method = sf.NPSE(width=8, depth=1, training=sf.Training(steps=60, members=2))
    posterior = sf.fit(sims, method, seed=0)
    x_obs = np.random.default_rng(1).normal(0.5, size=(5, 2))
    draws = posterior.sample(x_obs, draws=100, seed=0)
    posterior.save("model")
    assert np.array_equal(sf.load("model").sample(x_obs, draws=100, seed=0).theta, draws.theta)
    inference = draws.to_arviz()
    assert dict(inference["posterior"].sizes) == {"chain": 1, "draw": 100}
    inference.to_netcdf("draws.nc")
    sf.plots.save(sf.plots.pairs(draws), Path("pairs.png"))
    for shipped in ("tasks/shipped/lotka_volterra.safetensors", "report/assets/page.css"):
        assert (home / shipped).exists(), f"expected {shipped} in the package"
    command = Path(sys.executable).with_name("scorefold")
    for arguments in (["--help"], ["tasks"], ["sample", "--help"]):
        shown = subprocess.run([command, *arguments], capture_output=True, text=True, check=True, timeout=120)
        assert shown.stdout
    packages = ("jax", "numpy", "arviz", "equinox")
    found = ", ".join(f"{package} {version(package)}" for package in packages)
    print(f"scorefold {sf.__version__} works on Python {sys.version.split()[0]} with {found}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # draws of networks this small are not to be trusted, and say so
        main()
