"""The loop that trains every network: any of them, by any loss, and several ensembles at once.

Members of an ensemble hold out different folds of the cases for validation (`training_set.py`). Members, learning rates and
training sets are one more batch axis of one compiled program; a round of epochs is one `scan`. It is Adam with decoupled weight
decay, whose learning rate rises, stays and falls as `schedule.py` says; what is kept is the moving average of the weights at
its best validation loss, for the learning rate whose members do best on average. Validation uses the same random numbers every
time, and no more than 20,000 unseen cases.

The order of the data and all noise of a round are a pure function of (seed, round), and the learning rate of the losses so far,
so that training goes on from a checkpoint as if it had never been stopped. Where cases stream by, a round is as many blocks as
make some 50 steps.
"""

import contextlib
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from scorefold.errors import ScorefoldError
from scorefold.progress import bar
from scorefold.train.checkpoint import Checkpoint, State, stopped
from scorefold.train.devices import everywhere, over_devices
from scorefold.train.schedule import Beat, Limits, beats, decided_decays, limits_of, starting_decays
from scorefold.train.training import MOST_UNSEEN, History, Pace, Training, choose, pace_of
from scorefold.train.training_set import Stream, TrainingSet
from scorefold.types import Array, Float, Int, Key, Scalar, new_key

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


class _Run(NamedTuple):
    """One network in training, or a stack of them."""

    network: Network
    average: Network
    best: Network
    best_loss: Scalar
    optimiser: Any
    step: Int[Array, ""]
    skipped: Int[Array, ""]


def train(
    objective: Objective,
    sets: Sequence[TrainingSet],
    fixed: Sequence[Any],
    training: Training,
    base: bool,
    progress: bool = False,
    checkpoint: Checkpoint | None = None,
) -> list[tuple[Network, History]]:
    """One ensemble a training set, all of them together; a network's arrays get a leading member axis.

    All sets stream, or none. `fixed` is for each of them what training does not change, as the losses want it. `base` says that
    a network which learns nothing may be right.
    """
    program = _program(objective, sets, fixed, training)
    state = _run_rounds(program, progress, checkpoint)
    arrays = jax.tree.map(np.asarray, state.arrays)  # off the devices: cutting arrays up there is a program for every shape
    ends = range(program.copies, program.copies * len(sets) + 1, program.copies)
    parts = [jax.tree.map(lambda v, end=end: v[end - program.copies : end], arrays) for end in ends]
    return [choose(own["runs"], own["losses"], program.setup.pace, training, base) for own in parts]


class _Setup(NamedTuple):
    """What the compiled programs are made for."""

    objective: Objective
    average: float
    pace: Pace
    shared: bool
    """All runs share one training set; else what is fixed has a run axis."""


class _Data(NamedTuple):
    """What does not change from round to round, for all runs."""

    fixed: Any
    cases: Any
    """To judge by and, where nothing streams, to train on."""
    seen: Int[Array, "runs rows"]
    unseen: Int[Array, "runs rows"]
    rates: Float[Array, " runs"]
    keys: Array
    """Of every run."""
    roots: Array
    """Of its training set."""


class _Program(NamedTuple):
    """Everything that training needs to know, but for its state."""

    setup: _Setup
    data: _Data
    streams: list[Stream]
    training: Training
    limits: Limits
    copies: int
    """Runs for each training set."""


def _program(objective: Objective, sets: Sequence[TrainingSet], fixed: Sequence[Any], training: Training) -> _Program:
    """All runs, training set by training set."""
    copies, members = len(training.learning_rates) * training.members, training.members
    streams = [one.stream for one in sets if one.stream is not None]
    hidden = [one.unseen(members) for one in streams or sets]
    seen = _rows([~one for one in hidden], copies)
    together = fixed[0]
    if len(sets) > 1:
        together = jax.tree.map(lambda *v: jnp.repeat(jnp.stack(v), copies, axis=0), *fixed)
    keys, roots = _keys(jnp.stack([new_key(one.seed) for one in sets]), copies)
    data = _Data(
        fixed=together,
        cases=_joined([one.cases for one in sets]),
        seen=seen,
        unseen=_rows([one.unseen(members) for one in sets], copies)[:, :MOST_UNSEEN],
        rates=jnp.asarray(np.tile(np.repeat(training.learning_rates, training.members), len(sets)), jnp.float32),
        keys=keys,
        roots=roots,
    )
    pace = pace_of(training, seen.shape[1], bool(streams))
    setup, limits = _Setup(objective, training.average, pace, len(sets) == 1), limits_of(training, pace)
    return _Program(setup, everywhere(data, len(keys)), streams, training, limits, copies)


