"""Methods by name."""

from scorefold.errors import ScorefoldError, closest
from scorefold.methods.abc import ABC
from scorefold.methods.choice import Auto
from scorefold.methods.method import Method
from scorefold.methods.nle import NLE
from scorefold.methods.npe import NPE
from scorefold.methods.npse import NPSE
from scorefold.methods.nre import NRE

METHODS: dict[str, Method] = {
    "auto": Auto(),
    "f-npse": NPSE(set_size=1),
    "pf-npse": NPSE(),
    "npse": NPSE(composes=False),
    "npe": NPE(),
    "nle": NLE(),
    "nre": NRE(),
    "abc": ABC(),
}


def usual_set_size(method: str, n: int) -> int:
    """How many observations the sets should have that one simulates for a method, where there will be n observations.

    Args:
        method: Its name.
        n: How many observations there will be.

    Returns:
        1; n for methods that take all observations at once; for PF-NPSE the paper's choice, 6.
    """
    return {"pf-npse": 6, "npse": n, "npe": n, "abc": n}.get(method, 1)


def get(method: str | Method) -> Method:
    """A method by its name.

    Args:
        method: One of `METHODS`, or a configured method, which comes back as it is.

    Returns:
        The method with its settings.

    Raises:
        ScorefoldError: There is none of this name (the message has the closest), or a class was given instead of an object.
    """
    if isinstance(method, Method):
        return method
    if isinstance(method, type) and issubclass(method, Method):
        raise ScorefoldError(
            f"expected a method; got the class {method.__name__}. Write sf.{method.__name__}(), with brackets."
        )
    if not isinstance(method, str) or method not in METHODS:
        raise ScorefoldError(
            f"unknown method {method!r:.60}. {closest(str(method)[:60], list(METHODS))} A configured method object such as "
            "sf.NPSE(width=128) works too."
        )
    return METHODS[method]
