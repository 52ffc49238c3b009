"""The likelihood of one observation: q(x | u), x standardised, and u in the coordinates of `coordinates.py`.

With the line x ≈ A u + b + e of `line.py` it is the flow of the whitened residual r = L⁻¹ (x - A u - b), conditioned on u, from
noise that is Gaussian but for its scale (`scales.py`). Standardisation and whitening do not depend on u, so their Jacobians are
left out: `term` is log q(x|u) up to a constant, `log_volume`.

Where some of the numbers are binary or counts, they come first: q(x | u) = P(x_1 … x_D | u) q(x_{D+1} … | x_1 … x_D, u), a
product of probabilities of cells (`cells.py`) and a flow of what is continuous, given them. L is lower triangular, so that r_i
is a function of x_1 … x_i, and the ends of a cell have their places along r_i. A probability has no Jacobian.

Where observations have known inputs c, their last numbers, it is q(x | u, c): line and flow are conditioned on (u, c), and only
the outcomes x are modelled. Where outcomes may be missing, it is q(x_O | u) of those that are there, O: the line's own law of
x_O (`masked_line.py`), and a flow that passes over the others and is told which they are.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from scorefold.density import scales
from scorefold.density.cells import CellFlow, Cells, Lattice, increasing
from scorefold.density.flow import ConditionalFlow
from scorefold.density.line import Line
from scorefold.density.masked_line import MaskedLine
from scorefold.density.mode_lines import ModeLines
from scorefold.density.scales import Scales
from scorefold.score import standardize
from scorefold.score.standardize import Standardize
from scorefold.train.rows import few_at_a_time
from scorefold.types import QUICKLY, Array, Float, Key, Observation, Scalar, Theta

BISECTIONS_OF_A_COUNT = 24
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
    tails: bool = False
    """The noise may be Gaussian but for its scale."""
    missing: bool = False
    """Outcomes may be missing: as many more numbers say which are."""


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
        given += outcomes if shape.missing else 0
        sizes = (outcomes, given, shape.width, shape.depth, shape.layers)
        return ConditionalFlow(*sizes, shape.kind, tails=scales.blank() if shape.tails else None, key=key)
    key_cells, key_flow = jax.random.split(key)
    cells = CellFlow(shape.whole, given, shape.width, shape.depth, key=key_cells)
    if outcomes == shape.whole:
        return MixedFlow(cells, None)
    sizes = outcomes - shape.whole, given + shape.whole, shape.width, shape.depth, shape.layers
    return MixedFlow(cells, ConditionalFlow(*sizes, shape.kind, key=key_flow))


class Prepared(NamedTuple):
    """What of an observation does not depend on u."""

    outcomes: Any
    """As the line wants them."""
    more: Float[Array, " more"]
    """Inputs and, where outcomes may be missing, which are."""
    there: Observation | None


class PreparedCells(NamedTuple):
    """What of an observation with binary numbers or counts does not depend on u, standardised."""

    x: Observation
    """Binary numbers and counts first, inputs last."""
    cells: Cells
    """Their ends before the line is taken off."""


class Whitened(NamedTuple):
    """What of parameters and an observation a flow sees, which training does not change."""

    y: Observation
    """The residual, whitened."""
    given: Float[Array, " c"]
    there: Observation | None
    log_slope: Scalar
    """Of y by x, as far as it depends on u."""


class WhitenedCells(NamedTuple):
    """The same where some numbers are binary or counts."""

    cells: Cells
    y: Float[Array, " continuous"]
    given: Float[Array, " c"]
    log_slope: Scalar
    """Of y by x, as far as it depends on u."""


class Likelihood(eqx.Module):
    """Standardisation, line and one network; and the values of binary numbers and counts, where there are some."""

    network: LikelihoodNetwork
    standardize: Standardize
    line: Line | MaskedLine | ModeLines | None
    lattice: Lattice | None = None

    def prepare(self, x: Observation) -> "Prepared | PreparedCells":
        """What of an observation does not depend on u."""
        if self.lattice is not None:
            return self._prepare_cells(x, self.lattice)
        z, outcomes = self.standardize(x), self.network.dim
        y, more, there = z[:outcomes], z[outcomes:], None
        if self.standardize.missing:
            holes = z[len(x) : len(x) + outcomes]
            y, more, there = jnp.concatenate([y, holes]), jnp.concatenate([z[outcomes : len(x)], holes]), 1 - holes
        return Prepared(y[:outcomes] if self.line is None else self.line.prepare(y), more, there)

    def term(self, u: Theta, x: "Prepared | PreparedCells") -> Scalar:
        """log q(x|u) of a prepared observation, up to a constant."""
        return self.log_density(self.whitened(u, x))

    def whitened(self, u: Theta, x: "Prepared | PreparedCells") -> "Whitened | WhitenedCells":
        """What the network sees of u and a prepared observation."""
        if isinstance(x, PreparedCells):
            return self._whitened_cells(u, x)
        given, y, log_slope = jnp.concatenate([u, x.more]), x.outcomes, jnp.zeros(())
        if self.line is not None:
            at = given[: self.line.given]
            y, log_slope = self.line.residual(x.outcomes, at), jnp.sum(self.line.log_scales(x.outcomes, at))
        return Whitened(y, given, x.there, log_slope)

    def log_density(self, seen: "Whitened | WhitenedCells") -> Scalar:
        """`term`, of what the network sees."""
        if isinstance(seen, WhitenedCells):
            assert isinstance(self.network, MixedFlow)
            return self.network.log_density(*seen[:3]) + seen.log_slope
        assert isinstance(self.network, ConditionalFlow)
        z, log_det = self.network.forward(seen.y, seen.given, seen.there)
        log_det += seen.log_slope
        if (noise := self._noise) is not None:
            return log_det + noise.log_density(z)
        count = len(z) if seen.there is None else jnp.sum(seen.there)
        return log_det - jnp.sum(z**2) / 2 - count / 2 * jnp.log(2 * jnp.pi)

    def draw(self, u: Theta, x: Prepared, key: Key) -> Observation:
        """A whitened residual, for the inputs and the holes that x has."""
        assert isinstance(self.network, ConditionalFlow)
        noise, outcomes = self._noise, self.network.dim
        z = jax.random.normal(key, (outcomes,)) if noise is None else noise.draw(outcomes, key)
        z = z if x.there is None else x.there * z
        return self.network.inverse(z, jnp.concatenate([u, x.more]), x.there)

    def drawn(self, u: Theta, x: Observation, key: Key) -> "WhitenedCells":
        """An observation of this member's at u, with the inputs that x has."""
        network, at = self.network, self.lattice
        assert isinstance(network, MixedFlow)
        assert at is not None
        key_cells, key_flow = jax.random.split(key)
        steps = jnp.round((at.high - at.low) / at.step)

        def draw(i: Array, x: Observation) -> Observation:
            own, z = jax.tree.map(lambda v: v[i], network.cells), jax.random.normal(jax.random.fold_in(key_cells, i))

            def halve(_: Array, between: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
                middle = jnp.floor((between[0] + between[1]) / 2)
                there = self._prepare_cells(x.at[at.order[i]].set(at.low[i] + middle * at.step[i]), at)
                seen = self._whitened_cells(u, there)
                below = increasing(own.parameters(i, seen.cells.y, seen.given), seen.cells.high[i]) < z
                return jnp.where(below, middle + 1, between[0]), jnp.where(below, between[1], middle)

            _, place = jax.lax.fori_loop(0, BISECTIONS_OF_A_COUNT, halve, (jnp.zeros(()), steps[i]))
            return x.at[at.order[i]].set(at.low[i] + place * at.step[i])

        drawn = self._whitened_cells(u, self._prepare_cells(jax.lax.fori_loop(0, at.count, draw, x), at))
        if network.flow is None:
            return drawn
        z = jax.random.normal(key_flow, drawn.y.shape)
        return drawn._replace(y=network.flow.inverse(z, jnp.concatenate([drawn.given, drawn.cells.y])))

    def log_volume(self, x: Observation) -> Scalar:
        """What `term` leaves out of log q(x|u): the logarithm of the volume that standardisation and line change, at x.

        A probability of a cell has none.
        """
        outcome = (jnp.arange(len(x)) < self.network.dim) & ~jnp.isnan(x)  # and not an input
        counts = outcome & (self.standardize.scale < standardize.LARGEST)  # a constant feature is left out
        prepared, whitened = self.prepare(x), jnp.zeros(())
        if isinstance(prepared, Prepared):
            whitened = whitened if self.line is None else self.line.log_det(prepared.outcomes)
        elif self.lattice is not None:
            whole = self.lattice.count
            counts = counts.at[self.lattice.order[:whole]].set(False)
            if isinstance(self.line, Line):
                whitened = jnp.sum(jnp.log(jnp.diag(self.line.whiten)[whole:]))
        return jnp.sum(jnp.where(counts, self.standardize.log_slope(x), 0.0)) + whitened

    def _whitened_cells(self, u: Theta, x: "PreparedCells") -> "WhitenedCells":
        outcomes, count = self.network.dim, len(x.cells.y)
        given = jnp.concatenate([u, x.x[outcomes:]])
        residual, scale, log_slope = x.x[:outcomes], jnp.ones(count), jnp.zeros(())
        if isinstance(self.line, Line):
            scale, log_slope = jnp.diag(self.line.whiten)[:count], jnp.sum(self.line.log_scales(residual, given))
            residual = self.line.residual(residual, given)
        low, high = (residual[:count] + scale * (end - x.cells.y) for end in (x.cells.low, x.cells.high))
        return WhitenedCells(x.cells._replace(low=low, high=high), residual[count:], given, log_slope)

    def _prepare_cells(self, x: Observation, at: Lattice) -> "PreparedCells":
        whole = at.order[: at.count]
        x, value = at.nearest(x)
        z, low, high = (self._moved(x, side) for side in (0.0, -0.5, 0.5))
        cells = Cells(z[whole], low[whole], high[whole], value <= at.low, value >= at.high)
        return PreparedCells(jnp.concatenate([z[at.order], z[len(at.order) :]]), cells)

    def _moved(self, x: Observation, side: float) -> Observation:
        """Standardised, with binary numbers and counts so many steps to the side."""
        assert self.lattice is not None
        return self.standardize(x.at[self.lattice.order[: self.lattice.count]].add(side * self.lattice.step))

    @property
    def _noise(self) -> Scales | None:
        """What z has; None for N(0, I)."""
        if (
            isinstance(self.network, MixedFlow)
            or self.network.tails is None
            or not isinstance(self.line, Line)
            or self.line.scales is None
        ):
            return None
        return self.line.scales.moved(self.network.tails)


def likelihood_loss(network: LikelihoodNetwork, fixed: tuple, cases: Whitened | WhitenedCells, key: Key) -> Scalar:
    """-log q(x|u), averaged over cases as `seen_cases` gives them."""
    model = Likelihood(network, *fixed[1:])
    return -jax.vmap(model.log_density)(cases).mean()


@partial(jax.jit, static_argnums=0, compiler_options=QUICKLY)
def seen_cases(shape: LikelihoodShape, fixed: tuple, cases: tuple) -> Whitened | WhitenedCells:
    """Training cases of one observation, u (count, dim), x (count, 1, x) and sizes, as the network sees them at every step."""
    coordinates, *rest = fixed
    model = Likelihood(jax.eval_shape(partial(likelihood_network, shape), key=jax.random.key(0)), *rest)

    def seen(u: Theta, x: Float[Array, "1 x"]) -> Whitened | WhitenedCells:
        v = u if coordinates is None else coordinates(u)
        return model.whitened(v, model.prepare(x[0]))

    with jax.default_matmul_precision("highest"):
        made: Whitened | WhitenedCells = few_at_a_time(seen)(cases[0], cases[1])
    return made
