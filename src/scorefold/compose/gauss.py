"""GAUSS: the score of the diffused joint posterior, as if every set's posterior were Gaussian.

Reference: "Diffusion posterior sampling for simulation-based inference in tall data settings", Linhart, Cardoso, Gramfort,
Le Corff and Rodrigues, 2024. With Σ_j the covariance of p(u | X_j), Σ_0 = I the prior's and c = γ/(1-γ),

    P_j = Σ_j⁻¹ + c I,   P_0 = (1 + c) I,   Λ = Σ_j P_j + (1-k) P_0,
    s = Λ⁻¹ [ Σ_j P_j s_j + (1-k) P_0 s_0 ].

It is exact when all of them are Gaussian. Unlike the plain sum it approximates the score of a diffused density, so reversing
the diffusion is right with it. Σ_j is the Gaussian base's residual covariance, at no cost, or that of pilot draws from each
set's posterior. Eigenvalues of Σ_j above 1 are cut to 1, which keeps Λ positive definite: no set's posterior counts as wider
than the prior. With k = 1 this is the single score.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from scorefold import settings
from scorefold.compose.sets import Chunk, SetScores
from scorefold.errors import ScorefoldError
from scorefold.noise import Level, Score
from scorefold.types import Array, Cloud, Count, Float, Key, Scalar

FEWEST_PILOTS, MOST_PILOTS = 20, 100_000
"""Pilot draws: a covariance needs some."""


@dataclass(frozen=True)
class Gauss:
    """A weighted sum that is right if the posterior given each set is Gaussian (GAUSS, Linhart et al., 2024).

    Take it to reverse a diffusion with several sets, with `Ancestral`, `DDIM` or `ProbabilityFlow`, where the posterior given
    one set is near a Gaussian: there it is as good as `Jac` and much faster. Where it is not (several modes, a bounded prior
    that cuts the posterior), the rule's error is in the draws: take `Jac`, or the default rule and sampler. With `Langevin` it
    hardly works, as its density is wide until the last levels. It needs a prior with a known density.

    Args:
        pilots: How many draws from each set's own posterior its covariance is computed from; 0, the default, takes the
            covariance of the Gaussian base instead, which costs nothing. Without a base, `sf.NPSE(base=False)`, pilots are
            needed. With pilots sampling takes about twice the time.

    Raises:
        ScorefoldError: `pilots` is not a whole number, or too small or too large for a covariance.

    Example:
        >>> import scorefold as sf
        >>> sf.rules.Gauss()
        Gauss(pilots=0)
        >>> sf.rules.RULES["gauss-pilots"]
        Gauss(pilots=200)
        >>> method = sf.NPSE(rule=sf.rules.Gauss(pilots=500), sampler="ancestral")
        >>> sf.rules.Gauss(pilots=5)
        Traceback (most recent call last):
        scorefold.errors.ScorefoldError: expected pilots to be 0 or 20 to 100,000; got 5
    """

    pilots: int = 0
    reversible: ClassVar[bool] = True

    def __post_init__(self) -> None:
        settings.check(self)
        if self.pilots != 0 and not FEWEST_PILOTS <= self.pilots <= MOST_PILOTS:
            raise ScorefoldError(f"expected pilots to be 0 or {FEWEST_PILOTS} to {MOST_PILOTS:,}; got {self.pilots}")

    def score(self, sets: SetScores) -> Score:
        """Compose the scores of these sets.

        Args:
            sets: The scores of the sets one by one, and of the prior.

        Returns:
            A function `score(u, level, key)` of a cloud of draws and a noise level, as every sampler takes it.
        """
        assert sets.precision is not None
        precision = sets.precision
        dim = precision.shape[-1]

        def score(u: Cloud, level: Level, key: Key) -> Cloud:
            c = level.gamma / level.noise

            # c is up to 10⁶, so what it multiplies is added up apart: n c - (n-1) c would be lost in single precision.
            def add(chunk: Chunk) -> tuple[Cloud, Cloud, Float[Array, "dim dim"]]:
                own = precision[sets.group[chunk.sets]] * chunk.real[:, None, None]
                weighted = jnp.einsum("jab,jnb->na", own, chunk.score)
                return weighted, jnp.einsum("j,jnd->nd", chunk.real, chunk.score), own.sum(axis=0)

            weighted, plain, summed = sets.fold(u, level, add)
            prior = (1 - sets.count) * sets.prior(u, level)
            inverse = jnp.linalg.inv(summed + (1 - sets.count + c) * jnp.eye(dim))
            return (weighted + prior + c * (plain + prior)) @ inverse

        return score

    def reference_sd(self, sets: Count) -> float | Scalar:
        """The sd that a cloud starts with at the noisiest level: 1, as the composed score is that of N(0, I) there."""
        return 1.0


def positive(covariance: Float[Array, "dim dim"]) -> tuple[Float[Array, "dim dim"], Array]:
    """The inverse of a set's covariance, with the covariance's eigenvalues cut to [1e-8, 1], and whether one was above 1."""
    variances, vectors = jnp.linalg.eigh(covariance)
    return (vectors / jnp.clip(variances, 1e-8, 1.0)) @ vectors.T, variances[-1] > 1.0
