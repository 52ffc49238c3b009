"""Denoising score matching for several networks at once.

Minimised over the network, with t uniform on the schedule's levels, u_t = √γ_t u + √(1-γ_t) ε and σ_t = √(1-γ_t):

    E ‖ ε + σ_t s(u_t, t, X) ‖² / dim

("A connection between score matching and denoising autoencoders", Vincent, 2011; the noise form of Ho, Jain and Abbeel,
2020). Both +ε and -ε are used for every case: at low noise the target -ε/σ is mostly odd in ε, and the pair cancels it.

Members of an ensemble hold out different fifths of the cases for validation, so that together they have seen all of them
and every case has a member that has not seen it. Members and learning rates are one more batch axis of one compiled
program, and so are several ensembles on simulations of their own; a round of epochs is one `scan`. What is kept is the moving
average of the weights at its best validation loss, for the learning rate whose members do best on average.

With sets of several observations every other case is thinned to a random part of its set, which is a fair case too.
"""

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from scorefold import settings
from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.networks.gaussian_base import GaussianBase
from scorefold.networks.score import ScoreModel, ScoreNetwork, Shape
from scorefold.networks.standardize import Standardize
from scorefold.noise import Level
from scorefold.progress import bar
from scorefold.train.checkpoint import Checkpoint, State
from scorefold.types import Array, Float, Int, Key, Scalar, new_key

FOLDS = 5
STEPS_A_ROUND = 50
VALIDATION_STRATA = 4
MOST, MOST_RUNS = 10**9, 256
MOST_SKIPPED = 0.01


@dataclass(frozen=True)
class Training:
    """How the networks are trained."""

    members: int = 5
    learning_rates: tuple[float, ...] = (2e-3,)
    steps: int = 3_000
    batch: int = 256
    weight_decay: float = 1.0
    """Decoupled, on matrices only."""
    average: float = 0.999
    """Of the weights' exponential moving average."""
    patience: int = 20
    """Rounds without a better validation loss, for every member, before training stops."""

    def __post_init__(self) -> None:
        settings.check(self)
        counts = (self.members, self.steps, self.batch, self.patience)
        if min(counts) < 1 or not self.learning_rates or min(self.learning_rates) <= 0 or not 0 <= self.average < 1:
            raise ScorefoldError(
                "expected members, steps, batch and patience ≥ 1, one or more learning rates > 0 and 0 ≤ average < 1; "
                f"got {self}"
            )
        if max(counts) > MOST or self.members * len(self.learning_rates) > MOST_RUNS or not 0 <= self.weight_decay <= 1e3:
            raise ScorefoldError(
                f"expected at most {MOST_RUNS} members × learning rates, counts up to {MOST:,} and 0 ≤ weight_decay ≤ 1,000; "
                f"got {self!s:.300}"
            )


class Cases(NamedTuple):
    """Training cases in the N(0, I) space, on the device."""

    u: Float[Array, "cases dim"]
    x: Float[Array, "cases set x"]
    sizes: Int[Array, "cases"]
    """0 for a case that is there for the prior only"""


class History(NamedTuple):
    """What happened in training; one row per member kept."""

    train: np.ndarray
    """(members, rounds) mean training loss of each round"""
    validation: np.ndarray
    """(members, rounds + 1) validation loss before each round, and at the end"""
    kept: np.ndarray
    """(members,) index into `validation` of the weights kept"""
    epochs_a_round: int
    learning_rate: float
    """The one kept."""
    losses: dict[float, float]
    """Mean best validation loss of each learning rate."""
    skipped: int
    """Updates left out because a gradient was not finite."""


class _Run(NamedTuple):
    """One network in training, or a stack of them."""

    network: ScoreNetwork
    average: ScoreNetwork
    best: ScoreNetwork
    best_loss: Scalar
    optimiser: Any
    step: Int[Array, ""]
    skipped: Int[Array, ""]


