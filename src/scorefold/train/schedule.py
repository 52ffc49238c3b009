"""How long to train, how fast, and with how much weight decay: decided by the validation losses so far, run by run.

The learning rate rises for 100 steps and then stays, until the run no longer gets better: until the last `patience` rounds
have lowered its best validation loss by less than 0.2 % of what all rounds together have. Then the run goes back to its best
weights, and the rate falls in a straight line to zero, over a quarter as many rounds as there were before; that is the end. No
number of steps has to be known beforehand; a limit only makes the fall begin in time.

Where the network is added to something that is right already, such as a straight line through simulations of a Gaussian, it
can only learn noise. So a trial of 20 rounds decides whether to go on at all: if the members' losses have risen on average, and
had not fallen by as much as a fiftieth of that rise before, training ends with the best weights there are.

How much weight decay is right differs: noise that is hard to learn from few cases wants much, a narrow posterior that depends
on the observations in a complicated way little. Unless it is given, members begin with one of two values in turn. After the
trial, the value whose members have lowered their loss by the larger share on average is taken by all of them.

A round is some 50 steps, which for few cases are many epochs; what there is to learn from the cases is learned in fewer rounds,
and the rest overfits. Where a round is e > 5 epochs, patience and trial are 5/e as many rounds, and a sixth at least: 200
simulations, all of which fit in one step, have a patience of 5 rounds in place of 30, and 4,000 or more the whole of it. The
fall is not shortened: it takes a quarter as many rounds as the whole patience, at least.
"""

import math
from typing import NamedTuple

import numpy as np

from scorefold.train.training import Pace, Training

LEAST_GAIN = 0.002
"""Of the whole gain so far: less than that in `patience` rounds is a standstill."""
FALLING_SHARE = 0.25
"""Rounds in which the rate falls, to those before."""
DECAYS = (0.1, 1.0)
"""Weight decays to choose from."""
TRIAL_ROUNDS = 20
NEXT_TO_NOTHING = 0.02
"""Of a rise: what has been gained before it by less than that does not count."""
EPOCHS_A_ROUND, SHORTEST_PATIENCE = 5, 1 / 6
"""Patience and trial are shorter where rounds have more epochs, but no shorter than this share of them."""


class Limits(NamedTuple):
    """How many rounds there may be."""

    rounds: int
    """At most."""
    patience: int
    """That must lower the validation loss."""
    trial: int
    """With two weight decays, after which it is decided whether to go on."""
    fall: int
    """In which the rate falls, at least."""


def limits_of(training: Training, pace: Pace) -> Limits:
    """The limits that follow from the settings, and from how many cases there are."""
    share = min(1.0, max(EPOCHS_A_ROUND / pace.epochs, SHORTEST_PATIENCE))
    rounds = -(-training.steps // (pace.steps * pace.epochs * pace.blocks))
    patience = training.patience
    return Limits(rounds, math.ceil(share * patience), math.ceil(share * TRIAL_ROUNDS), math.ceil(FALLING_SHARE * patience))


class Beat(NamedTuple):
    """The learning rate in the next round, run by run, in units of the one asked for."""

    first: np.ndarray
    """(runs,) at its first step"""
    last: np.ndarray
    """(runs,) at its end"""
    rewind: np.ndarray
    """(runs,) booleans: begin from the best weights"""
    active: np.ndarray
    """(runs,) booleans: not done"""


def beats(validation: np.ndarray, limits: Limits, over: np.ndarray) -> Beat:
    """The beat of every run, from the losses so far (runs, rounds done + 1) and whether it was given up (runs,), 1 or 0."""
    done = validation.shape[1] - 1
    began, ended = np.array([_fall(own, limits) for own in validation]).T
    first, last = (np.clip((ended - at) / np.maximum(ended - began, 1), 0.0, 1.0) for at in (done, done + 1))
    steady = done < began
    first, last = np.where(steady, 1.0, first), np.where(steady, 1.0, last)
    return Beat(first.astype(np.float32), last.astype(np.float32), began == done, (done < ended) & (over == 0))


def last_round(validation: np.ndarray, limits: Limits) -> int:
    """After how many rounds all runs will have ended, as far as losses (runs, rounds done + 1) tell: once every run's rate
    falls this is certain, and before that it is all that there may be.
    """
    return max(_fall(own, limits)[1] for own in validation)


def _fall(validation: np.ndarray, limits: Limits) -> tuple[int, int]:
    """After how many rounds the rate begins to fall, and is zero; beyond the last one while it is steady."""
    best = np.minimum.accumulate(np.where(np.isfinite(validation), validation, np.inf))
    rounds, patience = limits.rounds, limits.patience
    latest = max(0, int(rounds / (1 + FALLING_SHARE)))
    with np.errstate(invalid="ignore"):
        gained = best[:-patience] - best[patience:]
        still = ~(gained > LEAST_GAIN * (best[0] - best[patience:]))
    began = patience + int(still.argmax()) if still.any() else rounds
    if began >= latest:
        return latest, rounds
    return began, min(rounds, began + max(limits.fall, int(np.ceil(FALLING_SHARE * began))))


def starting_decays(training: Training, runs: int) -> np.ndarray:
    """(runs,) the weight decay that each begins with."""
    if training.weight_decay is not None:
        return np.full(runs, training.weight_decay, np.float32)
    return np.resize(np.resize(DECAYS, training.members), runs).astype(np.float32)


def decided_decays(training: Training, limits: Limits, validation: np.ndarray, decays: np.ndarray) -> np.ndarray:
    """The decays for the next round: the better one for all members of an ensemble once its trial is over."""
    if training.weight_decay is not None or training.members < 2 or validation.shape[1] - 1 != limits.trial:
        return decays
    first = validation[:, 0]
    gain = (first - validation[:, -1]) / np.maximum(np.abs(first), 1e-12)
    gain = np.where(np.isfinite(gain), gain, -np.inf).reshape(-1, training.members)
    own = decays.reshape(-1, training.members)
    mean = np.stack([np.mean(gain, axis=1, where=np.isclose(own, value)) for value in DECAYS])
    best = np.asarray(DECAYS, np.float32)[mean.argmax(axis=0)]
    return np.repeat(best, training.members)


def given_up(training: Training, limits: Limits, validation: np.ndarray, over: np.ndarray) -> np.ndarray:
    """(runs,) 1 where there is no more to learn: for ensembles that have learned nothing once their trial is over. Else 0."""
    if validation.shape[1] - 1 != limits.trial:
        return over
    first = validation[:, 0]
    gained = (first - np.fmin.reduce(validation, axis=1)).reshape(-1, training.members).mean(axis=1)
    rise = (validation[:, -1] - first).reshape(-1, training.members).mean(axis=1)
    return np.repeat((rise > 0) & (gained < NEXT_TO_NOTHING * rise), training.members).astype(np.int32)
