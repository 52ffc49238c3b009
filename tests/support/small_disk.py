"""A disk that is too small, then large enough, then one that can only be read: what scorefold does on it, as JSON.

    unshare --mount python small_disk.py mounted FOLDER      a file system of its own, which only this process sees
    python small_disk.py limited FOLDER                      no file may be longer than a limit; where nothing can be mounted

Every step is done in order, and its outcome noted: the class of the error, or "done".
"""

import hashlib
import json
import os
import resource
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
from scipy import stats

import scorefold as sf
from scorefold.report import results_folder
from scorefold.simulation.store import description
from scorefold.simulation.store import store as store_module
from scorefold.simulation.store.store import Store

PRIOR = sf.Prior({"a": stats.norm(0, 1)})
BUDGET = 2_000
LONGEST = 20_000
"""Bytes of a file, in the limited form."""


def simulator(theta, rng):
    return theta + rng.normal(size=100)


def digest(path):
    files = (file for file in sorted(Path(path).rglob("*")) if file.is_file() and file.parent.name != "runtimes")
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def mount(folder, *options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)], check=True)


def limit(most):
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def tried(act):
    try:
        act()
    except Exception as error:
        return type(error).__name__
    return "done"


def page(summary, pictures):
    return "a page of many letters " * 100_000


def main(how, folder):
    """Print what came of every step."""
    description.MOST_ROWS = 64
    folder.mkdir()
    posterior = sf.fit(sf.simulate(PRIOR, simulator, 500), "abc")
    acts = {
        "simulate": lambda: sf.simulate(PRIOR, simulator, BUDGET, store=folder / "store", workers=0),
        "save": lambda: posterior.save(folder / "model"),
        "write a page": lambda: results_folder.write(folder / "out", "summary.json", {"a": 1}, {}, page),
    }
    found = {}
    mounted = how == "mounted"
    mount(folder, "size=600k") if mounted else limit(LONGEST)
    found["small"] = {name: tried(act) for name, act in acts.items()}
    if not mounted:
        limit(resource.RLIM_INFINITY)
    found["left"] = sorted(os.listdir(folder))
    found["half a runtime"] = [name for name in os.listdir(folder / "store" / "runtimes") if name.startswith(".")]
    found["in out"] = sorted(os.listdir(folder / "out")) if (folder / "out").exists() else []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found["kept"] = Store.open(folder / "store").stop()
    if mounted:
        mount(folder, "remount", "size=50m")
    found["large"] = {name: tried(act) for name, act in acts.items()}
    sf.simulate(PRIOR, simulator, BUDGET, store=folder.parent / "whole", workers=0)
    found["the same"] = digest(folder / "store") == digest(folder.parent / "whole")
    if mounted:
        mount(folder, "remount", "ro")
        found["read-only"] = read_only(folder, acts)
    print(json.dumps(found))


def read_only(folder, acts):
    """What can still be done where nothing can be written."""
    before, store_module.IN_MEMORY = store_module.IN_MEMORY, 0
    sims = Store.open(folder / "store").simulations()
    more = {
        "read": lambda: np.asarray(sims.x).sum(),
        "map": lambda: None if isinstance(sims.x, np.memmap) else 1 / 0,
        "extend": lambda: sf.simulate(PRIOR, simulator, 2 * BUDGET, store=folder / "store", workers=0),
        "begin": lambda: sf.simulate(PRIOR, simulator, BUDGET, store=folder / "new", workers=0),
        "save again": lambda: posterior_of(folder).save(folder / "other"),
    }
    store_module.IN_MEMORY = before
    return {name: tried(act) for name, act in {**acts, **more}.items()}


def posterior_of(folder):
    return sf.load(folder / "model")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
