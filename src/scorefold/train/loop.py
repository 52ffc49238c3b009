"""The loop that trains every network: any of them, by any loss, and several ensembles at once.

Members of an ensemble hold out different folds of the cases for validation (`training_set.py`). Members, learning rates and
training sets are runs of the same compiled programs (`steps.py`), round by round, with a learning rate that rises, stays and
falls as `schedule.py` says; what is kept is the moving average of the weights at its best validation loss, for the learning
rate whose members do best on average. Validation uses the same random numbers every time, and no more than 20,000 unseen cases.

The order of the data and all noise of a round are a pure function of (seed, round), and the learning rate of the losses so far,
so that training goes on from a checkpoint as if it had never been stopped. Where cases stream by, a round is as many blocks as
make some 50 steps.
"""

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.errors import ScorefoldError
from scorefold.progress import bar
from scorefold.train.checkpoint import Checkpoint, State, stopped
from scorefold.train.rows import everywhere
from scorefold.train.schedule import Limits, beats, decided_decays, last_round, limits_of, starting_decays
from scorefold.train.steps import Idle, Network, Objective, Order, Run, Setup, advance, run_by_run, untrained, validate
from scorefold.train.training import MOST_UNSEEN, History, Training, choose, pace_of
from scorefold.train.training_set import Stream, TrainingSet
from scorefold.types import QUICKLY, Array, Float, Int, new_key

WHEN_IT_ENDS = "training ends when unseen cases are no longer fitted better"


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


class _Data(NamedTuple):
    """What does not change from round to round, for all runs."""

    fixed: Any
    cases: Any
    """To judge by and, where nothing streams, to train on."""
    seen: Int[np.ndarray, "runs rows"]
    unseen: Int[np.ndarray, "runs rows"]
    rates: Float[np.ndarray, " runs"]
    keys: np.ndarray
    """Of every run, as numbers."""
    roots: np.ndarray
    """Of its training set."""


class _Program(NamedTuple):
    """Everything that training needs to know, but for its state."""

    setup: Setup
    data: _Data
    streams: list[Stream]
    seeds: list[int]
    """Of the training sets."""
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
        together = jax.tree.map(lambda *v: np.repeat(np.stack([np.asarray(one) for one in v]), copies, axis=0), *fixed)
    keys, roots = _keys(jnp.stack([new_key(one.seed) for one in sets]), copies)
    cases, together = everywhere((_joined([one.cases for one in sets]), together), len(keys))
    data = _Data(
        fixed=together,
        cases=cases,
        seen=seen,
        unseen=_rows([one.unseen(members) for one in sets], copies)[:, :MOST_UNSEEN],
        rates=np.tile(np.repeat(training.learning_rates, training.members), len(sets)).astype(np.float32),
        keys=np.asarray(keys),
        roots=np.asarray(roots),
    )
    pace = pace_of(training, seen.shape[1], bool(streams))
    setup, limits = Setup(objective, training.average, pace, len(sets) == 1), limits_of(training, pace)
    return _Program(setup, data, streams, [one.seed for one in sets], training, limits, copies)


@partial(jax.jit, static_argnums=1, compiler_options=QUICKLY)
def _keys(roots: Array, copies: int) -> tuple[Array, Array]:
    """The keys of every run, and of its training set, as numbers."""
    keys = jax.vmap(lambda root: jax.vmap(lambda i: jax.random.fold_in(root, i))(jnp.arange(copies)))(roots)
    return jax.random.key_data(keys.reshape(-1)), jax.random.key_data(jnp.repeat(roots, copies))


def _start(program: _Program) -> State:
    """Untrained networks, with a weight decay each, which is part of the state."""
    decays = starting_decays(program.training, len(program.data.keys))
    runs, validation = _validated(program, untrained(program.setup.objective, program.data.keys))
    losses = {"train": _no_losses(program), "validation": np.asarray(validation)[:, None]}
    return State(0, False, {"runs": runs, "losses": losses, "decays": decays})


