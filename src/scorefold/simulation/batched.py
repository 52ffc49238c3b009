"""Marks a simulator that takes many parameters at once."""

from dataclasses import dataclass

from jaxtyping import Key

from scorefold.errors import ScorefoldError
from scorefold.types import Array, Callable, Float

Thetas = Float[Array, "batch dim"]
Keys = Key[Array, " batch"]
Observations = Float[Array, "batch ..."]


@dataclass(frozen=True)
class Batched:
    """Marks a simulator written in JAX that takes many parameters at once, for `sf.simulate` and all else that simulates.

    Take it when the simulator is a JAX function: a compiled batch is far quicker than single calls. It runs in this process,
    on the accelerator if there is one, always in batches of the same size, so that simulation i is the same whatever else is
    simulated. NaN in an observation fails that simulation; an exception ends the run, as it belongs to no simulation.

    Args:
        function: `function(theta, keys) -> x` with θ (batch, dim), one random key for each row, and x (batch, ...). Row i may
            use key i only. It must be a function that `jax.jit` takes. With known inputs it is `function(theta, keys, inputs)`,
            with inputs (batch, inputs).

    Raises:
        ScorefoldError: It is not a function.

    Example:
        >>> import jax, scipy.stats, scorefold as sf
        >>> prior = sf.Prior({"rate": scipy.stats.norm(0, 1)})
        >>> @sf.Batched
        ... def simulator(theta, keys):
        ...     return theta + jax.vmap(lambda key: jax.random.normal(key, (3,)))(keys)
        >>> sf.simulate(prior, simulator, budget=100).x.shape
        (100, 1, 3)
    """

    function: Callable[..., Observations]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ScorefoldError(f"expected a function (theta, keys) -> x for Batched; got {self.function!r:.60}")

    def __call__(self, theta: Thetas, keys: Keys) -> Observations:
        """One observation per row of θ."""
        return self.function(theta, keys)
