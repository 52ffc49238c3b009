"""How long simulations took: FIRST-STOP.safetensors with the seconds of simulations FIRST … STOP-1.

Good to have, and not worth a sync: what is lost or damaged reads as NaN.
"""

import os
import secrets
from pathlib import Path

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError


class Runtimes:
    """A folder of them."""

    def __init__(self, folder: Path):
        self.folder = folder

    def write(self, start: int, seconds: np.ndarray) -> None:
        """Keep the seconds of simulations start, start + 1, …"""
        self.folder.mkdir(exist_ok=True)
        temporary = self.folder / f".{secrets.token_hex(8)}"
        try:
            temporary.write_bytes(safetensors.numpy.save({"seconds": np.ascontiguousarray(seconds, np.float32)}))
            os.replace(temporary, self.folder / f"{start:012d}-{start + len(seconds):012d}.safetensors")
        finally:
            temporary.unlink(missing_ok=True)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Seconds of simulations start … stop-1; NaN where they were not kept."""
        seconds = np.full(stop - start, np.nan, np.float32)
        for (first, last), path in self._files():
            a, b = max(first, start), min(last, stop)
            if a < b:
                try:
                    values = safetensors.numpy.load(path.read_bytes())["seconds"][a - first : b - first]
                    here = seconds[a - start : b - start]
                    here[:] = np.where(np.isnan(values), here, values)  # a merged file has gaps that others fill
                except (OSError, SafetensorError, KeyError, ValueError):
                    continue
        return seconds

    def merge(self, start: int, stop: int) -> None:
        """One file for all that begin between `start` and `stop`."""
        files = [(span, path) for span, path in self._files() if start <= span[0] < stop]
        if len(files) > 1:
            last = max(span[1] for span, _ in files)
            self.write(start, self.read(start, last))
            for span, path in files:
                if span != (start, last):
                    path.unlink(missing_ok=True)

    def _files(self) -> list[tuple[tuple[int, int], Path]]:
        paths = sorted(self.folder.glob("????????????-????????????.safetensors"))
        return [((int(path.name[:12]), int(path.name[13:25])), path) for path in paths]
