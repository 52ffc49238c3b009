"""What an operating system says of a disk, as one typed error for each kind of trouble."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from scorefold.errors import DiskFull, FolderVanished, NoPermission, ReadOnly, StorageError

CAUSES: dict[int, tuple[type[StorageError], str]] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), (DiskFull, "Make room there, or name another folder.")),
    errno.EROFS: (ReadOnly, "It can only be read: name another folder."),
    **dict.fromkeys((errno.EACCES, errno.EPERM), (NoPermission, "Name a folder of your own, or have its rights changed.")),
    **dict.fromkeys(
        (errno.ENOENT, errno.ESTALE, errno.ENODEV),
        (FolderVanished, "Look whether it was removed, or its disk taken away."),
    ),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), (StorageError, "A file is in its place: name another folder.")),
}
"""By what the system says: the error, and what to do."""


def storage_error(error: OSError, task: str, then: str = "") -> StorageError:
    """The typed error; `task` says what was tried ("write to X"), `then` what holds now."""
    kind, advice = CAUSES.get(error.errno or 0, (StorageError, ""))
    said = f"expected to {task}; got {error.strerror or error}"
    return kind(" ".join(part for part in (f"{said}.", then, advice) if part))


@contextmanager
def told(task: str, then: str = "") -> Iterator[None]:
    """Turn what a disk says into words: an OSError within the `with` block comes out as a `StorageError`.

    Args:
        task: What is tried, for the message: "write to X".
        then: What holds now, and how to go on.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(error, task, then) from error