@partial(jax.jit, static_argnums=1)
def _keys(roots: Array, copies: int) -> tuple[Array, Array]:
    """Of every run, and of its training set."""
    keys = jax.vmap(lambda root: jax.vmap(lambda i: jax.random.fold_in(root, i))(jnp.arange(copies)))(roots)
    return keys.reshape(-1), jnp.repeat(roots, copies)


def _start(program: _Program) -> State:
    """Untrained networks, with a weight decay each, which is part of the state."""
    data = program.data
    decays = starting_decays(program.training, len(data.keys))
    runs, validation = _validate(program.setup, data, _untrained(program.setup.objective, data.keys))
    losses = {"train": _no_losses(program), "validation": np.asarray(validation)[:, None]}
    return State(0, False, {"runs": runs, "losses": losses, "decays": jnp.asarray(decays, jnp.float32)})


def _one_round(program: _Program, state: State) -> State:
    """Some epochs, or blocks, and a look at the unseen cases."""
    setup, data, pace = program.setup, program.data, program.setup.pace
    runs, losses, so_far = state.arrays["runs"], [], state.arrays["losses"]
    decays = decided_decays(program.training, program.limits, so_far["validation"], np.asarray(state.arrays["decays"]))
    beat = beats(so_far["validation"], program.limits)
    for number in range(state.round * pace.blocks, (state.round + 1) * pace.blocks):
        block = _joined([one.block(number) for one in program.streams]) if program.streams else data.cases
        runs, loss = _round(setup, data._replace(cases=block), jnp.asarray(decays), beat, runs, number)
        losses.append(np.asarray(loss))
    runs, validation = _validate(setup, data, runs)
    now = {"train": np.mean(losses, axis=0), "validation": np.asarray(validation)}
    so_far = {name: np.concatenate([so_far[name], now[name][:, None]], axis=1) for name in now}
    done = not beats(so_far["validation"], program.limits).active.any()
    return State(state.round + 1, done, {"runs": runs, "losses": so_far, "decays": jnp.asarray(decays)})


def _no_losses(program: _Program) -> np.ndarray:
    return np.zeros((len(program.data.keys), 0), np.float32)


def _like(program: _Program) -> Any:
    """The state's arrays as shapes and types."""
    none = _no_losses(program)
    return {
        "runs": jax.eval_shape(partial(_untrained, program.setup.objective), program.data.keys),
        "losses": {"train": none, "validation": none},
        "decays": jax.ShapeDtypeStruct((len(program.data.keys),), jnp.float32),
    }


def _run_rounds(program: _Program, progress: bool, checkpoint: Checkpoint | None) -> State:
    """Rounds until training is done, from the checkpoint if there is one, with the state kept now and then."""
    rounds = program.limits.rounds
    if checkpoint is not None and checkpoint.held is not None:
        return checkpoint.held
    with contextlib.ExitStack() as stack:
        watch, found = None, None
        if checkpoint is not None:
            watch = stack.enter_context(checkpoint.session())
            found = checkpoint.read(_like(program))
            if checkpoint.best_so_far:
                if found is None:
                    raise ScorefoldError(f"expected a checkpoint in {checkpoint.folder}, for best_so_far=True; there is none")
                return found
        state = found or _start(program)
        report = stack.enter_context(bar("training", rounds, progress, state.round, may_end_early=True))
        if not state.done:
            report.update(0, "compiling the first round")
        while not state.done:
            try:
                state = _one_round(program, state)
            except KeyboardInterrupt:
                raise stopped(state, rounds) from None
            train, validation = (state.arrays["losses"][name][:, -1].mean() for name in ("train", "validation"))
            report(f"loss {train:.4f}  validation {validation:.4f}")
            if watch is not None:
                watch.after_round(state, rounds)
        report.end(_why_it_ended(state.round, rounds))
    return state


def _why_it_ended(done: int, rounds: int) -> str:
    if done >= rounds:
        return f"all {rounds:,} rounds that `steps` allows; more may help if the weights of the last were kept"
    return f"ended after {done:,} of at most {rounds:,} rounds, as unseen cases were no longer fitted better"


def _joined(cases: Sequence[Any]) -> Any:
    return cases[0] if len(cases) == 1 else jax.tree.map(lambda *v: jnp.concatenate(v), *cases)


