"""How long drawing will take, told before it begins.

After draws are made, the members of an ensemble are compared by the gradients of their sums over all observations, at J of
the draws (`trust.py`). Samplers climb the same gradients. So the comparison, made once beforehand at draws from the prior,
compiles a program that is needed anyway, and made once more it takes the time t of J gradients. A sampler that moves S draws
together and evaluates the gradient E times will take about t E S / J for each cloud of them. E is known where levels and
steps are; where a sampler stops by itself it is what was counted for one mode, and may be some times that for more.

What draws need besides (compiling, the weights of expansions, trust) is left out: it is a matter of seconds.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from scorefold.posterior.draws import Options
from scorefold.progress import LONG, clock, say
from scorefold.types import single_precision


class Effort(NamedTuple):
    """What drawing will cost."""

    piece: Callable[[], Any]
    """The gradients at some draws."""
    least: float
    """How many times that is what drawing costs, if all goes well."""
    most: float
    """The same if it does not; `least` where that is known."""
    otherwise: str = ""
    """When it does not."""


def foretell(posterior: Any, x: np.ndarray, draws: int, options: Options) -> None:
    """Say how long drawing will take for one data set, where that may be more than a minute, and is known."""
    if not hasattr(posterior, "effort"):
        return
    with single_precision():
        effort: Effort | None = posterior.effort(x, draws, options)
        if effort is None:
            return
        effort.piece()  # compiled
        began = time.perf_counter()
        effort.piece()
    seconds = time.perf_counter() - began
    if (words := expected(seconds * effort.least, seconds * effort.most, effort.otherwise)) is not None:
        say(f"drawing: {words}", True)


def expected(least: float, most: float, otherwise: str) -> str | None:
    """Seconds in words, to one digit; None where it will not be long.

    >>> expected(90.0, 90.0, "")
    'about 1:30 (minutes:seconds), once compiled'
    >>> expected(12.0, 260.0, "if all observations must be added up at every step")
    'about 0:10 (minutes:seconds), once compiled; up to 4:20 if all observations must be added up at every step'
    >>> expected(5.0, 50.0, "if it is hard")
    """
    if most < LONG:
        return None
    words = f"about {clock(_rounded(least))} (minutes:seconds), once compiled"
    return words if most <= 1.5 * least else f"{words}; up to {clock(_rounded(most))} {otherwise}"


def _rounded(seconds: float) -> float:
    """Seconds to the nearest ten, above ten minutes to the nearest minute: more is not known."""
    unit = 60.0 if seconds > 600 else 10.0
    return max(unit, unit * float(round(seconds / unit)))
