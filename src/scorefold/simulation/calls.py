"""The simulator calls of a run: how many, and with which parameters each.

Call i is simulation i: its parameters are `theta[case[i]]`, and its random stream is a pure function of (seed, i).
"""

from typing import NamedTuple

import numpy as np

from scorefold.prior import Prior

LARGEST_BUDGET = 10**9
"""Simulations are counted in 32 bits on the device, and their parameters planned in memory."""


class Calls(NamedTuple):
    """Which parameters to simulate, and which of them each simulator call is for."""

    theta: np.ndarray
    """(cases, dim)"""
    case: np.ndarray
    """(calls,) the case of each simulator call, in order"""
    set_size: int
    """No case has more calls."""
    seed: int
    names: tuple[str, ...] = ()
    """Of the parameters, where they are known."""

    @property
    def budget(self) -> int:
        """How many calls there are."""
        return len(self.case)

    @property
    def sizes(self) -> np.ndarray:
        """(cases,) how many calls each case has."""
        return np.bincount(self.case, minlength=len(self.theta))

    def rows(self, start: int, stop: int) -> np.ndarray:
        """θ of calls start … stop-1."""
        return self.theta[self.case[start:stop]]

    def describe(self, index: int) -> str:
        """θ of one call, with all digits."""
        values = self.rows(index, index + 1)[0].tolist()
        if not self.names:
            return repr(values)
        return "(" + ", ".join(f"{name} = {value!r}" for name, value in zip(self.names, values, strict=True)) + ")"


def plan(prior: Prior, budget: int, set_size: int, seed: int) -> Calls:
    """Cases of 1 … `set_size` calls each, drawn from the prior: a pure function; a larger budget continues a smaller one."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    sizes = rng.integers(1, set_size + 1, size=budget)
    ends = np.cumsum(sizes)
    cases = int(np.searchsorted(ends, budget)) + 1
    sizes = sizes[:cases]
    sizes[-1] -= ends[cases - 1] - budget
    return Calls(prior.sample(cases, seed), np.repeat(np.arange(cases), sizes), set_size, seed, prior.names)


def repeat(theta: np.ndarray, n: int, seed: int) -> Calls:
    """n calls for each row of θ (rows, dim)."""
    return Calls(theta, np.repeat(np.arange(len(theta)), n), n, seed)
