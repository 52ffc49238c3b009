"""What every kind of posterior knows about the errors of its draws, and which of them warn."""

from dataclasses import replace

import numpy as np
import pytest
from untrained import untrained

from scorefold.errors import UntrustworthyDraws
from scorefold.posterior.draws import AS_THE_METHOD_SAYS
from scorefold.posterior.trust import BAD, GOOD, Disagreement, Trust

SMALL = np.array([0.1, 0.2])
FINE = Trust(("a", "b"), SMALL, 1 + SMALL, SMALL, 1 + SMALL, GOOD, "all is well")


@pytest.mark.parametrize(
    "case",
    [
        "f-npse",
        "pf-npse",
        "conservative",
        "multivariate normal",
        "prior from draws",
        "npe",
        "nle",
        "nre",
        "refined with summaries",
    ],
)
def test_members_are_compared(case):
    rng = np.random.default_rng(0)
    u, x = 0.1 * rng.standard_normal((40, 2)), rng.standard_normal((2, 2))
    found = untrained(case).doubts(x, u, (0, 0), AS_THE_METHOD_SAYS)
    assert isinstance(found.disagreement, Disagreement)
    assert found.disagreement.shift.shape == (2, 2)
    assert np.isfinite(found.disagreement.shift).all()
    assert np.abs(found.disagreement.shift).max() > 0
    assert found.disagreement.shift.sum(axis=0) == pytest.approx(np.zeros(2), abs=0.02)
    assert found.strange is not None
    assert (found.error is not None) == (case == "multivariate normal")  # the one with a correction


def test_what_has_no_members_says_so():
    x, u = np.zeros((2, 2)), np.zeros((40, 2))
    assert "no ensemble" in untrained("abc").doubts(x, u, (0, 0), AS_THE_METHOD_SAYS).disagreement
    assert "too few" in untrained("f-npse").doubts(x, u[:5], (0, 0), AS_THE_METHOD_SAYS).disagreement


def test_refined_posteriors_warn():
    refined = untrained("refined")
    refined.warn_of(FINE)
    with pytest.warns(UntrustworthyDraws, match="rounds of refinement do not agree"):
        replace(refined, agreed=False).warn_of(FINE)
    with pytest.warns(UntrustworthyDraws, match="not to be trusted: all is lost"):
        refined.warn_of(replace(FINE, verdict=BAD, why="all is lost"))
