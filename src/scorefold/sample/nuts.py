"""NUTS on a log density in the N(0, I) space: several chains side by side, and what they say of each other.

Each chain starts from one of 64 prior draws of its own, picked by its weight, so that chains begin apart and in places that the
observations allow. NUTS does not jump between separated modes: chains that stay in different ones show as a large R̂, and the
share of the draws in a mode is then the share of the chains that ended there. It is reported, not repaired.

The chains' agreement is measured for every parameter u and for (u - ū)², by split R̂ and the effective sample size.

References: "The No-U-Turn sampler", Hoffman and Gelman, 2014; "Rank-normalization, folding, and localization: an improved
R̂", Vehtari, Gelman, Simpson, Carpenter and Bürkner, 2021.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.errors import Diverged
from scorefold.sample.health import FARTHEST_DRAW
from scorefold.types import Array, Callable, Float, Key, Scalar, Theta

DEEPEST_TREE = 8
"""Doublings of a trajectory."""
CANDIDATES = 64
"""Prior draws from which a chain's start is picked."""
SHORTEST_CHAIN = 500
LARGEST_R_HAT, FEWEST_EFFECTIVE = 1.01, 400
MOST_DIVERGENT = 0.01
"""The share of transitions that may diverge."""


LogDensity = Callable[[Theta, Any], Scalar]
"""(u, data) to the log density in the N(0, I) space; a module's function, so that it is compiled once."""


class Length(NamedTuple):
    """How long a chain is."""

    warmup: int
    """Steps in which a chain finds its step size and metric."""
    draws: int
    """After the warm-up."""
    target: float = 0.8
    """The mean acceptance that its step size is tuned for."""


class Chains(NamedTuple):
    """How many chains there are, and how long."""

    dim: int
    number: int
    length: Length


class NutsInfo(NamedTuple):
    """What the chains say of each other."""

    r_hat: float
    """The largest split R̂ of u and (u - ū)²; above 1.01 the chains disagree, as when they sit in different modes."""
    ess: float
    """The smallest effective sample size."""
    divergences: int
    chains: int
    length: int
    """Draws a chain, after the warm-up."""
    converged: bool
    """R̂ < 1.01, an effective sample size of 400 or more and at most 1 % divergent transitions."""
    diverged: bool
    """Draws are beyond 15 prior sd."""


def chain(
    potential: Callable[[Theta], Scalar], length: Length, start: Theta, key: Key
) -> tuple[Float[Array, "length dim"], Array]:
    """Run one chain of NUTS.

    Args:
        potential: The negative log density at one point.
        length: How many steps are for tuning, and are then forgotten, and how many are kept.
        start: Where the chain starts.
        key: The random key.

    Returns:
        The chain (length, dim), and for each step whether it diverged.
    """
    from numpyro.infer.hmc import hmc

    begin, step = hmc(potential, algo="NUTS")
    tuned = {"dense_mass": True, "target_accept_prob": length.target, "max_tree_depth": DEEPEST_TREE}
    state = begin(start, length.warmup, rng_key=key, **tuned)
    state = jax.lax.fori_loop(0, length.warmup, lambda _, state: step(state), state)

    def one(state: Any, _: None) -> tuple[Any, tuple[Theta, Array]]:
        state = step(state)
        return state, (state.z, state.diverging)

    return jax.lax.scan(one, state, length=length.draws)[1]


def agreement(u: Float[np.ndarray, "chains length dim"]) -> tuple[float, float]:
    """The largest split R̂ and the smallest effective sample size of several chains, over parameters and their squares."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    followed = np.concatenate([u, (u - u.mean((0, 1))) ** 2], axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):  # chains that do not move give NaN
        return float(np.max(split_gelman_rubin(followed))), float(np.min(effective_sample_size(followed)))


def nuts_draws(log_density: LogDensity, data: Any, chains: Chains, draws: int, key: Key) -> tuple[np.ndarray, NutsInfo]:
    """Draws picked at random from the chains, and how the chains agree."""
    u, divergent = _chains(log_density, data, chains, key)
    return judged(np.asarray(u), np.asarray(divergent), draws, key)


def chain_length(draws: int, chains: int) -> int:
    """Draws a chain, so that there are twice as many together as asked for, or more."""
    length = SHORTEST_CHAIN
    while length * chains < 2 * draws:
        length *= 2
    return length


def judged(u: np.ndarray, divergent: np.ndarray, draws: int, key: Key) -> tuple[np.ndarray, NutsInfo]:
    """Draws picked at random from chains (chains, length, dim), and how the chains agree; Diverged where they are no use."""
    chains, length, dim = u.shape
    u = u.astype(np.float64)
    r_hat, ess = agreement(u)
    if not np.isfinite(u).all() or not np.isfinite(r_hat):
        raise Diverged(
            "the chains did not move, or ran into values that are not numbers. Training has failed, or the observations are "
            "unlike any simulation; look at posterior.history."
        )
    flat = u.reshape(-1, dim)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).astype(np.uint32))
    picked = flat[rng.choice(len(flat), draws, replace=False)]
    diverged = bool(np.abs(picked).max() > FARTHEST_DRAW)
    count = int(divergent.sum())
    converged = r_hat < LARGEST_R_HAT and ess >= FEWEST_EFFECTIVE and count <= MOST_DIVERGENT * len(flat) and not diverged
    return picked, NutsInfo(r_hat, ess, count, chains, length, converged, diverged)


def all_chains(log_density: LogDensity, data: Any, chains: Chains, key: Key) -> tuple[Float[Array, "chains length dim"], Array]:
    """Every chain from its start, and where they diverged."""
    with jax.default_matmul_precision("highest"):

        def one(key: Key) -> tuple[Array, Array]:
            key_start, key_pick, key_chain = jax.random.split(key, 3)
            starts = jax.random.normal(key_start, (CANDIDATES, chains.dim))
            values = jax.lax.map(lambda u: log_density(u, data) + jnp.sum(u**2) / 2, starts, batch_size=8)
            values = jnp.nan_to_num(values, nan=-1e30, neginf=-1e30, posinf=-1e30)
            start = starts[jax.random.categorical(key_pick, values)]
            return chain(lambda u: -log_density(u, data), chains.length, start, key_chain)

        return jax.vmap(one)(jax.random.split(key, chains.number))


_chains = eqx.filter_jit(all_chains)
"""Compiled once per bucket of observations."""
