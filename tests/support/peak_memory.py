"""The most memory that a process has held."""

import resource
from pathlib import Path

SUPPORT = {"PYTHONPATH": str(Path(__file__).parent)}
"""What another process needs in its environment to import this."""


def peak_memory():
    """Of this one, in MB. Where the kernel tells it: `ru_maxrss` begins with what the process that started this one held."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    own = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(own.split()[1]) >> 10
