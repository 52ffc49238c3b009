"""Unit tests train nothing, but for toys of the training loop itself."""

import pytest

from scorefold.train import loop


@pytest.fixture(scope="module", autouse=True)
def nothing_is_trained(request):
    """What needs a trained network belongs in learned/, where tests share them."""
    if request.path.parent.name == "train":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "advance", lambda *args: pytest.fail("a unit test trains a network: move it to learned/"))
        yield
