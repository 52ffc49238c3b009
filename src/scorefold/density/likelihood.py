"""The likelihood of one observation as a flow: q(x | u), x standardised.

With the line x ≈ A u + b + e of `line.py` it is the flow of the whitened residual L⁻¹ (x - A u - b), conditioned on u.
Standardisation and whitening do not depend on u, so their Jacobians are left out: `term` is log q(x|u) up to a constant.
"""

from typing import NamedTuple

import equinox as eqx
import jax

from scorefold.density.flow import ConditionalFlow
from scorefold.density.line import Line
from scorefold.score.standardize import Standardize
from scorefold.types import Key, Observation, Scalar, Theta


class LikelihoodShape(NamedTuple):
    """The sizes of the flow."""

    dim: int
    x: int
    width: int
    depth: int
    layers: int
    kind: str


def likelihood_network(shape: LikelihoodShape, *, key: Key) -> ConditionalFlow:
    """The flow at its start."""
    return ConditionalFlow(shape.x, shape.dim, shape.width, shape.depth, shape.layers, shape.kind, key=key)


class Likelihood(eqx.Module):
    """Standardisation, line and one flow."""

    network: ConditionalFlow
    standardize: Standardize
    line: Line | None

    def prepare(self, x: Observation) -> Observation:
        """What of an observation does not depend on u."""
        return self.standardize(x)

    def term(self, u: Theta, x: Observation) -> Scalar:
        """log q(x|u) of a prepared observation, up to a constant."""
        return self.network.log_density(x if self.line is None else self.line.residual(x, u), u)


def likelihood_loss(network: ConditionalFlow, fixed: tuple, cases: tuple, key: Key) -> Scalar:
    """-log q(x|u), averaged over cases of one observation: u (count, dim), x (count, 1, x) and sizes."""
    model = Likelihood(network, *fixed)
    u, x = cases[:2]
    return -jax.vmap(lambda u, x: model.term(u, model.prepare(x)))(u, x[:, 0]).mean()
