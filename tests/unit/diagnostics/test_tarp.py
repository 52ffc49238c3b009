"""TARP: a right posterior passes with any reference points, and with those that depend on the data the prior does not."""

import numpy as np
import pytest
from chance import one_of
from conjugate import world

from scorefold.diagnostics.dataset_summaries import predict, summaries
from scorefold.diagnostics.tarp import tarp
from scorefold.errors import ScorefoldError


def near_the_data(w, seed=0):
    return predict(w.truth, summaries(w.x)).points(seed)


@pytest.mark.false_failure(1e-7)
def test_a_right_posterior_passes():
    # Each of the two below 0.05 once in 20.
    def p_values(k):
        w = world([1, k])
        return tarp(w.truth, w.draws).p_value, tarp(w.truth, w.draws, near_the_data(w)).p_value

    one_of(p_values, lambda both: min(both) > 0.05, tries=8)


@pytest.mark.false_failure(2e-6)
@pytest.mark.full
def test_false_alarms():
    # Of a rate of 5 %, outside of 1.6 … 8.8 %, which is 5 sd, once in a million.
    found = 0
    for k in range(1_000):
        w = world([2, k], datasets=60, draws=40)
        found += tarp(w.truth, w.draws, near_the_data(w, k), seed=k).p_value < 0.05
    assert 0.016 <= found / 1_000 <= 0.088


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize("fault", ["narrow", "wide", "prior", "wrong n", "lost mode"])
def test_faults_show_with_points_near_the_data(fault):
    w = world(3, datasets=500, fault=fault)
    assert tarp(w.truth, w.draws, near_the_data(w)).p_value < 0.01


@pytest.mark.false_failure(1e-7)
def test_the_prior_passes_with_points_that_ignore_the_data():
    def p_value(k):
        w = world([4, k], fault="prior")
        return tarp(w.truth, w.draws).p_value

    one_of(p_value, lambda p: p > 0.05)


@pytest.mark.false_failure(1e-6)
@pytest.mark.parametrize(("fault", "sign"), [("narrow", -1), ("wide", 1)])
def test_the_area_says_which_way(fault, sign):
    w = world(5, datasets=500, fault=fault)
    assert sign * tarp(w.truth, w.draws, near_the_data(w)).area > 0.02


@pytest.mark.false_failure(0)
def test_agrees_with_an_implementation_from_the_definition():
    w = world(6, datasets=40, draws=50)
    references = np.random.default_rng(0).standard_normal(w.truth.shape)
    found = tarp(w.truth, w.draws, references)
    scale = w.truth.std(axis=0)
    share = []
    for truth, draws, point in zip(w.truth, w.draws, references, strict=True):
        radius = np.sqrt((((truth - point) / scale) ** 2).sum())
        share.append(np.mean([np.sqrt((((draw - point) / scale) ** 2).sum()) < radius for draw in draws]))
    assert found.closer == pytest.approx(share)
    # With 50 draws there is a cut for every rank: the coverage at c/51 is the share of data sets with f < c/50.
    for c in (5, 25, 45):
        assert found.uniformity.seen[0, c - 1] == np.mean(np.array(share) < c / 50 - 1e-9)


def test_references_are_checked(unchecked):
    w = world(7, datasets=20, draws=20)
    with pytest.raises(ScorefoldError, match="reference points of shape"):
        tarp(w.truth, w.draws, np.zeros((20, 3)))
