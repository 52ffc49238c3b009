"""A learned term log p(x|u) for every observation, as the mean of an ensemble's: what NLE and NRE add up over observations."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp

from scorefold.density import cells, line
from scorefold.density.cells import Lattice
from scorefold.density.likelihood import Likelihood
from scorefold.density.line import Line
from scorefold.density.ratio import Ratio
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
    """The mean term of members that share standardisation and line; the network's arrays have a leading member axis."""

    network: Any
    standardize: Standardize
    line: Line | None
    model: type[Likelihood] | type[Ratio] = eqx.field(static=True)
    lattice: Lattice | None = None
    """Of a likelihood: which numbers are binary or counts."""

    def prepare(self, x: Observation) -> Any:
        """What of one observation does not depend on u, for every member."""
        return jax.vmap(lambda network: self._member(network).prepare(x))(self.network)

    def term(self, u: Theta, x: Any) -> Scalar:
        """log p(x|u) up to what does not depend on u."""
        return jnp.mean(jax.vmap(lambda network, own: self._member(network).term(u, own))(self.network, x))

    @property
    def normalised(self) -> bool:
        """Whether a term and `log_volume` are a log density of x, and a log probability of counts; a ratio is none."""
        return self.model is Likelihood

    def log_volume(self, x: Observation) -> Scalar:
        """What `term` leaves out of log q(x|u): the logarithm of the volume that standardisation and line change, at x."""
        _, slope = jax.jvp(self.standardize, (x,), (jnp.ones_like(x),))
        outcome = jnp.arange(len(x)) < self.network.dim  # and not an input
        counts = outcome & (self.standardize.scale < standardize.LARGEST)  # a constant feature is left out
        whole = 0 if self.lattice is None else self.lattice.count
        if self.lattice is not None:
            counts = counts.at[self.lattice.order[:whole]].set(False)
        whitened = 0.0 if self.line is None else jnp.sum(jnp.log(jnp.diag(self.line.whiten)[whole:]))
        return jnp.sum(jnp.where(counts, jnp.log(jnp.maximum(jnp.abs(slope), standardize.SMALLEST)), 0.0)) + whitened

    def masses(self, u: Theta, x: Observation, key: Key, count: int) -> Float[Array, " count"]:
        """Values whose mean is ∫ e^{mean of log q_i(x|u)} dx: 1, or less where members disagree; for the inputs that x has.

        They are the ratio of the geometric to the arithmetic mean of the members' densities, at draws of the latter.
        """
        members, outcomes = len(jax.tree.leaves(self.network)[0]), self.network.dim
        given = jnp.concatenate([u, self.standardize(x)[outcomes:]])

        def one(key: Key) -> Scalar:
            key_member, key_z = jax.random.split(key)
            which = jax.random.randint(key_member, (), 0, members)
            flow = jax.tree.map(lambda v: v[which], self.network)
            if self.lattice is None:
                at: Any = (flow.inverse(jax.random.normal(key_z, (outcomes,)), given), given)
            else:
                at = Likelihood(flow, self.standardize, self.line, self.lattice).drawn(u, x, key_z)
            each = jax.vmap(lambda network: network.log_density(*at))(self.network)
            return jnp.exp(jnp.mean(each) - jax.nn.logsumexp(each) + jnp.log(members))

        return jax.vmap(one)(jax.random.split(key, count))

    def _member(self, network: Any) -> Likelihood | Ratio:
        if self.model is Likelihood:
            return Likelihood(network, self.standardize, self.line, self.lattice)
        return self.model(network, self.standardize, self.line)


def blank_terms(
    make_network: Callable[..., Any],
    shape: Any,
    members: int,
    base: bool,
    model: type[Likelihood] | type[Ratio],
    inputs: int = 0,
    whole: int = 0,
) -> MeanTerms:
    """Terms of these sizes with shapes and types in place of arrays; a likelihood's line is given u and the inputs."""

    def make(key: Key) -> MeanTerms:
        network = jax.vmap(lambda k: make_network(shape, key=k))(jax.random.split(key, members))
        straight = line.blank(shape.x - inputs, shape.dim + inputs) if base else None
        lattice = cells.blank(shape.x - inputs, whole) if whole else None
        return MeanTerms(network, standardize.blank(shape.x), straight, model, lattice)

    return eqx.filter_eval_shape(make, jax.random.key(0))
