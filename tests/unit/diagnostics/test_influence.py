"""Leaving one observation out: scores and draws against the conjugate posterior without it."""

import numpy as np
import pytest
from conjugate import posterior
from untrained import untrained

from scorefold.diagnostics.influence import influence_by_draws, influence_by_scores, influence_by_terms
from scorefold.diagnostics.observed_dataset import _influence
from scorefold.errors import ScorefoldError

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.standard_normal((11, 2)), [[6.0, -4.0]]])
DRAWS = posterior(X, 4_000, RNG)


def exact():
    """How far each observation moves the mean, in posterior sd."""
    n = len(X)
    with_it, without = X.sum(axis=0) / (n + 1), (X.sum(axis=0) - X) / n
    return (with_it - without) * np.sqrt(n + 1)


@pytest.mark.false_failure(1e-6)
def test_by_scores():
    # p(θ|x_j) = N(x_j / 2, 1/2). To first order the mean moves by n/(n+1) of what it does; draws add noise of about 0.02.
    scores = -2 * (DRAWS - X[:, None] / 2)
    found = influence_by_scores(DRAWS, scores, -DRAWS)
    assert found.shift == pytest.approx(exact() * 12 / 13, abs=0.15)
    assert found.order[0] == 11
    assert found.distance == pytest.approx(np.linalg.norm(found.shift, axis=1), rel=0.05)


@pytest.mark.false_failure(1e-9)
def test_by_terms():
    # To first order, as by scores. A covariance by 4,000 draws has an error of about √(24 / 4,000) sd for the last observation.
    terms = -np.square(X - DRAWS[:, None]).sum(axis=2) / 2
    found = influence_by_terms(DRAWS, terms)
    assert found.shift == pytest.approx(exact() * 12 / 13, abs=0.5)
    assert found.order[0] == 11
    assert influence_by_terms(DRAWS, terms + np.arange(12)).shift == pytest.approx(found.shift)


@pytest.mark.parametrize("case", ["nle", "nre", "f-npse"])
def test_of_learned_terms_and_scores_one_for_each_observation(case):
    posterior = untrained(case)
    x, theta = RNG.standard_normal((4, 2)), posterior.prior.sample(300, 0)
    found = _influence(posterior, x, theta, 0)
    assert found.shift.shape == (4, 2)
    assert np.isfinite(found.distance).all()


@pytest.mark.false_failure(1e-6)
def test_by_draws():
    # Means of 4,000 draws each: an error of 0.022 sd in each of 24 numbers, 0.15 is beyond six of them.
    without = np.stack([posterior(np.delete(X, j, axis=0), 4_000, RNG) for j in range(len(X))])
    found = influence_by_draws(DRAWS, without)
    assert found.shift == pytest.approx(exact(), abs=0.15)
    assert found.order[0] == 11


def test_an_observation_that_says_nothing_moves_nothing():
    found = influence_by_scores(DRAWS, np.broadcast_to(-DRAWS, (3, *DRAWS.shape)), -DRAWS)
    assert found.distance == pytest.approx(np.zeros(3), abs=1e-12)


def test_one_parameter():
    scores = -2 * (DRAWS[:, :1] - X[:, None, :1] / 2)
    assert influence_by_scores(DRAWS[:, :1], scores, -DRAWS[:, :1]).shift.shape == (12, 1)


def test_shapes_are_checked(unchecked):
    with pytest.raises(ScorefoldError, match="expected scores"):
        influence_by_scores(DRAWS, np.zeros((3, 5, 2)), -DRAWS)
    with pytest.raises(ScorefoldError, match="expected terms"):
        influence_by_terms(DRAWS, np.zeros((3, 5)))
    with pytest.raises(ScorefoldError, match="expected draws"):
        influence_by_draws(DRAWS, np.zeros((3, 5, 1)))
