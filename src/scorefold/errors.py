"""What goes wrong, in words: every error the public surface raises, and the warnings it gives."""

from typing import Any

__all__ = [
    "DiskFull",
    "Diverged",
    "FolderVanished",
    "Interrupted",
    "Kept",
    "ModelError",
    "NoPermission",
    "ReadOnly",
    "ScorefoldError",
    "ScorefoldWarning",
    "SimulatorError",
    "StorageError",
    "UnknownSetting",
    "UnlikeSimulations",
    "UntrustworthyDraws",
]


def __dir__() -> list[str]:
    return __all__


class Kept:
    """What was done before an error or Ctrl-C and would be lost otherwise; each is None where there is nothing of it.

    `ScorefoldError` and `Interrupted` have these attributes: `simulations`, `x`, `draws`, `posterior` and `posteriors`. The
    message says which of them has something. The example of `Interrupted` takes up what was simulated.
    """

    simulations: Any = None
    """`Simulations` of the complete cases, where simulating in memory ended early and there are 50 or more of them."""
    x: Any = None
    """(data sets, n, …) the first ones, where simulating data sets for given parameters ended early."""
    draws: Any = None
    """`ManyDraws` for the first data sets, where drawing for many of them was interrupted."""
    posterior: Any = None
    """A function that makes the posterior of the best networks so far, where training without a checkpoint was interrupted."""
    posteriors: Any = None
    """The refined posteriors of the first data sets, where refining several of them ended early."""


class ScorefoldError(Kept, ValueError):
    """Something that the caller can mend. All errors of scorefold but `Interrupted` are of this class, which is a `ValueError`.

    The message says what was expected, what came instead and what to do about it. What was done before is not lost: see `Kept`.

    Example:
        >>> import scorefold as sf
        >>> try:
        ...     sf.Prior({})
        ... except sf.errors.ScorefoldError as error:
        ...     print(str(error)[:51])
        expected at least one parameter, each with its dist
    """


class SimulatorError(ScorefoldError):
    """The user's simulator raised, or returned something that is not an observation.

    A single simulation that fails is left out and counted; this error comes where the simulator cannot work at all, or fails
    too often to go on. The message says what the simulator did. It is a `ScorefoldError`.

    Example:
        >>> import scipy.stats, scorefold as sf
        >>> prior = sf.Prior({"rate": scipy.stats.norm(0, 1)})
        >>> try:
        ...     sims = sf.simulate(prior, lambda theta, rng: print(end=""), budget=100)  # forgets to return
        ... except sf.errors.SimulatorError as error:
        ...     print(str(error).splitlines()[1])
        The simulator returned nothing: end it with `return x`.
    """


class UnknownSetting(ScorefoldError, TypeError):
    """A setting that a class does not have; the message has the one that was probably meant.

    It is a `ScorefoldError`, and a `TypeError` as for any argument that Python does not know.

    Example:
        >>> import scorefold as sf
        >>> sf.NPSE(widht=128)
        Traceback (most recent call last):
        scorefold.errors.UnknownSetting: NPSE has no setting 'widht'. Did you mean 'width'? ...
    """


class Diverged(ScorefoldError):
    """The sampler's draws are not numbers, or its chains did not move, so that there is nothing to return.

    Draws that are numbers but not to be trusted come back with the warning `UntrustworthyDraws` instead. Look at the
    observations, which may be unlike all simulations, or take the default rule and sampler. It is a `ScorefoldError`.
    """


class ModelError(ScorefoldError):
    """A folder is not a model (or a checkpoint) as scorefold writes it, or the model cannot be written down.

    Raised by `sf.load`, by `posterior.save` and where training goes on from a checkpoint: the folder is missing, incomplete,
    changed since it was written, or of another version. Where the disk is the reason, it is a `StorageError` instead. It is a
    `ScorefoldError`.

    Example:
        >>> import tempfile, scorefold as sf
        >>> try:
        ...     sf.load(tempfile.mkdtemp())
        ... except sf.errors.ModelError:
        ...     print("not a model")
        not a model
    """


