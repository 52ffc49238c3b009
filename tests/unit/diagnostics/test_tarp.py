"""TARP: a right posterior passes with any reference points, and with those that depend on the data the prior does not."""

import numpy as np
import pytest
from conjugate import world

from scorefold.diagnostics.dataset_summaries import predict, summaries
from scorefold.diagnostics.tarp import tarp
from scorefold.errors import ScorefoldError


def near_the_data(w, seed=0):
    return predict(w.truth, summaries(w.x)).points(seed)


def test_a_right_posterior_passes():
    # Below 0.001 once in 1,000, twice.
    w = world(1)
    assert tarp(w.truth, w.draws).p_value > 0.001
    assert tarp(w.truth, w.draws, near_the_data(w)).p_value > 0.001


@pytest.mark.full
def test_false_alarms():
    # Of a rate of 5 %, outside of 2.7 … 7.3 % once in 1,000.
    found = 0
    for k in range(1_000):
        w = world([2, k], datasets=60, draws=40)
        found += tarp(w.truth, w.draws, near_the_data(w, k), seed=k).p_value < 0.05
    assert 0.027 <= found / 1_000 <= 0.073


@pytest.mark.parametrize("fault", ["narrow", "wide", "prior", "wrong n", "lost mode"])
def test_faults_show_with_points_near_the_data(fault):
    w = world(3, datasets=500, fault=fault)
    assert tarp(w.truth, w.draws, near_the_data(w)).p_value < 0.01


def test_the_prior_passes_with_points_that_ignore_the_data():
    w = world(4, fault="prior")
    assert tarp(w.truth, w.draws).p_value > 0.05


@pytest.mark.parametrize(("fault", "sign"), [("narrow", -1), ("wide", 1)])
def test_the_area_says_which_way(fault, sign):
    w = world(5, datasets=500, fault=fault)
    assert sign * tarp(w.truth, w.draws, near_the_data(w)).area > 0.02


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
