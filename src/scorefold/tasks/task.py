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
    """A stretch of the columns of x that is one quantity over time, with its label and times, so that figures can show it as
    such.
    """

    label: str
    times: tuple[float, ...]
    logarithmic: bool = False
    """Whether it is best shown on a logarithmic axis."""


@dataclass(frozen=True)
class Task:
    """One problem with a known answer: a prior, a simulator, and draws from the true posterior to compare with.

    `tasks.get(name)` gives those of the package. A task of one's own is made by calling this class; where the likelihood can be
    differentiated, `tasks.own.by_nuts` makes its reference. Methods see the prior, the simulator and the observations only; the
    likelihood and the reference are there to check against.

    Args:
        name: The word that the task is asked for by.
        title: A short heading for figures and tables.
        description: One or two sentences on what is inferred and what makes it hard.
        prior: Where θ comes from.
        simulator: A JAX simulator, `sf.Batched`.
        log_likelihood: log p(x|θ) for one θ and one observation, in JAX.
        reference: (x_obs, draws, seed) to draws from the true posterior.
        reference_kind: How the reference is drawn, in a word.
        numpy_simulator: The same simulator for one θ without JAX, if there is one.
        series: For observations that are time series, which.
        single_score: The exact score of the diffused posterior given one observation, where it is known.
        single_log_density: The log density whose gradient that score is.

    Example:
        >>> import numpy as np
        >>> from scorefold import tasks
        >>> task = tasks.get("gaussian")
        >>> task.reference(np.ones((3, 10)), 500, 0).shape  # exact posterior draws given three observations
        (500, 10)
    """

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
        """How many numbers one observation has; found by simulating one."""
        if self.numpy_simulator is None:
            return self.observe(1, seed=0)[1].shape[1]
        return len(self.numpy_simulator(self.prior.sample(1, 0)[0], np.random.default_rng(0)))

    def observe(self, n: int, seed: int) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "n x"]]:
        """Make a data set: true parameters from the prior, and observations simulated at them.

        Args:
            n: How many observations.
            seed: Which data set; a larger n with the same seed continues a smaller one.

        Returns:
            θ (dim,) and the observations (n, x), both in float64.

        Raises:
            ScorefoldError: `n` is below 1 or `seed` below 0.

        Example:
            >>> from scorefold import tasks
            >>> tasks.get("gaussian").observe(0, seed=0)  # ... observe(3, seed=0) gives θ (10,) and x_obs (3, 10)
            Traceback (most recent call last):
            scorefold.errors.ScorefoldError: expected n ≥ 1 observations and a seed ≥ 0; got n = 0, seed = 0
        """
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
    """A NumPy generator for one purpose of a seed: what one seed is used for twice must not share random numbers."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(zlib.crc32(purpose.encode()),)))


def key_stream(seed: int, purpose: str) -> Key:
    """A JAX key for one purpose of a seed, as `stream` is a NumPy generator for one."""
    return jax.random.fold_in(new_key(seed), zlib.crc32(purpose.encode()))


def checked(x_obs: np.ndarray, features: int) -> Float[np.ndarray, "n x"]:
    """The observations as a float64 array (n, features), or an error that says what is wrong with them."""
    x = np.asarray(x_obs, np.float64)
    if x.ndim != 2 or x.shape[1] != features or not np.isfinite(x).all():
        raise ScorefoldError(
            f"expected finite observations of shape (n, {features}), one per row; got shape {x.shape} with "
            f"{np.sum(~np.isfinite(x))} values that are not finite. Write a single observation as x[None]."
        )
    return x
