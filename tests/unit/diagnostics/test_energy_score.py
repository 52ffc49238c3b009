"""The energy score against its closed form, and against all pairs of draws written out."""

import numpy as np
import pytest

from scorefold.diagnostics import energy_score as module
from scorefold.diagnostics.energy_score import energy_score
from scorefold.errors import ScorefoldError


def test_equal_draws_score_their_distance_to_the_truth():
    truth = np.random.default_rng(0).normal(size=(20, 3))
    draws = np.broadcast_to(truth[:, None] + np.array([3.0, 0.0, 4.0]), (20, 25, 3))
    assert energy_score(truth, draws) == pytest.approx(np.full(20, 5.0))


@pytest.mark.false_failure(0)
def test_all_pairs_of_different_draws():
    rng = np.random.default_rng(1)
    truth, draws = rng.normal(size=(20, 2)), rng.normal(size=(20, 30, 2))
    apart = np.array([[np.linalg.norm(a - b) for a in draws[7] for b in draws[7]]]).sum() / (30 * 29)
    expected = np.mean([np.linalg.norm(one - truth[7]) for one in draws[7]]) - apart / 2
    assert energy_score(truth, draws)[7] == pytest.approx(expected)


# σ (√(2 (1 + r²)) - r)/√π: the mean over 4,000 data sets within 5 standard errors.
@pytest.mark.false_failure(6e-7)
@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
def test_a_normal_posterior_that_is_too_narrow_right_or_too_wide(ratio):
    rng = np.random.default_rng(2)
    truth, draws = 3 * rng.normal(size=(4_000, 1)), 3 * ratio * rng.normal(size=(4_000, 40, 1))
    found = energy_score(truth, draws)
    expected = 3 * (np.sqrt(2 * (1 + ratio**2)) - ratio) / np.sqrt(np.pi)
    assert abs(found.mean() - expected) < 5 * found.std() / np.sqrt(len(found))


@pytest.mark.false_failure(6e-7)
def test_few_draws_are_not_at_a_disadvantage():
    # The same mean with 20 and with 200 draws, within 5 standard errors of the difference. Were the
    # pairs of a draw with itself counted, 20 draws would score 5 % of σ/√π more, which is 8 standard errors.
    rng = np.random.default_rng(3)
    truth, draws = rng.normal(size=(4_000, 1)), rng.normal(size=(4_000, 200, 1))
    differ = energy_score(truth, draws[:, :20]) - energy_score(truth, draws)
    assert abs(differ.mean()) < 5 * differ.std() / np.sqrt(len(differ))
    assert 0.05 / np.sqrt(np.pi) > 7 * differ.std() / np.sqrt(len(differ))


@pytest.mark.false_failure(1e-6)
def test_of_many_draws_some_are_paired(monkeypatch):
    rng = np.random.default_rng(4)
    truth, draws = rng.normal(size=(20, 2)), rng.normal(size=(20, 100, 2))
    whole = energy_score(truth, draws)
    monkeypatch.setattr(module, "MOST_IN_PAIRS", 34)
    thinned = energy_score(truth, draws)
    far = np.linalg.norm(draws - truth[:, None], axis=2).mean(axis=1)
    kept = np.linalg.norm(draws[:, ::3] - truth[:, None], axis=2).mean(axis=1)
    assert thinned - far == pytest.approx(energy_score(truth, draws[:, ::3]) - kept)
    assert not np.allclose(thinned, whole)


def test_wrong_shapes_and_numbers():
    with pytest.raises(ScorefoldError, match="at least 20 data sets"):
        energy_score(np.zeros((5, 1)), np.zeros((5, 30, 1)))
    with pytest.raises(ScorefoldError, match="finite"):
        energy_score(np.full((20, 1), np.nan), np.zeros((20, 30, 1)))
