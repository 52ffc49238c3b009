"""Diagnoses, comparisons and predictions where numbers of an observation may be missing."""

import numpy as np
import pytest
from exact_posteriors import Analytic, Drawn, Health, simulator

import scorefold as sf
from scorefold.diagnostics.dataset_summaries import summaries
from scorefold.diagnostics.observed_dataset import posterior_predictive
from scorefold.errors import SimulatorError
from scorefold.simulation.calls import repeat
from scorefold.simulation.replicate import replicate


class WithHoles(Analytic):
    """The conjugate posterior of the numbers that are there, or of all, where a hole counts as 0."""

    missing = True

    def draw(self, x, draws, seed, options=None):
        there = ~np.isnan(x) if not self.fault else np.ones(x.shape, bool)
        precision = 1 + there.sum(axis=0)
        noise = np.random.default_rng(seed).standard_normal((draws, 2))
        return Drawn(np.nansum(x, axis=0) / precision + noise / np.sqrt(precision), Health(), None)


def makes_holes(theta, rng):
    x = simulator(theta, rng)
    x[0] = np.nan if rng.uniform() < 0.4 else x[0]
    return x


def complete_with_holes():
    x = np.random.default_rng(0).standard_normal((8, 2))
    x[:4, 1] = np.nan
    return x


@pytest.mark.false_failure(2e-6)
@pytest.mark.parametrize(("simulate", "x_obs"), [(makes_holes, None), (simulator, complete_with_holes())])
def test_a_diagnosis_knows_of_them(simulate, x_obs):
    """By a simulator that makes them, and in every data set where they are in the observed one."""
    right = sf.diagnose(WithHoles(), simulate, n=8, sims=200, x_obs=x_obs)
    assert right.failed == 0
    assert right.sbc.p_value > 1e-6
    assert sf.diagnose(WithHoles("counts as 0"), simulate, n=8, sims=200, x_obs=x_obs).sbc.p_value < 1e-3
    if x_obs is not None:
        assert right.observed.misspecification.p_value > 1e-6


def test_simulators_that_make_holes_are_replicated():
    theta = np.zeros((50, 2))
    x = replicate(repeat(theta, 4, 0), makes_holes, missing=True)
    assert np.isnan(x[..., 0]).any()
    assert not np.isnan(x[..., 1]).any()
    with pytest.raises(SimulatorError, match="not finite"):
        replicate(repeat(theta, 4, 0), makes_holes)


def test_draws_predict_them():
    drawn = WithHoles().sample(complete_with_holes(), 100)
    assert np.isnan(drawn.predict(makes_holes)[..., 0]).any()
    found = posterior_predictive(drawn, makes_holes)
    assert 0 < found.p_value <= 1
    assert len(found.x) == 100


def test_summaries_of_what_is_there():
    x = np.random.default_rng(0).normal(5, 1, (30, 4, 2))
    x[:, :2, 1] = np.nan
    assert np.isfinite(summaries(x)).all()
    x[..., 1] = np.nan
    assert np.isfinite(summaries(x)).all()
