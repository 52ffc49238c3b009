"""The simulator calls of a run: how many, and with which parameters each.

Call i is simulation i: its parameters are `theta[case[i]]`, and its random stream is a pure function of (seed, i).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from scorefold import settings
from scorefold.prior import Prior
from scorefold.shown import one_line
from scorefold.simulation.inputs import Inputs

LARGEST_BUDGET = 10**9
"""Simulations are counted in 32 bits on the device, and their parameters planned in memory."""


class Calls(NamedTuple):
    """The simulator calls of a run: which parameters to simulate, and which of them each call is for.

    `plan` makes the calls for a training set, `repeat` those for data sets with given parameters. Whoever runs the simulator
    asks for `arguments`; where results go is asked for `budget`.
    """

    theta: np.ndarray
    """(cases, dim)"""
    case: np.ndarray
    """(calls,) the case of each simulator call, in order"""
    set_size: int
    """No case has more calls."""
    seed: int
    names: tuple[str, ...] = ()
    """Of the parameters, where they are known."""
    inputs: Callable[[int, int], np.ndarray] | None = None
    """The known inputs (stop - start, inputs) of calls start … stop-1, where there are some."""

    @property
    def budget(self) -> int:
        """How many calls there are."""
        return len(self.case)

    @property
    def sizes(self) -> np.ndarray:
        """(cases,) how many calls each case has."""
        return np.bincount(self.case, minlength=len(self.theta))

    @property
    def inputs_each(self) -> int:
        """How many known inputs a call has."""
        return 0 if self.inputs is None else self.inputs(0, 1).shape[1]

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Parameters of some calls: θ (stop - start, dim) of calls start … stop-1."""
        return self.theta[self.case[start:stop]]

    def arguments(self, start: int, stop: int) -> np.ndarray:
        """What a simulator is run on in some calls.

        Args:
            start: The first call.
            stop: One after the last.

        Returns:
            (stop - start, dim), the parameters, with the known inputs behind them if there are some.
        """
        theta = self.rows(start, stop)
        return theta if self.inputs is None else np.concatenate([theta, self.inputs(start, stop)], axis=1)

    def describe(self, index: int) -> str:
        """A call in words, with all digits, so that a failed simulation can be made again by hand.

        Args:
            index: Which call.

        Returns:
            Its parameters by name, where names are known, and its inputs if it has some.
        """
        values = self.rows(index, index + 1)[0].tolist()
        known = "" if self.inputs is None else f" with inputs {self.inputs(index, index + 1)[0].tolist()!r}"
        if not self.names:
            return f"{values!r}{known}"
        return (
            "("
            + ", ".join(f"{one_line(name)} = {value!r}" for name, value in zip(self.names, values, strict=True))
            + ")"
            + known
        )


def plan(prior: Prior, budget: int, set_size: int, seed: int, inputs: Inputs | None = None) -> Calls:
    """The calls for a training set: cases of 1 … `set_size` calls each, with parameters drawn from the prior.

    Args:
        prior: What parameters are drawn from.
        budget: How many calls there are. A larger budget continues a smaller one.
        set_size: The most calls in a case; sizes are uniform, and the last case is cut so that calls add up to the budget.
        seed: Of sizes, parameters and inputs.
        inputs: What known inputs are drawn from. Default None: there are none.

    Returns:
        The calls, a pure function of the arguments.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    sizes = rng.integers(1, set_size + 1, size=budget)
    ends = np.cumsum(sizes)
    cases = int(np.searchsorted(ends, budget)) + 1
    sizes = sizes[:cases]
    sizes[-1] -= ends[cases - 1] - budget
    own = None if inputs is None else partial(inputs.drawn, seed)
    return Calls(prior.sample(cases, seed), np.repeat(np.arange(cases), sizes), set_size, seed, prior.names, own)


def repeat(theta: np.ndarray, n: int, seed: int | None, inputs: np.ndarray | None = None) -> Calls:
    """Data sets of one size for given parameters: call j of row i is simulation i n + j of the seed.

    Args:
        theta: (rows, dim), the parameters of each data set.
        n: Observations in a data set.
        seed: Of the simulations; None takes a fresh one, and says which.
        inputs: The known inputs of the observations: (n, inputs), the same for all rows, or (rows, n, inputs). Default None:
            they have none.

    Returns:
        The calls, each row's next to each other.

    Raises:
        ScorefoldError: n or the seed is not a whole number in its range.

    Example:
        >>> import numpy as np
        >>> repeat(np.array([[0.5], [2.0]]), n=3, seed=0).rows(2, 4).tolist()
        [[0.5], [2.0]]
    """
    n, seed, theta = settings.count("n", n, 1), settings.seed(seed), np.asarray(theta, np.float64)
    case = np.repeat(np.arange(len(theta)), n)
    if inputs is None:
        return Calls(theta, case, n, seed)
    flat = np.broadcast_to(inputs, (len(theta), n, inputs.shape[-1])).reshape(len(case), -1)
    return Calls(theta, case, n, seed, inputs=lambda start, stop: flat[start:stop])
