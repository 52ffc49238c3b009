"""Classifier two-sample test: how often a network tells the draws from a reference, 0.5 when it cannot.

    C2ST = (1/5) Σ_k accuracy on fold k of a classifier trained on the other folds

("Revisiting classifier two-sample tests", Lopez-Paz and Oquab, 2017), with the classifier of "Benchmarking
simulation-based inference" (Lueckmann, Boelts, Greenberg, Gonçalves and Macke, 2021), that is scikit-learn's
`MLPClassifier` and its rule to stop: dim → 10 dim → 10 dim → 1, ReLU, weights and biases from
U(±√(6 / (fan in + fan out))); loss

    mean of log(1 + e^{-±logit}) over the batch + (10⁻⁴ / 2) Σ weight² / batch size;

Adam at 10⁻³ on shuffled batches of 200; the end after more than 10 epochs in a row whose mean loss is not
10⁻⁴ below the best so far, or after 1,000 epochs. Both clouds are z-scored by the mean and sd of the
whole reference. All five folds start from the same weights and see the same shuffles, as they do in
scikit-learn with one `random_state`.

The classes are balanced: of two clouds of different length, only the first rows of the longer one are used,
as many as the shorter one has, rounded down to a multiple of five so that all folds have the same size.

The accuracy is reported raw. Between equal distributions it scatters around 0.5, below it as often as above,
with a standard error of 0.5 / √rows or somewhat more (0.012 for 1,000 + 1,000 draws, 0.07 for 50 + 50).
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.nn import relu, softplus
from jaxtyping import Bool
from numpy.typing import ArrayLike

from scorefold.diagnostics.moments import clouds, spread
from scorefold.types import Array, Float, Int, Key, Scalar, single_precision

CLASSIFIER_FOLDS = 5
BATCH_ROWS = 200
WEIGHT_PENALTY = 1e-4
TOLERANCE = 1e-4
PATIENT_EPOCHS = 10
MAX_EPOCHS = 1_000
FARTHEST_Z = 1e6
"""Draws farther out than this, in sd of the reference, are moved here. In single precision the training fails from about 10²⁰,
and the accuracy of draws that ran away would then read 0.5."""
ADAM = optax.adam(1e-3)
"""ε = 10⁻⁸ comes after the bias correction; scikit-learn has it before, which matters only where the gradient
is about as small as ε."""

Count = Int[Array, ""]
Layers = list[tuple[Float[Array, "..."], Float[Array, "..."]]]


class Data(NamedTuple):
    """Both clouds in one, and which row belongs to which."""

    z: Float[Array, "rows dim"]
    is_draw: Float[Array, " rows"]


class Training(NamedTuple):
    """Where the classifier of one fold stands, or a stack of them."""

    layers: Layers
    adam: optax.OptState
    best: Float[Array, "*fold"]
    """The lowest mean loss of an epoch so far."""
    stale: Int[Array, "*fold"]
    """Epochs in a row that were not better than `best` by the tolerance."""


def c2st(draws: ArrayLike, reference: ArrayLike, seed: int = 0) -> float:
    """How well a classifier tells draws from a reference: about 0.5 if they follow one distribution, 1 if they lie apart.

    Args:
        draws: (a, dim), at least 20 of them.
        reference: (b, dim), such as draws of the true posterior. Of the longer cloud only the first rows are used.
        seed: of the folds, the weights and the shuffles.

    Returns:
        The share of held-out rows that were told right.

    Raises:
        ScorefoldError: where the clouds are too short, not finite or of different dimension.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> cloud, same, shifted = rng.normal(size=(100, 2)), rng.normal(size=(100, 2)), rng.normal(5, 1, size=(100, 2))
        >>> bool(c2st(cloud, same) < 0.65), bool(c2st(cloud, shifted) > 0.95)
        (True, True)
    """
    return c2st_many([draws], [reference], seed)[0]


def c2st_many(draws: Sequence[ArrayLike], references: Sequence[ArrayLike], seed: int = 0) -> list[float]:
    """`c2st` for several pairs of clouds of one shape, as one program: on an accelerator as quick as a single pair."""
    pairs = [clouds(*pair, at_least=20) for pair in zip(draws, references, strict=True)]
    n = min(len(cloud) for pair in pairs for cloud in pair) // CLASSIFIER_FOLDS * CLASSIFIER_FOLDS
    z = np.stack([(np.concatenate([one[:n], other[:n]]) - other.mean(0)) / spread(other) for one, other in pairs])
    test = np.random.default_rng(seed).permutation(2 * n).reshape(CLASSIFIER_FOLDS, -1)
    train = np.stack([np.delete(test, k, axis=0).ravel() for k in range(CLASSIFIER_FOLDS)])
    with single_precision():
        is_draw = jnp.repeat(jnp.array([1.0, 0.0]), n)
        clipped = jnp.asarray(z.clip(-FARTHEST_Z, FARTHEST_Z), jnp.float32)
        right = np.asarray(_all_told_right(jax.random.key(seed), clipped, is_draw, train, test))
    # Folds of one size: the mean of their accuracies is the share told right of all.
    return [int(count) / (2 * n) for count in right.sum(axis=1)]


@jax.jit
def _all_told_right(
    key: Key, z: Float[Array, "pairs rows dim"], is_draw: Float[Array, " rows"], train: Array, test: Array
) -> Int[Array, "pairs folds"]:
    return jax.vmap(lambda one: _told_right(key, Data(one, is_draw), train, test))(z)


def _told_right(key: Key, data: Data, train: Int[Array, "folds train"], test: Int[Array, "folds test"]) -> Int[Array, " folds"]:
    """Train on the rows `train` of each fold; count the rows `test` that are told right."""
    start, shuffles = jax.random.split(key)
    layers = _initial_layers(start, data.z.shape[1])
    fresh = Training(layers, ADAM.init(layers), jnp.asarray(jnp.inf), jnp.asarray(0))
    folds = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (CLASSIFIER_FOLDS, *jnp.shape(leaf))), fresh)

    def goes_on(state: tuple[Training, Count]) -> Bool[Array, ""]:
        folds, epoch = state
        return (epoch < MAX_EPOCHS) & jnp.any(folds.stale <= PATIENT_EPOCHS)

    def one_epoch(state: tuple[Training, Count]) -> tuple[Training, Count]:
        folds, epoch = state
        order = jax.random.permutation(jax.random.fold_in(shuffles, epoch), train.shape[1])
        return jax.vmap(partial(_epoch, data, order))(folds, train), epoch + 1

    folds, _ = jax.lax.while_loop(goes_on, one_epoch, (folds, jnp.asarray(0)))
    logits = jax.vmap(_logits)(folds.layers, data.z[test])
    return jnp.sum((logits > 0) == data.is_draw[test], axis=1)


def _initial_layers(key: Key, dim: int) -> Layers:
    widths = [dim, 10 * dim, 10 * dim, 1]
    layers = []
    for fan_in, fan_out in pairwise(widths):
        key, for_weight, for_bias = jax.random.split(key, 3)
        bound = (6 / (fan_in + fan_out)) ** 0.5
        weight = jax.random.uniform(for_weight, (fan_in, fan_out), minval=-bound, maxval=bound)
        layers.append((weight, jax.random.uniform(for_bias, (fan_out,), minval=-bound, maxval=bound)))
    return layers


def _logits(layers: Layers, z: Float[Array, "rows dim"]) -> Float[Array, " rows"]:
    *hidden, (weight, bias) = layers
    for w, b in hidden:
        z = relu(z @ w + b)
    return (z @ weight + bias)[:, 0]


def _loss(layers: Layers, data: Data, rows: Int[Array, " batch"], counts: Float[Array, " batch"]) -> Scalar:
    """Log loss over those of the rows that count, plus the penalty."""
    logits = _logits(layers, data.z[rows])
    log_loss = softplus(logits) - data.is_draw[rows] * logits
    penalty = WEIGHT_PENALTY / 2 * sum(jnp.vdot(weight, weight) for weight, _ in layers)
    return (jnp.vdot(counts, log_loss) + penalty) / counts.sum()


def _epoch(data: Data, order: Int[Array, " train"], fold: Training, train: Int[Array, " train"]) -> Training:
    """Once over the rows of one fold in this order, unless the fold has stopped."""
    size = min(BATCH_ROWS, len(order))
    short = -len(order) % size
    # The last batch is filled up with rows that do not count.
    rows = jnp.pad(train[order], (0, short)).reshape(-1, size)
    counts = jnp.pad(jnp.ones(len(order)), (0, short)).reshape(-1, size)

    def step(carry: tuple[Layers, optax.OptState], batch: tuple[Array, Array]) -> tuple[Any, Scalar]:
        layers, adam = carry
        loss, gradient = jax.value_and_grad(_loss)(layers, data, *batch)
        change, adam = ADAM.update(gradient, adam)
        return (optax.apply_updates(layers, change), adam), loss

    (layers, adam), losses = jax.lax.scan(step, (fold.layers, fold.adam), (rows, counts))
    loss = jnp.vdot(losses, counts.sum(1)) / len(order)
    stale = jnp.where(loss > fold.best - TOLERANCE, fold.stale + 1, 0)
    after = Training(layers, adam, jnp.minimum(fold.best, loss), stale)
    return jax.tree.map(partial(jnp.where, fold.stale <= PATIENT_EPOCHS), after, fold)
