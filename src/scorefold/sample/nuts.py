"""NUTS on a log density in the N(0, I) space: one chain, and what several of them say of each other.

The chains' agreement is measured for every parameter u and for (u - ū)², by split R̂ and the effective sample size.

References: "The No-U-Turn sampler", Hoffman and Gelman, 2014; "Rank-normalization, folding, and localization: an improved
R̂", Vehtari, Gelman, Simpson, Carpenter and Bürkner, 2021.
"""

from typing import Any

import jax
import numpy as np

from scorefold.types import Array, Callable, Float, Key, Scalar, Theta

DEEPEST_TREE = 8
"""Doublings of a trajectory."""


def chain(
    potential: Callable[[Theta], Scalar], warmup: int, length: int, target: float, start: Theta, key: Key
) -> tuple[Float[Array, "length dim"], Array]:
    """Run one chain of NUTS.

    Args:
        potential: The negative log density at one point.
        warmup: Steps in which step size and metric are tuned, which are then forgotten.
        length: Steps that are kept.
        target: The mean acceptance to tune for.
        start: Where the chain starts.
        key: The random key.

    Returns:
        The chain (length, dim), and for each step whether it diverged.
    """
    from numpyro.infer.hmc import hmc

    begin, step = hmc(potential, algo="NUTS")
    state = begin(start, warmup, rng_key=key, dense_mass=True, target_accept_prob=target, max_tree_depth=DEEPEST_TREE)
    state = jax.lax.fori_loop(0, warmup, lambda _, state: step(state), state)

    def one(state: Any, _: None) -> tuple[Any, tuple[Theta, Array]]:
        state = step(state)
        return state, (state.z, state.diverging)

    return jax.lax.scan(one, state, length=length)[1]


def agreement(u: Float[np.ndarray, "chains length dim"]) -> tuple[float, float]:
    """The largest split R̂ and the smallest effective sample size of several chains, over parameters and their squares."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    followed = np.concatenate([u, (u - u.mean((0, 1))) ** 2], axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):  # chains that do not move give NaN
        return float(np.max(split_gelman_rubin(followed))), float(np.min(effective_sample_size(followed)))
