"""Any network by any loss: the loop of `fit.py` for methods that learn something else than a score.

Members hold out different fifths of the cases; members × learning rates are one batch axis of one compiled program. Adam with
decoupled weight decay and a cosine schedule; what is kept is the moving average of the weights at its best validation loss,
for the learning rate whose members do best on average. Validation uses the same random numbers every time, and no more than
20,000 unseen cases.
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.progress import bar
from scorefold.train.fit import History, Training, _choose, _optimiser, _Pace, _pace, _rows, _Run, descend
from scorefold.types import Array, Float, Int, Key, Scalar, new_key

MOST_UNSEEN = 20_000

Network = Any
"""An Equinox module whose leaves are all arrays."""
Loss = Callable[[Network, Any, Any, Key], Scalar]
"""(network, fixed, a batch of cases, key) to the loss; a module's function, not a closure, so that it is compiled once."""


def minimise(
    make: Callable[..., Network],
    shape: Hashable,
    loss: Loss,
    fixed: Any,
    cases: Any,
    unseen: np.ndarray,
    training: Training,
    seed: int,
    progress: bool = False,
) -> tuple[Network, History]:
    """Train `make(shape, key=…)`; the network's arrays get a leading member axis. `fixed` is what training does not change."""
    rates = jnp.repeat(jnp.asarray(training.learning_rates), training.members)
    lines = list(np.tile(unseen, (len(training.learning_rates), 1)))
    starts = np.zeros(len(lines), int)
    seen_rows, unseen_rows = _rows([~line for line in lines], starts), _rows(lines, starts)[:, :MOST_UNSEEN]
    pace = _pace(training, seen_rows.shape[1])
    root = new_key(int(seed))
    keys = jax.random.split(root, len(rates))

    runs = _start(make, shape, training, keys)
    runs, now = _validate(loss, fixed, cases, unseen_rows, runs, root)
    train, validation, since = [], [np.asarray(now)], 0
    with bar("training", pace.rounds, progress) as report:
        for index in range(pace.rounds):
            before = np.asarray(runs.best_loss)
            runs, now = _round(loss, training, pace, fixed, cases, rates, seen_rows, runs, keys, index)
            train.append(np.asarray(now))
            runs, now = _validate(loss, fixed, cases, unseen_rows, runs, root)
            validation.append(np.asarray(now))
            since = 0 if (np.asarray(runs.best_loss) < before).any() else since + 1
            report(f"loss {train[-1].mean():.4f}  validation {validation[-1].mean():.4f}")
            if since >= training.patience:
                break
    return _choose(runs, np.stack(train, 1), np.stack(validation, 1), pace.epochs, training, base=True)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _start(make: Callable[..., Network], shape: Hashable, training: Training, keys: Array) -> _Run:
    def one(key: Key) -> _Run:
        network = make(shape, key=key)
        state, zero = _optimiser(training).init(network), jnp.zeros((), jnp.int32)
        return _Run(network, network, network, jnp.array(jnp.inf, jnp.float32), state, zero, zero)

    return jax.vmap(one)(keys)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _round(
    loss: Loss, training: Training, pace: _Pace, fixed: Any, cases: Any, rates: Array, rows: Array, runs: _Run, keys: Array,
    index: Int[Array, ""],
) -> tuple[_Run, Float[Array, "runs"]]:  # fmt: skip
    """Some epochs of every run."""

    def one(rate: Scalar, rows: Array, run: _Run, key: Key) -> tuple[_Run, Scalar]:
        key_order, key_loss = jax.random.split(jax.random.fold_in(key, index))
        used = pace.steps * pace.batch
        orders = [jax.random.permutation(k, rows)[:used] for k in jax.random.split(key_order, pace.epochs)]
        batches = jnp.stack(orders).reshape(pace.epochs * pace.steps, pace.batch)

        def step(run: _Run, at: tuple[Array, Key]) -> tuple[_Run, Scalar]:
            some = jax.tree.map(lambda v: v[at[0]], cases)
            now, grads = jax.value_and_grad(loss)(run.network, fixed, some, at[1])
            return descend(training, pace, rate, run, grads), now

        run, losses = jax.lax.scan(step, run, (batches, jax.random.split(key_loss, len(batches))))
        return run, jnp.mean(losses, where=jnp.isfinite(losses))

    return jax.vmap(one)(rates, rows, runs, keys)


@partial(jax.jit, static_argnums=0)
def _validate(loss: Loss, fixed: Any, cases: Any, rows: Array, runs: _Run, key: Key) -> tuple[_Run, Float[Array, "runs"]]:
    """The averaged weights' loss on unseen cases."""

    def one(at: tuple[Array, _Run]) -> tuple[_Run, Scalar]:
        rows, run = at
        now = loss(run.average, fixed, jax.tree.map(lambda v: v[rows], cases), jax.random.fold_in(key, 1))
        better = now < run.best_loss
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), run.average, run.best)
        return run._replace(best=best, best_loss=jnp.where(better, now, run.best_loss)), now

    return jax.lax.map(one, (rows, runs))
