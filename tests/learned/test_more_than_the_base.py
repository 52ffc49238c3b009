"""Networks learn: on a task that a straight line says nothing of, a posterior is far better than the base it started from.

A network that learned nothing must fail these limits, and one is tried: the same method with a learning rate of nothing.
"""

import pytest
import spread
from full import shortly

LIMIT = 2.0
"""Of the mean error in posterior sd. Draws of the base alone, which is the prior, are 3.6 away."""


@pytest.fixture(scope="module", params=shortly(["f-npse", "npe", "nle", "nre"], "f-npse"))
def errors(request):
    """Of one method, trained and not."""
    return {rate: spread.mean_error(spread.trained(request.param, rate)) for rate in spread.RATES}


@pytest.mark.false_failure(1e-9)
@pytest.mark.filterwarnings("ignore::scorefold.errors.ScorefoldWarning")
def test_what_was_learned_is_more_than_the_base(errors):
    """F-NPSE has an error of 0.67 ± 0.17 over six seeds: the limit is 7 sd away."""
    assert errors["trained"] < LIMIT


@pytest.mark.false_failure(1e-9)
def test_what_learned_nothing_fails(errors):
    """The base's error is 3.62 ± 0.01."""
    assert errors["learned nothing"] > 1.5 * LIMIT
