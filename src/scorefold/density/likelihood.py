"""The likelihood of one observation as a flow: q(x | u), x standardised.

With the line x ≈ A u + b + e of `line.py` it is the flow of the whitened residual L⁻¹ (x - A u - b), conditioned on u.
Standardisation and whitening do not depend on u, so their Jacobians are left out: `term` is log q(x|u) up to a constant.

Where observations have known inputs c, their last numbers, it is q(x | u, c): line and flow are conditioned on (u, c), and only
the outcomes x are modelled.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from scorefold.density.flow import ConditionalFlow
from scorefold.density.line import Line
from scorefold.score.standardize import Standardize
from scorefold.types import Key, Observation, Scalar, Theta


class LikelihoodShape(NamedTuple):
    """The sizes of the flow."""

    dim: int
    x: int
    """Numbers of an observation."""
    width: int
    depth: int
    layers: int
    kind: str
    inputs: int = 0
    """The last so many of the numbers are known inputs."""


def likelihood_network(shape: LikelihoodShape, *, key: Key) -> ConditionalFlow:
    """The flow at its start."""
    outcomes, given = shape.x - shape.inputs, shape.dim + shape.inputs
    return ConditionalFlow(outcomes, given, shape.width, shape.depth, shape.layers, shape.kind, key=key)


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
        outcomes = self.network.dim
        y, given = x[:outcomes], jnp.concatenate([u, x[outcomes:]])
        return self.network.log_density(y if self.line is None else self.line.residual(y, given), given)


def likelihood_loss(network: ConditionalFlow, fixed: tuple, cases: tuple, key: Key) -> Scalar:
    """-log q(x|u), averaged over cases of one observation: u (count, dim), x (count, 1, x) and sizes."""
    model = Likelihood(network, *fixed)
    u, x = cases[:2]
    return -jax.vmap(lambda u, x: model.term(u, model.prepare(x)))(u, x[:, 0]).mean()
