"""Simulators for workers' children to import: this module must stay light."""

import ctypes
import os
import subprocess
import sys
import time

import numpy as np


def echo(theta, rng):
    """θ itself, and one random number."""
    return np.append(theta, rng.normal())


def slow_echo(theta, rng):
    time.sleep(float(os.environ.get("PAUSE", "0.01")))
    return np.append(theta, rng.normal())


def prints(theta, rng):
    print("to standard output", flush=True)
    os.write(1, b"x" * 100)
    return theta


def light(theta, rng):
    """Whether JAX is loaded where this runs."""
    return float("jax" in sys.modules)


def process(theta, rng):
    return float(os.getpid())


FAULTS = {"crashed": 0.10, "timed out": 0.05, "not finite": 0.05, "wrong shape": 0.01}


def fault(rng):
    """Which of the faults happens, from the first number of the stream."""
    at = rng.uniform()
    for name, part in FAULTS.items():
        if at < part:
            return name
        at -= part
    return "ok"


def faulty(theta, rng):
    kind = fault(rng)
    if kind == "crashed":
        ctypes.string_at(0)
    if kind == "timed out":
        while True:
            time.sleep(10)
    if kind == "not finite":
        return np.append(theta, np.nan)
    if kind == "wrong shape":
        return np.zeros(7)
    return np.append(theta, rng.normal())


def raises(theta, rng):
    if theta[0] > -0.5:
        raise ZeroDivisionError("no susceptibles left")
    return theta


def crashes(theta, rng):
    ctypes.string_at(0)


def exits(theta, rng):
    os._exit(3)


def leaves(theta, rng):
    sys.exit("good-bye")


def hangs(theta, rng):
    time.sleep(3600)


def hoards(theta, rng):
    kept = []
    while True:
        kept.append(np.ones(1 << 20))


def starts_another(theta, rng):
    """Leaves a process behind that must not outlive the child."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    with open(os.environ["NOTE"], "w") as file:
        file.write(str(other.pid))
    time.sleep(3600)


def forks_and_crashes(theta, rng):
    """Dies while a process that it forked holds all its files open."""
    if os.fork() == 0:
        time.sleep(3600)
    ctypes.string_at(0)


def scalar(theta, rng):
    return theta[0]


def image(theta, rng):
    return np.full((2, 3), theta[0])


def nothing(theta, rng):
    return None


def text(theta, rng):
    return "x"


def huge(theta, rng):
    return 1e39
