"""What goes wrong, in words: every error the public surface raises, and the warnings it gives."""

from typing import Any


class ScorefoldError(ValueError):
    """Something the caller can mend; the message says what was expected, what came and what to do."""


class SimulatorError(ScorefoldError):
    """The user's simulator raised, or returned something that is not an observation."""


class Diverged(ScorefoldError):
    """The sampler's draws are not numbers, or its chains did not move."""


class ModelError(ScorefoldError):
    """A folder is not a model (or a checkpoint) as scorefold writes it, or cannot be written."""


class Interrupted(KeyboardInterrupt):
    """Training or simulating was stopped from outside; the message says what is kept and how to go on."""

    simulations: Any = None
    """`Simulations` of the complete cases, where simulations in memory were interrupted and there are enough of them."""


class ScorefoldWarning(UserWarning):
    """Something was done that the caller should know about."""


class UntrustworthyDraws(ScorefoldWarning):
    """The sampler's own checks say that the draws should not be trusted."""


def closest(word: str, known: list[str]) -> str:
    """A sentence that names the closest known word, and all of them."""
    import difflib

    near = difflib.get_close_matches(str(word), known, n=1, cutoff=0.4)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return f"{hint}Known: {', '.join(known)}."
