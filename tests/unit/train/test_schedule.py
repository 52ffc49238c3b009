"""When the learning rate falls, and which weight decay is taken: pure functions of the losses so far."""

import numpy as np
import pytest

from scorefold.train.schedule import DECAYS, TRIAL_ROUNDS, Limits, beats, decided_decays, given_up, limits_of, starting_decays
from scorefold.train.training import Training, pace_of

FALLING = np.concatenate([np.linspace(1.0, 0.2, 60), np.full(100, 0.2)])
LIMITS = Limits(320, 20, TRIAL_ROUNDS, 5)
GOES_ON = np.zeros(1, int)


def at(losses, done, patience=20, rounds=320):
    beat = beats(np.asarray(losses)[None, : done + 1], Limits(rounds, patience, TRIAL_ROUNDS, 5), GOES_ON)
    return tuple(float(part[0]) for part in beat)


def test_the_rate_stays_while_it_gets_better_and_then_falls_to_zero():
    assert at(FALLING, 0) == at(FALLING, 78) == (1, 1, 0, 1)
    first, last, rewind, active = at(FALLING, 79)  # 20 rounds after the last gain
    assert (first, rewind, active) == (1, 1, 1)
    assert last == pytest.approx(0.95)  # 20 rounds are a quarter of 79, rounded up
    assert at(FALLING, 89)[:2] == pytest.approx((0.5, 0.45))
    assert at(FALLING, 98) == pytest.approx((0.05, 0, 0, 1))
    assert at(FALLING, 99) == (0, 0, 0, 0)
    assert at(FALLING, 150) == (0, 0, 0, 0)


def test_a_limit_lets_the_fall_begin_in_time():
    better = np.linspace(1.0, 0.0, 400)
    assert at(better, 255) == (1, 1, 0, 1)
    assert at(better, 256)[2:] == (1, 1)
    assert at(better, 319)[2:] == (0, 1)
    assert at(better, 320) == (0, 0, 0, 0)
    assert at(better, 1, rounds=1)[3] == 0


def test_a_loss_that_only_rises_or_is_no_number_ends_after_the_patience():
    for losses in (np.linspace(1, 2, 60), np.full(60, np.nan), np.r_[1.0, np.full(59, np.nan)]):
        assert at(losses, 19)[3] == 1
        assert at(losses, 20)[2] == 1
        assert at(losses, 25)[3] == 0


def test_small_gains_are_a_standstill():
    slow = np.concatenate([np.linspace(1.0, 0.2, 60), 0.2 - 1e-5 * np.arange(100)])
    assert at(slow, 79)[2] == 1


def test_runs_are_judged_one_by_one():
    both = np.stack([FALLING, np.linspace(1.0, 0.0, 160)])
    beat = beats(both[:, :121], LIMITS, np.zeros(2, int))
    assert beat.active.tolist() == [False, True]


def test_a_given_weight_decay_stays():
    training = Training(members=3, weight_decay=0.3)
    assert starting_decays(training, 6) == pytest.approx(np.full(6, 0.3))
    losses = np.random.default_rng(0).random((6, TRIAL_ROUNDS + 1))
    assert decided_decays(training, LIMITS, losses, np.full(6, 0.3)) == pytest.approx(np.full(6, 0.3))


def test_the_better_weight_decay_is_taken_by_its_ensemble_alone():
    training = Training(members=3)
    decays = starting_decays(training, 6)
    assert decays == pytest.approx([DECAYS[0], DECAYS[1], DECAYS[0]] * 2)
    losses = np.ones((6, TRIAL_ROUNDS + 1))
    losses[:, -1] = [0.5, 0.8, 0.6, 0.9, 0.7, 0.9]
    assert decided_decays(training, LIMITS, losses[:, :-1], decays) == pytest.approx(decays)
    assert decided_decays(training, LIMITS, losses, decays) == pytest.approx([DECAYS[0]] * 3 + [DECAYS[1]] * 3)


def test_one_member_has_nothing_to_compare():
    decays = starting_decays(Training(members=1), 1)
    assert decided_decays(Training(members=1), LIMITS, np.ones((1, TRIAL_ROUNDS + 1)), decays) == pytest.approx(decays)


def test_few_cases_have_shorter_patience_and_many_the_whole():
    training = Training(patience=30)

    def limits(cases, streamed=False):
        return limits_of(training, pace_of(training, cases, streamed))

    assert limits(160)[1:] == (5, 4, 8)
    assert limits(800)[1:] == (9, 6, 8)
    assert limits(3_200)[1:] == limits(8_000)[1:] == limits(160, streamed=True)[1:] == (30, TRIAL_ROUNDS, 8)
    assert limits(8_000).rounds == 259


def test_with_a_short_patience_the_fall_is_as_long_as_with_the_whole():
    short = Limits(320, 5, 4, 8)
    assert [bool(beats(np.ones((1, done + 1)), short, GOES_ON).active[0]) for done in (4, 5, 12, 13)] == [
        True,
        True,
        True,
        False,
    ]


def test_ensembles_that_have_learned_nothing_are_given_up_after_the_trial():
    def ends(*last, lowest=1.0):
        """Whether each of ensembles of two is given up, from the losses at the end of the trial and the least before."""
        losses = np.ones((len(last), TRIAL_ROUNDS + 1))
        losses[:, 3], losses[:, -1] = lowest, last
        before = np.zeros(len(last), int)
        assert not given_up(Training(members=2), LIMITS, losses[:, :-1], before).any(), "before the end of the trial"
        later = np.concatenate([losses, losses], axis=1)
        assert given_up(Training(members=2), LIMITS, later, before + 1).all(), "what was decided stays"
        return given_up(Training(members=2), LIMITS, losses, before)[::2].astype(bool).tolist()

    assert ends(1.1, 1.2) == [True]
    assert ends(1.1, 0.8) == [False], "one of them has learned"
    assert ends(1.1, 1.2, 0.9, 0.9) == [True, False]
    assert ends(1.0, 1.0) == [False], "nothing is known"
    assert ends(1.1, 1.1, lowest=0.99) == [False], "it had learned something before it went wrong"
    assert ends(1.1, 1.1, lowest=0.999) == [True]
    assert ends(np.nan, 1.1) == [False]


def test_a_run_that_is_given_up_is_done():
    assert beats(np.ones((2, 5)), LIMITS, np.array([1, 0])).active.tolist() == [False, True]
