"""Networks whose arrays are stacked: their values one after the other on cores, side by side on an accelerator.

On cores a product of a batch with one matrix is several times as quick as one with a batch of matrices. On an accelerator it is
the number of products that counts. `again` is for functions whose gradients would have to keep much: memory is what gradients
on cores wait for.
"""

from functools import partial
from typing import Any

import jax

from scorefold.types import Callable

again = partial(jax.checkpoint, prevent_cse=False)
"""The function with its values computed once more for its gradient, rather than kept; within a loop."""


def each(function: Callable[[Any], Any], stacked: Any) -> Any:
    """The function of every one of the rows of stacked arrays."""
    if jax.default_backend() == "cpu":
        return jax.lax.map(function, stacked)
    return jax.vmap(function)(stacked)
