"""Where rounds of likelihoods simulate, and how they compare with their start; no training."""

import numpy as np
import pytest
from exact_posteriors import Looped, simulator

from scorefold.methods.refine.likelihoods import COMPARED_DRAWS, Compared, _compare, spread
from scorefold.posterior.posterior import Refining

PLAN = Refining(5_000, 2, 0, "gaussian", None, None, None, False)


@pytest.mark.false_failure(1e-6)
def test_every_mode_gets_simulations_in_proportion_and_of_its_own_shape():
    rng = np.random.default_rng(0)
    wide, narrow = np.array([0.3, 0.02]), np.array([0.02, 0.3])
    u = np.concatenate([[2, 0] + wide * rng.normal(size=(700, 2)), [-2, 0] + narrow * rng.normal(size=(300, 2))])
    places = spread(u, 20_000, 0)
    right = places[:, 0] > 0
    assert abs(right.mean() - 0.7) < 0.02
    for mode, sd in ((places[right], wide), (places[~right], narrow)):
        ratio = mode.std(axis=0) / sd
        assert (ratio > 1.02).all()
        assert (ratio < 3).all()


class Wide(Looped):
    """Draws three times too wide."""

    def draw(self, x, draws, seed, options=None):
        drawn = super().draw(x, draws, seed)
        return drawn._replace(u=drawn.u.mean(axis=0) + 3 * (drawn.u - drawn.u.mean(axis=0)))


# By `energy_score`'s formula draws three times as wide cost 0.83 instead of 0.56 sd in one dimension.
# Here, over 40 seeds, the gain was 11.7 ± 2.9 standard errors, and 7.1 at least.
@pytest.mark.false_failure(1e-5)
def test_the_comparison_prefers_the_right_posterior():
    u = Looped().draw(np.zeros((4, 2)), 1_000, (0, 0)).u
    assert _compare(Looped(), Wide(), (u, u), 4, 32, simulator, PLAN).worse
    better = _compare(Wide(), Looped(), (u, u), 4, 32, simulator, PLAN)
    assert not better.worse
    assert better.gain > better.error
    assert (better.datasets, better.simulations) == (32, 128)


def test_draws_that_are_no_numbers_lose():
    class Broken(Looped):
        def draw_many(self, x, draws, seeds, options=None):
            return np.full((len(x), draws, 2), np.nan), None, None

    u = Looped().draw(np.zeros((40, 2)), COMPARED_DRAWS, (0, 0)).u
    assert _compare(Looped(), Broken(), (u, u), 40, 16, simulator, PLAN).worse


def test_too_small_a_budget_is_said():
    none = _compare(Looped(), Wide(), (np.zeros((9, 2)), np.zeros((9, 2))), 4, 0, simulator, PLAN)
    assert not none.worse
    assert "not compared" in str(none)
    assert "the start, which was better, is kept" in str(Compared(8, 80, -1.0, 0.2))
