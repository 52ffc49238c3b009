"""Locks on open files, which end with the process that holds them, however it ends.

They are what tells a writer that is alive from one that was killed. Linux and macOS have them, by fcntl; Windows has not.
"""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:
    raise ImportError(
        "expected Linux or macOS, whose file locks (fcntl) keep simulations, checkpoints and benchmarks safe; this system, "
        "perhaps Windows, has none. On Windows run scorefold in WSL 2, which is Linux."
    ) from None

LOOK = 0.2
"""Seconds after which somebody who waits looks again."""
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
"""What file systems without locks answer."""


def take(file: Any) -> bool:
    """Lock an open file without waiting for it.

    Args:
        file: The file, or its descriptor.

    Returns:
        True, or False where another one holds it. It ends with the process that has it, however that ends.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait(file: Any) -> None:
    """Lock an open file (or its descriptor), as soon as nobody else holds it."""
    fcntl.flock(file, fcntl.LOCK_EX)


@contextmanager
def alone(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of a file, which is made if need be; `waiting` is called once if another process has it first.

    On file systems that have no locks, or cannot be written to, nobody waits for anybody.
    """
    try:
        file = open(path, "ab")  # noqa: SIM115
    except OSError:
        yield
        return
    with file:
        try:
            if not take(file):
                waiting()
                while not take(file):
                    time.sleep(LOOK)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        yield
