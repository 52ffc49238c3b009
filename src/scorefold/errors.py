"""What goes wrong, in words: every error the public surface raises, and the warnings it gives."""


class ScorefoldError(ValueError):
    """Something the caller can mend; the message says what was expected, what came and what to do."""


class SimulatorError(ScorefoldError):
    """The user's simulator raised, or returned something that is not an observation."""


class Diverged(ScorefoldError):
    """The sampler's draws are not numbers, or its chains did not move."""


class ModelError(ScorefoldError):
    """A folder is not a model (or a checkpoint) as scorefold writes it, or cannot be written."""


class Interrupted(KeyboardInterrupt):
    """Training was stopped from outside, and its state is kept; the message says how to go on."""


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
