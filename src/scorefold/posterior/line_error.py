"""How far N simulations leave the evidence off, where a likelihood rests on a straight line x ≈ A u + b + W⁻¹ z fitted to them.

The derivative of log p(x_1 … x_n) by a number of the model is the posterior's mean of that of log p(x_1 … x_n|u) (Fisher's
identity). Fitted to N cases with u ~ N(0, I), the line's numbers have independent errors,

    W δA, W δb: 1/√N each,      W δS Wᵀ: √(2/N) on the diagonal, and √((1-λ)/N) off it,

with the correlations' λ by which they were shrunk (`score/least_squares.py`), and to first order the evidence is off by

    ( |W⁻ᵀ g_A|² + |W⁻ᵀ g_b|² + ½ Σ_i Γ_ii² + (1-λ) Σ_{i>j} Γ_ij² )^{1/2} / √N,      Γ = g_W Wᵀ.

The errors of how the noise changes with u (`density/changing_noise.py`), where it does, are left out.

Where parameters can make up for an error of A and b, as with as many parameters as numbers, g_A and g_b are small, and that of
S is what counts: √(n x (x+1) / 2N) nat for x numbers, and √(n x / N) where their noise is independent.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.density.line import Line
from scorefold.density.mean_terms import MeanTerms
from scorefold.posterior import sum_of_terms as sums
from scorefold.score.least_squares import share_left
from scorefold.types import Array, Cloud, Float, Observation, Scalar

TERMS_AT_A_TIME = 16


def line_error(terms: MeanTerms, x: np.ndarray, u: np.ndarray, cases: int) -> float:
    """In nat, around draws u (draws, dim) of the posterior given x (n, features), for a line fitted to so many cases."""
    assert isinstance(terms.line, Line)
    by = _derivatives(terms, *sums.counted(x), jnp.asarray(u, jnp.float32))
    whiten, g_a, g_b, g_w = (np.asarray(part, np.float64) for part in (terms.line.whiten, by.slope, by.offset, by.whiten))
    root = np.linalg.inv(whiten)
    gamma = np.tril(g_w @ whiten.T)
    left = share_left(root @ root.T, cases)
    below = np.square(np.tril(gamma, -1)).sum()
    total = np.square(root.T @ np.column_stack([g_a, g_b])).sum() + np.square(np.diag(gamma)).sum() / 2 + left * below
    return float(np.sqrt(total / cases))


@eqx.filter_jit
def _derivatives(terms: MeanTerms, x: Float[Array, "obs x"], times: Float[Array, " obs"], u: Cloud) -> Line:
    """Of the sum of log q(x_j|u), in the mean over draws, by the line's numbers."""
    chunk = min(TERMS_AT_A_TIME, len(x))
    parts = (x.reshape(-1, chunk, x.shape[1]), times.reshape(-1, chunk))

    def one(line: Line, x: Observation) -> Scalar:
        own = terms.with_line(line)
        prepared: Any = own.prepare(x)
        return jnp.mean(jax.vmap(lambda u: own.term(u, prepared))(u)) + own.log_volume(x)

    def summed(line: Line, x: Array, times: Array) -> Scalar:
        return jnp.sum(jnp.where(times > 0, times * jax.vmap(lambda x: one(line, x))(x), 0.0))

    def add(total: Line, part: tuple[Array, Array]) -> tuple[Line, None]:
        return jax.tree.map(jnp.add, total, jax.grad(summed)(terms.line, *part)), None

    with jax.default_matmul_precision("highest"):
        return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, terms.line), parts)[0]