class Lesson(NamedTuple):
    """What one ensemble is trained on."""

    cases: Cases
    standardize: Standardize
    base: GaussianBase | None
    unseen: np.ndarray
    """(members, cases) booleans: which cases each member does not train on"""
    seed: int


class _Fixed(NamedTuple):
    """What training does not change."""

    cases: Cases
    """of all lessons, one after the other"""
    levels: Level
    standardize: Standardize
    """With several lessons the arrays of this and of the base have a leading run axis, else all runs share them."""
    base: GaussianBase | None

    def over_runs(self, function: Callable, *per_run: Any) -> Any:
        """function(fixed of one run, …) for every run at once."""
        axis = None if self.standardize.centre.ndim == 1 else 0

        def one(standardize: Standardize, base: GaussianBase | None, *rest: Any) -> Any:
            return function(self._replace(standardize=standardize, base=base), *rest)

        return jax.vmap(one, (axis, axis, *[0] * len(per_run)))(self.standardize, self.base, *per_run)


class _Pace(NamedTuple):
    """How the steps are cut up."""

    batch: int
    steps: int
    """in an epoch"""
    epochs: int
    """in a round"""
    rounds: int


def held_out(origin: np.ndarray, members: int, seed: int) -> np.ndarray:
    """(members, cases) booleans: which cases each member does not train on; cases of one origin stay together."""
    origins, place = np.unique(origin, return_inverse=True)
    fold = (np.random.default_rng([seed, 3]).permutation(len(origins)) % FOLDS)[place]
    return np.stack([fold == member % FOLDS for member in range(members)])


def thinned(cases: Cases, key: Key, learns_prior: bool) -> Cases:
    """Every other case with a random part of its observations (also a fair case), and some with none for the prior."""
    count, largest = cases.x.shape[:2]
    key_order, key_size, key_keep, key_none = jax.random.split(key, 4)
    x, sizes = cases.x, cases.sizes
    if largest > 1:
        place = jnp.where(jnp.arange(largest) < sizes[:, None], jax.random.uniform(key_order, (count, largest)), 2.0)
        x = jnp.take_along_axis(x, jnp.argsort(place, axis=1)[..., None], axis=1)
        part = 1 + jnp.floor(jax.random.uniform(key_size, (count,)) * sizes).astype(int)
        sizes = jnp.where(jax.random.bernoulli(key_keep, 0.5, (count,)), sizes, jnp.minimum(part, sizes))
    if learns_prior:
        sizes = jnp.where(jax.random.bernoulli(key_none, 1 / (largest + 1), (count,)), 0, sizes)
    return Cases(cases.u, x, sizes)


def case_loss(model: ScoreModel, u: Array, x: Array, size: Array, level: Level, noise: Float[Array, "dim"]) -> Scalar:
    """Denoising loss of one case at one level, averaged over ±noise."""
    embedded = model.embed(x, size)
    sigma = jnp.sqrt(1 - level.gamma)

    def one(noise: Array) -> Scalar:
        theta = jnp.sqrt(level.gamma) * u + sigma * noise
        return jnp.mean((noise + sigma * model(theta, level, embedded)) ** 2)

    return (one(noise) + one(-noise)) / 2


def _batch_loss(network: ScoreNetwork, fixed: _Fixed, cases: Cases, key: Key) -> Scalar:
    key_t, key_noise = jax.random.split(key)
    model = ScoreModel(network, fixed.standardize, fixed.base)
    count, T = len(cases.u), len(fixed.levels.t)
    spread = (jnp.arange(count) + jax.random.uniform(key_t, (count,))) / count  # stratified over the levels
    level = jax.tree.map(lambda v: v[jnp.minimum((spread * T).astype(int), T - 1)], fixed.levels)
    noise = jax.random.normal(key_noise, cases.u.shape)
    return jnp.mean(jax.vmap(partial(case_loss, model))(cases.u, cases.x, cases.sizes, level, noise))


