"""Every finding has its next step, and a page shows it."""

import pytest

from scorefold.report import next_steps
from scorefold.report.next_steps import after_diagnosis, after_inference


@pytest.mark.parametrize(
    ("summary", "words"),
    [
        ({"converged": False, "trust": {"verdict": "good"}}, next_steps.NOT_SETTLED),
        ({"converged": True, "trust": {"verdict": "good"}}, next_steps.BY_TRUST["good"]),
        ({"converged": True, "trust": {"verdict": "not to be trusted"}}, next_steps.BY_TRUST["not to be trusted"]),
        ({"converged": True, "trust": None}, next_steps.BY_TRUST["not known"]),
    ],
)
def test_after_an_inference(summary, words):
    assert after_inference(summary) == words


def test_after_a_diagnosis():
    assert after_diagnosis({"good": True}) == next_steps.CALIBRATED
    unlike = after_diagnosis({"good": False, "observed": {"p": {"misspecification": 0.001}}})
    assert unlike == f"{next_steps.UNLIKE} {next_steps.MISCALIBRATED}"
    assert next_steps.UNLIKE not in after_diagnosis({"good": True, "observed": {"p": {"misspecification": 0.4}}})
