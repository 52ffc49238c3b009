"""The ratio of likelihood and evidence by a classifier: log p(x|u) / p(x).

A classifier tells pairs (u, x) ~ p(u, x) from pairs ~ p(u) p(x); the logit of the best one is the log ratio ("Likelihood-free
MCMC with amortized approximate ratio estimators", Hermans, Begy and Louppe, 2020). As in appendix B of "Compositional score
modeling for simulation-based inference" (Geffner, Papamakarios and Mnih, 2023) two linear maps embed u and x, and a residual
MLP takes both. With a line (`line.py`) the logit is the line's own log ratio plus what the network finds; at first it finds
nothing. The network then also sees that ratio and how far the line is off: noise with outliers, say, differs from Gaussian
noise by a function of that distance above all.

In training the wrong pairs are made within a batch: x_i with u_{π(i)}, for several cyclic shifts π, whose mean counts as much
as the right pairs do.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from scorefold.density.line import Line
from scorefold.density.masked_line import MaskedLine
from scorefold.score.embedding import Embedding, Trainable, build, joined, with_channels
from scorefold.score.resmlp import Linear, ResMLP
from scorefold.score.standardize import Standardize
from scorefold.train.rows import few_at_a_time
from scorefold.train.training_set import Cases
from scorefold.types import QUICKLY, Array, Float, Key, Observation, Scalar, Theta

SHIFTS = 4
KNOWN = 3
"""Numbers that a line has to say of a pair."""


class RatioShape(NamedTuple):
    """The sizes of the classifier."""

    dim: int
    x: int
    width: int
    depth: int
    line: bool = True
    observation: tuple[int, ...] = ()
    embedding: Embedding | None = None
    missing: bool = False
    """Numbers of an observation may be missing: as many more say which are."""


class RatioNetwork(eqx.Module):
    """Two linear embeddings and a residual MLP."""

    embedding: Trainable | None
    from_theta: Linear
    from_x: Linear
    mlp: ResMLP
    out: Linear
    shape: RatioShape = eqx.field(static=True)

    def __init__(self, shape: RatioShape, *, key: Key):
        keys = jax.random.split(key, 5)
        seen = with_channels(shape.observation) if shape.missing else shape.observation
        module = None if shape.embedding is None else build(shape.embedding, seen, keys[4])
        self.embedding = None if module is None else Trainable(module)
        features = shape.x * (2 if shape.missing else 1) if module is None else int(module(jnp.zeros(seen)).shape[0])
        self.from_theta = Linear(shape.dim, shape.width, key=keys[0])
        self.from_x = Linear(features, shape.width, key=keys[1])
        self.mlp = ResMLP(2 * shape.width + KNOWN * int(shape.line), shape.width, shape.depth, key=keys[2])
        out = Linear(shape.width, 1, key=keys[3])
        self.out = jax.tree.map(jnp.zeros_like, out) if shape.line else out
        self.shape = shape

    def embed(self, x: Observation) -> Float[Array, " width"]:
        """A standardised observation's share of the MLP's input."""
        return self.from_x(x if self.embedding is None else self.embedding(joined(x, self.shape.observation)))

    def __call__(self, u: Theta, embedded: Float[Array, " width"], known: Float[Array, " known"]) -> Scalar:
        """The logit; `known` is what the line has to say, or nothing."""
        return self.mlp.then(self.out, jnp.concatenate([self.from_theta(u), embedded, known]))[0]


class Prepared(NamedTuple):
    """What of an observation does not depend on u."""

    known: Any
    """As the line wants it."""
    embedded: Float[Array, " width"]


class Ratio(eqx.Module):
    """Standardisation, line and one classifier."""

    network: RatioNetwork
    standardize: Standardize
    line: Line | MaskedLine | None

    def prepare(self, x: Observation) -> Prepared:
        """Everything that depends on the observation alone."""
        return self.prepare_seen(self.standardize(x))

    def prepare_seen(self, x: Float[Array, " seen"]) -> Prepared:
        """The same of a standardised observation."""
        return Prepared(x if self.line is None else self.line.prepare(x), self.network.embed(x))

    def term(self, u: Theta, x: Prepared) -> Scalar:
        """log p(x|u) / p(x) of a prepared observation."""
        if self.line is None:
            return self.network(u, x.embedded, jnp.zeros(0))
        ratio = self.line.log_ratio(x.known, u)
        known = jnp.concatenate([ratio[None] / (1 + jnp.abs(ratio)), self.line.distances(x.known, u)])
        return ratio + self.network(u, x.embedded, known)


def ratio_loss(network: RatioNetwork, fixed: tuple, cases: Cases, key: Key) -> Scalar:
    """Log loss of the classifier, right and wrong pairs in equal weight; of cases as `seen_pairs` gives them."""
    model = Ratio(network, *fixed[1:])
    u, prepared = cases.u, jax.vmap(model.prepare_seen)(cases.x[:, 0])
    others = jax.random.choice(key, jnp.arange(1, max(len(u), 2)), (SHIFTS,))
    shifts = jnp.concatenate([jnp.zeros(1, others.dtype), others])  # right pairs first: together they are one smaller program
    logits = jax.vmap(lambda shift: jax.vmap(model.term)(jnp.roll(u, shift, axis=0), prepared))(shifts)
    return jnp.mean(jax.nn.softplus(-logits[0])) + jnp.mean(jax.nn.softplus(logits[1:]))


@partial(jax.jit, compiler_options=QUICKLY)
def seen_pairs(fixed: tuple, cases: Cases) -> Cases:
    """Training cases of one observation, with parameters and observations as the network sees them at every step."""
    coordinates, scale, *_ = fixed
    u = cases.u if coordinates is None else jax.vmap(coordinates)(cases.u)
    return cases._replace(u=u, x=few_at_a_time(scale)(cases.x[:, 0])[:, None])
