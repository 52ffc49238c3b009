"""The likelihood of one observation as a flow: q(x | u), x standardised.

With the line x ≈ A u + b + e of `line.py` it is the flow of the whitened residual L⁻¹ (x - A u - b), conditioned on u, from
noise that is Gaussian but for its scale (`scales.py`). Standardisation and whitening do not depend on u, so their Jacobians are
left out: `term` is log q(x|u) up to a constant, `log_volume`.

Where observations have known inputs c, their last numbers, it is q(x | u, c): line and flow are conditioned on (u, c), and only
the outcomes x are modelled. Where outcomes may be missing, it is q(x_O | u) of those that are there, O: the line's own law of
x_O (`masked_line.py`), and a flow that passes over the others and is told which they are.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from scorefold.density import scales
from scorefold.density.flow import ConditionalFlow
from scorefold.density.line import Line
from scorefold.density.masked_line import MaskedLine
from scorefold.density.scales import Scales
from scorefold.score import standardize
from scorefold.score.standardize import Standardize
from scorefold.types import Array, Float, Key, Observation, Scalar, Theta


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
    tails: bool = False
    """The noise may be Gaussian but for its scale."""
    missing: bool = False
    """Outcomes may be missing: as many more numbers say which are."""


def likelihood_network(shape: LikelihoodShape, *, key: Key) -> ConditionalFlow:
    """The flow at its start."""
    outcomes, given = shape.x - shape.inputs, shape.dim + shape.inputs
    given += outcomes if shape.missing else 0
    sizes = (outcomes, given, shape.width, shape.depth, shape.layers)
    return ConditionalFlow(*sizes, shape.kind, tails=scales.blank() if shape.tails else None, key=key)


class Prepared(NamedTuple):
    """What of an observation does not depend on u."""

    outcomes: Any
    """As the line wants them."""
    more: Float[Array, " more"]
    """Inputs and, where outcomes may be missing, which are."""
    there: Observation | None


class Likelihood(eqx.Module):
    """Standardisation, line and one flow."""

    network: ConditionalFlow
    standardize: Standardize
    line: Line | MaskedLine | None

    def prepare(self, x: Observation) -> Prepared:
        """What of an observation does not depend on u."""
        z, outcomes = self.standardize(x), self.network.dim
        y, more, there = z[:outcomes], z[outcomes:], None
        if self.standardize.missing:
            holes = z[len(x) : len(x) + outcomes]
            y, more, there = jnp.concatenate([y, holes]), jnp.concatenate([z[outcomes : len(x)], holes]), 1 - holes
        return Prepared(y[:outcomes] if self.line is None else self.line.prepare(y), more, there)

    def term(self, u: Theta, x: Prepared) -> Scalar:
        """log q(x|u) of a prepared observation, up to a constant."""
        if self.line is None:
            return self.log_density(x.outcomes, u, x)
        given = jnp.concatenate([u, x.more])[: self.line.slope.shape[1]]
        return self.log_density(self.line.residual(x.outcomes, given), u, x)

    def log_density(self, y: Observation, u: Theta, x: Prepared) -> Scalar:
        """Of a whitened residual y, for the inputs and the holes that x has."""
        z, log_det = self.network.forward(y, jnp.concatenate([u, x.more]), x.there)
        if (noise := self._noise) is not None:
            return log_det + noise.log_density(z)
        count = len(z) if x.there is None else jnp.sum(x.there)
        return log_det - jnp.sum(z**2) / 2 - count / 2 * jnp.log(2 * jnp.pi)

    def draw(self, u: Theta, x: Prepared, key: Key) -> Observation:
        """A whitened residual, for the inputs and the holes that x has."""
        noise, outcomes = self._noise, self.network.dim
        z = jax.random.normal(key, (outcomes,)) if noise is None else noise.draw(outcomes, key)
        z = z if x.there is None else x.there * z
        return self.network.inverse(z, jnp.concatenate([u, x.more]), x.there)

    def log_volume(self, x: Observation) -> Scalar:
        """What `term` leaves out of log q(x|u): the logarithm of the volume that standardisation and line change, at x."""
        _, slope = jax.jvp(self.standardize, (x,), (jnp.ones_like(x),))
        outcome = (jnp.arange(len(x)) < self.network.dim) & ~jnp.isnan(x)  # and not an input
        counts = outcome & (self.standardize.scale < standardize.LARGEST)  # a constant feature is left out
        whitened = 0.0 if self.line is None else self.line.log_det(self.prepare(x).outcomes)
        size = jnp.maximum(jnp.abs(slope[: len(x)]), standardize.SMALLEST)
        return jnp.sum(jnp.where(counts, jnp.log(size), 0.0)) + whitened

    @property
    def _noise(self) -> Scales | None:
        """What z has; None for N(0, I)."""
        if self.network.tails is None or not isinstance(self.line, Line) or self.line.scales is None:
            return None
        return self.line.scales.moved(self.network.tails)


def likelihood_loss(network: ConditionalFlow, fixed: tuple, cases: tuple, key: Key) -> Scalar:
    """-log q(x|u), averaged over cases of one observation: u (count, dim), x (count, 1, x) and sizes."""
    model = Likelihood(network, *fixed)
    u, x = cases[:2]
    return -jax.vmap(lambda u, x: model.term(u, model.prepare(x)))(u, x[:, 0]).mean()
