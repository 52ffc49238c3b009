"""Summaries of data sets, and predictions from them that use no data set's own parameters."""

import numpy as np
import pytest
from conjugate import world

from scorefold.diagnostics.dataset_summaries import fit_scaling, predict, summaries
from scorefold.errors import ScorefoldError


@pytest.mark.false_failure(1e-6)
def test_scaling_is_robust_and_comes_back():
    values = np.random.default_rng(0).standard_normal((500, 3)) * [1, 10, 100] + [0, 5, -7]
    values[0] = 1e12
    scaling = fit_scaling(values)
    assert scaling.spread == pytest.approx([1, 10, 100], rel=0.3)
    assert scaling.back(scaling(values)) == pytest.approx(values, rel=1e-6)


def test_a_constant_number_does_no_harm():
    x = np.ones((30, 4, 2))
    assert np.isfinite(summaries(x)).all()


@pytest.mark.parametrize("n", [1, 8])
def test_summaries_ignore_the_order_of_observations(n):
    w = world(1, datasets=25, n=n)
    found = summaries(w.x)
    assert found.shape == (25, 2 if n == 1 else 4)
    assert found == pytest.approx(summaries(w.x[:, ::-1]))


@pytest.mark.false_failure(1e-6)
def test_predictions_follow_the_data():
    w = world(2)
    found = predict(w.truth, summaries(w.x))
    points = found.scaling.back(found.psi[:, :2])
    assert np.corrcoef(points[:, 0], w.truth[:, 0])[0, 1] > 0.85
    at_truth, at_prior = found.log_density(w.truth[:, None])[:, 0], found.log_density(world(3, fault="prior").draws)
    assert np.mean(at_truth[:, None] > at_prior) > 0.8


def test_a_data_set_is_predicted_without_its_own_half():
    w = world(4, datasets=100)
    changed = w.truth.copy()
    changed[:50] = changed[:50][::-1]
    one, other = (predict(truth, summaries(w.x)).psi for truth in (w.truth, changed))
    assert one[:50] == pytest.approx(other[:50])
    assert np.abs(one[50:] - other[50:]).max() > 0.1


def test_more_numbers_than_data_sets():
    rng = np.random.default_rng(5)
    theta = rng.standard_normal((40, 2))
    x = rng.standard_normal((40, 3, 200)) + theta[:, None, :1]
    found = predict(theta, summaries(x))
    assert np.isfinite(found.log_density(theta[:, None])).all()
    assert np.isfinite(found.points(0)).all()


def test_too_few_data_sets():
    with pytest.raises(ScorefoldError, match="at least 20"):
        predict(np.zeros((5, 2)), np.zeros((5, 4)))