class StorageError(ScorefoldError):
    """A file or a folder cannot be written or read: the disk is the reason, not what is on it.

    `DiskFull`, `ReadOnly`, `NoPermission` and `FolderVanished` are the usual ones; this class itself stands for any other, such
    as a disk that fails. Whatever was being written is not there at all, rather than in part, and what was there before is
    whole. It is a `ScorefoldError`.
    """


class DiskFull(StorageError):
    """There is no room left on the disk, or your quota of it is used up. Nothing is half-written: make room and do the same
    again. It is a `StorageError`.
    """


class ReadOnly(StorageError):
    """The file system can only be read, as that of a mounted image or of another's archive. Name a folder that can be written
    to. It is a `StorageError`.
    """


class NoPermission(StorageError):
    """The folder or the file belongs to somebody else, who does not let you write or read. Ask for the right to, or name
    another folder. It is a `StorageError`.
    """


class FolderVanished(StorageError):
    """A folder that was there is gone: it was removed, or its disk was taken away, while something was read from it or written
    to it. It is a `StorageError`.
    """


class Interrupted(Kept, KeyboardInterrupt):
    """Training, simulating or drawing was stopped from outside, as by Ctrl-C; the message says what is kept and how to go on.

    It is a `KeyboardInterrupt`, not a `ScorefoldError`, so that code which catches errors does not swallow it. What was done in
    memory is not lost, where it is enough to be of use: see `Kept`.

    Example:
        >>> import scipy.stats, scorefold as sf
        >>> prior, calls = sf.Prior({"rate": scipy.stats.norm(0, 1)}), iter(range(100))
        >>> def simulator(theta, rng):
        ...     if next(calls) == 80:
        ...         raise KeyboardInterrupt  # as if somebody had pressed Ctrl-C
        ...     return theta + rng.normal(size=3)
        >>> try:
        ...     sims = sf.simulate(prior, simulator, budget=100)
        ... except sf.errors.Interrupted as stopped:
        ...     sims = stopped.simulations
        >>> len(sims.theta)
        80
    """


class ScorefoldWarning(UserWarning):
    """Something was done that the caller should know about, such as simulations that failed and were left out.

    All warnings of scorefold are of this class. To stop at the first one, turn them into errors.

    Example:
        >>> import warnings, scorefold as sf
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", sf.errors.ScorefoldWarning)
        ...     # simulate, fit, sample: the first warning is raised
    """


class UntrustworthyDraws(ScorefoldWarning):
    """The draws should not be trusted; they are returned all the same.

    Either the sampler has not settled or has diverged, as `draws.info` says: more levels or steps may help, and so may the
    default rule and sampler. Or, for a refined posterior, the rounds do not agree or `draws.trust` is bad: `posterior.check`
    tells how far the draws are off. If nothing helps, the observations may be unlike the simulations (see `sf.diagnose`). It is
    a `ScorefoldWarning`.
    """


class UnlikeSimulations(UntrustworthyDraws):
    """The observations are unlike anything simulated, so that draws for them should not be trusted; they are returned all the
    same.

    Noticed by `posterior.sample` from the observations alone: a number out of the simulated range, a choice that is neither 0
    nor 1, columns that do not go together. Units, swapped columns and transposed arrays are the usual reasons; the message
    names the columns. `sf.diagnose(..., x_obs=x_obs)` looks closer. It is an `UntrustworthyDraws`.
    """


def closest(word: str, known: list[str]) -> str:
    """A sentence for an error message: the known word that is closest to this one, if any is close, and all known words."""
    import difflib

    small = {one.lower(): one for one in known}
    near = difflib.get_close_matches(str(word).lower(), list(small), n=1, cutoff=0.4)
    hint = f"Did you mean {small[near[0]]!r}? " if near else ""
    return f"{hint}Known: {', '.join(known)}."
