"""What each member of an ensemble alone would have as evidence, up to what all share: by composed scores, or by summed terms.

The composed density of member k differs from the whole's by the integral of the difference δ_k of their scores, so that with
the draws' mean ū, at which all of C is taken,

    C_k = Σ_j log p_k(ū|x_j) + log E e^{(δ_k(u) + δ_k(ū)) · (u - ū) / 2},

the mean over draws u, and the integral by the trapezoidal rule. The sum of terms of member k has log E e^{Σ_j (term_k - mean)}.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from scorefold.posterior.at_draws import by_member, with_more_room
from scorefold.posterior.draws import AS_THE_METHOD_SAYS
from scorefold.posterior.single_density import single_log_densities
from scorefold.train.training_set import FOLDS
from scorefold.types import Float


class ByMember(NamedTuple):
    """What each member alone would have, up to what all share."""

    total: Float[np.ndarray, " members"]
    """The evidence."""
    each: Float[np.ndarray, "members n"]
    """The terms of single observations in it."""

    def error(self) -> float:
        """Of the whole, by the jackknife over folds."""
        spare = len(self.total) - 1
        together = np.square(self.total - self.total.mean()).sum() / spare
        apart = np.square(self.each - self.each.mean(axis=0)).sum() / spare
        return float(np.sqrt((FOLDS - 1) ** 2 / FOLDS * max(together, apart)))


def of_scores(posterior: Any, x: np.ndarray, u: np.ndarray) -> ByMember | None:
    """Of a composed posterior, around draws u; None with a single member."""
    if posterior.method.training.members < 2:
        return None
    centre, levels = u.mean(axis=0), posterior.levels()
    padded, _ = posterior.arrange(x[None], [(0, 0)], AS_THE_METHOD_SAYS)
    at = jnp.asarray(np.concatenate([centre[None], u]), jnp.float32)
    lowest = jax.tree.map(lambda v: v[0], levels)
    scores = np.asarray(by_member(posterior.scores, with_more_room(padded), lowest, at, at[0])[0], np.float64)
    differ = scores - scores.mean(axis=0)
    along = np.einsum("kid,id->ki", (differ[:, 1:] + differ[:, :1]) / 2, u - centre)
    alone = (jax.tree.map(lambda v, k=k: v[k : k + 1], posterior.scores.network) for k in range(len(scores)))
    each = [single_log_densities(replace(posterior.scores, network=one), x, levels, centre).value for one in alone]
    return ByMember(np.sum(each, axis=1) + logsumexp(along, axis=1) - np.log(len(u)), np.array(each))


def of_terms(found: Float[np.ndarray, "members draws n"]) -> ByMember:
    """From the terms of every member at draws of the whole's posterior."""
    differ = found - found.mean(axis=0)
    return ByMember(logsumexp(differ.sum(axis=2), axis=1) - np.log(found.shape[1]), differ.mean(axis=1))


def line_numbers(dim: int, features: int, inputs: int, of_x: bool) -> int:
    """P: slopes, offsets and the noise's covariance of a line x ≈ A u + b + e, given inputs too, or else of u ≈ A x + b + e."""
    left, right = (features - inputs, dim + inputs) if of_x else (dim, features)
    return left * (1 + right) + left * (left + 1) // 2