def _optimiser(training: Training) -> optax.GradientTransformation:
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.scale_by_adam(),
        optax.add_decayed_weights(training.weight_decay, mask=lambda params: jax.tree.map(lambda p: p.ndim >= 2, params)),
    )


def fit_scores(
    shape: Shape,
    lessons: Sequence[Lesson],
    levels: Level,
    training: Training,
    progress: bool = False,
    checkpoint: Checkpoint | None = None,
) -> list[tuple[ScoreNetwork, History]]:
    """Train one ensemble a lesson, all of them together; a network's arrays get a leading member axis."""
    copies = len(training.learning_rates) * training.members
    rates = jnp.tile(jnp.repeat(jnp.asarray(training.learning_rates), training.members), len(lessons))
    starts = np.repeat(np.cumsum([0, *(len(lesson.cases.u) for lesson in lessons[:-1])]), copies)
    unseen = [line for lesson in lessons for line in np.tile(lesson.unseen, (len(training.learning_rates), 1))]
    seen_rows, unseen_rows = _rows([~line for line in unseen], starts), _rows(unseen, starts)
    fixed = _fixed(lessons, levels, copies)
    pace = _pace(training, seen_rows.shape[1])
    roots = jnp.stack([new_key(int(lesson.seed)) for lesson in lessons])
    keys = jax.vmap(lambda root: jax.vmap(lambda i: jax.random.fold_in(root, i))(jnp.arange(copies)))(roots).reshape(-1)
    roots = jnp.repeat(roots, copies)

    def one_round(state: State) -> State:
        runs, losses = state.arrays["runs"], state.arrays["losses"]
        before = np.asarray(runs.best_loss)
        runs, train = _train_round(training, pace, fixed, rates, seen_rows, runs, keys, state.round)
        runs, validation = _validate(fixed, unseen_rows, runs, roots)
        losses = {"train": _appended(losses["train"], train), "validation": _appended(losses["validation"], validation)}
        since = 0 if (np.asarray(runs.best_loss) < before).any() else state.since + 1
        done = since >= training.patience or state.round + 1 >= pace.rounds
        return State(state.round + 1, since, done, {"runs": runs, "losses": losses})

    def start() -> State:
        runs, validation = _validate(fixed, unseen_rows, _start(shape, training, keys), roots)
        losses = {"train": np.zeros((len(keys), 0), np.float32), "validation": np.asarray(validation)[:, None]}
        return State(0, 0, False, {"runs": runs, "losses": losses})

    none = np.zeros((len(keys), 0), np.float32)
    like = {"runs": jax.eval_shape(partial(_start, shape, training), keys), "losses": {"train": none, "validation": none}}
    state = _run_rounds(start, one_round, like, pace.rounds, progress, checkpoint)

    def chosen(start: int) -> tuple[ScoreNetwork, History]:
        own = jax.tree.map(lambda v: v[start : start + copies], state.arrays)
        return _choose(own["runs"], own["losses"]["train"], own["losses"]["validation"], pace.epochs, training, shape.base)

    return [chosen(i * copies) for i in range(len(lessons))]


def _run_rounds(
    start: Callable[[], State],
    one_round: Callable[[State], State],
    like: Any,
    rounds: int,
    progress: bool,
    checkpoint: Checkpoint | None,
) -> State:
    """Rounds until training is done, from the checkpoint if there is one, with the state kept now and then."""
    with contextlib.ExitStack() as stack:
        watch, found = None, None
        if checkpoint is not None:
            watch = stack.enter_context(checkpoint.session())
            found = checkpoint.read(like)
            if not checkpoint.further:
                if found is None:
                    raise ScorefoldError(f"expected a checkpoint in {checkpoint.folder}, as further=False asks; there is none")
                return found
        state = found or start()
        report = stack.enter_context(bar("training", rounds - state.round, progress))
        while not state.done:
            state = one_round(state)
            train, validation = (state.arrays["losses"][name][:, -1].mean() for name in ("train", "validation"))
            report(f"loss {train:.4f}  validation {validation:.4f}")
            if watch is not None:
                watch.after_round(state, rounds)
    return state


