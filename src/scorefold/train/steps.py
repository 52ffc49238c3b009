"""The compiled programs of training: untrained networks, a round of steps, and a look at the unseen cases.

A step is Adam with decoupled weight decay, the gradient clipped to a norm of 1; an update that is not finite is left out. A
round is one `scan` over batches. Members, learning rates and training sets are runs that do not depend on each other, so the
same programs serve one of them and all. On an accelerator all run side by side in one call. On cores each is a call of its own,
a core each: products of one batch with one matrix are quicker there than batches of products, what a step works on
stays in the cache of its core, and runs that are done cost nothing. Several devices share runs out instead (`rows.py`).
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from scorefold.train.rows import device_count, over_devices
from scorefold.train.schedule import Beat
from scorefold.train.training import Pace
from scorefold.types import QUICKLY, UNTUNED, Array, Float, Int, Key, Scalar, on_cores

WARM_UP = 100
"""Steps in which the learning rate rises."""

Network = Any
"""An Equinox module whose leaves are all arrays."""
Loss = Callable[[Network, Any, Any, Key], Scalar]
"""(network, fixed, some cases, key) to their loss; a module's function, not a closure, so that it is compiled once."""


class Objective(NamedTuple):
    """What is trained, and by what."""

    make: Callable[..., Network]
    """make(shape, key=…)"""
    shape: Hashable
    loss: Loss
    validation: Loss


class Run(NamedTuple):
    """One network in training, or a stack of them."""

    network: Network
    average: Network
    best: Network
    best_loss: Scalar
    optimiser: Any
    step: Int[Array, ""]
    skipped: Int[Array, ""]


class Setup(NamedTuple):
    """What the programs are compiled for."""

    objective: Objective
    average: float
    pace: Pace
    shared: bool
    """All runs share one training set; else what is fixed has a run axis."""


class Order(NamedTuple):
    """What a round needs to know of each run; on the host, and within the programs as JAX has it."""

    rates: Any
    """(runs,)"""
    decays: Any
    """(runs,)"""
    beat: Beat
    batches: Any
    """(runs, steps, batch) rows of the cases"""
    keys: Any
    """(runs, …) as numbers"""


class Idle(NamedTuple):
    """What takes the place of a call for runs that are done."""

    active: np.ndarray
    """(runs,) booleans"""
    result: Any
    """Arrays with a run axis."""


_OPTIMISER = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam())


@partial(jax.jit, static_argnums=0, compiler_options=QUICKLY)
def untrained(objective: Objective, keys: Array) -> Run:
    """A stack of runs at their start, from their keys as numbers."""

    def one(key: Key) -> Run:
        network = objective.make(objective.shape, key=key)
        state, zero = _OPTIMISER.init(network), jnp.zeros((), jnp.int32)
        return Run(network, network, network, jnp.array(jnp.inf, jnp.float32), state, zero, zero)

    return jax.vmap(one)(jax.random.wrap_key_data(keys))


@partial(jax.jit, static_argnums=0, compiler_options=UNTUNED)
def advance(
    setup: Setup, order: Order, runs: Run, fixed: Any, cases: Any, number: Int[Array, ""]
) -> tuple[Run, Float[Array, " runs"]]:
    """Some epochs of every run over the cases of block `number`; those that are done stay as they are."""
    blocks = setup.pace.blocks

    def one(fixed: Any, row: tuple[Order, Run], same: Any) -> tuple[Run, Scalar]:
        (rate, decay, beat, batches, key), run = row
        cases, number = same
        before, best = run, run._replace(network=run.best, average=run.best)
        run = jax.tree.map(lambda new, old: jnp.where(beat.rewind & (number % blocks == 0), new, old), best, run)

        def step(run: Run, at: tuple[Array, Key, Scalar]) -> tuple[Run, Scalar]:
            some = jax.tree.map(lambda v: v[at[0]], cases)
            loss, grads = jax.value_and_grad(setup.objective.loss)(run.network, fixed, some, at[1])
            return _descend(setup, rate * at[2], decay, run, grads), loss

        part = (number % blocks + jnp.arange(len(batches)) / len(batches)) / blocks
        pulse = beat.first + (beat.last - beat.first) * part
        keys = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(key), number), len(batches))
        run, losses = jax.lax.scan(step, run, (batches, keys, pulse))
        run = jax.tree.map(lambda new, old: jnp.where(beat.active, new, old), run, before)
        return run, jnp.mean(losses, where=jnp.isfinite(losses))

    return _over_runs(setup, one, fixed, (order, runs), (cases, number))


