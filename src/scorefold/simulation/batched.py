"""Marks a simulator that takes many parameters at once."""

from dataclasses import dataclass

from jaxtyping import Key

from scorefold.errors import ScorefoldError
from scorefold.types import Array, Callable, Float

Thetas = Float[Array, "batch dim"]
Keys = Key[Array, "batch"]
Observations = Float[Array, "batch ..."]


@dataclass(frozen=True)
class Batched:
    """A JAX simulator for many parameters at once.

    function(theta (batch, dim), keys (batch,)) -> x (batch, ...); key i belongs to simulation i alone.
    """

    function: Callable[[Thetas, Keys], Observations]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ScorefoldError(f"expected a function (theta, keys) -> x for Batched; got {self.function!r:.60}")

    def __call__(self, theta: Thetas, keys: Keys) -> Observations:
        """One observation per row of θ."""
        return self.function(theta, keys)
