"""The exact answers that `benchmarks/first_hour.py` measures against."""

import json

import numpy as np
import pytest

import first_hour


@pytest.mark.parametrize("size", [1, 2, 4, 6])
@pytest.mark.false_failure(1e-6)
def test_simulated_households_have_the_recursion_s_distribution(size):
    theta = np.array([0.2, 0.35])
    exact = first_hour.final_sizes(np.array(0.8), np.array(0.65), size)
    assert exact.sum() == pytest.approx(1)
    rng = np.random.default_rng(size)
    drawn = [first_hour.household(theta, rng, np.array([size])) for _ in range(20_000)]
    share = np.bincount(np.array(drawn, int), minlength=size + 1) / 20_000
    assert np.abs(share - exact).max() < 5.5 * 0.5 / np.sqrt(20_000)


def test_one_household_of_two_by_hand():
    """One escapes: B Q times the other's 1 - B, for either of them."""
    exact = first_hour.final_sizes(np.array(0.9), np.array(0.7), 2)
    np.testing.assert_allclose(exact, [0.81, 2 * 0.1 * 0.9 * 0.7, 1 - 0.81 - 0.126])


@pytest.mark.false_failure(1e-6)
def test_the_exact_posterior_of_households_narrows_around_the_truth():
    trial = first_hour.households(3)
    draws = trial.reference()
    assert draws.shape == (first_hour.REFERENCE, 2)
    off = (draws.mean(axis=0) - first_hour.SPREAD) / draws.std(axis=0)
    assert np.abs(off).max() < 5.5
    assert draws.std(axis=0).max() < 0.05


@pytest.mark.false_failure(0)
def test_several_runs_are_put_together(tmp_path):
    files = []
    for number, (shift, width) in enumerate([(0.3, 1.0), (-0.4, np.e)]):
        run = {
            "draws": [{"of": "trial, auto", "parameters": ["v"], "shift": [shift], "width": [width], "verdict": "usable"}],
            "steps": [{"step": "fit auto", "processor": 10.0 + number}],
        }
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps(run))
    assert first_hour.summary(files).splitlines() == [
        "trial, auto: 2 runs, called usable, usable",
        "  v        shift 0.30, -0.40 (rms 0.35), width 1.00, 2.72 (rms log 0.71)",
        "fit auto: processor seconds 10, 11",
    ]
