"""A task: a prior and a simulator whose posterior is known exactly.

The likelihood p(x|θ) is there to be checked against, never for inference. `reference` draws from
p(θ|x_1 … x_n) ∝ p(θ) ∏_j p(x_j|θ) itself, each draw independent of the others.
"""

import zlib
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from scorefold.errors import ScorefoldError
from scorefold.prior import Prior
from scorefold.simulation.batched import Batched
from scorefold.types import Array, Callable, Float, Key, Observation, Scalar, Theta, new_key

BLOCK = 32
"""Observations simulated together by `observe`."""


class Series(NamedTuple):
    """What a stretch of x is: one quantity over time."""

    label: str
    times: tuple[float, ...]
    logarithmic: bool = False
    """Whether it is best shown on a logarithmic axis."""


@dataclass(frozen=True)
class Task:
    """One problem with a known answer."""

    name: str
    title: str
    description: str
    prior: Prior
    simulator: Batched
    log_likelihood: Callable[[Theta, Observation], Scalar]
    """log p(x|θ) for one θ and one observation."""
    reference: Callable[[np.ndarray, int, int], np.ndarray]
    """(x_obs (n, x), draws, seed) to exact, independent posterior draws (draws, dim)."""
    reference_kind: str
    """How the reference is drawn, in a word: conjugate, rejection, Gibbs, grid or NUTS."""
    numpy_simulator: Callable[[np.ndarray, np.random.Generator], np.ndarray] | None = None
    """(θ, rng) to one observation with NumPy and SciPy alone, as a user's own simulator would be; no JAX in the call."""
    series: tuple[Series, ...] = ()
    """Where x is time series, which: their columns follow one another."""
    single_score: Callable[[Theta, Observation, Scalar], Theta] | None = None
    """(u, x, γ) to the exact score of the diffused p(u|x) in the N(0, I) space, where it is known."""
    single_log_density: Callable[[Theta, Observation, Scalar], Scalar] | None = None
    """(u, x, γ) to log p_t(u|x) up to a constant, whose gradient that score is."""

    @property
    def features(self) -> int:
        """The numbers in one observation."""
        if self.numpy_simulator is None:
            return self.observe(1, seed=0)[1].shape[1]
        return len(self.numpy_simulator(self.prior.sample(1, 0)[0], np.random.default_rng(0)))

    def observe(self, n: int, seed: int) -> tuple[Float[np.ndarray, "dim"], Float[np.ndarray, "n x"]]:
        """True parameters from the prior and n observations; a larger n continues a smaller one."""
        if n < 1 or seed < 0:
            raise ScorefoldError(f"expected n ≥ 1 observations and a seed ≥ 0; got n = {n}, seed = {seed}")
        theta = self.prior.sample(1, int(stream(seed, "parameters").integers(2**63)))[0]
        root = key_stream(seed, "observations")
        blocks = [_block(self.simulator.function, jnp.asarray(theta, jnp.float32), root, start) for start in range(0, n, BLOCK)]
        return theta, np.concatenate(blocks)[:n].astype(np.float64)


# Blocks of one size: one compilation serves every n, and an observation has the same bits whatever n is.
@partial(jax.jit, static_argnames="function")
def _block(function: Callable[..., Array], theta: Theta, root: Key, start: ArrayLike) -> Float[Array, "block x"]:
    keys = jax.vmap(lambda j: jax.random.fold_in(root, j))(start + jnp.arange(BLOCK))
    return function(jnp.broadcast_to(theta, (BLOCK, len(theta))), keys)


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Random numbers for one purpose: observations and training cases of one seed must not share theirs."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(zlib.crc32(purpose.encode()),)))


def key_stream(seed: int, purpose: str) -> Key:
    """The same for JAX."""
    return jax.random.fold_in(new_key(seed), zlib.crc32(purpose.encode()))


def checked(x_obs: np.ndarray, features: int) -> Float[np.ndarray, "n x"]:
    """Observations as a float64 array, or an error that says what is wrong with them."""
    x = np.asarray(x_obs, np.float64)
    if x.ndim != 2 or x.shape[1] != features or not np.isfinite(x).all():
        raise ScorefoldError(
            f"expected finite observations of shape (n, {features}), one per row; got shape {x.shape} with "
            f"{np.sum(~np.isfinite(x))} values that are not finite. Write a single observation as x[None]."
        )
    return x
