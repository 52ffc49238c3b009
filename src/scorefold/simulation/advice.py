"""What to write where a simulator could not work: the usual mistakes, by what Python says of them."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from scorefold.errors import SimulatorError
from scorefold.shown import listed, one_line

MOST_UNPACKED = 6


def refuse_other_arguments(simulator: Callable[..., Any], inputs: bool) -> None:
    """A SimulatorError for a function that cannot be called with θ, rng and, if there are some, inputs; one whose arguments
    nobody knows passes.
    """
    try:
        signature = inspect.signature(simulator)
    except (TypeError, ValueError):
        return
    wanted = ("theta", "rng", "inputs") if inputs else ("theta", "rng")
    try:
        signature.bind(*wanted)
    except TypeError:
        name = getattr(simulator, "__name__", type(simulator).__name__)
        called = name if name.isidentifier() else "simulator"
        raise SimulatorError(
            f"expected a simulator that takes ({', '.join(wanted)}); got {name}{signature}. Write `def {called}"
            f"({', '.join(wanted)}): …`, and draw all random numbers from rng, a numpy.random.Generator: rng.normal(), "
            f"rng.integers(10).{_about_inputs(signature, inputs)}"
        ) from None


def _about_inputs(signature: inspect.Signature, inputs: bool) -> str:
    """What a third argument needs, or why there should be one."""
    if inputs:
        return " inputs are the known inputs of one observation, in an array."
    try:
        signature.bind(None, None, None)
    except TypeError:
        return ""
    return " A third argument gets the known inputs of an observation, if there are some: sf.simulate(…, inputs=…)."


def advice(text: str, names: Sequence[str]) -> str:
    """A sentence on what to write instead, for the traceback of a simulator's usual mistakes; nothing for any other."""
    last = text.strip().splitlines()[-1] if text.strip() else ""
    if "expected an observation to be numbers; got NoneType" in last:
        return "The simulator returned nothing: end it with `return x`.\n"
    if "expected an observation to be numbers; got dict" in last:
        return "Return the numbers in one array, always in the same order; x_names=… of sf.simulate is for their names.\n"
    by_name = last.startswith("IndexError: only integers, slices") or (
        last.startswith("AttributeError: 'numpy.ndarray' object has no attribute")
        and any(last.split("attribute")[-1].strip(" '.\"").startswith(name) for name in names)
    )
    if not by_name or not names:
        return ""
    words = [_word(name) for name in names]
    unpacked = f", or `{', '.join(words)} = theta`" if 1 < len(names) <= MOST_UNPACKED else ""
    return f"θ is an array in the order of the prior, {listed(names)}: write theta[0] for {one_line(names[0])}{unpacked}.\n"


def _word(name: str) -> str:
    """A name that Python takes."""
    return name if name.isidentifier() else "".join(one if f"_{one}".isidentifier() else "_" for one in f"p_{name}")