def _one_round(program: _Program, state: State) -> State:
    """Some epochs, or blocks, and a look at the unseen cases."""
    setup, data, blocks = program.setup, program.data, program.setup.pace.blocks
    runs, losses, so_far = state.arrays["runs"], [], state.arrays["losses"]
    decays = decided_decays(program.training, program.limits, so_far["validation"], np.asarray(state.arrays["decays"]))
    beat = beats(so_far["validation"], program.limits)
    last = {name: own[:, -1] if own.shape[1] else np.zeros(len(own), np.float32) for name, own in so_far.items()}
    for number in range(state.round * blocks, (state.round + 1) * blocks):
        cases = _joined([one.block(number) for one in program.streams]) if program.streams else data.cases
        order = Order(data.rates, decays, beat, _batches(program, number), data.keys)

        def some_epochs(rows: Any, fixed: Any, cases: Any = cases, number: int = number) -> Any:
            return advance(setup, *rows, fixed, cases, number)

        idle = Idle(beat.active, (runs, last["train"]))
        runs, loss = run_by_run(some_epochs, (order, runs), data.fixed, setup, idle)
        losses.append(np.asarray(loss))
    runs, validation = _validated(program, runs, Idle(beat.active, (runs, last["validation"])))
    now = {"train": np.mean(losses, axis=0), "validation": np.asarray(validation)}
    so_far = {name: np.concatenate([so_far[name], now[name][:, None]], axis=1) for name in now}
    done = not beats(so_far["validation"], program.limits).active.any()
    return State(state.round + 1, done, {"runs": runs, "losses": so_far, "decays": decays})


def _validated(program: _Program, runs: Run, idle: Idle | None = None) -> tuple[Run, Any]:
    """The runs after a look at the unseen cases, and their losses there."""
    setup, data = program.setup, program.data

    def look(rows: Any, fixed: Any) -> Any:
        return validate(setup, *rows, fixed, data.cases)

    result: tuple[Run, Any] = run_by_run(look, (data.unseen, data.roots, runs), data.fixed, setup, idle)
    return result


def _batches(program: _Program, number: int) -> Int[np.ndarray, "runs steps batch"]:
    """The rows of every step, run by run: for each epoch a permutation of those that the run sees."""
    pace, copies = program.setup.pace, program.copies
    orders = []
    for run, rows in enumerate(program.data.seen):
        rng = np.random.default_rng([program.seeds[run // copies], 13, run % copies, number])
        orders.append([rng.permutation(rows)[: pace.steps * pace.batch] for _ in range(pace.epochs)])
    return np.reshape(orders, (len(orders), pace.epochs * pace.steps, pace.batch)).astype(np.int32)


def _no_losses(program: _Program) -> np.ndarray:
    return np.zeros((len(program.data.keys), 0), np.float32)


def _like(program: _Program) -> Any:
    """The state's arrays as shapes and types."""
    none = _no_losses(program)
    return {
        "runs": untrained.eval_shape(program.setup.objective, program.data.keys),
        "losses": {"train": none, "validation": none},
        "decays": jax.ShapeDtypeStruct((len(program.data.keys),), np.float32),
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
            report.update(0, f"compiling the first round; {WHEN_IT_ENDS}")
        while not state.done:
            try:
                state = _one_round(program, state)
            except KeyboardInterrupt:
                raise stopped(state, rounds) from None
            train, validation = (state.arrays["losses"][name][:, -1].mean() for name in ("train", "validation"))
            if (last := last_round(state.arrays["losses"]["validation"], program.limits)) < rounds:
                report.expect(last)
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


def _rows(masks: Sequence[np.ndarray], copies: int) -> Int[np.ndarray, "runs rows"]:
    """For every run the rows of its own training set that its member's line of the masks picks, cut to one length."""
    fewest = min(int(mask.sum(axis=1).min()) for mask in masks)
    starts = np.cumsum([0, *(mask.shape[1] for mask in masks)])
    rows = [
        start + np.flatnonzero(mask[copy % len(mask)])[:fewest]
        for start, mask in zip(starts[:-1], masks, strict=True)
        for copy in range(copies)
    ]
    return np.stack(rows)
