"""A conditional normalising flow of coupling layers.

    log q(y | c) = log N(z | 0, I) + log |det ∂z/∂y|,   z = (f_L ∘ … ∘ f_1)(y),

where layer l leaves the coordinates of its mask m_l as they are and gives, to each of the others, an invertible function
whose parameters are made by a residual MLP of (m_l ⊙ y, c):

- "affine": y ↦ y e^s + t with |s| ≤ 3 ("Density estimation using Real NVP", Dinh, Sohl-Dickstein and Bengio, 2017);
- "spline": the same, followed by a monotone rational-quadratic spline (`spline.py`; "Neural spline flows", Durkan et al.,
  2019).

The first layer has an empty mask: it moves and stretches all of y as c says. Then come L layers with masks in pairs, a random
half of the coordinates and the other half. Every layer starts as the identity. In one dimension coupling layers have nothing
to couple and affine ones would leave a Gaussian, so there the layers are splines whatever was asked for.

Where some coordinates of y are missing, the same layers without them are a flow of the others. Missing coordinates are 0, and c
has to say which they are.

Layers are stacked and run by one `scan`, so that the program does not grow with their number. FlowJAX has such layers too,
but with plain MLPs inside; the paper's are residual.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scorefold.density import spline
from scorefold.density.scales import Scales
from scorefold.density.stacked import again
from scorefold.errors import ScorefoldError
from scorefold.score.resmlp import DEEPEST, WIDEST, Linear, ResMLP
from scorefold.types import Array, Float, Key, Scalar

KINDS = ("affine", "spline")
STRETCH = 3.0
MOST_LAYERS = 100

Vector = Float[Array, " y"]
Given = Float[Array, " c"]


class Layer(eqx.Module):
    """The residual MLP that makes one layer's parameters."""

    mlp: ResMLP
    out: Linear

    def __init__(self, dim: int, given: int, width: int, depth: int, parameters: int, *, key: Key):
        key_mlp, key_out = jax.random.split(key)
        self.mlp = ResMLP(dim + given, width, depth, key=key_mlp)
        self.out = jax.tree.map(jnp.zeros_like, Linear(width, dim * parameters, key=key_out))

    def __call__(self, y: Vector, given: Given) -> Float[Array, "y parameters"]:
        """Parameters for every coordinate, from those that the mask left."""
        return self.mlp.then(self.out, jnp.concatenate([y, given])).reshape(len(y), -1)


class ConditionalFlow(eqx.Module):
    """Coupling layers, stacked."""

    layers: Layer
    masks: tuple[tuple[bool, ...], ...] = eqx.field(static=True)
    kind: str = eqx.field(static=True)
    tails: Scales | None = None
    """What a likelihood learns of the scales of its noise, where these are fitted first."""

    def __init__(
        self, dim: int, given: int, width: int, depth: int, layers: int, kind: str, *, tails: Scales | None = None, key: Key
    ):
        self.tails = tails
        self.kind = "spline" if dim == 1 else kind
        self.masks = _masks(dim, layers)
        parameters = 2 + (spline.PARAMETERS if self.kind == "spline" else 0)
        keys = jax.random.split(key, len(self.masks))
        self.layers = jax.vmap(lambda k: Layer(dim, given, width, depth, parameters, key=k))(keys)

    @property
    def dim(self) -> int:
        """Coordinates of y."""
        return len(self.masks[0])

    def forward(self, y: Vector, given: Given, there: Vector | None = None) -> tuple[Vector, Scalar]:
        """z, and log |det ∂z/∂y|; coordinates that are not `there` are passed over."""

        def one(carry: tuple[Vector, Scalar], at: tuple[Layer, Array]) -> tuple[tuple[Vector, Scalar], None]:
            (y, log_det), (layer, mask) = carry, at
            raw = layer(jnp.where(mask, y, 0.0), given)
            stays = mask if there is None else mask | (there == 0)
            stretch = log_stretch(raw[:, 0])
            z, slope = y * jnp.exp(stretch) + raw[:, 1], stretch
            if self.kind == "spline":
                z, more = jax.vmap(spline.forward)(raw[:, 2:], z)
                slope = slope + more
            return (jnp.where(stays, y, z), log_det + jnp.sum(jnp.where(stays, 0.0, slope))), None

        return jax.lax.scan(again(one), (y, jnp.zeros(())), (self.layers, self._masks_of_layers))[0]

    def inverse(self, z: Vector, given: Given, there: Vector | None = None) -> Vector:
        """y."""

        def one(z: Vector, at: tuple[Layer, Array]) -> tuple[Vector, None]:
            layer, mask = at
            raw = layer(jnp.where(mask, z, 0.0), given)
            y = jax.vmap(spline.inverse)(raw[:, 2:], z) if self.kind == "spline" else z
            y = (y - raw[:, 1]) * jnp.exp(-log_stretch(raw[:, 0]))
            return jnp.where(mask if there is None else mask | (there == 0), z, y), None

        return jax.lax.scan(one, z, (self.layers, self._masks_of_layers), reverse=True)[0]

    def log_density(self, y: Vector, given: Given) -> Scalar:
        """log q(y | c)."""
        z, log_det = self.forward(y, given)
        return log_det - jnp.sum(z**2) / 2 - len(y) / 2 * jnp.log(2 * jnp.pi)

    @property
    def _masks_of_layers(self) -> Array:
        """None of them where the layers were left out."""
        return jnp.array(self.masks)[: self.layers.out.weight.shape[0]]

    def without_idle_layers(self) -> "ConditionalFlow":
        """Of flows with a leading member axis: the same ones, without layers where these are all the identity.

        Training keeps the identity where it found nothing better. To compute it takes as long as any other layer.
        """
        if any(np.any(leaf) for leaf in jax.tree.leaves(self.layers.out)):
            return self
        none = jax.tree.map(lambda v: jnp.asarray(np.asarray(v)[:, :0]), self.layers)  # off the device no cut is compiled
        return eqx.tree_at(lambda flow: flow.layers, self, none)


def check_flow(kind: str, layers: int, width: int, depth: int) -> None:
    """A known kind, and sizes that can be built; else a ScorefoldError."""
    if kind not in KINDS or layers > MOST_LAYERS or width > WIDEST or depth > DEEPEST:
        raise ScorefoldError(
            f"expected flow {' or '.join(KINDS)}, layers up to {MOST_LAYERS}, width up to {WIDEST:,}, depth up to {DEEPEST}; "
            f"got {kind!r:.60}, {layers}, {width} and {depth}"
        )


def log_stretch(raw: Float[Array, "..."]) -> Float[Array, "..."]:
    """s, of a layer's first parameters."""
    return STRETCH * jnp.tanh(raw / STRETCH)


def _masks(dim: int, layers: int) -> tuple[tuple[bool, ...], ...]:
    """The empty mask, then pairs of complementary halves, the same for every training."""
    rng = np.random.default_rng(0)
    masks = [np.zeros(dim, bool)]
    while len(masks) <= layers and dim > 1:
        half = rng.permutation(dim) < (dim + 1) // 2
        masks += [half, ~half]
    return tuple(tuple(map(bool, mask)) for mask in masks[: layers + 1])
