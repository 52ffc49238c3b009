"""JAC: as GAUSS, with each set's precision from its score's own Jacobian, at every draw and level.

Reference: "Diffusion posterior sampling for simulation-based inference in tall data settings", Linhart, Cardoso, Gramfort,
Le Corff and Rodrigues, 2024. By Tweedie's formula the covariance of u_0 given u_t = u and X_j is (1-γ)/γ E_j with
E_j = I + (1-γ) ∇s_j(u), so

    P_j = γ/(1-γ) E_j⁻¹,   P_0 = I/(1-γ),   Λ = Σ_j P_j + (1-k) P_0,   s = Λ⁻¹ [ Σ_j P_j s_j + (1-k) P_0 s_0 ].

No pilot draws, but the cost is two to three times dim that of a sum, and errors of a trained network are amplified where E_j
is small. E_j is made symmetric and its eigenvalues are cut to [10⁻³ γ, γ], so that Λ stays positive definite. With k = 1 this
is the single score.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from scorefold.compose.sets import Chunk, SetScores
from scorefold.noise import Level, Score
from scorefold.types import Array, Cloud, Count, Float, Key, Scalar

SMALLEST_SHARE = 1e-3


@dataclass(frozen=True)
class Jac:
    """The rule of Linhart et al. without pilots."""

    reversible: ClassVar[bool] = True

    def score(self, sets: SetScores) -> Score:
        """The composed score."""

        def score(u: Cloud, level: Level, key: Key) -> Cloud:
            dim, gamma = u.shape[1], level.gamma

            def add(chunk: Chunk) -> tuple[Cloud, Float[Array, "draws dim dim"]]:
                assert chunk.jacobian is not None
                slope = (chunk.jacobian + jnp.swapaxes(chunk.jacobian, -1, -2)) / 2
                e, vectors = jnp.linalg.eigh(jnp.eye(dim) + (1 - gamma) * slope)
                weights = chunk.real[:, None, None] * gamma / (1 - gamma) / jnp.clip(e, SMALLEST_SHARE * gamma, gamma)
                turned = jnp.einsum("jnba,jnb->jna", vectors, chunk.score)
                weighted = jnp.einsum("jnab,jnb->na", vectors, weights * turned)
                return weighted, jnp.einsum("jnab,jnb,jncb->nac", vectors, weights, vectors)

            weighted, summed = sets.fold(u, level, add, jacobian=True)
            prior = (1 - sets.count) / (1 - gamma)
            precision = summed + prior * jnp.eye(dim)
            return jnp.linalg.solve(precision, (weighted + prior * sets.prior(u, level))[..., None])[..., 0]

        return score

    def reference_sd(self, sets: Count) -> float | Scalar:
        """At the last level everything is N(0, I)."""
        return 1.0
