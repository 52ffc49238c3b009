"""A folder of compiled programs, so that a second process need not compile what a first one has compiled.

JAX keeps the programs; this decides where, how many, and what to do with what a killed process or a full disk left behind. JAX
writes an entry, then the time of its use in a second file, both under a lock that all processes share. An entry without the
second file was not written to its end, and is removed when the folder is opened next. An entry that cannot be read or written
costs a compilation and nothing else.

Programs are made for one kind of processor and one version of JAX, so each has a folder of its own: a home folder that several
machines share holds one for each.
"""

import hashlib
import os
import platform
from pathlib import Path
from typing import Any

from scorefold.errors import ScorefoldError

SHORTEST_COMPILATION = 0.02
"""Seconds; what compiles faster is not kept."""
LOCK_SECONDS = 10.0
"""Another process that holds the lock for longer is not waited for."""


def cache(folder: Any = None, gigabytes: Any = 2) -> Path | None:
    """Keep compiled programs on the disk, so that the next process starts faster.

    Call it once, before the first fit. The command line does so by itself. A folder that JAX has been told to use already, by
    `jax.config` or the environment variable JAX_COMPILATION_CACHE_DIR, stays in use.

    Args:
        folder: where to keep them; by default in the user's cache folder, or in the one that SCOREFOLD_CACHE names.
        gigabytes: how much they may take; those that were used longest ago make room.

    Returns:
        The folder in use, or None where it cannot be written to: everything works without it, only slower.

    Raises:
        ScorefoldError: for a size that is not a positive number, or a folder that is something else.

    Example:
        >>> import scorefold as sf
        >>> folder = sf.cache()
    """
    import jax

    if isinstance(gigabytes, bool) or not isinstance(gigabytes, int | float) or not 0 < gigabytes < 1e6:
        raise ScorefoldError(f"expected gigabytes to be a positive number; got {gigabytes!r:.60}")
    if folder is not None and not isinstance(folder, str | os.PathLike):
        raise ScorefoldError(f"expected a folder to keep compiled programs in; got {folder!r:.60}")
    config: Any = jax.config
    if config.jax_compilation_cache_dir and folder is None:
        return Path(config.jax_compilation_cache_dir)
    place = (Path(folder) if folder is not None else user_folder() / "compiled") / _machine(jax.__version__)
    try:
        place.mkdir(parents=True, exist_ok=True)
        _clear_away(place)
    except OSError as error:
        if folder is None:
            return None
        raise ScorefoldError(
            f"expected a folder to keep compiled programs in, which can be written to; {folder} cannot: "
            f"{error.strerror or error}."
        ) from None
    config.update("jax_compilation_cache_max_size", int(gigabytes * 1e9))
    config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST_COMPILATION)
    config.update("jax_compilation_cache_dir", str(place))
    return place


def user_folder() -> Path:
    """What SCOREFOLD_CACHE names, or else the user's cache folder."""
    if named := os.environ.get("SCOREFOLD_CACHE"):
        return Path(named)
    from platformdirs import user_cache_path

    return user_cache_path("scorefold")


def _machine(version: str) -> str:
    """A name for the kind of processor and the version of JAX."""
    described = platform.machine() + platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        described += "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    except OSError:
        pass  # not Linux
    return f"jax-{version}-{hashlib.sha256(described.encode()).hexdigest()[:12]}"


def _clear_away(place: Path) -> None:
    """Remove entries that were not written to their end."""
    import filelock

    try:
        with filelock.FileLock(place / ".lockfile", timeout=LOCK_SECONDS):
            for entry in place.glob("*-cache"):
                if not entry.with_name(entry.name.removesuffix("-cache") + "-atime").exists():
                    entry.unlink(missing_ok=True)
    except filelock.Timeout:
        pass  # another process is busy with it, and will be done
