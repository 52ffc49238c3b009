"""The loop that trains every network: any of them, by any loss, and several ensembles at once.

Members of an ensemble hold out different folds of the cases for validation (`training_set.py`). Members, learning rates and
training sets are runs of the same compiled programs (`steps.py`), round by round, with a learning rate that rises, stays and
falls as `schedule.py` says; what is kept is the moving average of the weights at its best validation loss, for the learning
rate whose members do best on average. Validation uses the same random numbers every time, and no more than 20,000 unseen cases.

The order of the data and all noise of a round are a pure function of (seed, round), and the learning rate of the losses so far,
so that training goes on from a checkpoint as if it had never been stopped. Where cases stream by, a round is as many blocks as
make some 50 steps.

On cores runs do not wait for each other: each is a lane of its own, and free cores take up whichever lane is behind. Three runs
on two cores have done two rounds each in the time of three; only then is there a look at all of them.
"""

import contextlib
import math
from collections.abc import Sequence
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.errors import ScorefoldError
from scorefold.progress import bar
from scorefold.train.checkpoint import Checkpoint, State, stopped
from scorefold.train.rows import device_count, everywhere
from scorefold.train.schedule import Limits, beats, decided_decays, given_up, last_round, limits_of, starting_decays
from scorefold.train.steps import (
    Idle,
    Network,
    Objective,
    Order,
    Run,
    Setup,
    advance,
    by_cores,
    run_by_run,
    untrained,
    validate,
)
from scorefold.train.training import MOST_UNSEEN, History, Training, choose, pace_of
from scorefold.train.training_set import Stream, TrainingSet
from scorefold.types import QUICKLY, Array, Float, Int, cores, new_key, on_cores

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
    orders: list[tuple[int, int]]
    """What the order of its cases follows from: the seed of its training set, and which of its runs it is."""


class _Program(NamedTuple):
    """Everything that training needs to know, but for its state."""

    setup: Setup
    data: _Data
    streams: list[Stream]
    training: Training
    limits: Limits
    copies: int
    """Runs for each training set."""

    def lane(self, run: int) -> "_Program":
        """The program of one run alone."""
        data, one = self.data, slice(run, run + 1)
        fixed = data.fixed if self.setup.shared else jax.tree.map(lambda v: v[one], data.fixed)
        own = {name: getattr(data, name)[one] for name in ("seen", "unseen", "rates", "keys", "roots", "orders")}
        return self._replace(data=data._replace(fixed=fixed, **own))


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
        orders=[(one.seed, copy) for one in sets for copy in range(copies)],
    )
    pace = pace_of(training, seen.shape[1], bool(streams))
    setup, limits = Setup(objective, training.average, pace, len(sets) == 1), limits_of(training, pace)
    return _Program(setup, data, streams, training, limits, copies)


@partial(jax.jit, static_argnums=1, compiler_options=QUICKLY)
def _keys(roots: Array, copies: int) -> tuple[Array, Array]:
    """The keys of every run, and of its training set, as numbers."""
    keys = jax.vmap(lambda root: jax.vmap(lambda i: jax.random.fold_in(root, i))(jnp.arange(copies)))(roots)
    return jax.random.key_data(keys.reshape(-1)), jax.random.key_data(jnp.repeat(roots, copies))


def _start(program: _Program) -> State:
    """Untrained networks, with a weight decay each, which is part of the state."""
    decays = starting_decays(program.training, len(program.data.keys))
    runs, validation = _validated(program, _untrained(program))
    losses = {"train": _no_losses(program), "validation": np.asarray(validation)[:, None]}
    return State(0, False, {"runs": runs, "losses": losses, "decays": decays, "over": np.zeros(len(decays), np.int32)})


def _untrained(program: _Program) -> Run:
    """Untrained networks; meanwhile other cores compile what will train and validate them."""
    setup, one = program.setup, program.lane(0) if by_cores() else program
    data, runs = one.data, untrained.eval_shape(setup.objective, one.data.keys)

    def make() -> Run:
        return untrained(setup.objective, program.data.keys)

    def compile_validation() -> None:
        validate.lower(setup, data.unseen, data.roots, runs, data.fixed, data.cases).compile()

    def compile_rounds() -> None:
        zeros = np.zeros((len(data.keys), 1), np.float32)
        beat = beats(zeros, one.limits, zeros[:, 0])
        order = Order(data.rates, zeros[:, 0], beat, _batches(one, 0), data.keys)
        advance.lower(setup, order, runs, data.fixed, data.cases, 0).compile()

    if program.streams or device_count() > 1:  # where what is compiled follows from more than shapes
        return make()
    return on_cores(lambda job: job(), [compile_rounds, make, compile_validation])[1]


