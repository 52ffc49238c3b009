"""Methods by name."""

from scorefold.errors import ScorefoldError, closest
from scorefold.methods.method import Method
from scorefold.methods.npse import NPSE

METHODS: dict[str, Method] = {
    "f-npse": NPSE(set_size=1),
    "pf-npse": NPSE(),
    "npse": NPSE(composes=False),
}


def get(method: str | Method) -> Method:
    """A method by its name, or the configured one that was given."""
    if isinstance(method, Method):
        return method
    if not isinstance(method, str) or method not in METHODS:
        raise ScorefoldError(
            f"unknown method {method!r:.60}. {closest(str(method)[:60], list(METHODS))} A configured method object such as "
            "sf.NPSE(width=128) works too."
        )
    return METHODS[method]
