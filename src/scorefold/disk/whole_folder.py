"""A folder that appears whole or not at all.

Its files are written into a hidden folder beside it, each one synced, then the folder itself; one rename gives it its name, and
the folder around it is synced. A folder that is replaced is first renamed out of the way and removed when the new one is in
place: a crash between the two renames leaves both, whole, under hidden names beside the place, and nothing under the name.
"""

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from scorefold.disk.durable import sync


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put these files into a folder of this name, instead of the one that may be there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    hidden = folder.parent / f".{folder.name}.{secrets.token_hex(8)}"
    part, old = hidden.with_name(hidden.name + ".part"), hidden.with_name(hidden.name + ".old")
    part.mkdir()
    try:
        for name, content in files.items():
            with open(part / name, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        sync(part)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if old.exists() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
