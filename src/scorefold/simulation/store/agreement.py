"""Whether the files of a store agree with its description: the parameters in them must be those that it leads to.

Parameters are a pure function of prior, seed and set size. Where a file that is whole holds others, somebody has edited the
description, or put a file of another store here; whichever it is, nothing may be moved or made again.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from scorefold.errors import ScorefoldError
from scorefold.prior import Prior
from scorefold.simulation.calls import LARGEST_BUDGET, Calls, plan
from scorefold.simulation.store.shard import Checked, Disagrees

ROUNDING = 1e-6
"""Parameters that differ by less, relatively, are the same: other versions of SciPy may round otherwise."""


class Derived:
    """The parameters that follow from a description, as far as they were needed."""

    def __init__(self, prior: Prior, set_size: int, seed: int):
        self._prior, self._set_size, self._seed = prior, set_size, seed
        self._calls: Calls | None = None

    def compare(self, found: Checked) -> None:
        """`Disagrees` for a file with other parameters."""
        start, stop, _ = found.shard
        if stop > LARGEST_BUDGET:
            raise Disagrees(f"it goes up to simulation {stop:,}, and no store to more than {LARGEST_BUDGET:,}")
        if self._calls is None or self._calls.budget < stop:
            enough = max(stop, 0 if self._calls is None else 2 * self._calls.budget)
            self._calls = plan(self._prior, enough, self._set_size, self._seed)
        case, theta = self._calls.case[start:stop], self._calls.rows(start, stop)
        small = ROUNDING * (np.abs(theta) + 1e-3 * np.abs(theta).mean(axis=0))
        if not np.array_equal(case, found.case) or not np.all(np.abs(theta - found.theta) <= small):
            raise Disagrees("it holds other parameters than follow from the prior, the seed and the set size")


def refuse(path: Path, other: Mapping[str, str], good: int) -> None:
    """An error for files that disagree, by name with the reason, if there are some; `good` others do not."""
    if not other:
        return
    name, why = next(iter(other.items()))
    raise ScorefoldError(
        f"expected files in {path / 'shards'} that agree with description.json; {len(other):,} of {len(other) + good:,} do not "
        f"and are whole: {name}: {why}. Nothing was moved. If the description was changed, put it back as it was; if the files "
        "belong to another store, take them away; if another version of SciPy or NumPy drew the parameters, use that one."
    )
