"""A learned term log p(x|u) for every observation, as the mean of an ensemble's: what NLE and NRE add up over observations."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp

from scorefold.density import cells, coordinates, line, masked_line, mode_lines
from scorefold.density.cells import Lattice
from scorefold.density.coordinates import Coordinates
from scorefold.density.flow import ConditionalFlow
from scorefold.density.likelihood import Likelihood
from scorefold.density.line import Line
from scorefold.density.local_term import LocalTerm
from scorefold.density.masked_line import MaskedLine
from scorefold.density.mode_lines import ModeLines, ModePlaces
from scorefold.density.ratio import Ratio
from scorefold.density.stacked import each
from scorefold.score import standardize
from scorefold.score.standardize import Standardize
from scorefold.types import Array, Float, Key, Observation, Scalar, Theta


@runtime_checkable
class Terms(Protocol):
    """A learned term for every observation."""

    def prepare(self, x: Any) -> Any:
        """What of one observation does not depend on u."""

    def term(self, u: Any, x: Any) -> Any:
        """log p(x|u) of one prepared observation, up to what does not depend on u."""


class MeanTerms(eqx.Module):
    """The mean term of members that share coordinates, standardisation and line; the network's arrays have a leading member
    axis.
    """

    network: Any
    coordinates: Coordinates | ModePlaces | None
    """In which members know the parameters; None for u."""
    standardize: Standardize
    line: Line | MaskedLine | ModeLines | None
    model: type[Likelihood] | type[Ratio] = eqx.field(static=True)
    lattice: Lattice | None = None
    """Of a likelihood: which numbers are binary or counts."""
    local: LocalTerm | None = None
    """A correction around one data set's draws."""

    def prepare(self, x: Observation) -> Any:
        """What of one observation does not depend on u, for every member."""
        return jax.vmap(lambda network: self._member(network).prepare(x))(self.network)

    def term(self, u: Theta, x: Any) -> Scalar:
        """log p(x|u) up to what does not depend on u."""
        return jnp.mean(self.by_member(u, x))

    def by_member(self, u: Theta, x: Any) -> Float[Array, " members"]:
        """The term of every member."""
        found: Float[Array, " members"] = each(lambda member: self.of_member(u, *member), (self.network, x))
        return found

    def of_member(self, u: Theta, network: Any, x: Any) -> Scalar:
        """The term of one member, whose network and prepared observation these are."""
        if self.local is None:
            return self._member(network).term(self._seen(u), x)
        v = self.local.moved(u)
        return self._member(network).term(self._seen(v), x) - self.local.taken(v)

    @property
    def normalised(self) -> bool:
        """Whether a term and `log_volume` are a log density of x, and a log probability of counts; a ratio is none."""
        return self.model is Likelihood and self.local is None

    def log_volume(self, x: Observation) -> Scalar:
        """What `term` leaves out of log q(x|u), which all members share."""
        member: Any = self._member(jax.tree.map(lambda v: v[0], self.network))
        value: Scalar = member.log_volume(x)
        return value

    def masses(self, u: Theta, x: Observation, key: Key, count: int) -> Float[Array, " count"]:
        """Values whose mean is ∫ e^{mean of log q_i(x|u)} dx: 1, or less where members disagree; for the inputs that x has.

        They are the ratio of the geometric to the arithmetic mean of the members' densities, at draws of the latter.
        """
        members, u = len(jax.tree.leaves(self.network)[0]), self._seen(u)
        prepared: Any = self._member(jax.tree.map(lambda v: v[0], self.network)).prepare(x)

        def one(key: Key) -> Scalar:
            key_member, key_y = jax.random.split(key)
            which = jax.random.randint(key_member, (), 0, members)
            picked: Any = self._member(jax.tree.map(lambda v: v[which], self.network))
            if self.lattice is None:
                seen = picked.whitened(u, prepared)._replace(y=picked.draw(u, prepared, key_y))
            else:
                seen = picked.drawn(u, x, key_y)
            each = jax.vmap(lambda network: Likelihood(network, *self._fixed).log_density(seen))(self.network)
            return jnp.exp(jnp.mean(each) - jax.nn.logsumexp(each) + jnp.log(members))

        return jax.vmap(one)(jax.random.split(key, count))

    def with_line(self, other: Line | MaskedLine | ModeLines) -> "MeanTerms":
        """The same networks around another line."""
        return replace(self, line=other)

    def without_idle_layers(self) -> "MeanTerms":
        """The same terms, at less cost where no member's flow adds anything to the line."""
        if not isinstance(self.network, ConditionalFlow):
            return self
        return replace(self, network=self.network.without_idle_layers())

    def _seen(self, u: Theta) -> Float[Array, " v"]:
        return u if self.coordinates is None else self.coordinates(u)

    @property
    def _fixed(self) -> tuple[Standardize, Line | MaskedLine | ModeLines | None]:
        return self.standardize, self.line

    def _member(self, network: Any) -> Likelihood | Ratio:
        if self.model is Likelihood:
            return Likelihood(network, *self._fixed, self.lattice)
        assert not isinstance(self.line, ModeLines)
        return Ratio(network, self.standardize, self.line)


def blank_terms(
    make_network: Callable[..., Any],
    shape: Any,
    method: Any,
    model: type[Likelihood] | type[Ratio],
    modes: int = 0,
) -> MeanTerms:
    """Terms of these sizes with shapes and types in place of arrays; a likelihood's line is given v and the inputs."""
    inputs, whole, tails = (getattr(shape, name, 0) for name in ("inputs", "whole", "tails"))

    def make(key: Key) -> MeanTerms:
        network = jax.vmap(lambda k: make_network(shape, key=k))(jax.random.split(key, method.training.members))
        places: Coordinates | ModePlaces | None = coordinates.blank(shape.dim) if method.straighten else None
        straight: Line | MaskedLine | ModeLines | None = None
        if modes:
            dim = shape.dim - modes
            places = mode_lines.blank_places(modes, dim)
            straight = mode_lines.blank(modes, shape.x - inputs, dim + inputs, method.changing)
        elif method.base and shape.missing:
            straight = masked_line.blank(shape.x - inputs, shape.dim + inputs)
        elif method.base:
            changing, edged = not whole and getattr(method, "changing", False), getattr(method, "edges", False)
            straight = line.blank(shape.x - inputs, shape.dim + inputs, bool(tails), changing, edged)
        lattice = cells.blank(shape.x - inputs, whole) if whole else None
        scale = standardize.blank(shape.x, shape.missing)
        return MeanTerms(network, places, scale, straight, model, lattice)

    return eqx.filter_eval_shape(make, jax.random.key(0))
