"""The likelihood of one observation: q(x | u), x standardised.

With the line x ≈ A u + b + e of `line.py` it is the flow of the whitened residual r = L⁻¹ (x - A u - b), conditioned on u.
Standardisation and whitening do not depend on u, so their Jacobians are left out: `term` is log q(x|u) up to a constant.

Where some of the numbers are binary or counts, they come first: q(x | u) = P(x_1 … x_D | u) q(x_{D+1} … | x_1 … x_D, u), a
product of probabilities of cells (`cells.py`) and a flow of what is continuous, given them. L is lower triangular, so that r_i
is a function of x_1 … x_i, and the ends of a cell have their places along r_i. A probability has no Jacobian.

Where observations have known inputs c, their last numbers, it is q(x | u, c): line and flow are conditioned on (u, c), and only
the outcomes x are modelled.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from scorefold.density.cells import CellFlow, Cells, Lattice, increasing
from scorefold.density.flow import ConditionalFlow
from scorefold.density.line import Line
from scorefold.score.standardize import Standardize
from scorefold.types import Array, Float, Key, Observation, Scalar, Theta

HALVINGS = 24
"""In which the cell of a draw is found, among up to 2²⁴."""


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
    whole: int = 0
    """So many of the others are binary or counts."""


class MixedFlow(eqx.Module):
    """Cells of binary numbers and counts, and a flow of the continuous ones given them."""

    cells: CellFlow
    flow: ConditionalFlow | None
    """None where nothing is continuous."""

    @property
    def dim(self) -> int:
        """Outcomes."""
        return self.cells.count + (0 if self.flow is None else self.flow.dim)

    def log_density(self, cells: Cells, residual: Float[Array, " continuous"], given: Float[Array, " c"]) -> Scalar:
        """log P(cells | c) + log q(residual of what is continuous | cells, c)."""
        total = self.cells.log_probability(cells, given)
        return total if self.flow is None else total + self.flow.log_density(residual, jnp.concatenate([given, cells.y]))


LikelihoodNetwork = ConditionalFlow | MixedFlow


def likelihood_network(shape: LikelihoodShape, *, key: Key) -> LikelihoodNetwork:
    """The flow at its start."""
    outcomes, given = shape.x - shape.inputs, shape.dim + shape.inputs
    if not shape.whole:
        return ConditionalFlow(outcomes, given, shape.width, shape.depth, shape.layers, shape.kind, key=key)
    key_cells, key_flow = jax.random.split(key)
    cells = CellFlow(shape.whole, given, shape.width, shape.depth, key=key_cells)
    if outcomes == shape.whole:
        return MixedFlow(cells, None)
    sizes = outcomes - shape.whole, given + shape.whole, shape.width, shape.depth, shape.layers
    return MixedFlow(cells, ConditionalFlow(*sizes, shape.kind, key=key_flow))


class Prepared(NamedTuple):
    """What of an observation with binary numbers or counts does not depend on u, standardised."""

    x: Observation
    """Binary numbers and counts first, inputs last."""
    cells: Cells
    """Their ends before the line is taken off."""


class Likelihood(eqx.Module):
    """Standardisation, line and one network; and the values of binary numbers and counts, where there are some."""

    network: LikelihoodNetwork
    standardize: Standardize
    line: Line | None
    lattice: Lattice | None = None

    def prepare(self, x: Observation) -> Any:
        """What of an observation does not depend on u."""
        if self.lattice is None:
            return self.standardize(x)
        at, whole = self.lattice, self.lattice.order[: self.lattice.count]
        x, value = at.nearest(x)
        z, low, high = (self._moved(x, side) for side in (0.0, -0.5, 0.5))
        cells = Cells(z[whole], low[whole], high[whole], value <= at.low, value >= at.high)
        return Prepared(jnp.concatenate([z[at.order], z[len(at.order) :]]), cells)

    def term(self, u: Theta, x: Any) -> Scalar:
        """log q(x|u) of a prepared observation, up to a constant."""
        if isinstance(self.network, ConditionalFlow):
            outcomes = self.network.dim
            y, given = x[:outcomes], jnp.concatenate([u, x[outcomes:]])
            return self.network.log_density(y if self.line is None else self.line.residual(y, given), given)
        return self.network.log_density(*self.within(u, x))

    def within(self, u: Theta, x: Prepared) -> tuple[Cells, Float[Array, " continuous"], Float[Array, " c"]]:
        """Cells and continuous numbers without their line, and what they are given."""
        outcomes, count = self.network.dim, len(x.cells.y)
        given = jnp.concatenate([u, x.x[outcomes:]])
        residual, scale = x.x[:outcomes], jnp.ones(count)
        if self.line is not None:
            residual, scale = self.line.residual(x.x[:outcomes], given), jnp.diag(self.line.whiten)[:count]
        low, high = (residual[:count] + scale * (end - x.cells.y) for end in (x.cells.low, x.cells.high))
        return x.cells._replace(low=low, high=high), residual[count:], given

    def drawn(self, u: Theta, x: Observation, key: Key) -> tuple[Cells, Float[Array, " continuous"], Float[Array, " c"]]:
        """An observation of this member's at u, with the inputs that x has, as `within` gives it."""
        network, at = self.network, self.lattice
        assert isinstance(network, MixedFlow)
        assert at is not None
        key_cells, key_flow = jax.random.split(key)
        steps = jnp.round((at.high - at.low) / at.step)

        def draw(i: Array, x: Observation) -> Observation:
            own, z = jax.tree.map(lambda v: v[i], network.cells), jax.random.normal(jax.random.fold_in(key_cells, i))

            def halve(_: Array, between: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
                middle = jnp.floor((between[0] + between[1]) / 2)
                cells, _, given = self.within(u, self.prepare(x.at[at.order[i]].set(at.low[i] + middle * at.step[i])))
                below = increasing(own.parameters(i, cells.y, given), cells.high[i]) < z
                return jnp.where(below, middle + 1, between[0]), jnp.where(below, between[1], middle)

            _, place = jax.lax.fori_loop(0, HALVINGS, halve, (jnp.zeros(()), steps[i]))
            return x.at[at.order[i]].set(at.low[i] + place * at.step[i])

        cells, residual, given = self.within(u, self.prepare(jax.lax.fori_loop(0, at.count, draw, x)))
        if network.flow is None:
            return cells, residual, given
        z = jax.random.normal(key_flow, residual.shape)
        return cells, network.flow.inverse(z, jnp.concatenate([given, cells.y])), given

    def _moved(self, x: Observation, side: float) -> Observation:
        """Standardised, with binary numbers and counts so many steps to the side."""
        assert self.lattice is not None
        return self.standardize(x.at[self.lattice.order[: self.lattice.count]].add(side * self.lattice.step))


def likelihood_loss(network: LikelihoodNetwork, fixed: tuple, cases: tuple, key: Key) -> Scalar:
    """-log q(x|u), averaged over cases of one observation: u (count, dim), x (count, 1, x) and sizes."""
    model = Likelihood(network, *fixed)
    u, x = cases[:2]
    return -jax.vmap(lambda u, x: model.term(u, model.prepare(x)))(u, x[:, 0]).mean()
