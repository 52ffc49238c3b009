"""Settings of training that cannot work are refused."""

import pytest

from scorefold.errors import ScorefoldError
from scorefold.train.training import Training


@pytest.mark.parametrize(
    "wrong",
    [
        {"members": 0},
        {"steps": 0},
        {"batch": 0},
        {"patience": 0},
        {"learning_rates": ()},
        {"learning_rates": (1e-3, 0.0)},
        {"average": 1.0},
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(ScorefoldError, match=rf"expected members, steps, .*; got Training\(.*{next(iter(wrong))}="):
        Training(**wrong)