def _rows(masks: Sequence[np.ndarray], copies: int) -> Int[Array, "runs rows"]:
    """For every run the rows of its lesson's joined cases where its member's line is true, cut to the same length."""
    fewest = min(int(mask.sum(axis=1).min()) for mask in masks)
    starts = np.cumsum([0, *(mask.shape[1] for mask in masks)])
    rows = [
        start + np.flatnonzero(mask[copy % len(mask)])[:fewest]
        for start, mask in zip(starts[:-1], masks, strict=True)
        for copy in range(copies)
    ]
    return jnp.asarray(np.stack(rows))


_OPTIMISER = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam())


@partial(jax.jit, static_argnums=0)
def _untrained(objective: Objective, keys: Array) -> _Run:
    def one(key: Key) -> _Run:
        network = objective.make(objective.shape, key=key)
        state, zero = _OPTIMISER.init(network), jnp.zeros((), jnp.int32)
        return _Run(network, network, network, jnp.array(jnp.inf, jnp.float32), state, zero, zero)

    return jax.vmap(one)(keys)


@partial(jax.jit, static_argnums=0)
def _round(
    setup: _Setup, data: _Data, decays: Float[Array, " runs"], beat: Beat, runs: _Run, index: Int[Array, ""]
) -> tuple[_Run, Float[Array, " runs"]]:
    """Some epochs of every run; those that are done stay as they are."""
    pace = setup.pace

    def one(fixed: Any, row: Any, same: Any) -> tuple[_Run, Scalar]:
        (rate, decay, rows, beat, run, key), (cases, index) = row, same
        before, best = run, run._replace(network=run.best, average=run.best)
        run = jax.tree.map(lambda new, old: jnp.where(beat.rewind & (index % pace.blocks == 0), new, old), best, run)
        key_order, key_loss = jax.random.split(jax.random.fold_in(key, index))
        used = pace.steps * pace.batch
        orders = jax.lax.map(lambda k: jax.random.permutation(k, rows)[:used], jax.random.split(key_order, pace.epochs))
        batches = orders.reshape(pace.epochs * pace.steps, pace.batch)

        def step(run: _Run, at: tuple[Array, Key, Scalar]) -> tuple[_Run, Scalar]:
            some = jax.tree.map(lambda v: v[at[0]], cases)
            loss, grads = jax.value_and_grad(setup.objective.loss)(run.network, fixed, some, at[1])
            return _descend(setup, rate * at[2], decay, run, grads), loss

        part = (index % pace.blocks + jnp.arange(len(batches)) / len(batches)) / pace.blocks
        pulse = beat.first + (beat.last - beat.first) * part
        run, losses = jax.lax.scan(step, run, (batches, jax.random.split(key_loss, len(batches)), pulse))
        run = jax.tree.map(lambda new, old: jnp.where(beat.active, new, old), run, before)
        return run, jnp.mean(losses, where=jnp.isfinite(losses))

    rows = (data.rates, decays, data.seen, beat, runs, data.keys)
    return _over_runs(setup, one, data.fixed, rows, (data.cases, index))


def _over_runs(setup: _Setup, one: Callable[[Any, Any, Any], Any], fixed: Any, rows: Any, same: Any) -> Any:
    """`one(fixed, row, same)` for every run, on all devices; what is fixed has a run axis unless it is shared."""
    if setup.shared:
        return over_devices(lambda rows, same: jax.vmap(lambda row: one(same[0], row, same[1]))(rows), rows, (fixed, same))
    return over_devices(lambda rows, same: jax.vmap(lambda row: one(row[0], row[1], same))(rows), (fixed, rows), same)


def _descend(setup: _Setup, rate: Scalar, decay: Scalar, run: _Run, grads: Any) -> _Run:
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


@partial(jax.jit, static_argnums=0)
def _validate(setup: _Setup, data: _Data, runs: _Run) -> tuple[_Run, Float[Array, " runs"]]:
    """The averaged weights' loss on unseen cases, with the same random numbers every time."""

    def one(fixed: Any, row: Any, cases: Any) -> tuple[_Run, Scalar]:
        rows, run, key = row
        unseen = jax.tree.map(lambda v: v[rows], cases)
        with jax.default_matmul_precision("highest"):  # as draws are made
            loss = setup.objective.validation(run.average, fixed, unseen, jax.random.fold_in(key, 1))
        better = loss < run.best_loss
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), run.average, run.best)
        return run._replace(best=best, best_loss=jnp.where(better, loss, run.best_loss)), loss

    return _over_runs(setup, one, data.fixed, (data.unseen, runs, data.roots), data.cases)
