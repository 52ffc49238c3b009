"""Training that survives: its whole state in a folder, now and then and when it is asked to stop.

    FOLDER/lock                  held while training runs
    FOLDER/round-000012/         config.json and weights.safetensors, as models have them (`disk/folder.py`)

The state after round i is everything that round i + 1 depends on besides the simulations: the order of the data and all noise
of a round are a pure function of (seed, round), so training that goes on from a checkpoint ends with the same bits as one that
was never stopped. A round's folder is renamed to its name when it is complete; the two latest are kept, so a kill at any
moment leaves one that is whole. Going on is refused for another method, seed or other simulations.
"""

import re
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scorefold.disk import folder as model
from scorefold.disk import locks, strict, trees
from scorefold.disk.tensors import Spec
from scorefold.disk.trouble import told
from scorefold.errors import Interrupted, ModelError, ScorefoldError, ScorefoldWarning

FORMAT = model.Format("scorefold checkpoint", 1, {})
NAME = re.compile(r"round-(\d{6})")
LEFT_OVER = re.compile(r"\.round-\d{6}\.[0-9a-f]{16}\.(part|old)")
ROUNDS_KEPT = 2


class State(NamedTuple):
    """Where training stands."""

    round: int
    """Rounds done."""
    done: bool
    arrays: Any
    """A pytree: the runs, and the losses so far."""


class Checkpoint(NamedTuple):
    """Where to keep the state of which training."""

    folder: Path
    fingerprint: Mapping[str, Any]
    """What must agree to go on, as strict JSON."""
    seconds: float = 60.0
    """Between two checkpoints."""
    best_so_far: bool = False
    """Take what there is, and train no further."""
    held: State | None = None
    """What there is, in memory instead of the folder."""

    def read(self, like: Any) -> State | None:
        """The latest state whose arrays have the structure, shapes and types of `like` (except for the losses' length)."""
        for number, folder in sorted(_rounds(self.folder), reverse=True):
            try:
                return self._read(number, folder, like)
            except ModelError as error:
                warnings.warn(f"the checkpoint {folder} is passed over: {error}", ScorefoldWarning, stacklevel=2)
        return None

    def _read(self, number: int, folder: Path, like: Any) -> State:
        with model.opened(folder, FORMAT) as found:
            config = strict.keys(found.config, ("fingerprint", "round", "done"), "the checkpoint")
            self._compare(config["fingerprint"])
            done = strict.whole(config["round"], "the round", number, number)
            expected = trees.named(like)
            specs = {name: _spec(name, value, done) for name, value in expected.items()}
            arrays = found.arrays(specs)
        leaves = [_as(value, arrays[name]) for name, value in expected.items()]
        return State(done, config["done"] is True, jax.tree.unflatten(jax.tree.structure(like), leaves))

    def _compare(self, found: Any) -> None:
        own = dict(self.fingerprint)
        if found == own:
            return
        found = found if isinstance(found, dict) else {}
        lines = [f"{key}: {_short(found.get(key))} then, {_short(own.get(key))} now" for key in {**own, **found}
                 if found.get(key) != own.get(key)]  # fmt: skip
        raise ScorefoldError(
            f"expected the training that the checkpoint in {self.folder} was made by; it differs in {'; '.join(lines)}. Use "
            "another folder to train anew, or the settings of then to go on."
        )

    def write(self, state: State) -> bool:
        """Keep the state; if the disk does not want it, say so, return False and let training go on."""
        config = {"fingerprint": dict(self.fingerprint), "round": state.round, "done": state.done}
        try:
            model.write(self.folder / f"round-{state.round:06d}", FORMAT, config, trees.arrays_of(state.arrays))
            for _, folder in sorted(_rounds(self.folder))[:-ROUNDS_KEPT]:
                shutil.rmtree(folder)
        except OSError as error:
            warnings.warn(f"no checkpoint could be written to {self.folder} ({error})", ScorefoldWarning, stacklevel=2)
            return False
        return True

    @contextmanager
    def session(self) -> Iterator["Watch"]:
        """The folder for oneself, and signals caught: the first asks training to stop after the round."""
        with told(f"keep checkpoints in {self.folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = open(self.folder / "lock", "a")  # noqa: SIM115
        with lock:
            if not locks.take(lock):
                raise ScorefoldError(
                    f"expected a folder for checkpoints of its own; another training uses {self.folder}. Stop it or wait."
                )
            for path in self.folder.iterdir():
                if LEFT_OVER.fullmatch(path.name):
                    shutil.rmtree(path, ignore_errors=True)
            with _signals() as stopped:
                yield Watch(self, stopped, [time.monotonic()])


class Stopped(Interrupted):
    """Ctrl-C in training. What was learned can still be had: train again with `so_far` as the checkpoint."""

    so_far: Checkpoint | None = None
    """None where no round was done."""


def stopped(state: State, rounds: int) -> Stopped:
    """The exception for Ctrl-C after so many rounds."""
    if not state.round:
        return Stopped("training was interrupted before its first round was done")
    error = Stopped(f"training was interrupted after round {state.round:,} of at most {rounds:,}")
    error.so_far = Checkpoint(Path(), {}, best_so_far=True, held=state)
    return error


class Watch(NamedTuple):
    """What decides when the state is written: the time since it was, and signals."""

    checkpoint: Checkpoint
    stopped: list[int]
    """Signals that came."""
    last: list[float]
    """When it was written last."""

    def after_round(self, state: State, rounds: int) -> None:
        """Write if it is time or training is done; after a signal write, and stop with `Interrupted`."""
        due = time.monotonic() - self.last[0] >= self.checkpoint.seconds
        written = False
        if due or state.done or self.stopped:
            written = self.checkpoint.write(state)
            self.last[0] = time.monotonic()
        if self.stopped:
            kept = "nothing is lost" if written else "what the checkpoint before does not have is lost"
            raise Interrupted(
                f"training was stopped after round {state.round} of {rounds}, and {kept}. To go on, make the same call with "
                f"checkpoint={str(self.checkpoint.folder)!r}; best_so_far=True added to it returns the best so far."
            )


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Catch SIGINT and SIGTERM, where that is possible; a second one is not waited for."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def note(number: int, frame: Any) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _rounds(folder: Path) -> list[tuple[int, Path]]:
    found = [(NAME.fullmatch(path.name), path) for path in folder.iterdir()] if folder.is_dir() else []
    return [(int(match[1]), path) for match, path in found if match]


def _spec(name: str, value: Any, rounds: int) -> Spec:
    """The arrays as they are, the losses as long as they would be after so many rounds."""
    shape = tuple(value.shape)
    if isinstance(value, np.ndarray):
        shape = (*shape[:-1], rounds if name.endswith("train") else rounds + 1)
    return Spec(shape, np.dtype(value.dtype), finite=False)


def _as(like: Any, value: np.ndarray) -> Any:
    return value if isinstance(like, np.ndarray) else jnp.asarray(value)


def _short(value: Any) -> str:
    return f"{value!r:.120}"