def _descend(setup: Setup, rate: Scalar, decay: Scalar, run: Run, grads: Any) -> Run:
    """One step of one run along its gradient; left out where that is not finite. Only matrices decay."""
    finite = jnp.isfinite(optax.tree.norm(grads))
    direction, state = _OPTIMISER.update(grads, run.optimiser, run.network)
    direction = jax.tree.map(lambda d, p: d + decay * p if p.ndim >= 2 else d, direction, run.network)
    rate = rate * jnp.minimum((run.step + 1) / WARM_UP, 1.0)
    network = jax.tree.map(lambda p, d: p - rate * d, run.network, direction)
    keep = jnp.minimum(setup.average, (1 + run.step) / (10 + run.step))
    averaged = jax.tree.map(lambda a, p: keep * a + (1 - keep) * p, run.average, network)
    moved = run._replace(network=network, average=averaged, optimiser=state)
    run = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, run)
    return run._replace(step=run.step + 1, skipped=run.skipped + ~finite)


@partial(jax.jit, static_argnums=0, compiler_options=UNTUNED)
def validate(
    setup: Setup, unseen: Int[Array, "runs rows"], roots: Array, runs: Run, fixed: Any, cases: Any
) -> tuple[Run, Float[Array, " runs"]]:
    """The averaged weights' loss on unseen cases, with the same random numbers (of `roots`, keys as numbers) every time."""

    def one(fixed: Any, row: Any, cases: Any) -> tuple[Run, Scalar]:
        rows, key, run = row
        some = jax.tree.map(lambda v: v[rows], cases)
        with jax.default_matmul_precision("highest"):  # as draws are made
            loss = setup.objective.validation(run.average, fixed, some, jax.random.fold_in(jax.random.wrap_key_data(key), 1))
        better = loss < run.best_loss
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), run.average, run.best)
        return run._replace(best=best, best_loss=jnp.where(better, loss, run.best_loss)), loss

    return _over_runs(setup, one, fixed, (unseen, roots, runs), cases)


def _over_runs(setup: Setup, one: Callable[[Any, Any, Any], Any], fixed: Any, rows: Any, same: Any) -> Any:
    """`one(fixed, row, same)` for every run, on all devices; what is fixed has a run axis unless it is shared."""

    def every(row: Callable[[Any], Any], rows: Any) -> Any:
        if len(jax.tree.leaves(rows)[0]) == 1:
            return jax.tree.map(lambda v: v[None], row(jax.tree.map(lambda v: v[0], rows)))
        return jax.lax.map(row, rows) if jax.default_backend() == "cpu" else jax.vmap(row)(rows)

    if setup.shared:
        return over_devices(lambda rows, same: every(lambda row: one(same[0], row, same[1]), rows), rows, (fixed, same))
    return over_devices(lambda rows, same: every(lambda row: one(row[0], row[1], same), rows), (fixed, rows), same)


def by_cores() -> bool:
    """Whether each run is a call of its own, a core each; else all are in one call."""
    return jax.default_backend() == "cpu" and device_count() == 1


def run_by_run(function: Callable[[Any, Any], Any], rows: Any, fixed: Any, setup: Setup, idle: Idle | None = None) -> Any:
    """`function(rows, fixed)`, a compiled one, of stacks of runs: of all at once, or `by_cores` of each alone.

    Those that are `idle` are left out where each is a call of its own.
    """
    if not by_cores():
        return function(rows, fixed)

    def one(i: int) -> Any:
        def own(tree: Any) -> Any:
            return jax.tree.map(lambda v: v[i : i + 1], tree)

        if idle is not None and not idle.active[i]:
            return own(idle.result)
        return jax.tree.map(np.asarray, function(own(rows), fixed if setup.shared else own(fixed)))

    rows, idle = jax.tree.map(np.asarray, (rows, idle))
    count = len(jax.tree.leaves(rows)[0])
    if count == 1:
        return one(0)
    return jax.tree.map(lambda *parts: np.concatenate(parts), *on_cores(one, range(count)))
