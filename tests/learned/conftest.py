"""The trained posteriors that tests here share. Each is trained when it is first asked for, once in a process.

Under `pytest -n` the tests of one file go to one process, so tests that share a posterior belong into one file.
"""

import baseline
import pytest
from full import shortly

import scorefold as sf
from scorefold import tasks

GAUSSIAN = tasks.get("gaussian")


@pytest.fixture(scope="session", params=shortly(baseline.METHODS, *baseline.SHORTLY))
def every_method(request):
    """A method's name and its posterior on the two-dimensional conjugate task."""
    return request.param, baseline.trained(request.param)


@pytest.fixture(scope="session")
def gaussian():
    """F-NPSE on the Gaussian task, trained for seconds: its Gaussian base is nearly right there."""
    tiny = sf.NPSE(width=16, depth=1, correction=False, training=sf.Training(steps=150, members=2))
    return sf.fit(sf.simulate(GAUSSIAN.prior, GAUSSIAN.simulator, 2_000), tiny)


@pytest.fixture
def short_likelihood(monkeypatch):
    """Where refinement fits a likelihood beside its scores, that is trained for a second and not for 3,000 steps."""
    short = sf.NLE(layers=2, width=8, depth=1, tails=False, training=sf.Training(members=2, learning_rates=(1e-3,), steps=100))
    monkeypatch.setattr("scorefold.methods.npse.local_likelihood", lambda plan: short)


SETS = {"width": 16, "depth": 1, "training": sf.Training(steps=100, members=2)}


@pytest.fixture(scope="session")
def gaussian_sets():
    """PF-NPSE on the Gaussian task, with sets of up to four observations."""
    return sf.fit(sf.simulate(GAUSSIAN.prior, GAUSSIAN.simulator, 4_000, set_size=4, seed=0), sf.NPSE(**SETS), seed=0)
