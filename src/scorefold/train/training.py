"""How networks are trained, how the steps are cut into rounds, and which networks are kept in the end."""

import warnings
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scorefold import settings
from scorefold.errors import ScorefoldError, ScorefoldWarning
from scorefold.shown import brief
from scorefold.types import MAY_BE_NAN, Float, Int

STEPS_A_ROUND = 50
MOST_UNSEEN = 20_000
"""Cases that validation looks at."""
LARGEST_SETTING, MOST_RUNS = 10**9, 256
MOST_SKIPPED = 0.01


@settings.spelled
@dataclass(frozen=True)
class Training:
    """How networks are trained, by any method: `sf.NPSE(training=sf.Training(steps=10_000))`.

    The defaults below are those of NPSE; other methods have their own, and a `Training` that is given replaces all of them. If
    every member keeps the weights of its last round (see `History.kept`), training stopped too early: give more `steps`.
    Training ends by itself when it no longer gets better (`train/schedule.py` states the rule).

    Args:
        members: How many networks to train, each validated on another part of the simulations; they answer together, and the
            spread among them says how far the answer may be off. Fewer are quicker and less accurate.
        learning_rates: The rates to try; with several, the one with the lowest validation loss is kept, and the time
            multiplies.
        steps: The most steps of the optimiser that each network takes.
        batch: How many training cases, parameters with their observations, go into a step.
        weight_decay: How strongly matrices are pulled to zero in each step (AdamW), from 0 to 1,000. None, the default, lets
            the first rounds decide between 0.1 and 1.
        average: The weights are averaged over steps with this share of the past; 0 takes them as they are.
        patience: Rounds of some 50 steps that must lower a member's validation loss noticeably; once they do not, its learning
            rate falls to zero, and its training ends. For fewer than some 4,000 cases it is shortened, to a sixth at most.

    Raises:
        ScorefoldError: A setting is of the wrong type or out of its range.

    Example:
        >>> import scorefold as sf
        >>> longer = sf.Training(steps=10_000, members=3)
        >>> sf.NPSE(training=longer).training.steps
        10000
        >>> sf.Training(average=1.5)
        Traceback (most recent call last):
        scorefold.errors.ScorefoldError: expected members, steps, batch and patience ≥ 1, one or more learning rates > 0 ...
    """

    members: int = 5
    learning_rates: tuple[float, ...] = (2e-3,)
    steps: int = 16_000
    """At most; training ends when it no longer gets better, which is mostly sooner."""
    batch: int = 256
    weight_decay: float | None = None
    """Decoupled, on matrices only; None: 0.1 or 1, whichever does better in the first rounds."""
    average: float = 0.999
    """Of the weights' exponential moving average."""
    patience: int = 30
    """Rounds of some 50 steps that must lower the validation loss; else the learning rate falls, and training ends."""

    def __post_init__(self) -> None:
        settings.check(self)
        counts = (self.members, self.steps, self.batch, self.patience)
        if min(counts) < 1 or not self.learning_rates or min(self.learning_rates) <= 0 or not 0 <= self.average < 1:
            raise ScorefoldError(
                "expected members, steps, batch and patience ≥ 1, one or more learning rates > 0 and 0 ≤ average < 1; "
                f"got {self}"
            )
        if (
            max(counts) > LARGEST_SETTING
            or self.members * len(self.learning_rates) > MOST_RUNS
            or not 0 <= (self.weight_decay or 0) <= 1e3
        ):
            raise ScorefoldError(
                f"expected at most {MOST_RUNS} members × learning rates, counts up to {LARGEST_SETTING:,} and "
                f"0 ≤ weight_decay ≤ 1,000; got {self!s:.300}"
            )


class History(NamedTuple):
    """What happened in training, as `posterior.history` holds it; one row for each member that was kept.

    Plot `train` and `validation` against rounds to see whether training was long enough: it was if `kept` is well before the
    last entry, and too short if it is the last. A training loss far below that of validation says that more simulations would
    help.
    """

    train: Annotated[Float[np.ndarray, "members rounds"], MAY_BE_NAN]
    """Mean training loss of each round."""
    validation: Annotated[Float[np.ndarray, "members validations"], MAY_BE_NAN]
    """Validation loss before each round, and at the end."""
    kept: Int[np.ndarray, " members"]
    """Index into `validation` of the weights kept."""
    epochs_a_round: int
    learning_rate: float
    """The one kept."""
    losses: dict[float, float]
    """Mean best validation loss of each learning rate."""
    skipped: int
    """Updates left out because a gradient was not finite."""

    def __repr__(self) -> str:
        return brief(self)

    def fault(self) -> str:
        """What is wrong with numbers that come from a file, in words; an empty string if nothing is."""
        rounds, validations = self.train.shape[1], self.validation.shape[1]
        if validations != rounds + 1 or not ((self.kept >= 0) & (self.kept < validations)).all():
            return "there should be one more validation loss than rounds, and the kept one among them"
        return "" if self.epochs_a_round >= 1 else "a round should have one epoch or more"


class Pace(NamedTuple):
    """How the steps are cut up: what the compiled programs are made for."""

    batch: int
    steps: int
    """in an epoch of a block"""
    epochs: int
    """of a block in a round"""
    blocks: int
    """in a round: one where all cases are in memory"""


def pace_of(training: Training, cases: int, streamed: bool) -> Pace:
    """The pace for so many cases in a block; blocks that stream by are seen once each."""
    batch = min(training.batch, cases)
    steps = cases // batch
    often = -(-STEPS_A_ROUND // steps)
    return Pace(batch, steps, 1, often) if streamed else Pace(batch, steps, often, 1)


def choose(runs: Any, losses: dict[str, np.ndarray], pace: Pace, training: Training, base: bool) -> tuple[Any, History]:
    """Keep the members of the learning rate with the lowest mean validation loss; `runs` are those of one ensemble."""
    best = np.asarray(runs.best_loss).reshape(len(training.learning_rates), training.members)
    means = np.where(np.isfinite(best), best, np.inf).mean(axis=1)
    if not np.isfinite(means).any():
        raise ScorefoldError(
            f"training failed: no learning rate of {training.learning_rates} gave a finite validation loss. "
            "Look for enormous values in the observations, or try a smaller learning rate."
        )
    chosen = int(np.argmin(means))
    rows = slice(chosen * training.members, (chosen + 1) * training.members)
    validation = losses["validation"][rows]
    finite = np.where(np.isfinite(validation), validation, np.inf)
    skipped = int(runs.skipped[rows].sum())
    _say_how_it_went(skipped, int(runs.step[rows].sum()), finite, base)
    history = History(
        train=losses["train"][rows],
        validation=validation,
        kept=finite.argmin(axis=1),
        epochs_a_round=pace.epochs,
        learning_rate=training.learning_rates[chosen],
        losses=dict(zip(training.learning_rates, means.tolist(), strict=True)),
        skipped=skipped,
    )
    return jax.tree.map(lambda v: jnp.asarray(v[rows]), runs.best), history


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