def _appended(losses: np.ndarray, more: Array) -> np.ndarray:
    return np.concatenate([losses, np.asarray(more)[:, None]], axis=1)


def _fixed(lessons: Sequence[Lesson], levels: Level, copies: int) -> _Fixed:
    cases = jax.tree.map(lambda *v: jnp.concatenate(v), *(lesson.cases for lesson in lessons))
    if len(lessons) == 1:
        return _Fixed(cases, levels, lessons[0].standardize, lessons[0].base)
    fits = jax.tree.map(
        lambda *v: jnp.repeat(jnp.stack(v), copies, axis=0), *((lesson.standardize, lesson.base) for lesson in lessons)
    )
    return _Fixed(cases, levels, *fits)


def _rows(mask: Sequence[np.ndarray], starts: np.ndarray) -> Int[Array, "runs rows"]:
    """The rows where each line of the mask is true, counted from its start, cut to the same length."""
    fewest = min(int(line.sum()) for line in mask)
    return jnp.asarray(np.stack([start + np.flatnonzero(line)[:fewest] for line, start in zip(mask, starts, strict=True)]))


def _pace(training: Training, cases: int) -> _Pace:
    batch = min(training.batch, cases)
    steps = cases // batch
    epochs = -(-STEPS_A_ROUND // steps)
    return _Pace(batch, steps, epochs, rounds=-(-training.steps // (epochs * steps)))


@partial(jax.jit, static_argnums=(0, 1))
def _start(shape: Shape, training: Training, keys: Array) -> _Run:
    def one(key: Key) -> _Run:
        network = ScoreNetwork(shape, key=key)
        state, zero = _optimiser(training).init(network), jnp.zeros((), jnp.int32)
        return _Run(network, network, network, jnp.array(jnp.inf, jnp.float32), state, zero, zero)

    return jax.vmap(one)(keys)


@partial(jax.jit, static_argnums=(0, 1))
def _train_round(
    training: Training,
    pace: _Pace,
    fixed: _Fixed,
    rates: Array,
    rows: Array,
    runs: _Run,
    keys: Array,
    index: Int[Array, ""],
) -> tuple[_Run, Float[Array, "runs"]]:
    """Some epochs of every run."""

    def one(fixed: _Fixed, rate: Scalar, rows: Array, run: _Run, key: Key) -> tuple[_Run, Scalar]:
        key_order, key_noise = jax.random.split(jax.random.fold_in(key, index))
        used = pace.steps * pace.batch
        orders = [jax.random.permutation(k, rows)[:used] for k in jax.random.split(key_order, pace.epochs)]
        batches = jnp.stack(orders).reshape(pace.epochs * pace.steps, pace.batch)
        step = partial(_update, training, pace, fixed, rate)
        run, losses = jax.lax.scan(step, run, (batches, jax.random.split(key_noise, len(batches))))
        return run, jnp.mean(losses, where=jnp.isfinite(losses))

    return fixed.over_runs(one, rates, rows, runs, keys)


def _update(
    training: Training, pace: _Pace, fixed: _Fixed, rate: Scalar, run: _Run, at: tuple[Array, Key]
) -> tuple[_Run, Scalar]:
    """One step of one run."""
    rows, key = at
    key_thin, key = jax.random.split(key)
    drawn = jax.tree.map(lambda v: v[rows], fixed.cases)
    drawn = thinned(drawn, key_thin, run.network.shape.learns_prior)
    loss, grads = jax.value_and_grad(_batch_loss)(run.network, fixed, drawn, key)
    return descend(training, pace, rate, run, grads), loss


def descend(training: Training, pace: _Pace, rate: Scalar, run: _Run, grads: Any) -> _Run:
    """One step of one run of any network along its gradient; left out where that is not finite."""
    finite = jnp.isfinite(optax.tree.norm(grads))
    direction, state = _optimiser(training).update(grads, run.optimiser, run.network)
    cosine = 0.5 * (1 + jnp.cos(jnp.pi * run.step / (pace.rounds * pace.epochs * pace.steps)))
    network = jax.tree.map(lambda p, d: p - rate * cosine * d, run.network, direction)
    keep = jnp.minimum(training.average, (1 + run.step) / (10 + run.step))
    average = jax.tree.map(lambda a, p: keep * a + (1 - keep) * p, run.average, network)
    moved = run._replace(network=network, average=average, optimiser=state)
    run = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, run)
    return run._replace(step=run.step + 1, skipped=run.skipped + ~finite)


@jax.jit
def _validate(fixed: _Fixed, rows: Array, runs: _Run, keys: Array) -> tuple[_Run, Float[Array, "runs"]]:
    """The averaged weights' loss on unseen cases, at the same levels and noise every time."""

    def one(fixed: _Fixed, rows: Array, run: _Run, key: Key) -> tuple[_Run, Scalar]:
        unseen = jax.tree.map(lambda v: v[rows], fixed.cases)
        keys = jax.random.split(jax.random.fold_in(key, 1), VALIDATION_STRATA)
        loss = jnp.mean(jax.lax.map(lambda k: _batch_loss(run.average, fixed, unseen, k), keys))
        better = loss < run.best_loss
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), run.average, run.best)
        return run._replace(best=best, best_loss=jnp.where(better, loss, run.best_loss)), loss

    return fixed.over_runs(one, rows, runs, keys)


