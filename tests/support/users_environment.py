"""The environment of a process that runs programs far longer than it compiles them: compiled as users have them."""

import os

QUICK_TO_COMPILE = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")


def users_environment():
    """Without what `tests/conftest.py` has set."""
    return {name: value for name, value in os.environ.items() if name not in QUICK_TO_COMPILE}
