"""Contracts are checked without training."""

import pytest

from scorefold.train import loop


@pytest.fixture(scope="module", autouse=True)
def nothing_is_trained():
    """What needs a trained network belongs in learned/, where tests share them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "advance", lambda *args: pytest.fail("a contract test trains a network: move it to learned/"))
        yield