def _choose(
    runs: _Run, train: np.ndarray, validation: np.ndarray, epochs: int, training: Training, base: bool
) -> tuple[Any, History]:
    """Keep the members of the learning rate with the lowest mean validation loss."""
    best = np.asarray(runs.best_loss).reshape(len(training.learning_rates), training.members)
    losses = np.where(np.isfinite(best), best, np.inf).mean(axis=1)
    if not np.isfinite(losses).any():
        raise ScorefoldError(
            f"training failed: no learning rate of {training.learning_rates} gave a finite validation loss. "
            "Look for enormous values in the observations, or try a smaller learning rate."
        )
    chosen = int(np.argmin(losses))
    rows = slice(chosen * training.members, (chosen + 1) * training.members)
    finite = np.where(np.isfinite(validation[rows]), validation[rows], np.inf)
    _say_how_it_went(int(runs.skipped[rows].sum()), int(runs.step[rows].sum()), finite, base)
    history = History(
        train=train[rows],
        validation=validation[rows],
        kept=finite.argmin(axis=1),
        epochs_a_round=epochs,
        learning_rate=training.learning_rates[chosen],
        losses=dict(zip(training.learning_rates, losses.tolist(), strict=True)),
        skipped=int(runs.skipped[rows].sum()),
    )
    return jax.tree.map(lambda v: v[rows], runs.best), history


def _say_how_it_went(skipped: int, steps: int, validation: np.ndarray, base: bool) -> None:
    """Warn of training that did not work; with a base, a network that adds nothing may be right."""
    if skipped > MOST_SKIPPED * max(steps, 1):
        warnings.warn(
            f"{skipped:,} of {steps:,} training steps were left out because the gradient was not finite. The weights of the "
            "lowest validation loss are kept; look for enormous values in the observations, or lower the learning rate.",
            ScorefoldWarning,
            stacklevel=2,
        )
    elif not base and (validation.argmin(axis=1) == 0).all():
        warnings.warn(
            "training did not get better than the random weights it started from. Lower the learning rate, or simulate more.",
            ScorefoldWarning,
            stacklevel=2,
        )
