"""Reference draws by NUTS on the true likelihood, in the N(0, I) space and in double precision.

Several data sets are drawn for together: one program moves all their chains, each with its own step size and
metric. Chains start from a cloud that was carried from the prior to the posterior (`tempering.py`), in coordinates
in which that cloud has unit covariance. A data set's draws are taken only if, for every parameter u and for
(u - ū)², split R̂ < 1.01 and the effective sample size is more than 1,000 and than the draws asked for, and if no
transition diverged. Otherwise it is done again with twice the length and shorter steps. The draws are picked at
random from at least 2.8 times as many.

References: "The No-U-Turn sampler", Hoffman and Gelman, 2014; "Rank-normalization, folding, and localization: an
improved R̂", Vehtari, Gelman, Simpson, Carpenter and Bürkner, 2021, for the limit 1.01.
"""

import zlib
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.errors import ScorefoldError
from scorefold.sample.nuts import Length, agreement, chain
from scorefold.tasks import tempering
from scorefold.tasks.task import stream
from scorefold.types import Array, Callable, Float, Key, Scalar, Theta, new_key

CHAINS = 4
WARMUP = 200
SHORTEST_CHAIN = 700
"""Draws a chain; for more than 1,000 draws in all, 0.7 times as many a chain."""
R_HAT, ESS = 1.01, 1_000
TARGETS = (0.8, 0.9, 0.97)
"""Mean acceptance of the first attempt, the second and the third; each is twice as long as the one before."""

Data = Any
"""What the log density is given besides u: arrays."""
LogDensity = Callable[[Theta, Data], Scalar]


class Chains(NamedTuple):
    """The draws for one data set, and the checks of the chains that they come from."""

    draws: Float[np.ndarray, "draws dim"]
    r_hat: float
    """The largest."""
    ess: float
    """The smallest."""
    divergences: int

    def good(self, draws: int) -> bool:
        """Whether the chains agree well enough for so many draws to be taken from them."""
        return self.r_hat < R_HAT and self.ess > max(ESS, draws) and self.divergences == 0


def draw(log_density: LogDensity, data: Data, dim: int, draws: int, seeds: list[int], stretch: int = 1) -> list[Chains]:
    """Draw u by NUTS for several data sets at once, and again, longer, for those whose chains do not agree.

    Args:
        log_density: log p(u, data) in the N(0, I) space, up to a constant.
        data: Arrays of all data sets, stacked along their first axis.
        dim: The number of parameters.
        draws: How many draws for each data set.
        seeds: One for each data set.
        stretch: How many times longer than usual chains are, for posteriors in which they mix slowly; 1 by default.

    Returns:
        `Chains` for each data set.

    Raises:
        ScorefoldError: After the last attempt the chains of a data set still do not agree.
    """
    found: list[Chains | None] = [None] * len(seeds)
    for attempt, target in enumerate(TARGETS):
        missing = [i for i, chains in enumerate(found) if chains is None or not chains.good(draws)]
        if not missing:
            break
        length = max(int(0.7 * draws), SHORTEST_CHAIN) * stretch * 2**attempt
        with jax.enable_x64(True):
            keys = jnp.stack([_key(jax.tree.map(itemgetter(i), data), seeds[i], attempt) for i in missing])
            some = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64)[jnp.array(missing)], data)  # noqa: B023
            u, diverged = map(np.asarray, _run(log_density, dim, length, target, some, keys))
        for i, chains, count in zip(missing, u, diverged, strict=True):
            found[i] = _checked(chains, int(count), draws, seeds[i])
    return [_accepted(chains, draws) for chains in found]


def _key(data: Data, seed: int, attempt: int) -> Key:
    """The key of one attempt at one data set: nested sets, too, get random numbers of their own."""
    told_apart = zlib.crc32(b"".join(np.asarray(leaf, np.float64).tobytes() for leaf in jax.tree.leaves(data)))
    return jax.random.fold_in(jax.random.fold_in(new_key(seed), told_apart), attempt)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _run(
    log_density: LogDensity, dim: int, length: int, target: float, data: Data, keys: Array
) -> tuple[Float[Array, "data chains length dim"], Array]:
    """Every data set's chains in u, and how often they diverged."""

    def one(data: Data, key: Key) -> tuple[Array, Array]:
        key_cloud, key_start, key_chains = jax.random.split(key, 3)
        u = tempering.cloud(lambda u: log_density(u, data) + jnp.sum(u**2) / 2, dim, key_cloud)
        mean, root = u.mean(0), jnp.linalg.cholesky(jnp.cov(u.T).reshape(dim, dim))
        starts = jax.random.choice(key_start, u, (CHAINS,), replace=False)
        starts = jax.scipy.linalg.solve_triangular(root, (starts - mean).T, lower=True).T
        one_chain = partial(chain, lambda w: -log_density(mean + root @ w, data), Length(WARMUP, length, target))
        w, diverged = jax.vmap(one_chain)(starts, jax.random.split(key_chains, CHAINS))
        return mean + w @ root.T, diverged.sum()

    return jax.vmap(one)(data, keys)


def _checked(u: Float[np.ndarray, "chains length dim"], diverged: int, draws: int, seed: int) -> Chains:
    """The chains' draws, picked, with their diagnostics."""
    r_hat, ess = agreement(u)
    flat = u.reshape(-1, u.shape[2])
    picked = stream(seed, "reference").choice(len(flat), draws, replace=False)
    return Chains(flat[picked], r_hat, ess, diverged)


def _accepted(chains: Chains | None, draws: int) -> Chains:
    assert chains is not None
    if not chains.good(draws):
        raise ScorefoldError(
            f"expected chains with R̂ < {R_HAT}, an effective sample size above {max(ESS, draws):,} and no divergence; got "
            f"R̂ = {chains.r_hat:.4f}, {chains.ess:,.0f} and {chains.divergences} after {len(TARGETS)} attempts. The posterior "
            "may have several modes; ask for other observations, or draw it in another way."
        )
    return chains