def _some_rounds(program: _Program, state: State) -> State:
    """As many rounds of every run as keep all cores busy; no more than there may be, or than decide on the weight decay."""
    so_far, limits, runs = state.arrays["losses"]["validation"], program.limits, len(program.data.keys)
    decays = decided_decays(program.training, limits, so_far, np.asarray(state.arrays["decays"]))
    over = given_up(program.training, limits, so_far, np.asarray(state.arrays["over"]))
    state = state._replace(arrays={**state.arrays, "decays": decays, "over": over})
    if over.all():
        return state._replace(done=True)
    if runs == 1 or program.streams or not by_cores():
        return _ended(_one_round(program, state), state.round, limits)
    many = cores() // math.gcd(runs, cores()) if runs > cores() else 1
    many = min(many, (limits.trial if state.round < limits.trial else limits.rounds) - state.round)
    lanes, alone = [program.lane(run) for run in range(runs)], [Lock() for _ in range(runs)]
    states = [_cut(state, slice(run, run + 1)) for run in range(runs)]

    def one_round(run: int) -> None:
        with alone[run]:
            states[run] = _one_round(lanes[run], states[run])

    on_cores(one_round, list(range(runs)) * many)
    together = jax.tree.map(lambda *parts: np.concatenate(parts), *(one.arrays for one in states))
    return _ended(State(state.round + many, False, together), state.round, limits)


def _ended(state: State, before: int, limits: Limits) -> State:
    """The state at the round after which all runs were done, if that was one of those since `before`."""
    losses, over = state.arrays["losses"], state.arrays["over"]
    for rounds in range(before + 1, state.round + 1):
        if not beats(losses["validation"][:, : rounds + 1], limits, over).active.any():
            kept = {"train": losses["train"][:, :rounds], "validation": losses["validation"][:, : rounds + 1]}
            return State(rounds, True, {**state.arrays, "losses": kept})
    return state


def _cut(state: State, rows: slice) -> State:
    """Some runs of a state."""
    return state._replace(arrays=jax.tree.map(lambda v: v[rows], state.arrays))


def _one_round(program: _Program, state: State) -> State:
    """Some epochs, or blocks, and a look at the unseen cases."""
    setup, data, blocks = program.setup, program.data, program.setup.pace.blocks
    runs, losses, so_far = state.arrays["runs"], [], state.arrays["losses"]
    decays, over = state.arrays["decays"], state.arrays["over"]
    beat = beats(so_far["validation"], program.limits, over)
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
    return State(state.round + 1, False, {"runs": runs, "losses": so_far, "decays": decays, "over": over})


def _validated(program: _Program, runs: Run, idle: Idle | None = None) -> tuple[Run, Any]:
    """The runs after a look at the unseen cases, and their losses there."""
    setup, data = program.setup, program.data

    def look(rows: Any, fixed: Any) -> Any:
        return validate(setup, *rows, fixed, data.cases)

    result: tuple[Run, Any] = run_by_run(look, (data.unseen, data.roots, runs), data.fixed, setup, idle)
    return result


def _batches(program: _Program, number: int) -> Int[np.ndarray, "runs steps batch"]:
    """The rows of every step, run by run: for each epoch a permutation of those that the run sees."""
    pace, orders = program.setup.pace, []
    for (seed, copy), rows in zip(program.data.orders, program.data.seen, strict=True):
        rng = np.random.default_rng([seed, 13, copy, number])
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
        "over": jax.ShapeDtypeStruct((len(program.data.keys),), np.int32),
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
            before = state.round
            try:
                state = _some_rounds(program, state)
            except KeyboardInterrupt:
                raise stopped(state, rounds) from None
            train, validation = (state.arrays["losses"][name][:, -1].mean() for name in ("train", "validation"))
            if (last := last_round(state.arrays["losses"]["validation"], program.limits)) < rounds:
                report.expect(last)
            report.update(state.round - before, f"loss {train:.4f}  validation {validation:.4f}")
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
