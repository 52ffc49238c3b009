"""How much memory NumPy's arrays take while something is computed."""

import tracemalloc


def numpy_peak(function):
    """Bytes of the arrays that were there together at most, and what the function returned."""
    tracemalloc.start()
    try:
        made = function()
        return tracemalloc.get_traced_memory()[1], made
    finally:
        tracemalloc.stop()
