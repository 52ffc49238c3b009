"""The error of a mode's weight: clouds that differ, and members that do."""

import numpy as np
import pytest

from scorefold.methods.refine.mode_weights import members_error, modes_by_scores, sampling_error


def test_clouds_that_differ_say_that_a_weight_is_not_known():
    labels = np.zeros(1_000, int)
    labels[::2][:100] = 1  # the first cloud has 20 % in the second mode
    labels[1::2][:300] = 1  # and the second 60 %
    spread = np.std([0.2, 0.6], ddof=1) / np.sqrt(2)
    np.testing.assert_allclose(sampling_error(labels, 2), spread)
    np.testing.assert_allclose(sampling_error(labels, 1), np.sqrt(0.4 * 0.6 / 1_000))


def test_members_that_differ_by_a_constant_agree_on_the_weights():
    labels = np.repeat([0, 1], [700, 300])
    values = np.array([[0.0], [5.0], [-3.0]]) + np.zeros(1_000)
    np.testing.assert_allclose(members_error(labels, values), 0.0, atol=1e-12)


def test_members_that_favour_modes_give_the_spread_of_their_weights():
    labels = np.repeat([0, 1], [500, 500])
    gain = 0.8 * np.array([1.0, -1.0])  # of log weight, of one mode over the other, by two members
    values = gain[:, None] * np.where(labels == 0, 0.5, -0.5)
    own = 1 / (1 + np.exp(-gain))
    np.testing.assert_allclose(members_error(labels, values), np.std(own, ddof=1), rtol=1e-6)


@pytest.mark.false_failure(1e-6)
def test_scores_do_not_say_how_sure_a_weight_is():
    rng = np.random.default_rng(0)
    side = rng.uniform(size=1_000) < 0.3
    u = rng.standard_normal((1_000, 2)) + np.where(side[:, None], 10.0, 0.0)
    heavy, light = modes_by_scores(u)
    assert (heavy.weight, heavy.error, light.error) == (1 - side.mean(), None, None)
    assert np.abs(light.centre - 10).max() < 0.5
    assert modes_by_scores(u[side]) == ()
