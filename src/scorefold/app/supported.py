"""Which Python and which JAX scorefold works with: said when it is imported, not deep inside a first fit.

`importlib.metadata` reads JAX's version from its files, so that `import scorefold` stays quick. What is imported before
the check must itself run on Pythons that are refused: 3.8 and 3.9 cannot evaluate the annotations below.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata

OLDEST_PYTHON = (3, 11)
OLDEST_JAX = (0, 10)
"""Both are those of pyproject.toml; a test compares them."""


def refused(python: tuple[int, ...], jax: str | None) -> str:
    """Why scorefold cannot work with this Python and this version of JAX (None: not installed); nothing where it can."""
    if python[:2] < OLDEST_PYTHON:
        return f"expected Python {_dotted(OLDEST_PYTHON)} or later; got {_dotted(python[:3])}. Use a newer environment."
    install = f"python -m pip install --upgrade 'jax>={_dotted(OLDEST_JAX)}'"
    if jax is None:
        return f"expected JAX {_dotted(OLDEST_JAX)} or later; it is not installed: {install}"
    numbers = tuple(int(part) for part in re.findall(r"\d+", jax)[:2])
    if numbers < OLDEST_JAX:
        return f"expected JAX {_dotted(OLDEST_JAX)} or later; got {jax}: {install}"
    return ""


def check() -> None:
    """Raise an ImportError in words where scorefold cannot work."""
    try:
        jax: str | None = metadata.version("jax")
    except metadata.PackageNotFoundError:
        jax = None
    if reason := refused(sys.version_info[:3], jax):
        raise ImportError(f"scorefold: {reason}")


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
