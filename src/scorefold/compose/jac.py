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

LEAST_EIGENVALUE = 1e-3
"""Of γ, that an eigenvalue of E_j is not let fall below."""


@dataclass(frozen=True)
class Jac:
    """A weighted sum that is right where each set's posterior is locally Gaussian (JAC, Linhart et al., 2024).

    Take it to reverse a diffusion with several sets, with `Ancestral`, `DDIM` or `ProbabilityFlow`, where posteriors are too
    far from Gaussians for `Gauss`: it measures each set's width at every draw and level, by the derivative of its score. For
    each parameter that costs two to three times as much as a plain sum, and it amplifies a network's errors: for many sets, or
    with a network that is not well trained, leave the rule out. It needs a prior with a known density. It has no settings.

    Example:
        >>> import scorefold as sf
        >>> method = sf.NPSE(rule=sf.rules.Jac(), sampler=sf.samplers.DDIM(levels=200))
        >>> method.rule, method.sampler
        (Jac(), DDIM(levels=200))
    """

    reversible: ClassVar[bool] = True

    def score(self, sets: SetScores) -> Score:
        """Compose the scores of these sets.

        Args:
            sets: The scores of the sets one by one, and of the prior.

        Returns:
            A function `score(u, level, key)` of a cloud of draws and a noise level, as every sampler takes it.
        """

        def score(u: Cloud, level: Level, key: Key) -> Cloud:
            dim, gamma, noise = u.shape[1], level.gamma, level.noise

            def add(chunk: Chunk) -> tuple[Cloud, Float[Array, "draws dim dim"]]:
                assert chunk.jacobian is not None
                slope = (chunk.jacobian + jnp.swapaxes(chunk.jacobian, -1, -2)) / 2
                e, vectors = jnp.linalg.eigh(jnp.eye(dim) + noise * slope)
                weights = chunk.real[:, None, None] * gamma / noise / jnp.clip(e, LEAST_EIGENVALUE * gamma, gamma)
                turned = jnp.einsum("jnba,jnb->jna", vectors, chunk.score)
                weighted = jnp.einsum("jnab,jnb->na", vectors, weights * turned)
                return weighted, jnp.einsum("jnab,jnb,jncb->nac", vectors, weights, vectors)

            weighted, summed = sets.fold(u, level, add, jacobian=True)
            prior = (1 - sets.count) / noise
            precision = summed + prior * jnp.eye(dim)
            return jnp.linalg.solve(precision, (weighted + prior * sets.prior(u, level))[..., None])[..., 0]

        return score

    def reference_sd(self, sets: Count) -> float | Scalar:
        """The sd that a cloud starts with at the noisiest level: 1, as the composed score is that of N(0, I) there."""
        return 1.0
