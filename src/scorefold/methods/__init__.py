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
    """Observations in a set to simulate for n of them: one, all, or for PF-NPSE the paper's choice."""
    return {"pf-npse": 6, "npse": n, "npe": n, "abc": n}.get(method, 1)


def get(method: str | Method) -> Method:
    """A method by its name, or the configured one that was given."""
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
